//! Who stays on the GPU between two uses, as planned.
//!
//! Problem: whoever leaves ahead of time for new contents must come again before its next use. If somebody else who is needed later could have left in time, all of that
//! was in vain, and where the link is the limit it costs what it moves.
//! Idea: a *rest* lies between two uses of a block. Of all rests of which only so many can be spent in place at a time, most are if those that end first are taken first, as far as there is room
//! beside those taken before (it is an interval graph of which as much as possible is coloured with so many colours: Carlisle and Lloyd, 1995; and the furthest next use of Belady, 1966). The
//! future is foreseen launch by launch, so rests become known in the order of their ends, and each is decided on once: it is one question to a curve, of the highest in a span, and a change of it.
//!
//! What lies between the last use of contents and a use that fills the block anew is no rest.
//! Not here: when somebody leaves. A plan says who is worth keeping, not in which time the link can make room (`policy::horizon`).

use super::need::{Need, Ordinal};

/// See the module.
#[derive(Default, Debug)]
pub struct Plan {
    /// Places taken at each launch: by what it uses, and by who rests in place.
    taken: Need,
    /// Of those who rest in place, those who do so since launches that are over.
    resting: i32,
    /// No more are taken at any launch: the most there were when that was asked last, and one more for each change since that may have raised it.
    ceiling: i32,
    raised: u32,
    /// Places there are.
    pub places: i32,
}

/// After so many changes it is asked anew what is the most, if that may matter.
const RAISED: u32 = 1024;

impl Plan {
    /// Whether there is a place in this span of launches, both ends among it, none of which is before `front`.
    pub fn has_place(&mut self, front: Ordinal, first: Ordinal, last: Ordinal) -> bool {
        if self.ceiling >= self.places && self.raised >= RAISED {
            (self.ceiling, self.raised) = (self.resting + self.taken.highest(front), 0);
        }
        // Where much more fits than is used no launch has to be looked at.
        first > last
            || self.ceiling < self.places
            || self.resting + self.taken.highest_within(front, first, last) < self.places
    }

    fn raise(&mut self, times: i32) {
        if times > 0 {
            self.ceiling += times;
            self.raised += 1;
        }
    }

    /// Notes, so many times, a use at this launch, and the rest before it, which begins at launch `since`, or did before all launches there are: whether that is spent in place.
    pub fn note(&mut self, since: Option<Ordinal>, at: Ordinal, in_place: bool, times: i32) {
        self.raise(times);
        self.taken.add(at + 1, -times);
        match since {
            None if in_place => self.resting += times,
            Some(since) if in_place && since <= at => self.taken.add(since, times),
            _ => self.taken.add(at, times),
        }
    }

    /// A rest in place that was noted to begin at launch `since`, before a use at this launch, began before all launches there are.
    pub fn opens(&mut self, since: Ordinal, at: Ordinal) {
        self.raise(1);
        self.taken.add(since.min(at), -1);
        self.resting += 1;
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.taken.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whether the most that is taken anywhere is known well, a little too high, or much.
        #[test]
        fn there_is_a_place_wherever_fewer_are_taken_written_out_than_there_are(
            notes in prop::collection::vec((0usize..40, 0usize..40, any::<bool>(), any::<bool>()), 0..40),
            passing in 0u32..3 * RAISED,
            places in 0i32..30,
            span in (0usize..40, 0usize..40),
        ) {
            let (mut plan, mut written) = (Plan { places, ..Plan::default() }, [0; 41]);
            for _ in 0..passing {
                plan.note(None, 3, true, 1);
                plan.note(None, 3, true, -1);
            }
            for (one, other, in_place, is_open) in notes {
                let (since, at) = (one.min(other), one.max(other));
                plan.note(Some(since as u64).filter(|_| !is_open), at as u64, in_place, 1);
                let first = if !in_place { at } else if is_open { 0 } else { since };
                written[first..=at].iter_mut().for_each(|taken| *taken += 1);
            }
            let (first, last) = (span.0.min(span.1), span.0.max(span.1));
            let is_free = written[first..=last].iter().all(|&taken| taken < places);
            prop_assert_eq!(plan.has_place(0, first as u64, last as u64), is_free);
        }
    }

    #[test]
    fn a_rest_in_place_takes_a_place_from_the_use_before_to_the_one_after_and_another_at_its_uses_alone() {
        let mut plan = Plan { places: 1, ..Plan::default() };
        plan.note(None, 10, false, 1);
        plan.note(Some(11), 14, true, 1);
        plan.note(Some(15), 20, false, 1);
        let free = |plan: &mut Plan| (9..22).filter(|&at| plan.has_place(9, at, at)).collect::<Vec<_>>();
        assert_eq!(free(&mut plan), [9, 15, 16, 17, 18, 19, 21]);
        assert!(plan.has_place(9, 15, 19) && !plan.has_place(9, 15, 20));
        plan.note(Some(11), 14, true, -1);
        plan.note(None, 14, true, 1);
        assert_eq!(free(&mut plan), [15, 16, 17, 18, 19, 21]);
    }
}
