//! Kernels nobody described: the stated rule for what they touch.
//!
//! Every 8-byte word among the parameters that points into an allocation is taken for an operand. From there on a kernel
//! touches as much as its threads plausibly can, but not past the end of the allocation:
//! - with integer parameters and no C++ name (Triton): their product times 4 bytes, the numbers of elements being among them;
//! - else 16 bytes per thread, the widest load there is.
//!
//! Of that bound a fixed share between a half and the whole is touched, drawn per kernel and operand from the seed: no unknown kernel
//! is assumed to read everything it could. Operands count as written unless the signature says `const`.

use deepum_core::units::DevAddr;

use super::args::{Launch, Words};
use super::rows::mix;
use super::touches::{Access, Touches};

/// More operands than this are not looked for in one launch.
const MAX_OPERANDS: usize = 64;

pub(super) fn guess(l: &Launch<'_>, out: &mut Touches<'_>, seed: u64) {
    let bound = bound(l);
    let name = l.call.name.bytes().fold(seed, |hash, b| mix(hash ^ u64::from(b)));
    let mut seen: Vec<u64> = Vec::new();
    for (n, word) in l.call.params.as_chunks::<8>().0.iter().enumerate() {
        let ptr = u64::from_le_bytes(*word);
        if seen.len() == MAX_OPERANDS || seen.contains(&ptr) {
            continue;
        }
        let Some(allocation) = out.view().allocation(DevAddr(ptr)) else { continue };
        seen.push(ptr);
        let bound = bound.min(allocation.end().0 - ptr);
        let share = 128 + mix(name ^ n as u64) % 129;
        let bytes = u64::try_from(u128::from(bound) * u128::from(share) / 256).unwrap_or(bound);
        let param = l.call.layout.iter().position(|p| p.offset as usize == 8 * n);
        let access = param.and_then(|p| l.access(p)).unwrap_or(Access::Write);
        out.dense(ptr, bytes.max(1), access);
    }
}

/// How many bytes behind a pointer the launch could touch.
fn bound(l: &Launch<'_>) -> u64 {
    let threads = l.blocks().saturating_mul(l.threads());
    let numbers = || {
        let int = |p: &&crate::fatbin::Param| p.size == 4;
        l.call
            .layout
            .iter()
            .filter(int)
            .filter_map(|p| Words(l.call.params).count(p.offset as usize, 4))
            .filter(|&n| n > 0)
            .fold(None, |product: Option<u64>, n| Some(product.unwrap_or(1).saturating_mul(n)))
    };
    match numbers() {
        Some(elements) if l.signature.params.is_empty() => elements.saturating_mul(4),
        _ => threads.saturating_mul(16),
    }
}
