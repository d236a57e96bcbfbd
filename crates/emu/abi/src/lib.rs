//! What crosses between the stand-in vendor libraries.
//!
//! Stand-in cuBLAS, cuBLASLt and cuDNN hold no device state: each of their operations becomes a kernel
//! launch through the driver API, as in the real libraries. A kernel needs code, which we have not, so it needs
//! a *description* that both sides agree on:
//!
//! - [`params`]: the one parameter struct of these kernels: which memory is read and written, and how many
//!   floating-point operations that takes;
//! - [`image`]: the marker image by which `cuModuleLoadData` knows them, and [`kernels`], what is inside it;
//! - [`client`]: how such a library reaches the driver, loads the image, and launches;
//! - [`edge`] and [`elem`]: what their C functions have in common, statuses and element types;
//! - [`sonames`]: under which vendor file name each stand-in is found;
//! - [`forward`]: what a request on a file of the driver is, on its way from another process.
//!
//! Not here: what a launch costs or faults (the emulated device), and anything the shim may use. To the shim these are
//! kernels like any other, with pointers somewhere inside their parameters.

pub mod client;
pub mod edge;
pub mod elem;
pub mod forward;
pub mod image;
pub mod kernels;
pub mod params;
pub mod sonames;
