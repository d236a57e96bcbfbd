//! The launches the program has issued and the GPU has not finished.
//!
//! Problem: the host runs hundreds of launches ahead of the GPU, so "the current launch" is not the one
//! issued last; a fault notice carries no kernel and no stream (facts 2.5).
//! Idea: keep every issued launch until its stream's progress word passes it. The oldest unfinished one of a
//! stream is the one the GPU executes there. A fault belongs to the executing launch whose arguments reach
//! the block; if none or several do, to the one of the stream that progressed last.
//!
//! Invariants: launches are ordered by sequence number; at most [`LIMIT`] are held: when one more comes, the
//! oldest counts as finished (a lost progress word must not stop everything).
//! What a launch may touch is bounded when it is *issued*: later the allocator may have given the memory away.
//! Not here: what a launch is expected to touch (`correlate`, `predict`).

use std::collections::VecDeque;

use crate::event::Launch;
use crate::pt_blocks::PtBlocks;
use crate::sequence::place;
use crate::units::{AddrRange, DevAddr, ExecId, KernelId, LaunchSeq, StreamSlot, UmBlock};

/// Most launches held. CUDA stops the host at about 1,024 launches a stream; this is room for several.
pub const LIMIT: usize = 8192;

/// How far one operand of a launch is followed before the next: 32 MiB, one call of the mover (facts 4.1).
pub const STRIDE: usize = 16;

/// Streams told apart where a fault is attributed: all that have a progress word. Their slots are drawn from the whole range, whatever their number.
const STREAMS: usize = 512;

/// One issued launch, or a copy by a call of CUDA.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its place in the device's sequence.
    pub seq: LaunchSeq,
    /// Where it runs.
    pub stream: StreamSlot,
    /// What it is, unless all execution IDs are given out or it is a copy.
    pub exec: Option<ExecId>,
    /// Which kernel; nothing for a copy.
    pub kernel: Option<KernelId>,
    /// What its managed pointers may reach, in argument order, repeats left out.
    pub reach: Vec<AddrRange>,
    finished: bool,
}

impl Issued {
    /// Whether it is a copy: in use like a launch, and otherwise none.
    pub const fn is_copy(&self) -> bool {
        self.kernel.is_none()
    }
    /// Whether the launch may touch `block`, judging by its arguments. A launch without managed pointers
    /// rules nothing out: it may find addresses in memory.
    pub fn may_touch(&self, block: UmBlock) -> bool {
        self.reach.is_empty() || self.reaches(block)
    }
    /// Whether a managed pointer among its arguments reaches into `block`.
    pub fn reaches(&self, block: UmBlock) -> bool {
        let (start, end) = (block.start(), block.range().end());
        self.reach.iter().any(|range| range.start < end && range.end() > start)
    }
    /// Every block its arguments reach into; one named by two arguments comes twice. Operands advance together, as
    /// they do in a kernel, in strides of up to [`STRIDE`] blocks of the longest.
    pub fn blocks(&self) -> impl Iterator<Item = UmBlock> + '_ {
        let longest = self.reach.iter().map(|range| range.blocks().len()).max().unwrap_or(0);
        let strides = longest.div_ceil(STRIDE);
        (0..strides).flat_map(move |n| {
            self.reach.iter().flat_map(move |range| {
                let (base, len) = (UmBlock::containing(range.start).0, range.blocks().len());
                (len * n / strides..len * (n + 1) / strides).map(move |at| UmBlock(base + at as u64))
            })
        })
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    done: LaunchSeq,
    /// When `done` last moved, counted in progress events.
    moved: u64,
    /// Its launches that are not finished.
    waiting: u32,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Window {
    launches: VecDeque<Issued>,
    /// What the copies among them reach, and whether one writes anything managed.
    copies: VecDeque<(LaunchSeq, AddrRange, bool)>,
    streams: Vec<Stream>,
    /// Streams with launches that are not finished.
    busy: usize,
    progress_events: u64,
    spare: Vec<Vec<AddrRange>>,
}

impl Window {
    /// The program issued `launch`, which may touch what it reaches. If the window is full, the oldest launch leaves it and is returned.
    pub fn issue(&mut self, launch: &Launch<'_>, exec: Option<ExecId>, reach: Vec<AddrRange>) -> Option<Issued> {
        self.insert(launch.seq, launch.stream, exec, Some(launch.kernel), reach)
    }

    /// What these pointers may reach, in their order, repeats left out; for [`Self::issue`].
    pub fn reach(&mut self, pointers: &[DevAddr], map: &PtBlocks) -> Vec<AddrRange> {
        let mut reach = self.spare.pop().unwrap_or_default();
        for &pointer in pointers {
            if let Some(range) = map.reach(pointer)
                && !reach.contains(&range)
            {
                reach.push(range);
            }
        }
        reach
    }

    /// The program issued a copy of `range`; what one copy reads and writes comes one after the other. If the window is full, the oldest launch leaves
    /// it and is returned.
    pub fn issue_copy(&mut self, seq: LaunchSeq, stream: StreamSlot, range: AddrRange, write: bool) -> Option<Issued> {
        let at = self.copies.partition_point(|&(other, ..)| other < seq);
        let mut writes = write;
        for (.., same) in self.copies.range_mut(at..).take_while(|(other, ..)| *other == seq) {
            writes |= *same;
            *same |= write;
        }
        self.copies.insert(at, (seq, range, writes));
        if let Some(same) = self.launches.back_mut().filter(|last| last.seq == seq) {
            same.reach.push(range);
            return None;
        }
        let mut reach = self.spare.pop().unwrap_or_default();
        reach.push(range);
        self.insert(seq, stream, None, None, reach)
    }

    fn insert(
        &mut self,
        seq: LaunchSeq,
        stream: StreamSlot,
        exec: Option<ExecId>,
        kernel: Option<KernelId>,
        reach: Vec<AddrRange>,
    ) -> Option<Issued> {
        let slot = stream.0 as usize;
        // Where no progress is reported nothing is waited for.
        let finished = stream == StreamSlot::NONE || {
            if self.streams.len() <= slot {
                self.streams.resize_with(slot + 1, Stream::default);
            }
            // A record may come after its own progress word.
            seq <= self.streams[slot].done
        };
        if !finished {
            self.count(slot, 1);
        }
        let issued = Issued { seq, stream, exec, kernel, reach, finished };
        // Threads that launch at once may write their records in another order than they took numbers.
        match self.launches.back() {
            Some(last) if last.seq > issued.seq => {
                let at = place(&self.launches, issued.seq, |other| other.seq);
                self.launches.insert(at, issued);
            }
            _ => self.launches.push_back(issued),
        }
        let gone = if self.launches.len() > LIMIT { self.launches.pop_front() } else { None };
        if let Some(unfinished) = gone.as_ref().filter(|gone| !gone.finished) {
            self.count(unfinished.stream.0 as usize, -1);
        }
        gone
    }

    /// A stream has so many more launches that are not finished.
    fn count(&mut self, slot: usize, more: i32) {
        let waiting = &mut self.streams[slot].waiting;
        let before = std::mem::replace(waiting, waiting.saturating_add_signed(more));
        match (before, *waiting) {
            (0, 1..) => self.busy += 1,
            (1.., 0) => self.busy -= 1,
            _ => {}
        }
    }

    /// The GPU finished every launch of `stream` up to `done`. Call [`Self::pop_finished`] until it gives nothing.
    pub fn progress(&mut self, stream: StreamSlot, done: LaunchSeq) {
        self.progress_events += 1;
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return };
        if done <= state.done {
            return;
        }
        let before = state.done;
        (state.done, state.moved) = (done, self.progress_events);
        let mut over = 0;
        let first = place(&self.launches, before.plus(1), |launch| launch.seq);
        for launch in self.launches.range_mut(first..) {
            if launch.seq > done {
                break;
            }
            if launch.stream == stream && !launch.finished {
                launch.finished = true;
                over += 1;
            }
        }
        self.count(stream.0 as usize, -over);
    }

    /// Takes out the oldest launch if it is finished. Give it back with [`Self::recycle`].
    pub fn pop_finished(&mut self) -> Option<Issued> {
        self.launches.pop_front_if(|launch| launch.finished)
    }

    /// A launch left: its memory is used again.
    pub fn recycle(&mut self, mut launch: Issued) {
        if launch.is_copy() {
            self.copies.retain(|&(seq, ..)| seq > launch.seq);
        }
        launch.reach.clear();
        self.spare.push(launch.reach);
    }

    /// All that are issued and not over, oldest first.
    pub fn launches(&self) -> impl Iterator<Item = &Issued> {
        self.launches.iter()
    }
    /// The oldest launch or copy that is not finished: everything before it is over.
    pub fn oldest(&self) -> Option<&Issued> {
        self.launches.front()
    }
    /// The oldest launch that is not finished, copies passed over.
    pub fn executing(&self) -> Option<&Issued> {
        self.launches.iter().find(|launch| !launch.is_copy())
    }
    /// The launch with this number, if it is not over.
    pub fn get(&self, seq: LaunchSeq) -> Option<&Issued> {
        let at = place(&self.launches, seq, |launch| launch.seq);
        self.launches.get(at).filter(|launch| launch.seq == seq)
    }
    /// The first launch or copy after `seq`.
    pub fn after(&self, seq: LaunchSeq) -> Option<&Issued> {
        self.launches.get(place(&self.launches, seq.plus(1), |launch| launch.seq))
    }
    /// Whether the executing launch, or a copy that is not finished, reaches into `block`.
    pub fn uses(&self, block: UmBlock) -> bool {
        let (start, end) = (block.start(), block.range().end());
        self.oldest().is_some_and(|launch| launch.reaches(block))
            || self.copies.iter().any(|(_, range, _)| range.start < end && range.end() > start)
    }
    /// Whether a copy that only reads, and so probably goes to the host, is issued and not over.
    pub fn has_reading_copy(&self) -> bool {
        self.copies.iter().any(|&(.., writes)| !writes)
    }
    /// Whether everything told up to `seq` is finished.
    pub fn is_over(&self, seq: LaunchSeq) -> bool {
        self.oldest().is_none_or(|launch| launch.seq > seq)
    }
    /// How many launches are issued and not over.
    pub fn len(&self) -> usize {
        self.launches.len()
    }
    /// Whether the GPU has nothing of ours to do.
    pub fn is_empty(&self) -> bool {
        self.launches.is_empty()
    }

    /// Everything of `stream` up to this one is finished, told or not.
    pub fn done(&self, stream: StreamSlot) -> LaunchSeq {
        self.streams.get(stream.0 as usize).map_or(LaunchSeq(0), |stream| stream.done)
    }

    /// The launch a fault on `block` belongs to. See the module.
    pub fn attribute(&self, block: UmBlock) -> Option<&Issued> {
        let mut best: Option<(&Issued, (bool, u64))> = None;
        let mut unseen = self.busy;
        let mut seen = [0u64; STREAMS / 64];
        for launch in &self.launches {
            let stream = launch.stream.0 as usize;
            if launch.finished {
                continue;
            }
            if let Some(word) = seen.get_mut(stream / 64) {
                if *word & (1 << (stream % 64)) != 0 {
                    continue;
                }
                *word |= 1 << (stream % 64);
            }
            let rank = (launch.reaches(block), self.streams[stream].moved);
            if best.is_none_or(|(_, other)| rank > other) {
                best = Some((launch, rank));
            }
            unseen -= 1;
            if unseen == 0 {
                break;
            }
        }
        best.map(|(launch, _)| launch)
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.waiting = 0);
        self.busy = 0;
        self.launches.clear();
        self.copies.clear();
    }
}

#[cfg(test)]
mod tests;
