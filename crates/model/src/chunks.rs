//! Root chunks of one device, and the order in which the driver takes them back.
//!
//! Facts 4.2: granularity is one 2 MiB root chunk. Free chunks come first, then the head of *unused* (owned by
//! a block that has nothing on the device any more), then of *discarded* (all 512 pages discarded), then of
//! *used*. The used list is in order of last allocation or last make-resident, not of access.
//!
//! Three lists threaded through one array of links, so that every move is constant time.

const NONE: u32 = u32::MAX;

/// Which list a block's chunk is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    Unused,
    Discarded,
    Used,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
    /// The list, or nothing while the block holds no chunk here.
    on: Option<List>,
}

#[derive(Debug)]
pub(crate) struct Chunks {
    links: Vec<Link>,
    heads: [u32; 3],
    tails: [u32; 3],
    /// By list.
    held: [u64; 3],
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { links: Vec::new(), heads: [NONE; 3], tails: [NONE; 3], held: [0; 3] }
    }

    /// Makes room for slots below `slots`.
    pub(crate) fn grow(&mut self, slots: usize) {
        if self.links.len() < slots {
            self.links.resize(slots, Link { prev: NONE, next: NONE, on: None });
        }
    }

    /// Chunks held by blocks.
    pub(crate) fn held(&self) -> u64 {
        self.held.iter().sum()
    }
    /// Those among them with contents that somebody may need.
    pub(crate) fn used(&self) -> u64 {
        self.held[List::Used as usize]
    }

    pub(crate) fn list_of(&self, slot: usize) -> Option<List> {
        self.links[slot].on
    }

    /// Puts the block's chunk at the tail of `list`; it holds one from now on, if it did not.
    #[expect(clippy::cast_possible_truncation, reason = "slots are u32 where they are made")]
    pub(crate) fn put(&mut self, slot: usize, list: List) {
        self.unlink(slot);
        let (l, at) = (list as usize, slot as u32);
        let tail = self.tails[l];
        self.links[slot] = Link { prev: tail, next: NONE, on: Some(list) };
        match tail {
            NONE => self.heads[l] = at,
            t => self.links[t as usize].next = at,
        }
        self.tails[l] = at;
        self.held[l] += 1;
    }

    /// The block gives its chunk back, if it holds one.
    pub(crate) fn unlink(&mut self, slot: usize) {
        let Link { prev, next, on } = self.links[slot];
        let Some(list) = on else { return };
        match prev {
            NONE => self.heads[list as usize] = next,
            p => self.links[p as usize].next = next,
        }
        match next {
            NONE => self.tails[list as usize] = prev,
            n => self.links[n as usize].prev = prev,
        }
        self.links[slot] = Link { prev: NONE, next: NONE, on: None };
        self.held[list as usize] -= 1;
    }

    /// The block that loses its chunk next when none is free.
    pub(crate) fn victim(&self) -> Option<usize> {
        self.heads.iter().find(|&&h| h != NONE).map(|&h| h as usize)
    }

    /// Slots of one list, head first.
    #[cfg(test)]
    pub(crate) fn in_order(&self, list: List) -> Vec<usize> {
        let mut out = Vec::new();
        let mut at = self.heads[list as usize];
        while at != NONE {
            out.push(at as usize);
            at = self.links[at as usize].next;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unused_goes_before_discarded_before_used() {
        let mut c = Chunks::new();
        c.grow(6);
        for (slot, list) in
            [(0, List::Used), (1, List::Used), (2, List::Discarded), (3, List::Unused), (4, List::Unused)]
        {
            c.put(slot, list);
        }
        let mut order = Vec::new();
        while let Some(v) = c.victim() {
            order.push(v);
            c.unlink(v);
        }
        assert_eq!(order, [3, 4, 2, 0, 1]);
        assert_eq!(c.held(), 0);
    }

    proptest! {
        #[test]
        fn equals_plain_vectors(ops in prop::collection::vec((0usize..12, 0u8..4), 0..200)) {
            let mut fast = Chunks::new();
            fast.grow(12);
            let mut slow: [Vec<usize>; 3] = Default::default();
            for (slot, op) in ops {
                slow.iter_mut().for_each(|l| l.retain(|&s| s != slot));
                match [List::Unused, List::Discarded, List::Used].get(op as usize) {
                    Some(&list) => {
                        fast.put(slot, list);
                        slow[op as usize].push(slot);
                    }
                    None => fast.unlink(slot),
                }
                for list in [List::Unused, List::Discarded, List::Used] {
                    prop_assert_eq!(&fast.in_order(list), &slow[list as usize]);
                }
                prop_assert_eq!(fast.used(), slow[List::Used as usize].len() as u64);
                prop_assert_eq!(fast.held(), slow.iter().map(|l| l.len() as u64).sum::<u64>());
                prop_assert_eq!(fast.victim(), slow.iter().flatten().next().copied());
            }
        }
    }
}
