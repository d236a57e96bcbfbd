//! Kernels that really compute, for tests in data mode: `deepum_test_*`.
//!
//! Everything else the device runs leaves no results, so a wrong page move could go unseen. These kernels read and
//! write real bytes where the memory model has them, one element after the other, so that their results are the same
//! bits in every run. A test loads them as PTX text with the parameters below.
//!
//! | kernel | parameters | does |
//! | --- | --- | --- |
//! | `deepum_test_fill` | out, n, value | `out[i] = value + i` |
//! | `deepum_test_copy` | out, in, n | `out[i] = in[i]` |
//! | `deepum_test_scale` | x, n, a | `x[i] = a * x[i] + 1` |
//! | `deepum_test_axpy` | y, x, n, a | `y[i] = y[i] + a * x[i]` |
//! | `deepum_test_sum` | out, x, n | `out[0] = x[0] + x[1] + …` |
//! | `deepum_test_gather` | out, in, index, n, m | `out[i] = in[index[i] mod m]` |
//! | `deepum_test_matmul` | c, a, b, m, n, k | `c = a b`, row by row |
//!
//! Every parameter takes eight bytes: pointers to `f32` (`index`: `u32`), counts as `u64`, numbers as the `f32` in the
//! low half. Without data mode they take their time and touch their memory, but compute nothing they could spoil:
//! large copies are skipped there, so there is nothing to compute with.

use deepum_core::units::{AddrRange, Bytes, DevAddr};

use crate::bytes::ByteView;
use crate::truth::{Access, KernelCall, Precision, Source, Touch, Work};
use crate::word;

/// Most elements of one operand; a larger count does nothing.
const MOST: u64 = 1 << 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Fill,
    Copy,
    Scale,
    Axpy,
    Sum,
    Gather,
    Matmul,
}

fn named(name: &str) -> Option<Test> {
    Some(match name.strip_prefix("deepum_test_")? {
        "fill" => Test::Fill,
        "copy" => Test::Copy,
        "scale" => Test::Scale,
        "axpy" => Test::Axpy,
        "sum" => Test::Sum,
        "gather" => Test::Gather,
        "matmul" => Test::Matmul,
        _ => return None,
    })
}

/// The parameters as words; missing ones are 0.
fn words(params: &[u8]) -> [u64; 6] {
    let mut words = [0; 6];
    for (word, bytes) in words.iter_mut().zip(params.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Operands as (address, elements, what is done).
fn operands(test: Test, p: [u64; 6]) -> Vec<(u64, u64, Access)> {
    use Access::{Read, Update, Write};
    match test {
        Test::Fill => vec![(p[0], p[1], Write)],
        Test::Scale => vec![(p[0], p[1], Update)],
        Test::Copy => vec![(p[1], p[2], Read), (p[0], p[2], Write)],
        Test::Axpy => vec![(p[1], p[2], Read), (p[0], p[2], Update)],
        Test::Sum => vec![(p[1], p[2], Read), (p[0], 1, Write)],
        Test::Gather => vec![(p[2], p[3], Read), (p[1], p[4], Read), (p[0], p[3], Write)],
        Test::Matmul => {
            let (m, n, k) = (p[3], p[4], p[5]);
            let area = |a: u64, b: u64| a.saturating_mul(b);
            vec![(p[1], area(m, k), Read), (p[2], area(k, n), Read), (p[0], area(m, n), Write)]
        }
    }
}

/// What a test kernel touches; `None` for any other kernel.
#[must_use]
pub fn work(call: &KernelCall<'_>) -> Option<Work> {
    let test = named(call.name)?;
    let operands = operands(test, words(call.params));
    let sane = operands.iter().all(|(_, n, _)| *n <= MOST);
    let touch = |&(at, n, access): &(u64, u64, Access)| Touch {
        range: AddrRange::new(DevAddr(at), Bytes(n * 4)),
        access,
        phase: 0,
    };
    let touches: Vec<Touch> = if sane { operands.iter().map(touch).collect() } else { Vec::new() };
    let traffic = Bytes(touches.iter().map(|t| t.range.len.0).sum());
    Some(Work { touches, traffic, flops: 0.0, class: Precision::Fp32, source: Source::Exact })
}

/// Computes what a test kernel computes, on the bytes as they are now. Does nothing for any other kernel.
pub fn compute(name: &str, params: &[u8], bytes: &ByteView<'_>) {
    let Some(test) = named(name).filter(|_| bytes.data) else { return };
    let p = words(params);
    let operands = operands(test, p);
    let inside = |&(at, n, _): &(u64, u64, Access)| n <= MOST && (n == 0 || bytes.owned(DevAddr(at), n * 4));
    if !operands.iter().all(inside) {
        crate::say(&format!("{name} was given memory that is not allocated"));
        return;
    }
    let load = |at: u64, n: u64| -> Vec<f32> {
        let mut raw = vec![0; word(n) * 4];
        // SAFETY: inside one live allocation, checked above.
        unsafe { bytes.read(DevAddr(at), &mut raw) };
        raw.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let store = |at: u64, values: &[f32]| {
        let mut raw = vec![0; values.len() * 4];
        for (out, value) in raw.as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *out = value.to_le_bytes();
        }
        // SAFETY: inside one live allocation, checked above.
        unsafe { bytes.write(DevAddr(at), &raw) };
    };
    #[expect(clippy::cast_possible_truncation, reason = "a number parameter is the low half of its word")]
    let number = |word: u64| f32::from_bits(word as u32);
    match test {
        Test::Fill => store(p[0], &(0..p[1]).map(|i| number(p[2]) + i as f32).collect::<Vec<_>>()),
        Test::Copy => store(p[0], &load(p[1], p[2])),
        Test::Scale => {
            let x = load(p[0], p[1]);
            store(p[0], &x.iter().map(|x| number(p[2]) * x + 1.0).collect::<Vec<_>>());
        }
        Test::Axpy => {
            let (y, x) = (load(p[0], p[2]), load(p[1], p[2]));
            store(p[0], &y.iter().zip(&x).map(|(y, x)| y + number(p[3]) * x).collect::<Vec<_>>());
        }
        Test::Sum => store(p[0], &[load(p[1], p[2]).iter().sum()]),
        Test::Gather => {
            let (input, index) = (load(p[1], p[4]), load(p[2], p[3]));
            let pick = |i: &f32| input.get(i.to_bits() as usize % input.len().max(1)).copied().unwrap_or(0.0);
            store(p[0], &index.iter().map(pick).collect::<Vec<_>>());
        }
        Test::Matmul => {
            let (m, n, k) = (word(p[3]), word(p[4]), word(p[5]));
            let (a, b) = (load(p[1], p[3] * p[5]), load(p[2], p[5] * p[4]));
            let cell = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
            store(p[0], &(0..m * n).map(|at| cell(at / n, at % n)).collect::<Vec<f32>>());
        }
    }
}
