//! A trace made ready for replay: what the host did, in its order, and with each launch what it does.
//!
//! What a trace tells of a launch after it was issued ([`Event::Touched`], [`Event::Time`]) is put where the launch is. Where it never says what
//! a launch touches, as no recorder on a GPU can, its pointers stand for it: each reaches from where it points to the end of its PT block, or of
//! its allocation, and is read and written. Where it does not say how long, the GPU's memory bandwidth does.
//!
//! The host's *own time* before a step is what lies between its call and the one before it, without waiting and without what calls cost, which the
//! trace's clock leaves out. Threads may have been out of order: then it is zero.
//!
//! A trace without marks is given them where it repeats itself ([`super::iterations`]).

use super::iterations;
use deepum_core::mix::Mix;
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Nanos, StreamSlot};
use deepum_trace::event::{Access, Event, Header, Launch, NameId, Record, Touch};
use deepum_trace::program::{FromEventsError, Recorded, from_events};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// See the module.
#[derive(Clone, Debug)]
pub struct Script {
    /// What the trace is of.
    pub header: Header,
    /// The kernels' names, by number.
    pub names: Vec<Box<str>>,
    /// In the host's order.
    pub steps: Vec<Step>,
    /// Calls and notices that the recorder lost.
    pub lost: u64,
}

/// One call of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The host's own time before it.
    pub own: Nanos,
    /// What it is.
    pub does: Does,
}

/// What the host does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Does {
    /// It takes managed memory.
    Alloc(AddrRange),
    /// It gives it back.
    Free(AddrRange),
    /// PyTorch's caching allocator hands out, or takes back.
    PtBlock {
        /// The PT block.
        range: AddrRange,
        /// Whether it now holds a tensor.
        active: bool,
    },
    /// It gives the GPU something to do.
    Issue(Work),
    /// It waits for the GPU.
    Wait,
    /// An iteration ends, and the next begins.
    Iteration,
}

/// A launch or copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    /// Into which stream.
    pub stream: StreamSlot,
    /// What it is.
    pub what: What,
    /// What it touches; those of one phase together, lower phases first.
    pub touches: Vec<Touch>,
    /// How long it takes when all it touches is there, where that is known.
    pub time: Option<Nanos>,
}

/// What is given to the GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A kernel or graph.
    Launch {
        /// Which kernel.
        kernel: NameId,
        /// Equal for the same kernel on the same data.
        key: LaunchKey,
        /// The managed pointers among its arguments.
        pointers: Vec<DevAddr>,
    },
    /// A copy or memset.
    Copy,
}

/// Why a trace cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScriptError<E> {
    /// Reading it failed.
    #[error("{0}")]
    Read(E),
    /// There is nothing to time.
    #[error("{marks} iteration marks in the trace: two at least are needed, or none and launches that repeat")]
    NoIteration {
        /// How many there are.
        marks: u32,
    },
}

impl Script {
    /// From a trace.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub fn new<E>(
        header: Header,
        records: impl IntoIterator<Item = Result<Record, E>>,
    ) -> Result<Self, ScriptError<E>> {
        let mut making = Making::default();
        for record in records {
            making.take(record.map_err(ScriptError::Read)?);
        }
        let Making { names, mut steps, marks, lost, .. } = making;
        let timed = if marks == 0 { iterations::mark(&mut steps) } else { marks > 1 };
        if timed { Ok(Self { header, names, steps, lost }) } else { Err(ScriptError::NoIteration { marks }) }
    }

    /// How many iterations it has.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.steps.iter().filter(|step| step.does == Does::Iteration).count().saturating_sub(1)
    }

    /// Kernels take this share longer or shorter at most, each time another one: at random, and the same in every replay.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float to integer cast saturates")]
    pub fn vary_times(&mut self, share: f64) {
        for (at, step) in self.steps.iter_mut().enumerate() {
            if let Does::Issue(Work { time: Some(time), .. }) = &mut step.does {
                // From -1 to 1.
                let random = Mix::new().word(at as u64).end() as f64 / u64::MAX as f64 * 2.0 - 1.0;
                *time = Nanos((time.0 as f64 * (1.0 + share * random)) as u64);
            }
        }
    }

    /// Its last iteration by its tensors.
    ///
    /// # Errors
    /// [`FromEventsError`].
    pub fn last_iteration(&self) -> Result<Recorded, FromEventsError<Infallible>> {
        let mut place = 0;
        let names = self.names.iter().map(|name| Event::Name { name: name.clone() });
        let told = self.steps.iter().flat_map(|step| {
            let work = if let Does::Issue(work) = &step.does { Some(work) } else { None };
            place += u64::from(work.is_some());
            let launch = LaunchSeq(place);
            let touched = work.map(|work| Event::Touched { launch, touches: work.touches.clone() });
            let time = work.and_then(|work| work.time).map(|time| Event::Time { launch, time });
            event(&step.does).into_iter().chain(touched).chain(time)
        });
        from_events(names.chain(told).map(|event| Ok(Record { at: Nanos::ZERO, event })))
    }
}

/// As it stands in a trace; what a launch does beside it is told apart.
fn event(does: &Does) -> Option<Event> {
    Some(match does {
        Does::Alloc(range) => Event::Alloc { range: *range },
        Does::Free(range) => Event::Free { range: *range },
        Does::PtBlock { range, active } => Event::PtBlock { range: *range, active: *active },
        Does::Issue(Work { stream, what, .. }) => match what {
            What::Copy => Event::Copy { stream: *stream, from: None, to: None },
            What::Launch { kernel, key, pointers } => {
                Event::Launch(Launch { stream: *stream, kernel: *kernel, key: *key, pointers: pointers.clone() })
            }
        },
        Does::Wait => return None,
        Does::Iteration => Event::Iteration,
    })
}

#[derive(Default)]
struct Making {
    names: Vec<Box<str>>,
    steps: Vec<Step>,
    /// By place, from 1: which step it is.
    places: Vec<usize>,
    marks: u32,
    lost: u64,
    now: Nanos,
    allocations: BTreeMap<DevAddr, Bytes>,
    pt_blocks: BTreeMap<DevAddr, Bytes>,
}

impl Making {
    fn take(&mut self, Record { at, event }: Record) {
        let does = match event {
            Event::Name { name } => return self.names.push(name),
            Event::Touched { launch, touches } => return self.at(launch, |work| work.touches = touches),
            Event::Time { launch, time } => return self.at(launch, |work| work.time = Some(time)),
            Event::Lost { events } => return self.lost = self.lost.saturating_add(events),
            Event::Alloc { range } => {
                self.allocations.insert(range.start, range.len);
                Does::Alloc(range)
            }
            Event::Free { range } => {
                self.allocations.remove(&range.start);
                Does::Free(range)
            }
            Event::PtBlock { range, active } => {
                match active {
                    true => self.pt_blocks.insert(range.start, range.len),
                    false => self.pt_blocks.remove(&range.start),
                };
                Does::PtBlock { range, active }
            }
            Event::Launch(launch) => {
                let touches = launch.pointers.iter().filter_map(|&pointer| self.reach(pointer)).collect();
                let what = What::Launch { kernel: launch.kernel, key: launch.key, pointers: launch.pointers };
                self.issue(Work { stream: launch.stream, what, touches, time: None })
            }
            Event::Copy { stream, from, to } => {
                let touch = |access| move |range| Touch { range, access, phase: 0 };
                let from = from.map(touch(Access::Read));
                let touches = from.into_iter().chain(to.map(touch(Access::Write))).collect();
                self.issue(Work { stream, what: What::Copy, touches, time: None })
            }
            Event::Wait { waited, .. } => {
                let before = at.saturating_sub(waited);
                let own = before.saturating_sub(self.now);
                self.now = self.now.max(at);
                return self.steps.push(Step { own, does: Does::Wait });
            }
            Event::Iteration => {
                self.marks += 1;
                Does::Iteration
            }
        };
        let own = at.saturating_sub(self.now);
        self.now = self.now.max(at);
        self.steps.push(Step { own, does });
    }

    fn issue(&mut self, work: Work) -> Does {
        self.places.push(self.steps.len());
        Does::Issue(work)
    }

    fn at(&mut self, place: LaunchSeq, tell: impl FnOnce(&mut Work)) {
        let index = usize::try_from(place.0).ok().and_then(|place| self.places.get(place.checked_sub(1)?));
        if let Some(Does::Issue(work)) = index.and_then(|&step| self.steps.get_mut(step)).map(|step| &mut step.does) {
            tell(work);
        }
    }

    /// From where it points to the end of what was handed out there.
    fn reach(&self, pointer: DevAddr) -> Option<Touch> {
        let find = |pieces: &BTreeMap<DevAddr, Bytes>| {
            let (&start, &len) = pieces.range(..=pointer).next_back()?;
            let piece = AddrRange::new(start, len);
            piece.contains(pointer).then(|| AddrRange::new(pointer, Bytes(piece.end().0 - pointer.0)))
        };
        let range = find(&self.pt_blocks).or_else(|| find(&self.allocations))?;
        Some(Touch { range, access: Access::ReadWrite, phase: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> AddrRange {
        AddrRange::new(DevAddr(start), Bytes(len))
    }

    fn script(events: Vec<(u64, Event)>) -> Result<Script, ScriptError<Infallible>> {
        let header = Header { program: "p".into(), device: "d".into(), budget: Bytes::gib(1) };
        let record = |(at, event)| Ok(Record { at: Nanos(at), event });
        Script::new(header, events.into_iter().map(record))
    }

    fn launch(pointers: &[u64]) -> Event {
        let pointers = pointers.iter().copied().map(DevAddr).collect();
        Event::Launch(Launch { stream: StreamSlot(0), kernel: NameId(0), key: LaunchKey(1), pointers })
    }

    #[test]
    fn what_is_told_later_is_put_where_the_launch_is() {
        let touches = vec![Touch { range: range(0x40_0000, 8), access: Access::Read, phase: 0 }];
        let script = script(vec![
            (0, Event::Alloc { range: range(0x40_0000, 0x20_0000) }),
            (5, Event::Iteration),
            (7, launch(&[0x40_0008])),
            (7, launch(&[])),
            (30, Event::Wait { stream: None, waited: Nanos(20) }),
            (31, Event::Touched { launch: LaunchSeq(1), touches: touches.clone() }),
            (31, Event::Time { launch: LaunchSeq(2), time: Nanos(9) }),
            (34, Event::Iteration),
        ])
        .unwrap();
        let own: Vec<_> = script.steps.iter().map(|step| step.own.0).collect();
        assert_eq!((own, script.iterations()), (vec![0, 5, 2, 0, 3, 4], 1));
        let work = |step: usize| match &script.steps[step].does {
            Does::Issue(work) => (work.touches.clone(), work.time),
            other => panic!("{other:?}"),
        };
        assert_eq!(work(2), (touches, None));
        assert_eq!(work(3), (Vec::new(), Some(Nanos(9))));
    }

    #[test]
    fn where_it_is_not_told_pointers_reach_to_the_end_of_what_was_handed_out() {
        let block = range(0x40_0000, 0x1000);
        let script = script(vec![
            (0, Event::Alloc { range: range(0x40_0000, 0x20_0000) }),
            (0, Event::PtBlock { range: block, active: true }),
            (0, Event::Iteration),
            (0, launch(&[0x40_0100, 0x40_1000, 0x90_0000])),
            (0, Event::PtBlock { range: block, active: false }),
            (0, launch(&[0x40_0100])),
            (0, Event::Iteration),
        ])
        .unwrap();
        let reached: Vec<Vec<AddrRange>> = script
            .steps
            .iter()
            .filter_map(|step| match &step.does {
                Does::Issue(work) => Some(work.touches.iter().map(|touch| touch.range).collect()),
                _ => None,
            })
            .collect();
        let whole = |start: u64| range(start, 0x60_0000 - start);
        assert_eq!(reached, [vec![range(0x40_0100, 0xf00), whole(0x40_1000)], vec![whole(0x40_0100)]]);
    }

    #[test]
    fn without_two_marks_there_is_nothing_to_time() {
        let refused = script(vec![(0, Event::Iteration)]).map(|_| ());
        assert_eq!(refused, Err(ScriptError::NoIteration { marks: 1 }));
    }
}
