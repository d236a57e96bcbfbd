//! Which part of a stream-ordered pool is whose: blocks handed out from slabs, and what may be handed out again, to whom.
//!
//! Problem: memory freed in stream order is free *once the stream has got there*. The stream that freed it may have it back at once,
//! because its work is in order; anybody else must wait, or know that the stream has got there (facts 4.8).
//!
//! Idea: what is not handed out is *spare*, in pieces: of everybody, or freed by one stream behind a mark. A block is the shortest run of
//! neighbouring pieces that its stream may use, lowest address first, so that the same calls give the same addresses. Runs are looked for anew each
//! time; pieces of everybody are joined. As in PyTorch's own allocator, small blocks share slabs of their own, and those of middling size
//! come from slabs with room for several.
//!
//! Invariants: blocks and pieces do not overlap and together are the slabs; a run never crosses slabs; a piece is of
//! everybody only once its mark was passed. What a mark is, and whether it was passed, is the caller's to say: the shim's pools and the emulated device's
//! both keep their books here.

use crate::units::{AddrRange, Bytes, DevAddr, UmBlock};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks start at multiples of this.
const ALIGN: u64 = 512;
/// Blocks below this size share slabs of [`SMALL_SLAB`].
const SMALL: Bytes = Bytes::mib(1);
const SMALL_SLAB: Bytes = UmBlock::SIZE;
/// Blocks below this size come from slabs of [`SHARED_SLAB`]; larger ones have slabs of their size.
const SHARED: Bytes = Bytes::mib(10);
const SHARED_SLAB: Bytes = Bytes::mib(20);

/// A stream: one number for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamKey(pub u64);

/// An amount, and the most it was.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Gauge {
    /// The amount.
    pub now: Bytes,
    /// The most it was since it was last reset.
    pub high: Bytes,
}

impl Gauge {
    fn add(&mut self, more: Bytes) {
        self.now += more;
        self.high = self.high.max(self.now);
    }
    fn sub(&mut self, less: Bytes) {
        self.now = self.now.saturating_sub(less);
    }
    /// From now on the most is counted anew.
    pub fn reset(&mut self) {
        self.high = self.now;
    }
}

#[derive(Clone, Copy, Debug)]
struct Slab {
    len: Bytes,
    small: bool,
}

/// Who freed a piece, and behind which mark; nothing if it is of everybody.
type Freed<M> = Option<(StreamKey, M)>;

#[derive(Clone, Copy, Debug)]
struct Piece<M> {
    len: Bytes,
    freed: Freed<M>,
}

/// A block that others had, and what its stream must wait for before it uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken<M> {
    /// The block.
    pub block: AddrRange,
    /// Who freed it, and behind which marks.
    pub behind: Vec<(StreamKey, M)>,
}

/// One pool.
#[derive(Debug)]
pub struct Pool<M> {
    slabs: BTreeMap<DevAddr, Slab>,
    live: BTreeMap<DevAddr, Bytes>,
    spare: BTreeMap<DevAddr, Piece<M>>,
    /// Bytes of slabs.
    pub reserved: Gauge,
    /// Bytes of blocks.
    pub used: Gauge,
}

impl<M> Default for Pool<M> {
    fn default() -> Self {
        let (reserved, used) = (Gauge::default(), Gauge::default());
        Self { slabs: BTreeMap::new(), live: BTreeMap::new(), spare: BTreeMap::new(), reserved, used }
    }
}

fn whole(len: Bytes) -> Option<Bytes> {
    len.0.checked_next_multiple_of(ALIGN).filter(|&len| len > 0).map(Bytes)
}

impl<M: Copy> Pool<M> {
    /// How long a slab has to be for a block of `len`, where no slab has room.
    #[must_use]
    pub fn slab_for(len: Bytes) -> Bytes {
        match len {
            _ if len < SMALL => SMALL_SLAB,
            _ if len < SHARED => SHARED_SLAB,
            _ => len.round_up_to_blocks(),
        }
    }

    /// A slab came, for a block of `len`.
    pub fn grow(&mut self, slab: AddrRange, len: Bytes) {
        self.slabs.insert(slab.start, Slab { len: slab.len, small: len < SMALL });
        self.spare.insert(slab.start, Piece { len: slab.len, freed: None });
        self.reserved.add(slab.len);
    }

    /// A block of `len` that `stream` may use at once, if a slab has room. Nothing for no bytes.
    pub fn take(&mut self, len: Bytes, stream: StreamKey) -> Option<AddrRange> {
        self.find(len, |freed| freed.is_none_or(|(by, _)| by == stream)).map(|(block, _)| block)
    }

    /// A block of `len`, also of what other streams freed.
    pub fn take_of_others(&mut self, len: Bytes, stream: StreamKey) -> Option<Taken<M>> {
        let (block, freed) = self.find(len, |_| true)?;
        Some(Taken { block, behind: freed.into_iter().filter(|&(by, _)| by != stream).collect() })
    }

    /// The shortest run that is long enough, of pieces that `usable` allows; whose it was.
    fn find(&mut self, len: Bytes, usable: impl Fn(Freed<M>) -> bool) -> Option<(AddrRange, Vec<(StreamKey, M)>)> {
        let len = whole(len)?;
        let mut best: Option<AddrRange> = None;
        let slabs = self.slabs.iter().filter(|(_, slab)| slab.small == (len < SMALL) && slab.len >= len);
        for (&start, slab) in slabs {
            let mut run = AddrRange::new(start, Bytes(0));
            for (&at, piece) in self.spare.range(start..start.offset(slab.len)) {
                if !usable(piece.freed) {
                    continue;
                }
                run = if run.end() == at {
                    AddrRange::new(run.start, run.len + piece.len)
                } else {
                    AddrRange::new(at, piece.len)
                };
                let ends = self.spare.get(&run.end()).is_none_or(|next| !usable(next.freed))
                    || run.end() == start.offset(slab.len);
                if ends && run.len >= len && best.is_none_or(|best| run.len < best.len) {
                    best = Some(run);
                }
            }
            if best.is_some_and(|best| best.len == len) {
                break;
            }
        }
        let block = AddrRange::new(best?.start, len);
        let freed = self.cut(block);
        self.live.insert(block.start, len);
        self.used.add(len);
        Some((block, freed))
    }

    /// Takes pieces away, whole but for the end of the last; whose they were.
    fn cut(&mut self, block: AddrRange) -> Vec<(StreamKey, M)> {
        let starts: Vec<DevAddr> = self.spare.range(block.start..block.end()).map(|(&at, _)| at).collect();
        let mut freed = Vec::new();
        for at in starts {
            let Some(piece) = self.spare.remove(&at) else { continue };
            freed.extend(piece.freed);
            let left = at.offset(piece.len).0.saturating_sub(block.end().0);
            if left > 0 {
                self.spare.insert(block.end(), Piece { len: Bytes(left), freed: piece.freed });
            }
        }
        freed
    }

    /// The block at `start` is given back: by a stream behind a mark, or to everybody. Which block it was, if there is one.
    pub fn give(&mut self, start: DevAddr, freed: Freed<M>) -> Option<AddrRange> {
        let len = self.live.remove(&start)?;
        self.used.sub(len);
        self.spare.insert(start, Piece { len, freed });
        if freed.is_none() {
            self.join(start);
        }
        Some(AddrRange::new(start, len))
    }

    /// Pieces whose mark is `passed` are of everybody from now on.
    pub fn pass(&mut self, mut passed: impl FnMut(StreamKey, M) -> bool) {
        let over = |(&at, piece): (&DevAddr, &Piece<M>)| piece.freed.filter(|&(by, mark)| passed(by, mark)).map(|_| at);
        let over: Vec<DevAddr> = self.spare.iter().filter_map(over).collect();
        for &at in &over {
            if let Some(piece) = self.spare.get_mut(&at) {
                piece.freed = None;
            }
        }
        for at in over {
            self.join(at);
        }
    }

    /// Joins a piece of everybody with its neighbours.
    fn join(&mut self, at: DevAddr) {
        let Some((&slab, _)) = self.slabs.range(..=at).next_back() else { return };
        let Some(mut piece) = self.spare.get(&at).copied().filter(|piece| piece.freed.is_none()) else { return };
        let mut start = at;
        if let Some((&before, other)) = self.spare.range(slab..at).next_back()
            && other.freed.is_none()
            && before.offset(other.len) == at
        {
            (start, piece.len) = (before, piece.len + other.len);
            self.spare.remove(&at);
        }
        while let end = start.offset(piece.len)
            && !self.slabs.contains_key(&end)
            && let Some(other) = self.spare.get(&end).filter(|other| other.freed.is_none())
        {
            piece.len += other.len;
            self.spare.remove(&end);
        }
        self.spare.insert(start, piece);
    }

    /// The streams that freed what is not of everybody yet.
    #[must_use]
    pub fn waiting(&self) -> BTreeSet<StreamKey> {
        self.spare.values().filter_map(|piece| piece.freed.map(|(by, _)| by)).collect()
    }

    /// What `old` freed was freed by `new`: the old number may come to mean another stream.
    pub fn rename(&mut self, old: StreamKey, new: StreamKey) {
        for (by, _) in self.spare.values_mut().filter_map(|piece| piece.freed.as_mut()) {
            if *by == old {
                *by = new;
            }
        }
    }

    /// Takes slabs away of which everything is everybody's, the last first, while no fewer than `keep` bytes stay.
    pub fn shrink(&mut self, keep: Bytes) -> Vec<AddrRange> {
        let idle = |(&start, slab): (&DevAddr, &Slab)| {
            let piece = self.spare.get(&start)?;
            (piece.freed.is_none() && piece.len == slab.len).then_some(AddrRange::new(start, slab.len))
        };
        let mut gone: Vec<AddrRange> = self.slabs.iter().rev().filter_map(idle).collect();
        gone.retain(|slab| {
            let goes = self.reserved.now.saturating_sub(slab.len) >= keep;
            if goes {
                self.lose(slab.start);
            }
            goes
        });
        gone
    }

    fn lose(&mut self, start: DevAddr) {
        if let Some(slab) = self.slabs.remove(&start) {
            self.spare.remove(&start);
            self.reserved.sub(slab.len);
        }
    }

    /// Every slab.
    pub fn slabs(&self) -> impl Iterator<Item = AddrRange> {
        self.slabs.iter().map(|(&start, slab)| AddrRange::new(start, slab.len))
    }

    /// The block that `at` lies in.
    #[must_use]
    pub fn block(&self, at: DevAddr) -> Option<AddrRange> {
        let (&start, &len) = self.live.range(..=at).next_back()?;
        Some(AddrRange::new(start, len)).filter(|block| block.contains(at))
    }
}

#[cfg(test)]
mod tests;
