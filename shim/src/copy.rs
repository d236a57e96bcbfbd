//! Copies and memsets of managed memory take a place in their device's sequence, as launches do.
//!
//! Problem: a block whose tensors are gone may lose its contents only when everybody who was asked before is finished with it,
//! and the GPU's copy engines are asked through doors of their own.
//!
//! Idea: a copy that reads or writes managed memory is issued as a launch is ([`crate::issue`]), also while the engine sleeps. While it is
//! awake, each managed range is a record with the copy's place, written before the driver gets the copy. Copies of anything else cost a
//! look-up of each address.
//!
//! As for launches: the outermost door on the thread records ([`crate::launch`] says how it is known), a refused copy gives its place
//! back, and what enters a graph being captured is the graph's. Unlike launches: a copy has no name to learn by. A memset waits at the gate as a
//! launch does, for its kernel faults as any other; a copy does not, for the copy engine fetches what it needs, and copies are what programs put into streams
//! of their own, to be done beside launches.
//!
//! Invariants: nothing here waits; what the program described is read once, and never beyond what CUDA itself reads of it; a
//! recorded range lies inside one managed allocation, whatever the program said. What goes past the end of one is refused, by us where the driver was asked for more
//! than the program ([`crate::apart`]).
//!
//! Not here: which functions copy ([`crate::symbols::copies`]), and what they are told ([`crate::extent`]).

use crate::abi::{Ptr, SUCCESS, Status};
use crate::extent::Area;
use crate::fence::here;
use crate::issue::Issue;
use crate::launch::{captures, capturing};
use crate::map::BlockMap;
use crate::real::genuine;
use crate::record::Copied;
use crate::{link, progress, pt, registry};
use deepum_core::units::{AddrRange, Bytes, DevAddr, UmBlock};
use deepum_protocol::ring::{Record, Ring};
use deepum_protocol::shared::ShimCounter;
use std::ffi::c_int;

/// A copy in progress, between the two halves of its hook.
pub struct Note {
    issue: Issue,
    /// Several copies in one call: if one is refused, others may be on their way all the same.
    several: bool,
    fills: bool,
    goes_past: bool,
    function: &'static str,
    copied: Copied,
}

impl Note {
    /// The error of a copy past the end of an allocation, where the driver knows of no such end.
    pub fn refusal(&self) -> Option<Status> {
        /// `CUDA_ERROR_INVALID_VALUE`, the same in the runtime.
        const INVALID_VALUE: Status = 1;
        if !self.goes_past || self.several {
            return None;
        }
        // The runtime is to have it as its last error, too, so it is given something that it refuses by the same one.
        if self.function.starts_with("cuda")
            && let Some(set) = genuine!(Cudart, "cudaMemset", fn(Ptr, c_int, usize) -> Status)
        {
            // SAFETY: null is nobody's memory, so nothing is written.
            unsafe { set(std::ptr::null_mut(), 0, 1) };
        }
        Some(INVALID_VALUE)
    }
}

/// What is known of a copy while its ends are looked at.
#[derive(Clone, Copy)]
enum State {
    /// No managed memory yet.
    Elsewhere,
    /// Of managed memory, and seen by a door above this one, or on a device past those we count.
    Passed,
    /// Of managed memory, into a graph.
    Captured,
    /// In the sequence.
    Issued(Issue),
}

/// A copy whose ends are being looked at.
pub struct Copying {
    ring: Ring<'static>,
    stream: Ptr,
    per_thread: bool,
    several: bool,
    /// Whether it is a memset.
    fills: bool,
    exact: bool,
    /// Whether it goes on behind what the program knows of an allocation.
    goes_past: bool,
    state: State,
    function: &'static str,
    copied: Copied,
}

/// The first half: begins to look at a copy by a function of this name.
#[inline]
pub fn begin(function: &'static str, stream: Ptr, per_thread: bool) -> Option<Copying> {
    let (ring, state, copied) = (link::ring()?, State::Elsewhere, Copied::default());
    Some(Copying {
        ring,
        stream,
        per_thread,
        several: false,
        fills: false,
        exact: true,
        goes_past: false,
        state,
        function,
        copied,
    })
}

impl Copying {
    /// Both ends were looked at.
    pub fn end(self) -> Option<Note> {
        let State::Issued(issue) = self.state else { return None };
        let Self { several, fills, goes_past, function, copied, .. } = self;
        Some(Note { issue, several, fills, goes_past, function, copied })
    }

    /// From here on these are several copies, of which some may be refused alone.
    pub fn several(&mut self) {
        self.several = true;
    }

    /// What is looked at may be more than what the copy uses.
    pub fn roughly(&mut self) {
        self.exact = false;
    }

    /// This is a memset.
    pub fn fills(&mut self) {
        self.fills = true;
    }

    /// An area that the copy reads.
    pub fn reads(&mut self, area: Area) {
        self.touches(area, false);
    }

    /// An area that the copy writes.
    pub fn writes(&mut self, area: Area) {
        self.touches(area, true);
    }

    fn touches(&mut self, area: Area, write: bool) {
        if area.len == 0 {
            return;
        }
        let Some(range) = within(registry::map(), area) else { return };
        self.goes_past |= self.exact && range.len.0 < area.len && registry::lies_behind(range.end());
        if matches!(self.state, State::Elsewhere) {
            self.copied.begin();
            self.state = self.issue();
        }
        if matches!(self.state, State::Issued(_)) {
            self.copied.touches(range, write);
        }
        match self.state {
            State::Issued(issue) if issue.awake => {
                let (seq, stream) = (issue.seq, issue.stream());
                self.ring.push(issue.device, &Record::Copy { seq, stream, range, write });
                if self.fills {
                    progress::wait(&self.ring.shared(), self.stream, self.per_thread, issue.device, seq);
                }
            }
            // It runs whenever the graph does, so what it uses is never thrown away from now on.
            State::Captured => pt::pin_all(range),
            State::Issued(_) | State::Passed | State::Elsewhere => {}
        }
    }

    /// Takes a place, if this is the outermost door and the copy is going to run.
    #[inline(never)]
    fn issue(&self) -> State {
        let frame = std::ptr::from_ref(self) as usize;
        let outer = here(|h| h.copy_frame.get());
        if outer != 0 && frame < outer {
            return State::Passed;
        }
        if capturing() && captures(self.stream, self.per_thread) {
            return State::Captured;
        }
        let (shared, device) = (self.ring.shared(), link::current_device());
        let issue = Issue::begin(&shared, device, self.stream, self.per_thread, || shared.take_copy_seq(device));
        here(|h| h.copy_frame.set(if issue.is_some() { frame } else { 0 }));
        issue.map_or(State::Passed, State::Issued)
    }
}

/// The second half.
pub fn after(note: Note, status: Status) {
    here(|h| h.copy_frame.set(0));
    let Some(ring) = link::ring() else { return };
    let (shared, issue) = (ring.shared(), note.issue);
    let refused = status != SUCCESS && !note.several;
    if !refused {
        note.copied.taken(&issue, note.function, note.fills);
    }
    issue.end(&shared, refused);
    note.copied.over();
    if refused {
        shared.give_back_copy_seq(issue.device, issue.seq);
    } else {
        shared.add(ShimCounter::Copies, 1);
    }
}

/// The managed part of an area that begins in managed memory. No copy goes from one allocation into another; what would is
/// cut off where its allocation ends, and refused by the driver.
pub fn within(map: &BlockMap, area: Area) -> Option<AddrRange> {
    let start = DevAddr(area.start);
    let first = map.find(start)?;
    let whole = AddrRange::new(start, Bytes(area.len.min(u64::MAX - area.start)));
    let same = |block: UmBlock| map.find(block.start()).is_some_and(|found| found.ordinal == first.ordinal);
    if same(UmBlock::containing(DevAddr(whole.end().0 - 1))) {
        return Some(whole);
    }
    let last = whole.blocks().take_while(|&block| same(block)).last()?;
    Some(AddrRange::new(start, Bytes(last.range().end().0 - start.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = UmBlock::SIZE.0;

    #[test]
    fn an_area_is_cut_off_where_its_allocation_ends() {
        let map = Box::new(BlockMap::new());
        let blocks = |first: u64, count: u64| AddrRange::new(UmBlock(first).start(), Bytes(count * SIZE));
        map.insert(blocks(100, 3), 1);
        map.insert(blocks(103, 2), 2);
        let of = |start: u64, len: u64| within(&map, Area { start, len }).map(|range| (range.start.0, range.len.0));
        assert_eq!(of(100 * SIZE + 5, 7), Some((100 * SIZE + 5, 7)));
        assert_eq!(of(100 * SIZE, 3 * SIZE), Some((100 * SIZE, 3 * SIZE)));
        assert_eq!(of(101 * SIZE + 1, 9 * SIZE), Some((101 * SIZE + 1, 2 * SIZE - 1)));
        assert_eq!(of(104 * SIZE, u64::MAX), Some((104 * SIZE, SIZE)));
        assert_eq!(of(99 * SIZE, 5 * SIZE), None, "begins elsewhere");
        assert_eq!(of(u64::MAX, 5), None);
    }
}
