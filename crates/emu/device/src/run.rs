//! What happens next: the device's work, carried out in order of virtual time.
//!
//! At any instant the next thing that happens is one of: work under way reaches its next point, notices become
//! due, the word of a migration that is over is written, a command begins that waited for its thread, an engine thread is let go, or the head of a stream starts. [`Call::run`] takes the earliest (ties: in this
//! order, then in the order of issue) until what its caller waits for has happened. So two runs that make the same
//! calls do the same things at the same virtual times.
//!
//! One kernel at a time is on a device's compute engine; memsets and copies inside the device take it too. Copies
//! between host and device run beside it, on the model's copy engine of their direction. (Real GPUs overlap small
//! kernels of different streams; training in PyTorch uses one stream for nearly all of them.)
//!
//! A stream that comes to a wait is at it from then on, and goes on at the instant at which the word is right. Words are looked
//! at whenever anything happens: the device writes some itself, and engine and program may write others at any
//! such instant.
//!
//! The device stands still for the engine at notices, at stream writes, at waits, before each launch, and after letting
//! one of its threads go: see [`crate::pace`].

use std::time::{Duration, Instant};

use deepum_core::units::{DeviceId, Nanos};
use deepum_model::{KernelRun, Notice, Step};

use crate::error::{CuError, CuResult};
use crate::hands::Ticket;
use crate::machine::Call;
use crate::start::Ending;
use crate::state::State;
use crate::stream::{Mark, Ready, StreamId};
use crate::work::{Condition, Word, Work};

/// Where work under way stands.
#[derive(Debug)]
pub enum Stage {
    /// A walk goes on.
    Walk(Box<KernelRun>),
    /// The walk met a miss: its notices are due; it goes on at the time given.
    Fault(Box<KernelRun>, Nanos),
    /// It is over.
    Over,
    /// A stream waits for a word; nobody knows until when.
    Waits(Word, Condition),
    /// A function of the program runs; nobody knows until when.
    Elsewhere,
}

/// Work under way.
#[derive(Debug)]
pub struct Running {
    /// Whose.
    pub stream: StreamId,
    /// Where.
    pub device: DeviceId,
    /// When it reaches its next point.
    pub at: Nanos,
    /// What happens there.
    pub stage: Stage,
    /// What is to be done when it is over.
    pub ending: Ending,
    /// Whether it holds the compute engine.
    pub computes: bool,
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The device has caught up to this time.
    Time(Nanos),
    /// All work up to here is done.
    Reached(Mark),
    /// The device has fewer launches queued than this.
    Room(DeviceId, u32),
}

/// Kernels and copies that go on at the same time may each change what the other finds, but to take turns at every nanosecond would take a second for each millisecond. So each goes on for
/// this long before it looks at what others did: far less than any of them takes for a block.
const SIDE_BY_SIDE: Nanos = Nanos(1000);

/// Real time without anything to happen in virtual time, before it is worth a line.
const STUCK: Duration = Duration::from_secs(10);
/// Notices that lie in the driver's channels at most.
const CHANNEL: usize = 1024;

/// The next thing that happens. Order of variants decides between equal times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Next {
    Point(usize),
    Late,
    Release,
    LetGo(Ticket),
    Start(Ready),
}

impl State {
    /// The earliest thing that can happen; of work under way only what is `of_interest`.
    fn next(&self, data: bool, of_interest: impl Fn(&Stage) -> bool) -> Option<(Nanos, Next)> {
        let points = self.running.iter().enumerate();
        let points = points.filter(|(_, r)| of_interest(&r.stage)).filter_map(|(n, r)| {
            let at = match &r.stage {
                Stage::Elsewhere => return None,
                Stage::Waits(word, condition) => self.holds(*word, *condition, data).then_some(r.at.max(self.now))?,
                Stage::Walk(_) | Stage::Fault(..) | Stage::Over => r.at,
            };
            Some((at, Next::Point(n)))
        });
        let late = self.late.front().map(|(at, _)| (*at, Next::Late));
        let ticket = self.hands.next().map(|t| (t.at, Next::LetGo(t)));
        let starts = self.streams.ready().filter_map(|(ready, device, work)| {
            let at = match work {
                Work::Launch(_) | Work::Fill(_) => self.compute_from(ready.at, device)?,
                Work::Copy(copy) if copy.direction == crate::work::Direction::OnDevice => {
                    self.compute_from(ready.at, device)?
                }
                _ => ready.at,
            };
            Some((at.max(self.now), Next::Start(ready)))
        });
        points
            .chain(late)
            .chain(self.releases.next().map(|at| (at.max(self.now), Next::Release)))
            .chain(ticket)
            .chain(starts)
            .min()
    }

    fn holds(&self, word: Word, condition: Condition, data: bool) -> bool {
        condition.holds(self.bytes(data).word(word), word.value, word.wide)
    }

    /// Nothing has been able to happen since `since`: after a while says once why, if it is a word that a stream waits for.
    fn say_stuck(&mut self, since: Instant) {
        if self.said_stuck || since.elapsed() < STUCK {
            return;
        }
        let waits = self.running.iter().find_map(|r| match r.stage {
            Stage::Waits(word, condition) => Some((r.stream, word, condition, r.at)),
            _ => None,
        });
        let Some((stream, word, condition, at)) = waits else { return };
        self.said_stuck = true;
        crate::say(&format!(
            "stream {} waits since {} ns for the word at {:#x} ({condition:?} {}), and nothing under way will write it: the \
             program stands still, as it would on a GPU",
            stream.0, at.0, word.addr.0, word.value
        ));
    }

    fn compute_from(&self, at: Nanos, device: DeviceId) -> Option<Nanos> {
        let gpu = self.gpus.get(usize::from(device.0))?;
        (!gpu.computing).then(|| at.max(gpu.compute_free))
    }

    fn satisfied(&self, until: Until) -> bool {
        match until {
            Until::Time(_) => false,
            Until::Reached(mark) => self.streams.reached(mark),
            Until::Room(device, below) => {
                self.gpus.get(usize::from(device.0)).is_none_or(|gpu| gpu.queued_launches < below)
            }
        }
    }

    /// Puts notices with a time up to `until` into the tools queues; whether there was any. Those of faults at once. Those of moves, and of replays, lie
    /// in the driver's channels until something `drains` these (facts 2.5): the end of a migration that is waited for, a request to flush, or a channel that is full.
    pub fn deliver(&mut self, until: Nanos, config: &crate::config::Config, drains: bool) -> bool {
        let mut notices = Vec::new();
        self.memory.take_notices(until, &mut notices);
        if !self.sink.as_ref().is_some_and(|sink| sink.wanted()) {
            self.channels.clear();
            return false;
        }
        let at_once = |notice: &Notice| matches!(notice, Notice::GpuFault { .. });
        if drains || self.channels.len() + notices.len() >= CHANNEL {
            notices.splice(..0, self.channels.drain(..));
        } else {
            self.channels.extend(notices.iter().filter(|notice| !at_once(notice)));
            notices.retain(at_once);
        }
        if config.late > Nanos::ZERO {
            let now = self.now;
            self.late.extend(notices.drain(..).map(|notice| (now + config.late, notice)));
            return false;
        }
        self.put(notices.into_iter(), config.drop_notices)
    }

    fn put(&mut self, notices: impl Iterator<Item = Notice>, drop_every: Option<u64>) -> bool {
        let Some(sink) = self.sink.as_mut().filter(|sink| sink.wanted()) else { return false };
        let mut any = false;
        for notice in notices {
            self.notice_count += 1;
            if drop_every.is_some_and(|n| self.notice_count.is_multiple_of(n)) {
                self.totals.notices_dropped += 1;
                sink.drop_one(&notice);
            } else {
                self.totals.notices += 1;
                any = true;
                sink.put(&notice);
            }
        }
        any
    }
}

impl Call<'_> {
    /// Lets the device catch up with the host clock.
    pub fn catch_up(&mut self) {
        let host = self.state.host;
        // Waiting for a time cannot fail: it never lingers.
        let _ = self.run(Until::Time(host));
    }

    /// Lets the device run until `until` has happened, and moves the host clock there.
    ///
    /// # Errors
    /// If the process ends meanwhile, or a kernel died.
    pub fn run(&mut self, until: Until) -> CuResult {
        let data = self.machine.config.data;
        let mut still = None;
        loop {
            if self.state.satisfied(until) {
                break;
            }
            let next = self.state.next(data, |_| true);
            let limit = if let Until::Time(limit) = until { limit } else { Nanos(u64::MAX) };
            match next.filter(|(at, _)| *at <= limit) {
                Some((at, next)) => {
                    self.state.now = self.state.now.max(at);
                    self.happen(next, limit);
                }
                None if matches!(until, Until::Time(_)) => {
                    self.state.now = self.state.now.max(limit);
                    break;
                }
                None => {
                    self.linger()?;
                    self.state.say_stuck(*still.get_or_insert_with(Instant::now));
                }
            }
            if let Some(error) = self.state.lost {
                return Err(error);
            }
        }
        self.state.host = self.state.host.max(self.state.now);
        Ok(())
    }

    fn happen(&mut self, next: Next, limit: Nanos) {
        let config = &self.machine.config;
        match next {
            Next::Point(n) => self.point(n, limit),
            Next::Late => {
                let now = self.state.now;
                let due = self.state.late.iter().take_while(|(at, _)| *at <= now).count();
                let notices: Vec<_> = self.state.late.drain(..due).map(|(_, notice)| notice).collect();
                if self.state.put(notices.into_iter(), config.drop_notices) {
                    self.settle(true);
                }
            }
            Next::Release => {
                let now = self.state.now;
                if let Some(semaphore) = self.state.releases.take(now)
                    && let Some(sink) = &mut self.state.sink
                {
                    sink.release(semaphore);
                }
            }
            Next::LetGo(ticket) => self.let_go(ticket),
            Next::Start(ready) => self.start(ready),
        }
    }

    /// Stands still until the engine has settled and all it asked for has begun; `look` if there is something new for it.
    pub(crate) fn settle(&mut self, look: bool) {
        let machine = self.machine;
        if !machine.pace.driven() {
            return;
        }
        let unread = || machine.lock().sink.as_ref().is_some_and(|sink| sink.unread());
        self.state.hands.still = true;
        self.unlocked(|| machine.pace.settle(look, unread));
        while self.state.serve(machine) {
            self.unlocked(|| machine.pace.settle(false, unread));
        }
        self.state.hands.still = false;
    }

    /// Lets an engine thread go whose command is done.
    fn let_go(&mut self, ticket: Ticket) {
        let now = self.state.now;
        // The driver flushes its events before a synchronous migrate returns (facts 2.5), and no other call of these; the engine sees them
        // before it learns the outcome, in this order in every run.
        if self.state.deliver(now, &self.machine.config, ticket.drains) {
            self.settle(true);
        }
        // Waiting for the engine may have brought a command that is done earlier; this one is still in the list.
        self.state.release(ticket, self.machine);
        self.settle(false);
    }

    /// Work under way reaches its next point.
    fn point(&mut self, n: usize, limit: Nanos) {
        let data = self.machine.config.data;
        let now = self.state.now;
        let stage = std::mem::replace(&mut self.state.running[n].stage, Stage::Over);
        match stage {
            Stage::Over | Stage::Waits(..) | Stage::Elsewhere => {
                let done = self.state.running.swap_remove(n);
                self.finish(done);
            }
            Stage::Fault(run, resume) => {
                self.state.running[n].stage = Stage::Walk(run);
                self.state.running[n].at = resume.max(now);
                if self.state.deliver(now, &self.machine.config, false) {
                    self.settle(true);
                }
            }
            Stage::Walk(mut run) => {
                self.state.running[n].stage = Stage::Elsewhere;
                let is_walk = |stage: &Stage| matches!(stage, Stage::Walk(_));
                let walks = self.state.running.iter().filter(|r| is_walk(&r.stage)).map(|r| r.at).min();
                let walks = walks.map_or(limit, |at| at.max(now + SIDE_BY_SIDE));
                let other = self.state.next(data, |stage| !is_walk(stage)).map_or(limit, |(at, _)| at);
                // Even if something else happens at this very instant, the walk makes progress.
                let horizon = other.min(walks).min(limit).max(now + Nanos(1));
                let step = run.step(&mut self.state.memory, now, horizon);
                self.state.settle_bytes(data);
                let (at, stage) = match step {
                    Step::Faulted { noticed, resume_at, .. } => (noticed, Stage::Fault(run, resume_at)),
                    Step::Paused { at } => (at, Stage::Walk(run)),
                    Step::Done { at } => (at, Stage::Over),
                    Step::Fatal { at, addr } => {
                        crate::say(&format!(
                            "no memory left for the page at {addr:?}: the kernel that touched it died"
                        ));
                        self.state.lost = Some(CuError::LaunchFailed);
                        (at, Stage::Over)
                    }
                };
                let running = &mut self.state.running[n];
                (running.at, running.stage) = (at.max(now), stage);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Cost, Machine};
    use crate::space::Kind;
    use crate::work::Work;
    use deepum_core::units::Bytes;

    #[test]
    fn a_stream_that_waits_in_vain_is_said_after_a_while_and_once() {
        let config = crate::config::Config::parse("v100-32g", &deepum_model::Profile::NAMES).unwrap();
        let machine = Machine::with_space_from(config, None, Bytes::gib(900)).unwrap();
        machine
            .call(Cost::Call, |call| {
                let gpu = DeviceId(0);
                let stream = call.state.streams.create(gpu, crate::stream::Flavour::NonBlocking, 0);
                let page = call.allocate(Kind::Pinned, gpu, Bytes(4096), 0)?.range.start;
                let word = call.word(page, 5, true)?;
                let now = Instant::now();
                call.state.say_stuck(now.checked_sub(STUCK * 2).unwrap());
                assert!(!call.state.said_stuck, "nobody waits");
                call.queue(stream, &[], Work::Wait(word, Condition::GreaterEqual))?;
                call.run(Until::Time(Nanos(1_000_000)))?;
                call.state.say_stuck(now);
                assert!(!call.state.said_stuck, "not yet");
                call.state.say_stuck(now.checked_sub(STUCK * 2).unwrap());
                assert!(call.state.said_stuck);
                Ok(())
            })
            .unwrap();
    }
}
