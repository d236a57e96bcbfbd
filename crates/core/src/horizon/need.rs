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
//! A tree over the launches holds for each span of them what is added in it, and the highest that it rises within. So a change and a question cost the same however far the future
//! is known. It is a ring: places of launches that are over are used again.
//!
//! What one launch uses begins and ends at the same few launches, and much of it cancels. So changes are gathered, and made when somebody asks; those made together go up the tree together,
//! and only as far as anything changes.
//! The same question comes again, too, for all blocks of a tensor: its answer is kept, and moved along with what changes before its span.

/// Launches that it has room for, from the first one that is not over.
pub const SPAN: usize = 1 << 15;

/// A launch ahead, counted.
pub type Ordinal = u64;

/// See the module.
#[derive(Debug)]
pub struct Need {
    /// By node, the root being 1; the launches are the last [`SPAN`].
    nodes: Vec<Node>,
    /// Changes that are still to be made, by node: one each.
    gathered: Vec<(usize, i32)>,
    /// The last question, and its answer, until something changes within its span.
    asked: Option<Asked>,
}

/// The most that more places are taken than before `from`, at any launch from `first` to `last`.
#[derive(Clone, Copy, Debug)]
struct Asked {
    from: Ordinal,
    first: Ordinal,
    last: Ordinal,
    highest: i32,
}

/// Most changes that are gathered: a few times what a launch changes, so that they are looked through at once.
const GATHERED: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Node {
    sum: i32,
    /// The highest sum of its first launches, at least one.
    top: i32,
}

impl Node {
    /// Of no launch: beside any other its highest sum does not count.
    const NONE: Self = Self { sum: 0, top: i32::MIN / 2 };

    fn then(self, next: Self) -> Self {
        Self { sum: self.sum + next.sum, top: self.top.max(self.sum + next.top) }
    }
}

impl Default for Need {
    fn default() -> Self {
        Self { nodes: vec![Node::default(); 2 * SPAN], gathered: Vec::with_capacity(GATHERED), asked: None }
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
        let node = SPAN + place(at);
        if let Some((_, sum)) = self.gathered.iter_mut().find(|(other, _)| *other == node) {
            *sum += more;
            return;
        }
        if self.gathered.len() == GATHERED {
            self.settle();
        }
        self.gathered.push((node, more));
    }

    /// Makes the changes that were gathered.
    fn settle(&mut self) {
        let Self { nodes, gathered, .. } = self;
        let (mut list, mut count) = ([0; GATHERED], 0);
        for (node, more) in gathered.drain(..).filter(|&(_, more)| more != 0) {
            nodes[node].sum += more;
            nodes[node].top += more;
            (list[count], count) = (node, count + 1);
        }
        // All of them are on one level, and so are those above them.
        while count > 0 && list[0] > 1 {
            let (mut above, mut changed) = (0, 0);
            for at in 0..count {
                let node = list[at] / 2;
                if node == above {
                    continue;
                }
                above = node;
                let both = nodes[2 * node].then(nodes[2 * node + 1]);
                if nodes[node] != both {
                    nodes[node] = both;
                    (list[changed], changed) = (node, changed + 1);
                }
            }
            count = changed;
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
    fn span(&self, mut left: usize, mut right: usize) -> Option<Node> {
        if left >= right {
            return None;
        }
        // Spans are met from both ends inwards.
        let (mut head, mut tail) = (Node::NONE, Node::NONE);
        (left, right) = (left + SPAN, right + SPAN);
        while left < right {
            if left % 2 == 1 {
                head = head.then(self.nodes[left]);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                tail = self.nodes[right].then(tail);
            }
            (left, right) = (left / 2, right / 2);
        }
        Some(head.then(tail))
    }

    /// The most that more places are taken than before `from`, at any launch from there on.
    pub fn highest(&mut self, from: Ordinal) -> i32 {
        self.highest_within(from, from, from + (SPAN as u64 - 1))
    }

    /// The first place from `start` on at which the sum, which is `sum` before it, exceeds `limit`; else adds all of them to `sum`.
    fn scan(&self, start: usize, sum: &mut i32, limit: i32) -> Option<usize> {
        let mut at = start + SPAN;
        loop {
            // The largest span that begins here.
            at >>= at.trailing_zeros();
            if *sum + self.nodes[at].top > limit {
                return Some(self.descend(at, sum, limit));
            }
            *sum += self.nodes[at].sum;
            at += 1;
            if at.is_power_of_two() {
                return None;
            }
        }
    }

    fn descend(&self, mut at: usize, sum: &mut i32, limit: i32) -> usize {
        while at < SPAN {
            at *= 2;
            if *sum + self.nodes[at].top <= limit {
                *sum += self.nodes[at].sum;
                at += 1;
            }
        }
        at - SPAN
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
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
            from in 0u64..3 * SPAN as u64,
            changes in prop::collection::vec((0usize..40, -3i32..4), 0..60),
            limit in -4i32..12,
            span in (0usize..40, 0usize..40),
        ) {
            let (mut need, mut curve) = (Need::default(), [0; 40]);
            for (after, more) in changes {
                need.add(from + after as u64, more);
                curve[after..].iter_mut().for_each(|taken| *taken += more);
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
