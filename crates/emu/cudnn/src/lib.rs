//! Stand-in `libcudnn`: convolutions, attention, batch norm and recurrent networks as launches that say what they touch.
//!
//! Two interfaces end in the same kernels. The graph interface ([`backend`]), through which PyTorch does its convolutions and, on
//! devices of compute capability 9, attention: descriptors of operations are joined to a graph, a heuristic offers engines, an
//! execution plan runs it. And the older one of plain functions: batch norm, recurrent networks, and convolutions for programs that
//! still use it.
//!
//! As in the real library, driver functions come from `cuGetProcAddress` and launches go through `cuLaunchKernel` on the handle's
//! stream. Only recurrent networks take memory beside their operands; every other size asked for is written as 0.
//!
//! Functions PyTorch imports and this file does not implement (CTC loss, spatial transformers, pooling) are
//! refused by name (`build.rs`). Signatures and enumerations: the cuDNN 9 API documentation.

mod backend;
mod batch_norm;
mod convolution;
mod descriptors;
mod dropout;
mod handle;
mod rnn;
mod status;
mod tensor;
mod version;

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
