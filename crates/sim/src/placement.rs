//! Where tensors lie when PyTorch's caching allocator places them, instead of where the trace says.
//!
//! Problem: in G10's profiles no address is used twice in an iteration, and a recorded program's addresses are those of the GPU and the settings
//! it was recorded with. In life tensors share UM blocks, blocks are cut, merged and used again, and dead bytes lie among live ones.
//! Idea: every PT block of the [`Script`] is asked for again, in the same order, of an [`Allocator`] that works as PyTorch's, and what launches
//! touch and point to goes along. Allocations that PyTorch cut its blocks from are replaced by the allocator's segments; others stay.
//!
//! Bytes that a launch touches in no PT block hold nothing that matters, and are left out. A launch's key is made anew from its kernel and its
//! pointers, as the shim makes it.

mod allocator;

pub use allocator::Allocator;

use crate::replay::{Does, Script, Step, What, Work};
use deepum_core::mix::Mix;
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, Nanos, UmBlock};
use deepum_trace::event::{NameId, Touch};
use std::collections::BTreeMap;

/// The script with its PT blocks placed anew.
#[must_use]
pub fn as_pytorch(script: &Script) -> Script {
    let mut placing = Placing::new(script);
    for step in &script.steps {
        placing.step(step);
    }
    Script { header: script.header.clone(), names: script.names.clone(), steps: placing.steps, lost: script.lost }
}

/// A piece of address space of the trace, and what is there now.
#[derive(Clone, Copy, Debug)]
struct Piece {
    len: Bytes,
    now: DevAddr,
}

struct Placing {
    allocator: Allocator,
    /// Allocations that stay, by their start.
    stays: BTreeMap<DevAddr, Bytes>,
    /// PT blocks that hold a tensor.
    live: BTreeMap<DevAddr, Piece>,
    /// Starts of allocations that no PT block lies in.
    others: Vec<AddrRange>,
    steps: Vec<Step>,
    /// The host's time of steps that were left out.
    owed: Nanos,
}

impl Placing {
    fn new(script: &Script) -> Self {
        let mut open: BTreeMap<DevAddr, (Bytes, bool)> = BTreeMap::new();
        let mut others = Vec::new();
        let mut top = DevAddr(0);
        for step in &script.steps {
            match step.does {
                Does::Alloc(range) => {
                    top = top.max(range.end());
                    open.insert(range.start, (range.len, false));
                }
                Does::Free(range) => {
                    if let Some((len, false)) = open.remove(&range.start) {
                        others.push(AddrRange::new(range.start, len));
                    }
                }
                Does::PtBlock { range, active: true } => {
                    if let Some((_, (_, cut))) = open.range_mut(..=range.start).next_back() {
                        *cut = true;
                    }
                }
                _ => {}
            }
        }
        others
            .extend(open.into_iter().filter(|(_, (_, cut))| !cut).map(|(start, (len, _))| AddrRange::new(start, len)));
        Self {
            allocator: Allocator::new(DevAddr(Bytes(top.0).round_up_to_blocks().0 + UmBlock::SIZE.0)),
            stays: BTreeMap::new(),
            live: BTreeMap::new(),
            others,
            steps: Vec::new(),
            owed: Nanos::ZERO,
        }
    }

    fn step(&mut self, step: &Step) {
        self.owed += step.own;
        match &step.does {
            Does::Alloc(range) => {
                if self.others.contains(range) {
                    self.stays.insert(range.start, range.len);
                    self.does(Does::Alloc(*range));
                }
            }
            Does::Free(range) => {
                if self.stays.remove(&range.start).is_some() {
                    self.does(Does::Free(*range));
                }
            }
            Does::PtBlock { range, active: true } => {
                let (block, segment) = self.allocator.take(range.len);
                if let Some(segment) = segment {
                    self.does(Does::Alloc(segment));
                }
                self.live.insert(range.start, Piece { len: range.len, now: block.start });
                self.does(Does::PtBlock { range: block, active: true });
            }
            Does::PtBlock { range, active: false } => {
                if let Some(piece) = self.live.remove(&range.start)
                    && let Some(block) = self.allocator.give_back(piece.now)
                {
                    self.does(Does::PtBlock { range: block, active: false });
                }
            }
            Does::Issue(work) => {
                let work = self.work(work);
                self.does(Does::Issue(work));
            }
            Does::Wait => self.does(Does::Wait),
            Does::Iteration => self.does(Does::Iteration),
        }
    }

    fn does(&mut self, does: Does) {
        let own = std::mem::take(&mut self.owed);
        self.steps.push(Step { own, does });
    }

    fn work(&self, work: &Work) -> Work {
        let mut touches = Vec::with_capacity(work.touches.len());
        for touch in &work.touches {
            self.now(touch.range, |range| touches.push(Touch { range, ..*touch }));
        }
        let what = match &work.what {
            What::Copy => What::Copy,
            What::Launch { kernel, pointers, .. } => {
                let mut now = Vec::with_capacity(pointers.len());
                for &pointer in pointers {
                    self.now(AddrRange::new(pointer, Bytes(1)), |range| now.push(range.start));
                }
                What::Launch { kernel: *kernel, key: key(*kernel, &now, &touches), pointers: now }
            }
        };
        Work { stream: work.stream, what, touches, time: work.time }
    }

    /// Where the bytes of a range are now, piece by piece, highest first.
    fn now(&self, range: AddrRange, mut there: impl FnMut(AddrRange)) {
        if self.stays.range(..=range.start).next_back().is_some_and(|(start, len)| range.start.0 - start.0 < len.0) {
            return there(range);
        }
        for (&start, piece) in self.live.range(..range.end()).rev() {
            let (from, to) = (start.max(range.start), start.offset(piece.len).min(range.end()));
            if from >= to {
                break;
            }
            there(AddrRange::new(piece.now.offset(Bytes(from.0 - start.0)), Bytes(to.0 - from.0)));
        }
    }
}

/// What a launch is: its kernel, what it points to, and how much it touches there.
fn key(kernel: NameId, pointers: &[DevAddr], touches: &[Touch]) -> LaunchKey {
    let mix = pointers.iter().fold(Mix::new().word(u64::from(kernel.0)), |mix, pointer| mix.word(pointer.0));
    LaunchKey(touches.iter().fold(mix, |mix, touch| mix.word(touch.range.len.0)).end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::StreamSlot;
    use deepum_trace::event::{Access, Header};

    fn range(start: u64, len: Bytes) -> AddrRange {
        AddrRange::new(DevAddr(start), len)
    }

    fn launch(pointers: &[u64], touches: &[AddrRange]) -> Does {
        let touch = |range: &AddrRange| Touch { range: *range, access: Access::Read, phase: 0 };
        Does::Issue(Work {
            stream: StreamSlot(0),
            what: What::Launch {
                kernel: NameId(0),
                key: LaunchKey(7),
                pointers: pointers.iter().copied().map(DevAddr).collect(),
            },
            touches: touches.iter().map(touch).collect(),
            time: None,
        })
    }

    fn placed(steps: Vec<Does>) -> Vec<Step> {
        let header = Header { program: "p".into(), device: "d".into(), budget: Bytes::gib(1) };
        let steps = steps.into_iter().map(|does| Step { own: Nanos(1), does }).collect();
        as_pytorch(&Script { header, names: Vec::new(), steps, lost: 0 }).steps
    }

    const SEGMENT: u64 = 0x1000_0000;
    const OTHER: u64 = 0x2000_0000;

    #[test]
    fn tensors_that_never_share_an_address_do_once_they_are_placed() {
        let (a, b) = (range(SEGMENT, Bytes::mib(4)), range(SEGMENT + (8 << 20), Bytes::mib(4)));
        let other = range(OTHER, Bytes::mib(2));
        let steps = placed(vec![
            Does::Alloc(range(SEGMENT, Bytes::mib(64))),
            Does::Alloc(other),
            Does::PtBlock { range: a, active: true },
            launch(&[a.start.0 + 5, OTHER + 9], &[range(a.start.0 + 4, Bytes(100)), range(OTHER, Bytes(8))]),
            Does::PtBlock { range: a, active: false },
            Does::PtBlock { range: b, active: true },
            launch(&[b.start.0 + 5, SEGMENT], &[range(SEGMENT, Bytes::mib(64))]),
        ]);
        let base = OTHER + (4 << 20);
        let block = range(base, Bytes::mib(4));
        assert_eq!(steps[0], Step { own: Nanos(2), does: Does::Alloc(other) });
        assert_eq!(steps[1].does, Does::Alloc(range(base, Bytes::mib(20))));
        assert_eq!(steps[2].does, Does::PtBlock { range: block, active: true });
        let Does::Issue(first) = &steps[3].does else { panic!("{:?}", steps[3]) };
        let touched: Vec<_> = first.touches.iter().map(|touch| touch.range).collect();
        assert_eq!(touched, [range(base + 4, Bytes(100)), range(OTHER, Bytes(8))]);
        assert_eq!(steps[4].does, Does::PtBlock { range: block, active: false });
        assert_eq!(steps[5].does, Does::PtBlock { range: block, active: true });
        let Does::Issue(second) = &steps[6].does else { panic!("{:?}", steps[6]) };
        assert_eq!(second.touches.iter().map(|touch| touch.range).collect::<Vec<_>>(), [block]);
        let What::Launch { pointers, .. } = &second.what else { panic!("{second:?}") };
        assert_eq!(pointers, &[DevAddr(base + 5)], "nothing is left where the other one pointed");
    }
}
