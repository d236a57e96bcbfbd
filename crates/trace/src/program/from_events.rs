//! One iteration of a trace by its tensors.
//!
//! Problem: planners and the bound want a [`Program`], whose iteration repeats unchanged; a recorded program's first iterations differ from
//! later ones, and what a launch touches is told after the program went on.
//! Idea: the *last whole iteration* is taken, the one between the last two marks; earlier ones are forgotten as the next ends. What is told
//! of its launches later still counts.
//!
//! - A kernel is a launch or copy, in the order of issue, whatever its stream. Without its time, or what it touches, there is no program.
//! - A tensor is what a PT block holds from being handed out to being taken back; an allocation from which nothing is handed out is one, too. Only
//!   those that are touched count.
//! - It is a *global* if it is there before the iteration and still there after, an *intermediate* if the iteration makes it. What is there before,
//!   is touched, and goes is called an intermediate, too: that its contents came from the iteration before is left out.
//! - A PT block is *held* until it is taken back: over all launches before that. One that passes the mark is held over those of the next iteration up to where
//!   its place is taken back there, or touched. Not held is what allocations are, and where memory is freed in the iteration, since a host far ahead frees it early.
//! - A write of a whole tensor, but for what PyTorch rounds up, needs nothing of what was there; any other may.
//! - Touched bytes in no tensor hold nothing that matters, and are left out.
//!
//! Not here: gaps between kernels ([`Program::with_gaps`]).

use super::live::Live;
use super::pieces::{Part, Pieces, by_pieces};
use super::{Kernel, Life, Program, ProgramError, Tensor, TensorId};
use crate::event::{Access, Event, Record, Touch};
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchSeq, Nanos};
use std::collections::BTreeMap;

/// PyTorch's caching allocator hands out multiples of this.
const ROUNDING: Bytes = Bytes(512);
/// What a copy is called.
const COPY: &str = "copy";

/// A program, and where its tensors were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The last whole iteration. Tensors are numbered in the order in which they are touched.
    pub program: Program,
    /// By tensor: where it was.
    pub places: Vec<AddrRange>,
    /// The tensors of the PT blocks that were handed out in the iteration, in order; nothing for one that was never touched.
    pub births: Vec<Option<TensorId>>,
    /// By tensor: whether it was there before the iteration.
    before: Vec<bool>,
    /// What the kernels touch of them.
    parts: Vec<Part>,
}

impl Recorded {
    /// The same iteration with no more touched than is, and with all that is needed by those who do not know the program: a tensor is cut into pieces where
    /// touches begin or end, and each piece that is touched is a tensor. What is overwritten while it is held counts as read.
    ///
    /// # Errors
    /// More pieces than tensors can have numbers.
    pub fn by_pieces(&self) -> Result<Pieces, ProgramError> {
        by_pieces(&self.program, &self.before, &self.places, &self.parts)
    }
}

/// Why a trace is no program. Places are those of the trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FromEventsError<E> {
    /// Reading it failed.
    #[error("{0}")]
    Read(E),
    /// There is nothing between two marks.
    #[error("{marks} iteration marks in the trace: two at least are needed")]
    NoIteration {
        /// How many there are.
        marks: u64,
    },
    /// Something about a launch was never told.
    #[error("of the launch or copy at place {place} the trace does not say {what}")]
    Unknown {
        /// What.
        what: &'static str,
        /// Which launch.
        place: u64,
    },
    /// There are no kernels in the iteration, or too many.
    #[error("the last iteration: {0}")]
    Program(#[from] ProgramError),
}

/// The last whole iteration of a trace.
///
/// # Errors
/// [`FromEventsError`].
pub fn from_events<E>(records: impl IntoIterator<Item = Result<Record, E>>) -> Result<Recorded, FromEventsError<E>> {
    let mut recorder = Recording::default();
    for record in records {
        recorder.take(record.map_err(FromEventsError::Read)?.event);
    }
    let marks = recorder.marks;
    let iteration = recorder.last.ok_or(FromEventsError::NoIteration { marks })?;
    Resolver::default().program(iteration, &recorder.names)
}

/// What a trace said so far.
#[derive(Default)]
struct Recording {
    names: Vec<Box<str>>,
    places: u64,
    marks: u64,
    /// Whether they are PT blocks.
    live: Live<bool>,
    /// The iteration that ended last, and the one that goes on.
    last: Option<Iteration>,
    current: Option<Iteration>,
}

/// What happened between two marks.
struct Iteration {
    /// The place of its first launch.
    first: u64,
    /// What there was before it, and whether as a PT block.
    before: Vec<(AddrRange, bool)>,
    steps: Vec<Step>,
    /// Where in the steps each launch is.
    launches: Vec<usize>,
}

enum Step {
    /// A PT block if it was `handed_out`, otherwise an allocation.
    Begins {
        range: AddrRange,
        handed_out: bool,
    },
    /// Taken back as a PT block, or `freed`.
    Ends {
        range: AddrRange,
        freed: bool,
    },
    Launch {
        name: Option<usize>,
        touches: Option<Vec<Touch>>,
        time: Option<Nanos>,
    },
}

impl Recording {
    fn take(&mut self, event: Event) {
        match event {
            Event::Name { name } => self.names.push(name),
            Event::Alloc { range } => self.begins(range, false),
            Event::PtBlock { range, active: true } => self.begins(range, true),
            Event::Free { range } => self.ends(range, true),
            Event::PtBlock { range, active: false } => self.ends(range, false),
            Event::Launch(launch) => self.launch(Some(launch.kernel.0 as usize), None),
            Event::Copy { from, to, .. } => {
                let touch = |access| move |range| Touch { range, access, phase: 0 };
                let from = from.map(touch(Access::Read));
                self.launch(None, Some(from.into_iter().chain(to.map(touch(Access::Write))).collect()));
            }
            Event::Touched { launch, touches: told } => {
                if let Some(Step::Launch { touches, .. }) = self.at(launch) {
                    *touches = Some(told);
                }
            }
            Event::Time { launch, time: told } => {
                if let Some(Step::Launch { time, .. }) = self.at(launch) {
                    *time = Some(told);
                }
            }
            Event::Wait { .. } | Event::Lost { .. } => {}
            Event::Iteration => {
                self.marks += 1;
                let before = self.live.all().map(|(range, &handed_out)| (range, handed_out)).collect();
                let next = Iteration { first: self.places + 1, before, steps: Vec::new(), launches: Vec::new() };
                self.last = self.current.replace(next);
            }
        }
    }

    fn begins(&mut self, range: AddrRange, handed_out: bool) {
        self.live.insert(range, handed_out);
        self.step(Step::Begins { range, handed_out });
    }
    fn ends(&mut self, range: AddrRange, freed: bool) {
        self.live.remove(range);
        self.step(Step::Ends { range, freed });
    }
    fn step(&mut self, step: Step) {
        if let Some(iteration) = &mut self.current {
            iteration.steps.push(step);
        }
    }
    fn launch(&mut self, name: Option<usize>, touches: Option<Vec<Touch>>) {
        self.places += 1;
        if let Some(iteration) = &mut self.current {
            iteration.launches.push(iteration.steps.len());
            iteration.steps.push(Step::Launch { name, touches, time: None });
        }
    }
    /// The launch at a place, if it is of an iteration that is still known.
    fn at(&mut self, place: LaunchSeq) -> Option<&mut Step> {
        let iteration = [&mut self.current, &mut self.last].into_iter().flatten().find(|i| i.first <= place.0)?;
        let launch = usize::try_from(place.0 - iteration.first).ok()?;
        iteration.steps.get_mut(*iteration.launches.get(launch)?)
    }
}

/// Finds out which tensor each touched byte is of.
#[derive(Default)]
struct Resolver {
    /// By index in `held`.
    live: Live<usize>,
    held: Vec<Held>,
    tensors: Vec<usize>,
    parts: Vec<Part>,
    freed: Vec<AddrRange>,
}

/// A PT block from being handed out to being taken back, or an allocation.
struct Held {
    range: AddrRange,
    handed_out: bool,
    before: bool,
    gone: bool,
    /// How many launches came before it was taken back as it was handed out.
    back: Option<u32>,
    tensor: Option<TensorId>,
    /// The first launch that touches it.
    first: u32,
}

impl Resolver {
    fn program<E>(mut self, iteration: Iteration, names: &[Box<str>]) -> Result<Recorded, FromEventsError<E>> {
        iteration.before.into_iter().for_each(|(range, handed_out)| self.begins(range, handed_out, true));
        let mut kernels = Vec::with_capacity(iteration.launches.len());
        let mut births = Vec::new();
        for step in iteration.steps {
            match step {
                Step::Begins { range, handed_out } => {
                    births.extend(handed_out.then_some(self.held.len()));
                    self.begins(range, handed_out, false);
                }
                Step::Ends { range, freed } => {
                    let launched = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
                    self.freed.extend(freed.then_some(range));
                    self.ends(range, (!freed).then_some(launched));
                }
                Step::Launch { name, touches, time } => {
                    let place = iteration.first + kernels.len() as u64;
                    let unknown = |what| FromEventsError::Unknown { what, place };
                    let touches = touches.ok_or(unknown("what it touches"))?;
                    let time = time.ok_or(unknown("how long it takes"))?;
                    let name = name.and_then(|name| names.get(name)).map_or(COPY, |name| name);
                    let number = u32::try_from(kernels.len()).map_err(|_| ProgramError::TooMany(kernels.len()))?;
                    kernels.push(self.kernel(number, name, time, &touches)?);
                }
            }
        }
        let launches = u32::try_from(kernels.len()).map_err(|_| ProgramError::TooMany(kernels.len()))?;
        let held = || self.tensors.iter().map(|index| &self.held[*index]);
        let life = |held: &Held| if held.before && !held.gone { Life::Global } else { Life::Intermediate };
        let tensors = held().map(|held| Tensor { size: held.range.len, life: life(held) }).collect();
        Ok(Recorded {
            program: Program::new(kernels, tensors)?.with_holds(self.holds(launches)),
            places: held().map(|held| held.range).collect(),
            births: births.into_iter().map(|index: usize| self.held[index].tensor).collect(),
            before: held().map(|held| held.before).collect(),
            parts: self.parts,
        })
    }

    /// By tensor: the last launch before its memory was taken back, if it is certain that nobody could throw its contents away before that.
    fn holds(&self, launches: u32) -> Vec<Option<u32>> {
        let passed: BTreeMap<DevAddr, &Held> =
            self.held.iter().filter(|held| held.before && held.gone).map(|held| (held.range.start, held)).collect();
        let hold = |index: &usize| {
            let held = &self.held[*index];
            let overlaps = |freed: &AddrRange| freed.start < held.range.end() && held.range.start < freed.end();
            let stays = held.before && !held.gone;
            if stays || !held.handed_out || self.freed.iter().any(overlaps) {
                return None;
            }
            let over = match (held.gone, passed.get(&held.range.start)) {
                (true, _) => held.back?,
                (false, Some(next)) if next.handed_out && next.range == held.range => {
                    launches.checked_add(if next.tensor.is_some() { next.first } else { next.back.unwrap_or(0) })?
                }
                (false, _) => launches,
            };
            over.checked_sub(1)
        };
        self.tensors.iter().map(hold).collect()
    }

    fn begins(&mut self, range: AddrRange, handed_out: bool, before: bool) {
        let index = self.held.len();
        self.held.push(Held { range, handed_out, before, gone: false, back: None, tensor: None, first: 0 });
        for gone in self.live.insert(range, index) {
            self.held[gone].gone = true;
        }
    }
    /// `launched`: how many launches came before, where it is a PT block that is taken back.
    fn ends(&mut self, range: AddrRange, launched: Option<u32>) {
        for gone in self.live.remove(range) {
            let held = &mut self.held[gone];
            held.gone = true;
            held.back = launched.filter(|_| held.range == range);
        }
    }

    fn kernel(&mut self, number: u32, name: &str, time: Nanos, touches: &[Touch]) -> Result<Kernel, ProgramError> {
        let mut kernel = Kernel { name: name.into(), time, reads: Vec::new(), writes: Vec::new() };
        for touch in touches {
            for (range, index) in self.live.overlapping(touch.range) {
                let count = self.tensors.len();
                let held = &mut self.held[*index];
                let tensor = match held.tensor {
                    Some(tensor) => tensor,
                    None => TensorId(u32::try_from(count).map_err(|_| ProgramError::TooMany(count))?),
                };
                if held.tensor.replace(tensor).is_none() {
                    held.first = number;
                    self.tensors.push(*index);
                }
                let mut push = |list: fn(&mut Kernel) -> &mut Vec<TensorId>| {
                    if !list(&mut kernel).contains(&tensor) {
                        list(&mut kernel).push(tensor);
                    }
                };
                let (from, to) = part(touch.range, range);
                self.parts.push(Part { kernel: number, tensor, from, to, access: touch.access });
                if touch.access.reads() || (from, to) != (Bytes::ZERO, range.len) {
                    push(|kernel| &mut kernel.reads);
                }
                if touch.access.writes() {
                    push(|kernel| &mut kernel.writes);
                }
            }
        }
        Ok(kernel)
    }
}

/// From where to where a tensor is touched; to its end if all that is left was rounded up.
fn part(touched: AddrRange, tensor: AddrRange) -> (Bytes, Bytes) {
    let rounded: DevAddr = touched.end().offset(Bytes(ROUNDING.0 - 1));
    let end = if rounded >= tensor.end() { tensor.end() } else { touched.end() };
    let from = |at: DevAddr| Bytes(at.get() - tensor.start.get());
    (from(touched.start.max(tensor.start)), from(end))
}
