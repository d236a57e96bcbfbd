//! What kind of image it is, and how long it is, when a program gives only its address.

use super::FatbinError;
use super::container;

/// First word of the wrapper that `__cudaRegisterFatBinary` is given.
const WRAPPER: u32 = 0x4662_43b1;
/// `\x7fELF`.
const ELF: u32 = 0x464c_457f;

/// First half of the magic of a stand-in library's marker image.
const MARKER: u32 = {
    let [a, b, c, d, ..] = deepum_emu_abi::image::MAGIC;
    u32::from_le_bytes([a, b, c, d])
};

/// The kinds of kernel image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Wrapper,
    Container,
    Elf,
    Ptx,
    Marker,
}

/// The first four bytes, little endian; 0 if there are fewer.
pub(super) fn magic(image: &[u8]) -> u32 {
    image.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
}

impl Kind {
    pub(super) fn of(image: &[u8]) -> Option<Self> {
        match magic(image) {
            WRAPPER => Some(Self::Wrapper),
            container::MAGIC => Some(Self::Container),
            ELF => Some(Self::Elf),
            MARKER => Some(Self::Marker),
            // PTX is text: comments or blank lines, then `.version`.
            _ => match image.first()? {
                b'.' | b'/' | b'\n' | b' ' | b'\t' | b'\r' => Some(Self::Ptx),
                _ => None,
            },
        }
    }
}

/// The bytes of the image at `start`, of which a program gives only the address: its length is in its
/// own header. `start` may be a registration wrapper, a container, an ELF or NUL-terminated PTX text.
///
/// # Safety
/// `start` must point to an image of one of these kinds, readable as far as its headers say (for a
/// wrapper: also the container it names), and stay valid and unchanged for `'a`.
///
/// # Errors
/// [`FatbinError`] if the headers are of no known kind or overflow the address space.
pub unsafe fn image_at<'a>(start: *const u8) -> Result<&'a [u8], FatbinError> {
    // SAFETY: the caller promises an image here; the shortest kind has at least four bytes
    // (an empty PTX text is no image).
    let head = unsafe { std::slice::from_raw_parts(start, 4) };
    let len = match Kind::of(head) {
        Some(Kind::Wrapper) => {
            // SAFETY: a wrapper is 24 bytes: magic, version, address of the container, address of a file name.
            let inner = unsafe { start.add(8).cast::<*const u8>().read_unaligned() };
            if inner.is_null() {
                return Err(FatbinError::Damaged("wrapper names no container"));
            }
            // SAFETY: the caller promises the container that the wrapper names.
            let head = unsafe { std::slice::from_raw_parts(inner, 4) };
            if Kind::of(head) != Some(Kind::Container) {
                return Err(FatbinError::UnknownFormat(magic(head)));
            }
            // SAFETY: as above; it is not a wrapper, so this goes one level deep.
            return unsafe { image_at(inner) };
        }
        Some(Kind::Container) => {
            // SAFETY: a container begins with a header of 16 bytes.
            container::total_len(unsafe { std::slice::from_raw_parts(start, container::HEADER) })?
        }
        Some(Kind::Elf) => {
            // SAFETY: a 64-bit ELF file begins with a header of 64 bytes.
            let header = unsafe { std::slice::from_raw_parts(start, 64) };
            // SAFETY: the caller promises the file as far as its headers say, so its section table.
            unsafe { elf_len(start, header)? }
        }
        Some(Kind::Ptx) => {
            // SAFETY: PTX given by address alone is NUL-terminated text (cuModuleLoadData).
            unsafe { std::ffi::CStr::from_ptr(start.cast()) }.count_bytes()
        }
        Some(Kind::Marker) => {
            // SAFETY: a marker image has a header of 20 bytes, of which the first 16 say its length.
            let header = unsafe { start.cast::<[u8; 16]>().read() };
            deepum_emu_abi::image::length(&header).ok_or(FatbinError::Damaged("marker image of another version"))?
        }
        None => return Err(FatbinError::UnknownFormat(magic(head))),
    };
    if isize::try_from(len).is_err() {
        return Err(FatbinError::Damaged("length exceeds the address space"));
    }
    // SAFETY: the caller promises the image readable as far as its headers say, which is `len`.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// The end of the last thing an ELF header and its section table name.
///
/// # Safety
/// As [`image_at`]: the section table and what it names are readable.
unsafe fn elf_len(start: *const u8, header: &[u8]) -> Result<usize, FatbinError> {
    const DAMAGED: FatbinError = FatbinError::Damaged("ELF section table");
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let u64_in = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b))
    };
    let to_usize = |n: u64| usize::try_from(n).map_err(|_| DAMAGED);
    let (table, entry, count) = (to_usize(u64_in(header, 0x28))?, u16_at(0x3a), u16_at(0x3c));
    if entry < 64 {
        return Err(DAMAGED);
    }
    let mut end = table.checked_add(entry * count).ok_or(DAMAGED)?;
    for n in 0..count {
        // SAFETY: inside the section table, which the caller promises to be readable.
        let section = unsafe { std::slice::from_raw_parts(start.add(table + n * entry), 64) };
        // Type 8, SHT_NOBITS, takes no room in the file.
        let nobits = section[4..8] == 8u32.to_le_bytes();
        if !nobits {
            let last = u64_in(section, 0x18).checked_add(u64_in(section, 0x20)).ok_or(DAMAGED)?;
            end = end.max(to_usize(last)?);
        }
    }
    Ok(end)
}
