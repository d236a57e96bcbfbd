//! G10's tensor vitality analysis: when a tensor is alive, and when nobody touches it meanwhile (MICRO'23, section 4.2).
//!
//! A tensor is *active* while a kernel touches it and *inactive* between two such kernels. An intermediate has inactive periods only within its
//! life. A global's last one goes over the end of the iteration to its first use in the next. Only periods of at least one whole kernel are
//! listed: shorter ones free nothing. A global that no kernel touches has none, and stays.

use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Life, Program, TensorId};

/// Consecutive kernels, cyclically: `len` of them from kernel `from` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The first; also the gap before it.
    pub from: u32,
    /// How many; at most all.
    pub len: u32,
}

impl Span {
    /// Kernels from the one at `offset` on, up to the one before `until`: both counted from the first.
    #[must_use]
    pub const fn part(self, offset: u32, until: u32, kernels: u32) -> Self {
        Self { from: (self.from + offset) % kernels, len: until.saturating_sub(offset) }
    }
    /// Their numbers, in order.
    pub fn kernels(self, kernels: u32) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone {
        (0..self.len).map(move |offset| ((self.from + offset) % kernels) as usize)
    }
    /// How many kernels after the first this one comes, if it is among them.
    #[must_use]
    pub const fn offset(self, kernel: u32, kernels: u32) -> Option<u32> {
        let offset = (kernel + kernels - self.from) % kernels;
        if offset < self.len { Some(offset) } else { None }
    }
}

/// An inactive period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// Whose.
    pub tensor: TensorId,
    /// Its size; not 0.
    pub size: Bytes,
    /// The kernels that run meanwhile; at least one.
    pub idle: Span,
    /// How long they take.
    pub time: Nanos,
}

/// All inactive periods, by tensor, those of a tensor in order; a global's that goes over the end is its last.
///
/// `times` is what each kernel takes; it may be more than the program says, where stalls are known.
#[must_use]
pub fn periods(program: &Program, times: &[Nanos]) -> Vec<Period> {
    let kernels = count(program);
    let mut ends = vec![0u64];
    for time in times {
        ends.push(ends[ends.len() - 1] + time.0);
    }
    let iteration = ends[ends.len() - 1];
    let mut all = Vec::new();
    for id in program.ids() {
        let (uses, tensor) = (program.uses(id), program.tensor(id));
        let mut add = |from: u32, until: u32| {
            let idle = Span { from: from % kernels, len: until - from };
            let end = if until > kernels { iteration + ends[(until - kernels) as usize] } else { ends[until as usize] };
            if idle.len > 0 && tensor.size > Bytes::ZERO {
                all.push(Period { tensor: id, size: tensor.size, idle, time: Nanos(end - ends[from as usize]) });
            }
        };
        for pair in uses.windows(2) {
            add(pair[0] + 1, pair[1]);
        }
        if let (Life::Global, [first, .., last] | [last @ first]) = (tensor.life, uses) {
            add(last + 1, first + kernels);
        }
    }
    all
}

/// How many kernels the program has.
pub(super) fn count(program: &Program) -> u32 {
    u32::try_from(program.kernels().len()).expect("a program numbers its kernels with 32 bits")
}

/// What each kernel takes when nothing is missing.
#[must_use]
pub fn ideal_times(program: &Program) -> Vec<Nanos> {
    program.kernels().iter().map(|kernel| kernel.time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::tests::{global, intermediate, kernel, program};

    #[test]
    fn periods_lie_within_a_life_and_globals_go_over_the_end() {
        // Kernels:        0        1        2        3        4
        // time            1        2        4        8       16
        // global a                 use                        use
        // interm. b      write              read     read
        // global c                          use
        let tensors = vec![global(1), intermediate(2), global(3)];
        let kernels = vec![
            kernel(1, &[], &[1]),
            kernel(2, &[0], &[]),
            kernel(4, &[1, 2], &[]),
            kernel(8, &[1], &[]),
            kernel(16, &[0], &[]),
        ];
        let program = program(kernels, tensors);
        let found = periods(&program, &ideal_times(&program));
        let span = |from, len| Span { from, len };
        let period =
            |tensor, size, idle, time| Period { tensor: TensorId(tensor), size: Bytes(size), idle, time: Nanos(time) };
        // a: idle in kernels 2 and 3 (4 + 8), then from the end of 4 to kernel 1 of the next iteration: kernel 0 (1).
        // b: idle in kernel 1 (2); between 2 and 3 lies none. c: all but kernel 2, from 3 over the end: 8 + 16 + 1 + 2.
        let expected = [
            period(0, 1, span(2, 2), 12),
            period(0, 1, span(0, 1), 1),
            period(1, 2, span(1, 1), 2),
            period(2, 3, span(3, 4), 27),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn spans_count_over_the_end() {
        let over = Span { from: 3, len: 4 };
        assert_eq!(over.kernels(5).collect::<Vec<_>>(), [3, 4, 0, 1]);
        assert_eq!((over.offset(0, 5), over.offset(2, 5), over.offset(3, 5)), (Some(2), None, Some(0)));
        assert_eq!(over.part(1, 3, 5), Span { from: 4, len: 2 });
    }
}
