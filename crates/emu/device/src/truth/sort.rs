//! Sorts and scans of CUB, as PyTorch calls them: every key and value once in, once out.
//!
//! Source: `cub/device/dispatch` and its kernels' declarations. Look-back state and bin counters are a few kilobytes of the
//! call's own scratch memory; one element of each is touched, which is its page.

use super::args::Launch;
use super::touches::{Access, Touches};

type Decode = fn(&Launch<'_>, &mut Touches<'_>) -> Option<()>;

/// The decoder of `family` with `params` parameters.
pub(super) fn decoder(family: &str, params: usize) -> Option<Decode> {
    TABLE.iter().find(|(name, count, _)| *name == family && *count == params).map(|&(_, _, decode)| decode)
}

const TABLE: &[(&str, usize, Decode)] = &[
    ("DeviceRadixSortHistogramKernel", 6, |l, o| scratch_and(l, o, &[0], &[1], l.count(2)?)),
    ("DeviceRadixSortExclusiveSumKernel", 1, |l, o| scratch_and(l, o, &[0], &[], 0)),
    ("DeviceRadixSortOnesweepKernel", 12, |l, o| scratch_and(l, o, &[0, 1, 2, 3], &[4, 5, 6, 7], l.count(8)?)),
    ("DeviceRadixSortSingleTileKernel", 8, |l, o| scratch_and(l, o, &[], &[0, 1, 2, 3], l.count(4)?)),
    ("DeviceRadixSortUpsweepKernel", 7, |l, o| scratch_and(l, o, &[1], &[0], l.count(2)?)),
    ("DeviceRadixSortDownsweepKernel", 10, |l, o| scratch_and(l, o, &[4], &[0, 1, 2, 3], l.count(5)?)),
    ("RadixSortScanBinsKernel", 2, |l, o| scratch_and(l, o, &[0], &[], 0)),
    ("DeviceScanKernel", 7, |l, o| scratch_and(l, o, &[2], &[0, 1], l.count(6)?)),
    // As many outputs as different keys; at most the number of keys, which is what the outputs have room for.
    ("DeviceUniqueByKeySweepKernel", 10, |l, o| scratch_and(l, o, &[4, 5], &[0, 2, 3], l.count(7)?)),
    ("DeviceScanInitKernel", 2, |l, o| scratch_and(l, o, &[0], &[], 0)),
    ("DeviceCompactInitKernel", 3, |l, o| scratch_and(l, o, &[0, 2], &[], 0)),
];

/// One element of each of `scratch`, and `count` elements of each of `arrays`; key-only sorts pass no values.
fn scratch_and(l: &Launch<'_>, out: &mut Touches<'_>, scratch: &[usize], arrays: &[usize], count: u64) -> Option<()> {
    for &n in scratch {
        out.dense(l.pointer(n)?, l.element(n).unwrap_or(8), Access::Update);
    }
    for &n in arrays {
        let no_values = l.signature.params.get(n).is_some_and(|t| t.contains("NullType"));
        if !no_values {
            l.dense(out, n, count)?;
        }
    }
    Some(())
}
