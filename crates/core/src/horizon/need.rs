//! How much room is needed, and by when.
//!
//! Problem: who leaves must leave in time, and not in vain. New contents come in bursts, many launches' worth of evictions; but what a launch gives up serves
//! the ones after it.
//! Idea: a *curve*: at each launch ahead, how many more places are taken than now if nobody is asked to leave. It rises where somebody is needed who has no place, and
//! falls behind the last use of contents. The first launch where it rises above the places that are free is by when somebody must have left, and only who is needed
//! after that gains anything by it.
//!
//! ```text
//! places   A needed        B needed          C needed
//!    +1    ─┌──┐            ┌────────┐ ┌──────
//!    now ───┘  └────────────┘        └─┘
//!              A's last use          B's last use
//! ```
//!
//! Launches lie in runs of [`RUN`], and a tree over the runs holds for each span of them what is added in it, and the highest that it rises within. So a change and a question cost the same however
//! far the future is known. It is a ring: places of launches that are over are used again.
//!
//! What one launch uses begins and ends at the same few launches, and much of it cancels. So a change is made to its launch alone, and the runs that changed are marked; the tree over them is brought up
//! to date when somebody asks, all of them together, and only as far up as anything changes.
//! The same question comes again, too, for all blocks of a tensor: its answer is kept, and moved along with what changes before its span.

use std::ops::Range;

/// Launches that it has room for, from the first one that is not over.
pub const SPAN: usize = 1 << 15;

/// A launch ahead, counted.
pub type Ordinal = u64;

/// Launches that are gone through one by one: so many are a cache line.
const RUN: usize = 16;

const RUNS: usize = SPAN / RUN;

/// See the module.
#[derive(Debug)]
pub struct Need {
    /// By launch, how many more places are taken from it on.
    launches: Vec<i32>,
    /// By node, the root being 1; the runs are the last [`RUNS`].
    nodes: Vec<Node>,
    /// The runs with changes that their node does not know, a bit for each; and which of these words have any.
    changed: [u64; RUNS / 64],
    words: u32,
    /// Nodes whose spans changed, while the tree is brought up to date.
    above: Vec<usize>,
    /// The last question, and its answer, until something changes within its span.
    asked: Option<Asked>,
}

const _: () = assert!(RUNS / 64 == u32::BITS as usize);

/// The most that more places are taken than before `from`, at any launch from `first` to `last`.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: Ordinal,
    first: Ordinal,
    last: Ordinal,
    highest: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Node {
    sum: i32,
    /// The highest sum of its first launches, at least one.
    top: i32,
}

impl Node {
    /// Of no launch: beside any other its highest sum does not count.
    const NONE: Self = Self { sum: 0, top: i32::MIN / 2 };

    /// Of these launches, one after the other.
    fn of(launches: &[i32]) -> Self {
        launches.iter().fold(Self::NONE, |Self { sum, top }, more| Self { sum: sum + more, top: top.max(sum + more) })
    }

    fn then(self, next: Self) -> Self {
        Self { sum: self.sum + next.sum, top: self.top.max(self.sum + next.top) }
    }
}

impl Default for Need {
    fn default() -> Self {
        Self {
            launches: vec![0; SPAN],
            nodes: vec![Node::default(); 2 * RUNS],
            changed: [0; RUNS / 64],
            words: 0,
            above: Vec::new(),
            asked: None,
        }
    }
}

impl Need {
    /// From this launch on so many more places are taken.
    pub fn add(&mut self, at: Ordinal, more: i32) {
        match &mut self.asked {
            Some(asked) if (asked.from..=asked.first).contains(&at) => asked.highest += more,
            Some(asked) if at <= asked.last => self.asked = None,
            _ => {}
        }
        let at = place(at);
        self.launches[at] += more;
        let run = at / RUN;
        self.changed[run / 64] |= 1 << (run % 64);
        self.words |= 1 << (run / 64);
    }

    /// How many more places are taken from this launch on than just before it.
    pub fn at(&self, at: Ordinal) -> i32 {
        self.launches[place(at)]
    }

    /// Brings the tree up to date.
    fn settle(&mut self) {
        if self.words == 0 {
            return;
        }
        let Self { launches, nodes, changed, above, .. } = self;
        above.clear();
        for word in bits(u64::from(std::mem::take(&mut self.words))) {
            for bit in bits(std::mem::take(&mut changed[word])) {
                let run = 64 * word + bit;
                let now = Node::of(&launches[RUN * run..][..RUN]);
                let before = std::mem::replace(&mut nodes[RUNS + run], now);
                if before != now {
                    above.push(RUNS + run);
                }
            }
        }
        // All of them are on one level, in their order, and so are those above them.
        while above.first().is_some_and(|&first| first > 1) {
            let (mut last, mut kept) = (0, 0);
            for at in 0..above.len() {
                let node = above[at] / 2;
                if node == last {
                    continue;
                }
                last = node;
                let both = nodes[2 * node].then(nodes[2 * node + 1]);
                if nodes[node] != both {
                    nodes[node] = both;
                    above[kept] = node;
                    kept += 1;
                }
            }
            above.truncate(kept);
        }
    }

    /// The first launch from `from` on at which more than `limit` more places are taken than before `from`.
    pub fn first_over(&mut self, from: Ordinal, limit: i32) -> Option<Ordinal> {
        self.settle();
        let start = place(from);
        let mut sum = 0;
        let found = self.scan(start, &mut sum, limit).map(|found| found - start);
        let wrapped = || self.scan(0, &mut sum, limit).filter(|&found| found < start).map(|found| found + SPAN - start);
        found.or_else(wrapped).map(|after| from + after as u64)
    }

    /// The most that more places are taken than before `from`, at any launch from `first` to `last`, all within a round.
    pub fn highest_within(&mut self, from: Ordinal, first: Ordinal, last: Ordinal) -> i32 {
        let is_same = |asked: &Asked| (asked.from, asked.first, asked.last) == (from, first, last);
        if let Some(asked) = self.asked.filter(is_same) {
            return asked.highest;
        }
        self.settle();
        let launches = |from, to| usize::try_from(to - from).unwrap_or(SPAN);
        let before = self.fold(from, launches(from, first)).map_or(0, |node| node.sum);
        let highest = before + self.fold(first, launches(first, last) + 1).map_or(0, |node| node.top);
        self.asked = Some(Asked { from, first, last, highest });
        highest
    }

    /// So many launches from this one on as one span; nothing for none.
    fn fold(&self, from: Ordinal, launches: usize) -> Option<Node> {
        let start = place(from);
        let end = start + launches.min(SPAN);
        let first = self.span(start, end.min(SPAN));
        let second = self.span(0, end.saturating_sub(SPAN));
        match (first, second) {
            (Some(first), Some(second)) => Some(first.then(second)),
            (first, second) => first.or(second),
        }
    }

    /// Places from `left` to before `right` as one span.
    fn span(&self, left: usize, right: usize) -> Option<Node> {
        if left >= right {
            return None;
        }
        let (mut first, mut last) = (left.div_ceil(RUN), right / RUN);
        if first > last {
            return Some(Node::of(&self.launches[left..right]));
        }
        // Spans are met from both ends inwards.
        let mut head = Node::of(&self.launches[left..RUN * first]);
        let mut tail = Node::of(&self.launches[RUN * last..right]);
        (first, last) = (first + RUNS, last + RUNS);
        while first < last {
            if first % 2 == 1 {
                head = head.then(self.nodes[first]);
                first += 1;
            }
            if last % 2 == 1 {
                last -= 1;
                tail = self.nodes[last].then(tail);
            }
            (first, last) = (first / 2, last / 2);
        }
        Some(head.then(tail))
    }

    /// The most that more places are taken than before `from`, at any launch from there on.
    pub fn highest(&mut self, from: Ordinal) -> i32 {
        self.highest_within(from, from, from + (SPAN as u64 - 1))
    }

    /// The first place from `start` on at which the sum, which is `sum` before it, exceeds `limit`; else adds all of them to `sum`.
    fn scan(&self, start: usize, sum: &mut i32, limit: i32) -> Option<usize> {
        let first = start.div_ceil(RUN);
        if let Some(found) = self.walk(start..RUN * first, sum, limit) {
            return Some(found);
        }
        let mut at = first + RUNS;
        if first == RUNS {
            return None;
        }
        loop {
            // The largest span that begins here.
            at >>= at.trailing_zeros();
            if *sum + self.nodes[at].top > limit {
                return self.descend(at, sum, limit);
            }
            *sum += self.nodes[at].sum;
            at += 1;
            // That was the last of its level.
            if at.is_power_of_two() {
                return None;
            }
        }
    }

    fn descend(&self, mut at: usize, sum: &mut i32, limit: i32) -> Option<usize> {
        while at < RUNS {
            at *= 2;
            if *sum + self.nodes[at].top <= limit {
                *sum += self.nodes[at].sum;
                at += 1;
            }
        }
        let run = RUN * (at - RUNS);
        self.walk(run..run + RUN, sum, limit)
    }

    /// The same one by one.
    fn walk(&self, mut places: Range<usize>, sum: &mut i32, limit: i32) -> Option<usize> {
        places.find(|&at| {
            *sum += self.launches[at];
            *sum > limit
        })
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.launches.capacity() * size_of::<i32>() + self.nodes.capacity() * size_of::<Node>()
    }
}

/// Which bits are set, the lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(lowest)
    })
}

/// The place of a launch in a ring of [`SPAN`].
#[expect(clippy::cast_possible_truncation, reason = "it is below SPAN")]
pub(super) fn place(at: Ordinal) -> usize {
    (at % SPAN as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the curve written out, from any launch, over the end of the ring.
        #[test]
        fn the_first_launch_over_a_limit_is_that_of_the_curve_written_out(
            from in prop_oneof![0u64..3 * SPAN as u64, (1u64..3, 0u64..120).prop_map(|(rounds, before)| rounds * SPAN as u64 - before)],
            changes in prop::collection::vec((0usize..100, -3i32..4, any::<bool>()), 0..60),
            limit in -4i32..12,
            span in (0usize..100, 0usize..100),
        ) {
            let (mut need, mut curve) = (Need::default(), [0; 100]);
            for (after, more, asks) in changes {
                need.add(from + after as u64, more);
                curve[after..].iter_mut().for_each(|taken| *taken += more);
                if asks {
                    prop_assert_eq!(Some(need.highest(from)), curve.into_iter().max());
                }
            }
            // Behind the last change the curve goes on as it is.
            let written = curve.iter().position(|&taken| taken > limit).map(|after| from + after as u64);
            prop_assert_eq!(need.first_over(from, limit), written);
            prop_assert_eq!(Some(need.highest(from)), curve.into_iter().max());
            let (first, last) = (span.0.min(span.1), span.0.max(span.1));
            let highest = need.highest_within(from, from + first as u64, from + last as u64);
            prop_assert_eq!(Some(highest), curve[first..=last].iter().copied().max());
        }
    }

    #[test]
    fn what_was_taken_back_leaves_nothing() {
        let mut need = Need::default();
        need.add(7, 2);
        need.add(SPAN as u64 + 6, 5);
        assert_eq!((need.first_over(7, 1), need.first_over(7, 2)), (Some(7), Some(SPAN as u64 + 6)));
        need.add(7, -2);
        need.add(SPAN as u64 + 6, -5);
        assert_eq!(need.first_over(7, 0), None);
        assert_eq!(need.first_over(7, -1), Some(7));
    }
}
