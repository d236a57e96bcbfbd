//! Marks of iterations, for a trace that has none: where the program repeats itself, and where in an iteration to cut.
//!
//! Problem: nobody marks iterations in a training script. Where a network repeats is told by its launches alone (`deepum_core::period`), but that is a place
//! like any other *in* an iteration: cut there, activations would pass from one iteration to the next, which no planner can say.
//! Idea: of all places in an iteration that is the best which the fewest bytes pass: those that were handed out before it, are touched behind it, and
//! are taken back. In training that is behind the optimizer, where only weights and its state live on. The same place is marked in every iteration.
//!
//! Invariant: marks are put between steps, and nothing else changes.

use super::script::{Does, Step, What, Work};
use deepum_core::period;
use deepum_core::units::{AddrRange, Bytes, DevAddr, Nanos};
use std::collections::BTreeMap;

/// Puts marks into a trace that has none. False if it does not repeat itself.
pub(super) fn mark(steps: &mut Vec<Step>) -> bool {
    let issued: Vec<usize> = (0..steps.len()).filter(|&at| matches!(steps[at].does, Does::Issue(_))).collect();
    let stream: Vec<u64> = issued.iter().map(|&at| what(&steps[at].does)).collect();
    let Some(period) = period::find(&stream) else { return false };
    let [.., one, other] = period.boundaries[..] else { return false };
    let passing = passing(steps, 2 * (issued[other] - issued[one]));
    // A mark comes right before a launch, or right behind the one before it.
    let places = |(offset, behind): (usize, bool)| -> Vec<usize> {
        let launches = period.boundaries.iter().map(|boundary| boundary + offset);
        let step = |launch: usize| match behind {
            true => launch.checked_sub(1).and_then(|before| issued.get(before)).map(|step| step + 1),
            false => issued.get(launch).copied(),
        };
        launches.filter_map(step).collect()
    };
    // The last two bound the iteration that counts. Of places that are as good, those that leave more iterations whole.
    let cost = |places: &[usize]| {
        let bytes: u64 = places.iter().rev().take(2).map(|&at| passing[at].0).sum();
        (bytes, usize::MAX - places.len())
    };
    let all = (0..period.length).flat_map(|offset| [(offset, false), (offset, true)]);
    let best = all.map(places).filter(|places| places.len() > 1).min_by_key(|places| cost(places));
    let Some(best) = best else { return false };
    let mut best = best.into_iter().peekable();
    let old = std::mem::take(steps);
    let count = old.len();
    let mark = || Step { own: Nanos::ZERO, does: Does::Iteration };
    for (at, step) in old.into_iter().enumerate() {
        steps.extend(best.next_if_eq(&at).map(|_| mark()));
        steps.push(step);
    }
    steps.extend(best.next_if_eq(&count).map(|_| mark()));
    true
}

/// What something issued is, the same in every iteration.
fn what(does: &Does) -> u64 {
    match does {
        Does::Issue(Work { what: What::Launch { kernel, .. }, .. }) => u64::from(kernel.0) + 4,
        Does::Issue(Work { touches, .. }) => touches.iter().map(|touch| 1 << u8::from(touch.access.writes())).sum(),
        _ => 0,
    }
}

/// A PT block that holds a tensor: since which step, and by which it was last touched.
struct Held {
    len: Bytes,
    since: usize,
    touched: usize,
}

/// By step: how many bytes pass a mark before it, of those that live no longer than so many steps. What lives longer stays, wherever marks are.
fn passing(steps: &[Step], most: usize) -> Vec<Bytes> {
    let mut held: BTreeMap<DevAddr, Held> = BTreeMap::new();
    // By step: what passes from there on, and what does no more.
    let mut begins = vec![(0u64, 0u64); steps.len() + 2];
    for (at, step) in steps.iter().enumerate() {
        match &step.does {
            Does::PtBlock { range, active: true } => {
                held.insert(range.start, Held { len: range.len, since: at, touched: at });
            }
            Does::PtBlock { range, active: false } => {
                if let Some(Held { len, since, touched }) = held.remove(&range.start)
                    && at - since <= most
                    && touched > since
                {
                    begins[since + 1].0 += len.0;
                    begins[touched + 1].1 += len.0;
                }
            }
            Does::Issue(work) => work.touches.iter().for_each(|touch| {
                for (start, held) in held.range_mut(..touch.range.end()).rev() {
                    if AddrRange::new(*start, held.len).end() <= touch.range.start {
                        break;
                    }
                    held.touched = at;
                }
            }),
            _ => {}
        }
    }
    let mut now = 0;
    let pass = |(more, less): (u64, u64)| {
        now = now + more - less;
        Bytes(now)
    };
    begins.into_iter().map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::{LaunchKey, StreamSlot};
    use deepum_trace::event::{Access, NameId, Touch};

    const BLOCK: u64 = 0x1000;

    fn range(block: u64) -> AddrRange {
        AddrRange::new(DevAddr(block * BLOCK), Bytes(BLOCK))
    }
    fn step(does: Does) -> Step {
        Step { own: Nanos(1), does }
    }
    fn block(number: u64, active: bool) -> Step {
        step(Does::PtBlock { range: range(number), active })
    }
    /// A launch of this kernel on these blocks.
    fn launch(kernel: u32, blocks: &[u64]) -> Step {
        let touches = blocks.iter().map(|&block| Touch { range: range(block), access: Access::ReadWrite, phase: 0 });
        let what = What::Launch { kernel: NameId(kernel), key: LaunchKey(kernel.into()), pointers: Vec::new() };
        step(Does::Issue(Work { stream: StreamSlot(0), what, touches: touches.collect(), time: None }))
    }

    /// A weight in block 1. The period's own boundary is the launch that comes first in the trace, which is in the backward pass:
    /// activations live there. They pass no mark that is between the optimizer and the next forward pass.
    fn training(iterations: usize) -> Vec<Step> {
        let mut steps = vec![block(1, true)];
        for _ in 0..iterations {
            // Forward, backward, backward, optimizer; the gradient is taken back at the beginning of the next iteration.
            steps.extend([block(2, true), launch(10, &[1, 2]), block(3, true), launch(11, &[2, 3])]);
            steps.extend([block(2, false), launch(12, &[1, 3]), launch(13, &[1]), block(3, false)]);
        }
        steps
    }

    #[test]
    fn marks_are_where_nothing_passes_that_is_needed() {
        for cut in 0..8 {
            let mut steps = training(6);
            // What comes before it is preparation: blocks of which nothing is known any more, and launches that are missing.
            steps.drain(1..1 + cut);
            let whole = steps.clone();
            assert!(mark(&mut steps), "{cut}");
            let marks: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].does == Does::Iteration).collect();
            assert!(marks.len() >= 5, "{cut}: {marks:?}");
            for &at in &marks {
                let before = steps[..at].iter().rev().find_map(kernel).unwrap_or(13);
                let behind = steps[at..].iter().find_map(kernel).unwrap_or(10);
                // Behind the last touch of the gradient and before the first of an activation.
                assert!(before >= 12 && (behind == 10 || behind == 13), "{cut}: between {before} and {behind}");
            }
            steps.retain(|step| step.does != Does::Iteration);
            assert_eq!(steps, whole);
        }
    }

    fn kernel(step: &Step) -> Option<u32> {
        match &step.does {
            Does::Issue(Work { what: What::Launch { kernel, .. }, .. }) => Some(kernel.0),
            _ => None,
        }
    }

    #[test]
    fn what_passes_is_counted_from_where_it_comes_to_where_it_is_touched_last() {
        // Steps: 0 comes, 1 touched, 2 other, 3 touched, 4 goes. A mark before steps 1, 2 and 3 is passed.
        let steps =
            [block(5, true), launch(1, &[5]), launch(2, &[6]), launch(3, &[4, 5, 6]), block(5, false), launch(4, &[])];
        let bytes: Vec<u64> = passing(&steps, 10).iter().map(|bytes| bytes.0 / BLOCK).collect();
        assert_eq!(bytes[..6], [0, 1, 1, 1, 0, 0]);
        assert!(passing(&steps, 3).iter().all(|bytes| bytes.0 == 0), "it stays, by that measure");
    }

    #[test]
    fn a_program_that_does_not_repeat_has_no_iterations() {
        let mut steps: Vec<Step> = (0..50).map(|kernel| launch(kernel, &[])).collect();
        let before = steps.clone();
        assert!(!mark(&mut steps));
        assert_eq!(steps, before);
    }
}
