//! What a program reads of what kernels computed: numbers are zero, and comparisons hold as they do between zeros.
//!
//! Kernels do no arithmetic, so a result has to be something. What lay there before would be the worst choice: bytes that were really
//! copied to an earlier tensor at this address, so that a count of selected elements, which sizes the next allocation, is the bits of a weight,
//! and a loop that waits for a flag ends by luck. Zero makes losses finite, overflow flags clear and counts empty; and `0 == 0`, `isfinite(0)`
//! and `all` of such are true, so that checks pass and loops that wait for a condition end.
//!
//! Only small results are written, which is what programs look at; the rest keeps its bytes. Small is a page: a tensor of a few numbers, a
//! row of flags.
//!
//! Not decided: comparisons with a limit other than zero (`x < 1e-6` is false), and what strided kernels compare.

use deepum_core::units::{AddrRange, Bytes, DevAddr};

use crate::bytes::ByteView;
use crate::truth::{KernelCall, Source, Work};
use crate::word;

/// Largest result that is written.
const SMALL: Bytes = Bytes(4096);

/// CUB kernels that leave one number which PyTorch reads, and the parameter that points to it (`cub/device/dispatch/kernels`). How much else
/// they touch is not known.
const COUNTS: [(&str, usize); 2] = [("DeviceReduceSingleTileKernel", 1), ("DeviceSelectSweepKernel", 3)];

impl ByteView<'_> {
    /// Leaves what `call` leaves.
    pub fn leave(&self, call: &KernelCall<'_>, work: &Work) {
        let (ranges, value) = of(call, work);
        for range in ranges.into_iter().filter(|r| self.owned(r.start, r.len.0)) {
            // SAFETY: all of it lies in one live allocation.
            unsafe { self.write(range.start, &[value; word(SMALL.0)][..word(range.len.0)]) };
        }
    }
}

/// The memory whose bytes `call` decides, and what they become.
#[must_use]
pub fn of(call: &KernelCall<'_>, work: &Work) -> (Vec<AddrRange>, u8) {
    if work.source == Source::Exact {
        let small = work.touches.iter().filter(|t| t.access.writes() && t.range.len <= SMALL);
        return (small.map(|t| t.range).collect(), u8::from(true_of_zeros(call)));
    }
    let count = COUNTS.iter().find(|(name, _)| call.name.contains(name));
    let at = count.and_then(|&(_, n)| parameter(call, n)?.first_chunk()).map(|word| u64::from_le_bytes(*word));
    (at.map(|at| AddrRange::new(DevAddr(at), Bytes(8))).into_iter().collect(), 0)
}

/// Whether `call` writes truth values, all of them true where every number it reads is zero.
fn true_of_zeros(call: &KernelCall<'_>) -> bool {
    let is = |part| call.name.contains(part);
    if is("reduce_kernel") {
        return is("and_kernel_cuda");
    }
    // vectorized_elementwise_kernel(int, functor, pointers), unrolled_elementwise_kernel(int, functor, pointers, …)
    if !(is("vectorized_elementwise_kernel") || is("unrolled_elementwise_kernel")) {
        return false;
    }
    if is("logical_not_kernel") || is("isfinite_kernel") || is("BitwiseNotFunctorIbE") {
        return true;
    }
    let Some(functor) = parameter(call, 1) else { return false };
    let Some(&operation) = functor.first_chunk::<4>() else { return false };
    let operation = u32::from_le_bytes(operation);
    if is("CompareEqFunctor") {
        // EqOpType { EQ, NE }, then, if one side is a number, that number (`aten/src/ATen/native/cuda/CompareEQKernel.cu`).
        let zero = !is("UnaryFunctorI") || number(call.name, functor).is_some_and(|n| n.iter().all(|&b| b == 0));
        return zero == (operation == 0);
    }
    // OpType { GE, GT, LE, LT } (`CompareKernels.cu`).
    is("CompareFunctor") && matches!(operation, 0 | 2)
}

/// The number in a functor `{ u32; number }`, whose type is the first argument of the template around it.
fn number<'a>(name: &str, functor: &'a [u8]) -> Option<&'a [u8]> {
    let (_, types) = name.split_once("UnaryFunctorI")?;
    let size = match types.bytes().next()? {
        b'b' | b'h' | b'a' => 1,
        b's' => 2,
        b'd' | b'l' => 8,
        _ => 4,
    };
    let start = size.max(4);
    functor.get(start..start + size)
}

fn parameter<'a>(call: &KernelCall<'a>, n: usize) -> Option<&'a [u8]> {
    let param = call.layout.get(n)?;
    call.params.get(param.offset as usize..)?.get(..param.size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fatbin::Param;
    use crate::truth::{Access, Precision, Touch};

    const EQUAL: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIllbNS0_16CompareEqFunctorIlEEEESt5arrayIPcLm2EEEEviT0_T1_";

    fn call<'a>(name: &'a str, layout: &'a [Param], params: &'a [u8]) -> KernelCall<'a> {
        KernelCall { name, layout, params, grid: [1; 3], block: [128, 1, 1], shared: Bytes::ZERO }
    }

    fn writes(source: Source, ranges: &[(u64, u64, bool)]) -> Work {
        let touches = ranges
            .iter()
            .map(|&(at, len, write)| {
                let access = if write { Access::Write } else { Access::Read };
                Touch { range: AddrRange::new(DevAddr(at), Bytes(len)), access, phase: 0 }
            })
            .collect();
        Work { touches, traffic: Bytes::ZERO, flops: 0.0, class: Precision::Fp32, source }
    }

    fn holds(name: &str, operation: u32, number: u64) -> bool {
        let layout = [Param { offset: 0, size: 4 }, Param { offset: 8, size: 16 }, Param { offset: 24, size: 16 }];
        let mut params = [0xAA; 40];
        params[8..12].copy_from_slice(&operation.to_le_bytes());
        params[16..24].copy_from_slice(&number.to_le_bytes());
        of(&call(name, &layout, &params), &writes(Source::Exact, &[])).1 == 1
    }

    #[test]
    fn comparisons_hold_as_between_zeros() {
        assert!(holds(EQUAL, 0, 0), "0 == 0");
        assert!(!holds(EQUAL, 1, 0), "0 != 0");
        assert!(!holds(EQUAL, 0, 5), "0 == 5");
        assert!(holds(EQUAL, 1, 5), "0 != 5");
        let ordered = "vectorized_elementwise_kernelI13BinaryFunctorIffb14CompareFunctorIfEE";
        assert_eq!([0, 1, 2, 3].map(|op| holds(ordered, op, 0)), [true, false, true, false]);
        assert!(holds("unrolled_elementwise_kernelI isfinite_kernel", 9, 9));
        assert!(holds("reduce_kernelILi512E and_kernel_cuda", 9, 9));
        assert!(!holds("reduce_kernelILi512E or_kernel_cuda", 9, 9));
        assert!(!holds("elementwise_kernelI16CompareEqFunctorIlE", 0, 0), "where the functor is is not known");
    }

    #[test]
    fn small_results_are_decided_inputs_and_large_ones_are_not() {
        let work = writes(Source::Exact, &[(0x1000, 8, true), (0x2000, 8, false), (0x3000, 4097, true)]);
        let (ranges, value) = of(&call("anything", &[], &[]), &work);
        assert_eq!((ranges, value), (vec![AddrRange::new(DevAddr(0x1000), Bytes(8))], 0));
    }

    #[test]
    fn a_count_is_where_its_parameter_points_and_other_guesses_are_left_alone() {
        let layout = [Param { offset: 0, size: 16 }, Param { offset: 16, size: 8 }];
        let mut params = [0; 24];
        params[16..].copy_from_slice(&0x7000_u64.to_le_bytes());
        let work = writes(Source::Guessed, &[(0x7000, 3888, true)]);
        let count = call("cub::DeviceReduceSingleTileKernel", &layout, &params);
        assert_eq!(of(&count, &work).0, [AddrRange::new(DevAddr(0x7000), Bytes(8))]);
        assert!(of(&call("unknown", &layout, &params), &work).0.is_empty());
        assert!(
            of(&call("DeviceSelectSweepKernel", &layout, &params), &work).0.is_empty(),
            "it has no fourth parameter"
        );
    }
}
