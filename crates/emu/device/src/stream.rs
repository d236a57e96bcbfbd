//! Streams: queues of work, and who waits for whom.
//!
//! The problem: CUDA's order rules (work of one stream in order; a stream waiting for an event of another; the legacy
//! NULL stream before and after everything that is not marked non-blocking) must give one answer to "which work may
//! start next, and when", the same in every run.
//!
//! The idea: every rule is a [`Mark`], "all work of stream S up to number N". Work carries the marks it waits for; when
//! work completes, the heads of the other queues drop the marks that are now reached. An event is a mark too.
//!
//!     legacy:   [k1]────────────────[k4 after a:2, b:1]
//!     a:        [k2 after legacy:1][k3]
//!     b:        [copy after legacy:1]
//!
//! Invariants: numbers of a stream count from 1 without holes; work starts only as the head of its queue, with no mark
//! left; a mark on a stream that is gone is reached.
//! Not here: how long work takes, which engine does it (`machine`), what it does.

use std::collections::{BTreeMap, VecDeque};

use deepum_core::units::{DeviceId, Nanos};

/// A stream of the process; never used again after it is destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u32);

/// All work of a stream up to and including the `number`-th.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark {
    /// The stream.
    pub stream: StreamId,
    /// Number of its work, from 1; 0 is reached from the beginning.
    pub number: u64,
}

/// How a stream relates to the legacy NULL stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// The NULL stream itself, of one device.
    Legacy,
    /// Waits for the legacy stream and is waited for by it (per-thread default streams too).
    Blocking,
    /// Has nothing to do with it.
    NonBlocking,
}

#[derive(Debug)]
struct Queued<W> {
    after: Vec<Mark>,
    ready: Nanos,
    order: u64,
    work: W,
}

/// One stream.
#[derive(Debug)]
pub struct Stream<W> {
    /// Its device.
    pub device: DeviceId,
    /// How it relates to the NULL stream.
    pub flavour: Flavour,
    /// Priority as given.
    pub priority: i32,
    queue: VecDeque<Queued<W>>,
    issued: u64,
    done: u64,
    done_at: Nanos,
    running: bool,
    leaving: bool,
}

/// A head of a queue that waits for nothing but its engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ready {
    /// Since when.
    pub at: Nanos,
    /// Position in the order in which the host issued it: decides between equal times.
    pub order: u64,
    /// Whose head.
    pub stream: StreamId,
}

/// Every stream of the process.
#[derive(Debug)]
pub struct Streams<W> {
    all: BTreeMap<StreamId, Stream<W>>,
    next: u32,
    issued: u64,
    /// Streams with work queued that is not running: the only candidates for a start.
    waiting: Vec<StreamId>,
}

impl<W> Default for Streams<W> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), next: 1, issued: 0, waiting: Vec::new() }
    }
}

impl<W> Streams<W> {
    /// A new stream of `device`.
    pub fn create(&mut self, device: DeviceId, flavour: Flavour, priority: i32) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        let (queue, done_at) = (VecDeque::new(), Nanos::ZERO);
        let stream =
            Stream { device, flavour, priority, queue, issued: 0, done: 0, done_at, running: false, leaving: false };
        self.all.insert(id, stream);
        id
    }

    /// Ends a stream once its work is done (`cuStreamDestroy` does not wait). False if there is none.
    pub fn destroy(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.all.get_mut(&id).filter(|s| !s.leaving) else { return false };
        stream.leaving = true;
        if stream.done == stream.issued {
            self.all.remove(&id);
        }
        true
    }

    /// Ends every stream of `device` but the NULL stream.
    pub fn end_all(&mut self, device: DeviceId) {
        let ending = self.all.iter().filter(|(_, s)| s.device == device && s.flavour != Flavour::Legacy);
        for id in ending.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.destroy(id);
        }
    }

    /// The stream, unless it was destroyed.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<&Stream<W>> {
        self.all.get(&id).filter(|s| !s.leaving)
    }

    /// The device of a stream, also of one that was destroyed and still has work.
    #[must_use]
    pub fn device_of(&self, id: StreamId) -> Option<DeviceId> {
        self.all.get(&id).map(|s| s.device)
    }

    /// The mark behind all work issued to `id` so far.
    #[must_use]
    pub fn tail(&self, id: StreamId) -> Mark {
        Mark { stream: id, number: self.all.get(&id).map_or(0, |s| s.issued) }
    }

    /// Whether all work up to `mark` is done.
    #[must_use]
    pub fn reached(&self, mark: Mark) -> bool {
        self.all.get(&mark.stream).is_none_or(|s| s.done >= mark.number)
    }

    /// Marks behind all work that work queued to `id` now would wait for: its own, and what the NULL-stream rule says.
    #[must_use]
    pub fn behind(&self, id: StreamId) -> Vec<Mark> {
        let Some((device, flavour)) = self.get(id).map(|s| (s.device, s.flavour)) else { return Vec::new() };
        let ahead = self.all.iter().filter(|(other, s)| {
            let bound = matches!(
                (flavour, s.flavour),
                (Flavour::Legacy, Flavour::Blocking) | (Flavour::Blocking, Flavour::Legacy)
            );
            (bound || **other == id) && s.device == device && s.done < s.issued
        });
        ahead.map(|(&stream, s)| Mark { stream, number: s.issued }).collect()
    }

    /// Marks behind all work of `device` issued so far.
    #[must_use]
    pub fn tails(&self, device: DeviceId) -> Vec<Mark> {
        let busy = self.all.iter().filter(|(_, s)| s.device == device && s.done < s.issued);
        busy.map(|(&stream, s)| Mark { stream, number: s.issued }).collect()
    }

    /// Queues work behind what `id` has, behind `after`, and behind what the NULL-stream rule asks for. `now` is the
    /// host clock: no work starts before it was issued.
    pub fn push(&mut self, id: StreamId, now: Nanos, after: &[Mark], work: W) -> Option<Mark> {
        self.get(id)?;
        self.issued += 1;
        self.push_part(id, now, after, work)
    }

    /// As [`Self::push`], for work that is one with what was issued last, under its position.
    pub fn push_part(&mut self, id: StreamId, now: Nanos, after: &[Mark], work: W) -> Option<Mark> {
        self.get(id)?;
        let mut marks = self.behind(id);
        marks.extend(after.iter().filter(|m| !self.reached(**m)));
        marks.retain(|m| m.stream != id);
        let order = self.issued;
        let stream = self.all.get_mut(&id)?;
        if stream.queue.is_empty() && !stream.running {
            self.waiting.push(id);
        }
        stream.issued += 1;
        stream.queue.push_back(Queued { after: marks, ready: now, order, work });
        Some(Mark { stream: id, number: stream.issued })
    }

    /// The newest position in the order in which the host issued work, which is a name for that work.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.issued
    }

    /// Heads that may start as far as order is concerned.
    pub fn ready(&self) -> impl Iterator<Item = (Ready, DeviceId, &W)> {
        self.waiting.iter().filter_map(|id| {
            let stream = self.all.get(id)?;
            let head = stream.queue.front().filter(|head| head.after.is_empty())?;
            let at = head.ready.max(stream.done_at);
            Some((Ready { at, order: head.order, stream: *id }, stream.device, &head.work))
        })
    }

    /// Takes the head of `id` to run it.
    pub fn start(&mut self, id: StreamId) -> Option<W> {
        let stream = self.all.get_mut(&id)?;
        let head = stream.queue.pop_front()?;
        stream.running = true;
        self.waiting.retain(|other| *other != id);
        Some(head.work)
    }

    /// The running work of `id` is done at `now`.
    pub fn complete(&mut self, id: StreamId, now: Nanos) {
        let Some(stream) = self.all.get_mut(&id) else { return };
        stream.running = false;
        stream.done += 1;
        stream.done_at = now;
        if !stream.queue.is_empty() {
            self.waiting.push(id);
        } else if stream.leaving {
            self.all.remove(&id);
        }
        // Only heads can start, and a head's marks that were reached earlier than now no longer matter.
        for n in 0..self.waiting.len() {
            let waiter = self.waiting[n];
            let Some(head) = self.all.get(&waiter).and_then(|s| s.queue.front()) else { continue };
            if head.after.is_empty() {
                continue;
            }
            let left: Vec<Mark> = head.after.iter().copied().filter(|m| !self.reached(*m)).collect();
            if let Some(head) = self.all.get_mut(&waiter).and_then(|s| s.queue.front_mut())
                && left.len() < head.after.len()
            {
                head.after = left;
                head.ready = head.ready.max(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceId = DeviceId(0);

    /// Runs everything with one unit of time each, unlimited engines, and answers start times by name.
    fn run(streams: &mut Streams<&'static str>) -> Vec<(&'static str, u64)> {
        let (mut log, mut running) = (Vec::new(), BTreeMap::new());
        loop {
            let start = streams.ready().map(|(r, ..)| r).min();
            let end = running.iter().map(|(&s, &at)| (at, s)).min();
            match (start, end) {
                (Some(ready), end) if end.is_none_or(|(at, _)| ready.at < at) => {
                    log.push((streams.start(ready.stream).unwrap(), ready.at.0));
                    running.insert(ready.stream, Nanos(ready.at.0 + 10));
                }
                (_, Some((at, stream))) => {
                    running.remove(&stream);
                    streams.complete(stream, at);
                }
                _ => return log,
            }
        }
    }

    #[test]
    fn the_null_stream_stands_between_blocking_streams_and_not_others() {
        let mut s = Streams::default();
        let legacy = s.create(GPU, Flavour::Legacy, 0);
        let a = s.create(GPU, Flavour::Blocking, 0);
        let free = s.create(GPU, Flavour::NonBlocking, 0);
        let other = s.create(DeviceId(1), Flavour::Blocking, 0);
        for (stream, name) in [(a, "a1"), (legacy, "null"), (a, "a2"), (free, "free"), (other, "other")] {
            s.push(stream, Nanos(0), &[], name).unwrap();
        }
        assert_eq!(run(&mut s), [("a1", 0), ("free", 0), ("other", 0), ("null", 10), ("a2", 20)]);
    }

    #[test]
    fn a_mark_holds_back_another_stream_and_what_is_behind_it() {
        let mut s = Streams::default();
        let (a, b) = (s.create(GPU, Flavour::NonBlocking, 0), s.create(GPU, Flavour::NonBlocking, 0));
        s.push(a, Nanos(0), &[], "a1");
        let event = s.push(a, Nanos(0), &[], "a2").unwrap();
        s.push(b, Nanos(5), &[], "b1");
        s.push(b, Nanos(5), &[event], "b2");
        s.push(b, Nanos(5), &[], "b3");
        assert_eq!(run(&mut s), [("a1", 0), ("b1", 5), ("a2", 10), ("b2", 20), ("b3", 30)]);
        assert!(s.reached(event));
    }

    #[test]
    fn work_never_starts_before_it_was_issued() {
        let mut s = Streams::default();
        let a = s.create(GPU, Flavour::NonBlocking, 0);
        s.push(a, Nanos(7), &[], "late");
        s.push(a, Nanos(100), &[], "later");
        assert_eq!(run(&mut s), [("late", 7), ("later", 100)]);
    }

    #[test]
    fn a_destroyed_stream_finishes_its_work_and_its_marks_count_as_reached() {
        let mut s = Streams::default();
        let (a, b) = (s.create(GPU, Flavour::NonBlocking, 0), s.create(GPU, Flavour::NonBlocking, 0));
        let mark = s.push(a, Nanos(0), &[], "a1").unwrap();
        s.push(b, Nanos(0), &[mark], "b1");
        assert!(s.destroy(a) && !s.destroy(a));
        assert_eq!(s.push(a, Nanos(0), &[], "never"), None);
        assert!(!s.reached(mark), "still to run");
        assert_eq!(run(&mut s), [("a1", 0), ("b1", 10)]);
        assert!(s.reached(mark) && s.get(a).is_none());
    }
}
