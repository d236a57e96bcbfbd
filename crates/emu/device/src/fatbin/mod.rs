//! Kernel images: names and parameter layouts of the kernels inside what programs register or load.
//!
//! A program hands over a *fat binary* (a container of entries per architecture, compressed or not),
//! a plain cubin ELF (Triton), PTX text, or the marker image of a stand-in vendor library. The device
//! runs no code; it needs to know which kernels are inside and how their parameter buffers are cut up.
//!
//! Reading is lazy and done once per image by whoever keeps modules: a PyTorch wheel registers hundreds
//! of images at import and launches kernels from few of them.
//!
//! Images come from outside: every length is checked, nothing panics, and decompression is bounded.
//!
//! Sources: the container and `.nv.info` are undocumented; the layout here follows public
//! descriptions (the CUDA binary utilities' output, the gdev, Nouveau and cuasm projects) and was checked against
//! every image of the torch 2.15.0 wheel.

mod container;
mod elf;
mod image;
mod ptx;
#[cfg(test)]
mod tests;

use deepum_core::units::Bytes;

pub use image::image_at;

/// One parameter of a kernel: where it lies in the parameter buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// Offset from the start of the buffer.
    pub offset: u32,
    /// Size.
    pub size: u32,
}

/// A kernel inside an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelInfo {
    /// Mangled name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Statically declared shared memory per block.
    pub static_shared: Bytes,
    /// Registers per thread, or 0 where the image does not say.
    pub registers: u32,
    /// Largest number of threads per block it was compiled for, or 0 where the image does not say.
    pub max_threads: u32,
}

/// Why an image was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FatbinError {
    /// Neither fat binary, ELF, PTX nor a stand-in's marker image.
    #[error("not a kernel image: starts with {0:#010x}; want a fat binary, a cubin ELF, PTX text or a marker image")]
    UnknownFormat(u32),
    /// A length or offset points outside the image, or packed bytes do not unpack.
    #[error("kernel image is damaged: {0}")]
    Damaged(&'static str),
    /// No entry for this architecture.
    #[error("kernel image has no code for compute capability {major}.{minor}")]
    NoBinary {
        /// Major compute capability asked for.
        major: u32,
        /// Minor compute capability asked for.
        minor: u32,
    },
}

/// The kernels of `image` that a device of compute capability `(major, minor)` would load.
///
/// Picks one entry as the driver does: the newest cubin of the same major capability that is not newer
/// than the device, else PTX not newer than the device. A cubin that stands alone is taken as it is.
///
/// # Errors
/// [`FatbinError`] names what is wrong with the image.
pub fn parse(image: &[u8], capability: (u32, u32)) -> Result<Vec<KernelInfo>, FatbinError> {
    match image::Kind::of(image) {
        Some(image::Kind::Container) => container::kernels(image, capability),
        Some(image::Kind::Elf) => elf::kernels(image),
        Some(image::Kind::Ptx) => ptx::kernels(image),
        Some(image::Kind::Marker) => marker(image),
        Some(image::Kind::Wrapper) => Err(FatbinError::Damaged("a registration wrapper is not an image itself")),
        None => Err(FatbinError::UnknownFormat(image::magic(image))),
    }
}

/// The kernels of a stand-in library: one parameter each.
fn marker(image: &[u8]) -> Result<Vec<KernelInfo>, FatbinError> {
    let kernels = deepum_emu_abi::image::decode(image).ok_or(FatbinError::Damaged("marker image"))?;
    let kernel = |(name, size): (&str, u32)| KernelInfo {
        name: name.to_owned(),
        params: vec![Param { offset: 0, size }],
        static_shared: Bytes::ZERO,
        registers: 0,
        max_threads: 0,
    };
    Ok(kernels.into_iter().map(kernel).collect())
}
