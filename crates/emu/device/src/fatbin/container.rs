//! The fat binary container: entries per architecture, some of them compressed.
//!
//!     container   u32 magic 0xba55ed50, u16 version 1, u16 header size 16, u64 size of what follows
//!     entry       u16 kind (1 PTX, 2 ELF), u16 –, u32 header size, u64 payload size with padding,
//!                 u32 compressed size, u32 –, u16 minor, u16 major, u32 architecture (80 = 8.0), …,
//!                 u64 flags at 40 (0x2000 LZ4, 0x8000 zstd), u64 unpacked size at 56
//!
//! One register call may hand over several containers end to end; each is complete in itself, and the size in
//! the header ends ours.

use std::io::Read;

use super::{FatbinError, KernelInfo, elf, ptx};

/// First word of a container.
pub(super) const MAGIC: u32 = 0xba55_ed50;
/// Bytes of the container's header.
pub(super) const HEADER: usize = 16;

const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// No real entry comes near this (the largest of torch 2.15.0 unpacks to less than 64 MiB);
/// a damaged size must not take the machine's memory.
const MAX_UNPACKED: u64 = 1 << 30;

/// One entry, still packed.
struct Entry<'a> {
    kind: u16,
    arch: u32,
    payload: &'a [u8],
    flags: u64,
    unpacked: u64,
}

/// Length of the whole container, from its 16 header bytes.
pub(super) fn total_len(header: &[u8]) -> Result<usize, FatbinError> {
    let own = u64::from(u16_at(header, 6)?);
    let rest = u64_at(header, 8)?;
    own.checked_add(rest)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or(FatbinError::Damaged("container length overflows"))
}

/// The kernels of the entry that suits `capability` best.
pub(super) fn kernels(image: &[u8], capability: (u32, u32)) -> Result<Vec<KernelInfo>, FatbinError> {
    let entries = entries(image)?;
    let (major, minor) = capability;
    let device = major.saturating_mul(10).saturating_add(minor);
    let cubin = entries
        .iter()
        .filter(|e| e.kind == KIND_ELF && e.arch / 10 == major && e.arch <= device)
        .max_by_key(|e| e.arch);
    let text = || entries.iter().filter(|e| e.kind == KIND_PTX && e.arch <= device).max_by_key(|e| e.arch);
    let entry = cubin.or_else(text).ok_or(FatbinError::NoBinary { major, minor })?;
    let code = unpack(entry)?;
    if entry.kind == KIND_ELF { elf::kernels(&code) } else { ptx::kernels(&code) }
}

fn entries(image: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    const CUT: FatbinError = FatbinError::Damaged("entry reaches past the container");
    let end = total_len(image)?;
    let image = image.get(..end).ok_or(FatbinError::Damaged("container is cut short"))?;
    let mut found = Vec::new();
    let mut at = usize::from(u16_at(image, 6)?).max(HEADER);
    while at < image.len() {
        let entry = &image[at..];
        let header = usize::try_from(u32_at(entry, 4)?).map_err(|_| CUT)?;
        let padded = usize::try_from(u64_at(entry, 8)?).map_err(|_| CUT)?;
        if header < 64 {
            return Err(FatbinError::Damaged("entry header is shorter than its fields"));
        }
        let flags = u64_at(entry, 40)?;
        let packed = usize::try_from(u32_at(entry, 16)?).map_err(|_| CUT)?;
        let is_packed = flags & (FLAG_LZ4 | FLAG_ZSTD) != 0;
        let body = entry.get(header..).and_then(|b| b.get(..padded)).ok_or(CUT)?;
        found.push(Entry {
            kind: u16_at(entry, 0)?,
            arch: u32_at(entry, 28)?,
            payload: if is_packed { body.get(..packed).ok_or(CUT)? } else { body },
            flags,
            unpacked: u64_at(entry, 56)?,
        });
        at += header + padded;
    }
    Ok(found)
}

fn unpack<'a>(entry: &Entry<'a>) -> Result<std::borrow::Cow<'a, [u8]>, FatbinError> {
    if entry.flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
        return Ok(entry.payload.into());
    }
    let size = usize::try_from(entry.unpacked.min(MAX_UNPACKED + 1)).unwrap_or(usize::MAX);
    if entry.unpacked > MAX_UNPACKED {
        return Err(FatbinError::Damaged("entry claims to unpack to more than 1 GiB"));
    }
    let code = if entry.flags & FLAG_ZSTD != 0 {
        const BAD: FatbinError = FatbinError::Damaged("zstd entry does not unpack");
        let stream = ruzstd::decoding::StreamingDecoder::new(entry.payload).map_err(|_| BAD)?;
        let mut code = Vec::new();
        stream.take(entry.unpacked + 1).read_to_end(&mut code).map_err(|_| BAD)?;
        code
    } else {
        // LZ4 cannot expand more than 255 times, so a lying size is refused before memory is taken.
        if size / 255 > entry.payload.len() {
            return Err(FatbinError::Damaged("LZ4 entry claims an impossible size"));
        }
        lz4_flex::block::decompress(entry.payload, size)
            .map_err(|_| FatbinError::Damaged("LZ4 entry does not unpack"))?
    };
    if code.len() == size {
        Ok(code.into())
    } else {
        Err(FatbinError::Damaged("entry unpacks to another size than it claims"))
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], FatbinError> {
    bytes.get(at..).and_then(|b| b.first_chunk::<N>()).copied().ok_or(FatbinError::Damaged("header is cut short"))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, FatbinError> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, FatbinError> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, FatbinError> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
