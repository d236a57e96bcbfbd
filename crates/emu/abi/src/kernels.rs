//! The kernels inside the stand-in libraries: a name, and how many operands their parameter has room for.
//!
//! Names say what runs, as a profiler would show it; all take one [`crate::params::Params`]. Different
//! operations have different names so that a launch's identity depends on the operation, as it does in the real libraries.

/// A kernel of a stand-in library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// Exported name, the same in the marker image.
    pub name: &'static str,
    /// Operands its parameter has room for.
    pub operands: usize,
}

/// Every name starts with this; nothing else on the device does.
pub const PREFIX: &str = "deepum_emu_";

macro_rules! kernels {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $operands:literal;)*) => {
        $($(#[$doc])* pub const $id: Kernel = Kernel { name: concat!("deepum_emu_", $name), operands: $operands };)*
        /// All of them; a library's image holds all, as only names are looked up.
        pub const ALL: &[Kernel] = &[$($id),*];
    };
}

kernels! {
    /// Matrix product, with or without epilogue: A, B, C, D, alpha, beta, bias, aux, scales.
    GEMM = "gemm", 14;
    /// Matrix-vector product, rank-one update: A, x, y, alpha, beta.
    GEMV = "gemv", 5;
    /// Rank-k and rank-2k updates, symmetric and triangular products: A, B, C, alpha, beta.
    LEVEL3 = "level3", 5;
    /// Triangular solve: A, B, alpha.
    TRSM = "trsm", 3;
    /// Vector operations: x, y, scalar or result, second result.
    VECTOR = "vector", 4;
    /// Dot products and norms: x, y, result.
    REDUCE = "reduce", 3;
    /// Batched factorisations and their solves: A, pivots or tau, B, info.
    FACTOR = "factor", 4;
    /// Convolution forward: x, w, y, and what is fused: bias, z, further outputs.
    CONV_FWD = "conv_fprop", 8;
    /// Gradient of the convolution's input: dy, w, dx.
    CONV_DGRAD = "conv_dgrad", 8;
    /// Gradient of the convolution's filter: x, dy, dw.
    CONV_WGRAD = "conv_wgrad", 8;
    /// A fused graph of cuDNN without convolution: its inputs and outputs.
    GRAPH = "fused_graph", 16;
    /// Batch norm in training, forward.
    BATCH_NORM_FWD = "bn_fw_tr", 8;
    /// Batch norm in training, backward.
    BATCH_NORM_BWD = "bn_bw", 8;
    /// Batch norm, inference.
    BATCH_NORM_INF = "bn_fw_inf", 8;
    /// Recurrent network forward: sequences and states both ways, weights, lengths, workspace, reserve.
    RNN_FWD = "rnn_fprop", 10;
    /// Gradients of a recurrent network's input and first states.
    RNN_DGRAD = "rnn_bprop_data", 13;
    /// Gradients of a recurrent network's weights.
    RNN_WGRAD = "rnn_bprop_weights", 7;
    /// Start of the random number generators for dropout.
    DROPOUT_INIT = "dropout_init", 1;
}
