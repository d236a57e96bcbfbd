//! The marker image: what a stand-in library hands to `cuModuleLoadData` in place of a cubin.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic, `\x7fDUMKRNL` |
//! | 8..12 | version, 1 |
//! | 12..16 | length of the whole image |
//! | 16..20 | number of kernels |
//! | then, each | length of the name (u16), length of its one parameter (u16), name without NUL |
//!
//! All numbers little-endian. Versions other than 1 are refused.

use crate::kernels::Kernel;
use crate::params::params_size;

/// First bytes of a marker image. No ELF, fat binary or PTX starts so.
pub const MAGIC: [u8; 8] = *b"\x7fDUMKRNL";
const VERSION: u32 = 1;
const HEADER: usize = 20;

/// Builds the image of `kernels`.
#[must_use]
pub fn encode(kernels: &[Kernel]) -> Vec<u8> {
    let mut image = Vec::new();
    image.extend_from_slice(&MAGIC);
    image.extend_from_slice(&VERSION.to_le_bytes());
    image.extend_from_slice(&[0; 4]);
    image.extend_from_slice(&len32(kernels.len()).to_le_bytes());
    for kernel in kernels {
        for n in [kernel.name.len(), params_size(kernel.operands)] {
            let n = u16::try_from(n).expect("names and parameters of our own kernels are short");
            image.extend_from_slice(&n.to_le_bytes());
        }
        image.extend_from_slice(kernel.name.as_bytes());
    }
    let len = len32(image.len());
    image[12..16].copy_from_slice(&len.to_le_bytes());
    image
}

fn len32(n: usize) -> u32 {
    u32::try_from(n).expect("a marker image is a few hundred bytes")
}

/// The whole length that an image claims, from its first 16 bytes; `None` if it is no marker image of this version.
#[must_use]
pub fn length(start: &[u8; 16]) -> Option<usize> {
    let known = start[..8] == MAGIC && start[8..12] == VERSION.to_le_bytes();
    known.then(|| u32_at(start, 12).map(|n| n as usize))?
}

/// The kernels in an image: name, and the size of the one parameter at offset 0. `None` if it is damaged.
#[must_use]
pub fn decode(image: &[u8]) -> Option<Vec<(&str, u32)>> {
    let len = length(image.first_chunk()?)?;
    let image = image.get(..len)?;
    let mut rest = image.get(HEADER..)?;
    let mut kernels = Vec::new();
    for _ in 0..u32_at(image, 16)? {
        let (head, tail) = rest.split_first_chunk::<4>()?;
        let name_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let (name, tail) = tail.split_at_checked(name_len)?;
        let size = u32::from(u16::from_le_bytes([head[2], head[3]]));
        kernels.push((std::str::from_utf8(name).ok()?, size));
        rest = tail;
    }
    rest.is_empty().then_some(kernels)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels;

    #[test]
    fn every_kernel_is_found_again() {
        let image = encode(kernels::ALL);
        let found = decode(&image).expect("our own image");
        assert_eq!(found.len(), kernels::ALL.len());
        for (kernel, (name, size)) in kernels::ALL.iter().zip(found) {
            assert_eq!((kernel.name, params_size(kernel.operands)), (name, size as usize));
            assert!(name.starts_with(kernels::PREFIX));
        }
    }

    #[test]
    fn every_truncation_and_every_changed_byte_is_survived() {
        let image = encode(kernels::ALL);
        for len in 0..image.len() {
            assert_eq!(decode(&image[..len]), None, "cut to {len}");
        }
        for at in 0..image.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = image.clone();
                damaged[at] ^= change;
                let _ = decode(&damaged);
            }
        }
        let mut newer = image;
        newer[8] = 2;
        assert_eq!(decode(&newer), None);
    }
}
