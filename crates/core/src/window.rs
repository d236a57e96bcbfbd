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
use crate::units::{AddrRange, ExecId, LaunchSeq, StreamSlot, UmBlock};

/// Most launches held. CUDA stops the host at about 1,024 launches a stream; this is room for several.
pub const LIMIT: usize = 8192;

/// How far one operand of a launch is followed before the next: 32 MiB, one call of the mover (facts 4.1).
pub const STRIDE: usize = 16;

/// One issued launch, or a copy by a call of CUDA.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its place in the device's sequence.
    pub seq: LaunchSeq,
    /// Where it runs.
    pub stream: StreamSlot,
    /// What it is, unless all execution IDs are given out or it is a copy.
    pub exec: Option<ExecId>,
    /// Whether it is a copy: in use like a launch, and otherwise none.
    pub copy: bool,
    /// What its managed pointers may reach, in argument order, repeats left out.
    pub reach: Vec<AddrRange>,
    finished: bool,
}

impl Issued {
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
}

/// See the module.
#[derive(Default, Debug)]
pub struct Window {
    launches: VecDeque<Issued>,
    /// What the copies among them reach.
    copies: VecDeque<(LaunchSeq, AddrRange)>,
    streams: Vec<Stream>,
    progress_events: u64,
    spare: Vec<Vec<AddrRange>>,
}

impl Window {
    /// The program issued `launch`. If the window is full, the oldest launch leaves it and is returned.
    pub fn issue(&mut self, launch: &Launch<'_>, exec: Option<ExecId>, map: &PtBlocks) -> Option<Issued> {
        let mut reach = self.spare.pop().unwrap_or_default();
        for &pointer in launch.pointers {
            if let Some(range) = map.reach(pointer)
                && !reach.contains(&range)
            {
                reach.push(range);
            }
        }
        self.insert(launch.seq, launch.stream, exec, false, reach)
    }

    /// The program issued a copy of `range`. If the window is full, the oldest launch leaves it and is returned.
    pub fn issue_copy(&mut self, seq: LaunchSeq, stream: StreamSlot, range: AddrRange) -> Option<Issued> {
        let mut reach = self.spare.pop().unwrap_or_default();
        reach.push(range);
        let at = self.copies.partition_point(|&(other, _)| other < seq);
        self.copies.insert(at, (seq, range));
        self.insert(seq, stream, None, true, reach)
    }

    fn insert(
        &mut self,
        seq: LaunchSeq,
        stream: StreamSlot,
        exec: Option<ExecId>,
        copy: bool,
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
        let issued = Issued { seq, stream, exec, copy, reach, finished };
        // Threads that launch at once may write their records in another order than they took numbers.
        match self.launches.back() {
            Some(last) if last.seq > issued.seq => {
                let at = place(&self.launches, issued.seq, |other| other.seq);
                self.launches.insert(at, issued);
            }
            _ => self.launches.push_back(issued),
        }
        if self.launches.len() > LIMIT { self.launches.pop_front() } else { None }
    }

    /// The GPU finished every launch of `stream` up to `done`. Call [`Self::pop_finished`] until it gives nothing.
    pub fn progress(&mut self, stream: StreamSlot, done: LaunchSeq) {
        self.progress_events += 1;
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return };
        if done <= state.done {
            return;
        }
        let before = state.done;
        *state = Stream { done, moved: self.progress_events };
        let first = place(&self.launches, before.plus(1), |launch| launch.seq);
        for launch in self.launches.range_mut(first..) {
            if launch.seq > done {
                break;
            }
            launch.finished |= launch.stream == stream;
        }
    }

    /// Takes out the oldest launch if it is finished. Give it back with [`Self::recycle`].
    pub fn pop_finished(&mut self) -> Option<Issued> {
        self.launches.pop_front_if(|launch| launch.finished)
    }

    /// A launch left: its memory is used again.
    pub fn recycle(&mut self, mut launch: Issued) {
        if launch.copy {
            self.copies.retain(|&(seq, _)| seq > launch.seq);
        }
        launch.reach.clear();
        self.spare.push(launch.reach);
    }

    /// The oldest launch or copy that is not finished: everything before it is over.
    pub fn oldest(&self) -> Option<&Issued> {
        self.launches.front()
    }
    /// The oldest launch that is not finished, copies passed over.
    pub fn executing(&self) -> Option<&Issued> {
        self.after(LaunchSeq(0))
    }
    /// The launch with this number, if it is not over.
    pub fn get(&self, seq: LaunchSeq) -> Option<&Issued> {
        let at = place(&self.launches, seq, |launch| launch.seq);
        self.launches.get(at).filter(|launch| launch.seq == seq)
    }
    /// The first launch after `seq`; copies are passed over.
    pub fn after(&self, seq: LaunchSeq) -> Option<&Issued> {
        let first = place(&self.launches, seq.plus(1), |launch| launch.seq);
        self.launches.range(first..).find(|launch| !launch.copy)
    }
    /// Whether the executing launch, or a copy that is not finished, reaches into `block`.
    pub fn uses(&self, block: UmBlock) -> bool {
        let (start, end) = (block.start(), block.range().end());
        self.oldest().is_some_and(|launch| launch.reaches(block))
            || self.copies.iter().any(|(_, range)| range.start < end && range.end() > start)
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

    /// The launch a fault on `block` belongs to. See the module.
    pub fn attribute(&self, block: UmBlock) -> Option<&Issued> {
        let mut best: Option<(&Issued, (bool, u64))> = None;
        let mut unseen = self.streams.len();
        let mut seen = [0u64; 4];
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
        self.launches.clear();
        self.copies.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, DevAddr, LaunchKey};

    fn issue(window: &mut Window, map: &PtBlocks, seq: u64, stream: u16, pointers: &[DevAddr]) {
        let launch = Launch { seq: LaunchSeq(seq), stream: StreamSlot(stream), key: LaunchKey(seq), pointers };
        window.issue(&launch, Some(ExecId(0)), map);
    }
    fn finish(window: &mut Window, stream: u16, done: u64) -> Vec<u64> {
        window.progress(StreamSlot(stream), LaunchSeq(done));
        std::iter::from_fn(|| window.pop_finished().map(|launch| launch.seq.0)).collect()
    }
    fn map() -> PtBlocks {
        let mut map = PtBlocks::default();
        map.alloc(AddrRange::new(DevAddr(0), Bytes::mib(100)));
        map.report(AddrRange::new(DevAddr(0), Bytes::mib(3)), true, LaunchSeq(0), LaunchSeq(0));
        map.report(AddrRange::new(UmBlock(10).start(), Bytes::mib(2)), true, LaunchSeq(0), LaunchSeq(0));
        map
    }

    #[test]
    fn a_launch_may_touch_what_its_pointers_reach() {
        let mut window = Window::default();
        issue(&mut window, &map(), 1, 0, &[DevAddr(5), DevAddr(6), UmBlock(10).start()]);
        let blocks: Vec<u64> = window.get(LaunchSeq(1)).unwrap().blocks().map(|block| block.0).collect();
        assert_eq!(blocks, [0, 1, 10], "the second pointer names the same PT block again");
        assert!(!window.get(LaunchSeq(1)).unwrap().may_touch(UmBlock(2)));
    }

    #[test]
    fn operands_advance_together() {
        let mut map = PtBlocks::default();
        map.report(AddrRange::new(UmBlock(100).start(), Bytes::mib(2 * 40)), true, LaunchSeq(0), LaunchSeq(0));
        map.report(AddrRange::new(UmBlock(200).start(), Bytes::mib(2 * 3)), true, LaunchSeq(0), LaunchSeq(0));
        let mut window = Window::default();
        issue(&mut window, &map, 1, 0, &[UmBlock(100).start(), UmBlock(200).start()]);
        let blocks: Vec<u64> = window.get(LaunchSeq(1)).unwrap().blocks().map(|block| block.0).collect();
        let expected: Vec<u64> =
            (100..113).chain([200]).chain(113..126).chain([201]).chain(126..140).chain([202]).collect();
        assert_eq!(blocks, expected);
    }

    #[test]
    fn launches_leave_in_order_when_their_stream_has_passed_them() {
        let (mut window, map) = (Window::default(), map());
        for (seq, stream) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            issue(&mut window, &map, seq, stream, &[]);
        }
        assert_eq!(finish(&mut window, 0, 3), [1], "2 still runs, so 3 waits behind it");
        assert_eq!(window.oldest().unwrap().seq, LaunchSeq(2));
        assert_eq!(finish(&mut window, 1, 2), [2, 3]);
        assert_eq!(finish(&mut window, 1, 4), [4]);
    }

    #[test]
    fn records_out_of_order_are_sorted_and_a_late_record_is_over_at_once() {
        let (mut window, map) = (Window::default(), map());
        issue(&mut window, &map, 2, 0, &[]);
        issue(&mut window, &map, 1, 0, &[]);
        assert_eq!(window.oldest().unwrap().seq, LaunchSeq(1));
        assert_eq!(finish(&mut window, 0, 3), [1, 2]);
        issue(&mut window, &map, 3, 0, &[]);
        assert_eq!(window.pop_finished().map(|launch| launch.seq.0), Some(3));
    }

    #[test]
    fn a_launch_of_which_no_progress_is_known_holds_nobody_up() {
        let (mut window, map) = (Window::default(), map());
        issue(&mut window, &map, 1, StreamSlot::NONE.0, &[DevAddr(0)]);
        issue(&mut window, &map, 2, 0, &[DevAddr(0)]);
        assert_eq!(window.attribute(UmBlock(0)).map(|launch| launch.seq.0), Some(2));
        assert_eq!(finish(&mut window, 0, 2), [1, 2]);
    }

    #[test]
    fn a_fault_belongs_to_the_executing_launch_that_reaches_it_else_to_the_stream_that_moved_last() {
        let (mut window, map) = (Window::default(), map());
        issue(&mut window, &map, 1, 0, &[DevAddr(0)]);
        issue(&mut window, &map, 2, 1, &[UmBlock(10).start()]);
        issue(&mut window, &map, 3, 1, &[UmBlock(50).start()]);
        let owner = |window: &Window, block| window.attribute(UmBlock(block)).map(|launch| launch.seq.0);
        assert_eq!(owner(&window, 10), Some(2));
        assert_eq!(owner(&window, 1), Some(1));
        assert_eq!(owner(&window, 50), Some(1), "3 is not executing: 2 is before it; no stream has moved");
        finish(&mut window, 1, 2);
        assert_eq!(owner(&window, 50), Some(3));
        assert_eq!(owner(&window, 200), Some(3), "reached by none: stream 1 moved last");
        assert_eq!(owner(&Window::default(), 1), None);
    }

    #[test]
    fn a_copy_keeps_its_blocks_in_use_and_is_no_launch() {
        let (mut window, map) = (Window::default(), map());
        issue(&mut window, &map, 1, 0, &[DevAddr(0)]);
        let copied = AddrRange::new(UmBlock(10).start(), Bytes::mib(1));
        assert!(window.issue_copy(LaunchSeq(2), StreamSlot(0), copied).is_none());
        issue(&mut window, &map, 3, 0, &[DevAddr(0)]);
        assert_eq!(window.after(LaunchSeq(1)).map(|launch| launch.seq.0), Some(3));
        assert!(window.uses(UmBlock(10)), "though another one is executing");
        assert_eq!(finish(&mut window, 0, 1), [1]);
        assert!(window.oldest().is_some_and(|copy| copy.copy && copy.reaches(UmBlock(10))));
        assert!(window.is_over(LaunchSeq(1)) && !window.is_over(LaunchSeq(2)));
        assert_eq!(window.attribute(UmBlock(10)).map(|owner| owner.exec), Some(None), "its faults teach nothing");
        while let Some(over) = {
            window.progress(StreamSlot(0), LaunchSeq(3));
            window.pop_finished()
        } {
            window.recycle(over);
        }
        assert!(!window.uses(UmBlock(10)));
    }

    #[test]
    fn a_full_window_lets_the_oldest_go() {
        let (mut window, map) = (Window::default(), map());
        for seq in 1..=LIMIT as u64 {
            issue(&mut window, &map, seq, 0, &[]);
        }
        let launch =
            Launch { seq: LaunchSeq(LIMIT as u64 + 1), stream: StreamSlot(0), key: LaunchKey(0), pointers: &[] };
        assert_eq!(window.issue(&launch, None, &map).map(|gone| gone.seq), Some(LaunchSeq(1)));
        assert_eq!(window.len(), LIMIT);
    }
}
