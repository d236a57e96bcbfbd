//! A cubin: which kernels it has, from its section names and the `.nv.info` attributes.
//!
//! Kernel `k` has a section `.text.k` (registers per thread in the top byte of `sh_info`), maybe `.nv.shared.k`
//! (static shared memory), and `.nv.info.k`: attributes of one format byte, one code byte, a 16-bit value or
//! length, and for format 4 that many bytes more. Code 0x17, KPARAM_INFO, is one parameter: ordinal (u16 at 4),
//! offset (u16 at 6), and size in the upper 14 bits of the last word. Code 0x45 is the same for parameters that the
//! 14 bits cannot hold (multi-tensor chunk lists); its last word is the size. Code 0x05 is the largest block.

use std::collections::HashMap;

use deepum_core::units::Bytes;
use object::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader};

use super::{FatbinError, KernelInfo, Param};

type Header = object::elf::FileHeader64<LittleEndian>;

const DAMAGED: FatbinError = FatbinError::Damaged("cubin ELF");

/// Format of an attribute with a payload.
const FORMAT_SIZED: u8 = 4;
const MAX_THREADS: u8 = 0x05;
const KPARAM_INFO: u8 = 0x17;
const KPARAM_INFO_V2: u8 = 0x45;

/// The kernels of a cubin, in the order of their code sections.
pub(super) fn kernels(image: &[u8]) -> Result<Vec<KernelInfo>, FatbinError> {
    let endian = LittleEndian;
    let header = Header::parse(image).map_err(|_| DAMAGED)?;
    let sections = header.sections(endian, image).map_err(|_| DAMAGED)?;
    let mut found: Vec<KernelInfo> = Vec::new();
    let mut index: HashMap<&str, usize> = HashMap::new();
    let name_of = |section| sections.section_name(endian, section).ok().and_then(|n| std::str::from_utf8(n).ok());

    for section in sections.iter() {
        let Some(info) = name_of(section).and_then(|n| n.strip_prefix(".nv.info.")) else {
            continue;
        };
        let mut kernel = KernelInfo {
            name: info.to_owned(),
            params: Vec::new(),
            static_shared: Bytes::ZERO,
            registers: 0,
            max_threads: 0,
        };
        read_attributes(section.data(endian, image).map_err(|_| DAMAGED)?, &mut kernel)?;
        index.insert(info, found.len());
        found.push(kernel);
    }
    for section in sections.iter() {
        let Some(name) = name_of(section) else {
            continue;
        };
        if let Some(&n) = name.strip_prefix(".text.").and_then(|k| index.get(k)) {
            found[n].registers = section.sh_info(endian) >> 24;
        } else if let Some(&n) = name.strip_prefix(".nv.shared.").and_then(|k| index.get(k)) {
            found[n].static_shared = Bytes(section.sh_size(endian));
        }
    }
    Ok(found)
}

/// Takes the parameters, by ordinal, and the largest block from a kernel's attributes.
fn read_attributes(mut attributes: &[u8], kernel: &mut KernelInfo) -> Result<(), FatbinError> {
    const CUT: FatbinError = FatbinError::Damaged("kernel attributes");
    let mut by_ordinal: Vec<(u16, Param)> = Vec::new();
    while let Some((head, rest)) = attributes.split_first_chunk::<4>() {
        let [format, code, low, high] = *head;
        attributes = rest;
        if format != FORMAT_SIZED {
            continue;
        }
        let (payload, rest) = attributes.split_at_checked(usize::from(u16::from_le_bytes([low, high]))).ok_or(CUT)?;
        attributes = rest;
        if !matches!(code, KPARAM_INFO | KPARAM_INFO_V2 | MAX_THREADS) {
            continue;
        }
        let [a0, a1, a2, a3, o0, o1, f0, f1, w @ ..] = *payload.first_chunk::<12>().ok_or(CUT)?;
        let word = u32::from_le_bytes(w);
        if code == MAX_THREADS {
            let (y, z) = (u32::from_le_bytes([o0, o1, f0, f1]), word);
            kernel.max_threads = u32::from_le_bytes([a0, a1, a2, a3]).saturating_mul(y).saturating_mul(z);
            continue;
        }
        let size = if code == KPARAM_INFO { word >> 18 } else { word };
        let offset = u32::from(u16::from_le_bytes([f0, f1]));
        by_ordinal.push((u16::from_le_bytes([o0, o1]), Param { offset, size }));
    }
    by_ordinal.sort_by_key(|&(ordinal, _)| ordinal);
    let dense = by_ordinal.iter().enumerate().all(|(n, &(ordinal, _))| usize::from(ordinal) == n);
    kernel.params = by_ordinal.into_iter().map(|(_, param)| param).collect();
    if dense { Ok(()) } else { Err(CUT) }
}
