//! How far the streams are that freed memory: by events, recorded only when somebody else wants it.
//!
//! Problem: what one stream freed, another may use once the first has got there. To record an event behind every free would cost a driver
//! call each, for the sake of programs that use several streams.
//!
//! Idea: frees have numbers. When another stream wants the memory, an event is recorded behind what its stream has by then, so behind
//! all frees with a lower number than the next. A thread's own default stream can be named by that thread alone, so each of its
//! frees gets its event at once; so does a stream that is about to be destroyed, and one that is not of the context that memory is
//! handed out in. What those freed goes on under a number of its own, which nobody else's can be.
//!
//! Invariants: nothing here waits for the GPU, and nothing is recorded or asked while a stream is captured (facts 4.5). What has no
//! event that can be asked about is never taken to have been passed.

use crate::abi::{Ptr, SUCCESS, Status};
use crate::launch::{captures, capturing};
use crate::real::genuine;
use deepum_core::pool::StreamKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_uint;

/// Number of a free, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Free(u64);

/// From here down are the numbers of streams that cannot be named any more; no other stream's are as high.
const UNNAMED: u64 = u64::MAX;

/// Events of one stream that are kept.
const EVENTS: usize = 8;

/// Streams that freed something.
pub struct Order {
    next: u64,
    unnamed: u64,
    lines: BTreeMap<StreamKey, Line>,
}

struct Line {
    /// By which handle any thread can name it.
    stream: Option<Ptr>,
    /// Events, and the last free that each is behind.
    events: VecDeque<(Free, Event)>,
    /// Its last free.
    last: Free,
    passed: Free,
}
// SAFETY: a stream's handle may be used by any thread; it is only handed to the driver.
unsafe impl Send for Line {}

/// An event of ours; destroyed when nobody needs it.
struct Event(Ptr);

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(destroy) = genuine!(Cuda, "cuEventDestroy_v2", fn(Ptr) -> Status) {
            // SAFETY: made by `behind`, and nobody else has it. Who waits for it still does (CUDA driver API, `cuEventDestroy`).
            unsafe { destroy(self.0) };
        }
    }
}

/// A new event behind all that `stream` has been given; nothing where the driver refuses.
fn behind(stream: Ptr) -> Option<Event> {
    /// `CU_EVENT_DISABLE_TIMING`.
    const NO_TIMING: c_uint = 2;
    let context_of = genuine!(Cuda, "cuStreamGetCtx", fn(Ptr, *mut Ptr) -> Status)?;
    let push = genuine!(Cuda, "cuCtxPushCurrent_v2", fn(Ptr) -> Status)?;
    let pop = genuine!(Cuda, "cuCtxPopCurrent_v2", fn(*mut Ptr) -> Status)?;
    let create = genuine!(Cuda, "cuEventCreate", fn(*mut Ptr, c_uint) -> Status)?;
    let record = genuine!(Cuda, "cuEventRecord", fn(Ptr, Ptr) -> Status)?;
    let (mut context, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the stream is one that the program frees in, or was; a wrong one is refused. The results are ours. The context on top of
    // the thread's stack is taken off again, whatever came of it.
    unsafe {
        if context_of(stream, &raw mut context) != SUCCESS || push(context) != SUCCESS {
            return None;
        }
        let made = (create(&raw mut event, NO_TIMING) == SUCCESS).then_some(Event(event));
        let recorded = made.filter(|event| record(event.0, stream) == SUCCESS);
        pop(&raw mut context);
        recorded
    }
}

impl Order {
    pub const fn new() -> Self {
        Self { next: 1, unnamed: 0, lines: BTreeMap::new() }
    }

    /// The last free there was.
    pub fn newest(&self) -> Free {
        Free(self.next - 1)
    }

    /// A free in the stream `key`, which any thread can name by `stream`.
    pub fn free(&mut self, key: StreamKey, stream: Ptr) -> (StreamKey, Free) {
        let free = self.number();
        let line = self.line(key);
        (line.stream, line.last) = (Some(stream), free);
        (key, free)
    }

    /// A free in a stream that this thread alone can name, and `key` means; it may be wanted in order, and by that key.
    pub fn free_of_thread(&mut self, key: StreamKey, stream: Ptr) -> (StreamKey, Free) {
        let free = self.number();
        let line = self.line(key);
        line.last = free;
        line.events.extend(behind(stream).map(|event| (free, event)));
        // The later ones say more.
        while line.events.len() > EVENTS {
            line.events.pop_front();
        }
        (key, free)
    }

    /// A free in a stream that nobody is to have memory back by.
    pub fn free_elsewhere(&mut self, stream: Ptr) -> (StreamKey, Free) {
        let key = self.no_name();
        self.free_of_thread(key, stream)
    }

    /// A free of which nobody will ever know that it was passed.
    pub fn never(&mut self) -> (StreamKey, Free) {
        (self.no_name(), self.number())
    }

    fn number(&mut self) -> Free {
        self.next += 1;
        Free(self.next - 1)
    }

    fn no_name(&mut self) -> StreamKey {
        self.unnamed += 1;
        StreamKey(UNNAMED - self.unnamed)
    }

    fn line(&mut self, key: StreamKey) -> &mut Line {
        self.lines.entry(key).or_insert(Line { stream: None, events: VecDeque::new(), last: Free(0), passed: Free(0) })
    }

    /// The stream of this handle is about to be destroyed: what is of it goes on under the numbers given. Old numbers first.
    pub fn destroy(&mut self, stream: Ptr) -> Vec<(StreamKey, StreamKey)> {
        let gone: Vec<StreamKey> =
            self.lines.iter().filter(|(_, line)| line.stream == Some(stream)).map(|(&key, _)| key).collect();
        let renamed: Vec<_> = gone.into_iter().map(|key| (key, self.no_name())).collect();
        for &(old, new) in &renamed {
            self.reach(old);
            if let Some(mut line) = self.lines.remove(&old) {
                line.stream = None;
                self.lines.insert(new, line);
            }
        }
        renamed
    }

    /// Sees to it that an event is behind all frees of `key`, if its stream can be named and is not captured.
    fn reach(&mut self, key: StreamKey) {
        let newest = self.newest();
        let Some(line) = self.lines.get_mut(&key) else { return };
        if line.events.back().is_some_and(|&(upto, _)| upto >= line.last) || line.passed >= line.last {
            return;
        }
        let open = line.stream.filter(|&stream| !(capturing() && captures(stream, false)));
        if let Some(event) = open.and_then(behind) {
            line.events.push_back((newest, event));
        }
    }

    /// Finds out how far the streams of these keys are.
    pub fn look(&mut self, keys: &BTreeSet<StreamKey>) {
        let Some(ask) = genuine!(Cuda, "cuEventQuery", fn(Ptr) -> Status).filter(|_| !capturing()) else { return };
        for &key in keys {
            self.reach(key);
            let Some(line) = self.lines.get_mut(&key) else { continue };
            // SAFETY: the event is ours and alive; a question does not wait.
            while let Some((upto, _)) = line.events.pop_front_if(|(_, event)| unsafe { ask(event.0) } == SUCCESS) {
                line.passed = upto;
            }
        }
    }

    /// Whether the stream has passed that free, as far as is known.
    pub fn passed(&self, key: StreamKey, free: Free) -> bool {
        self.lines.get(&key).is_some_and(|line| line.passed >= free)
    }

    /// As above, where the device of all streams that can be named, and of threads' own, was idle after the free `upto`.
    pub fn passed_when_idle(&self, key: StreamKey, free: Free, upto: Free) -> bool {
        self.passed(key, free) || key.0 < UNNAMED - self.unnamed && free <= upto
    }

    /// Forgets streams of which nothing is left to ask but those of these keys.
    pub fn keep(&mut self, keys: &BTreeSet<StreamKey>) {
        self.lines.retain(|key, _| keys.contains(key));
    }

    /// Makes `stream` wait until the others have passed these frees. False if that cannot be done.
    pub fn wait(&mut self, stream: Ptr, frees: &[(StreamKey, Free)]) -> bool {
        let Some(wait) = genuine!(Cuda, "cuStreamWaitEvent", fn(Ptr, Ptr, c_uint) -> Status) else { return false };
        frees.iter().all(|&(key, free)| {
            self.reach(key);
            let Some(line) = self.lines.get(&key) else { return false };
            let event = line.events.iter().find(|&&(upto, _)| upto >= free);
            // SAFETY: the event is ours and alive, the stream the program's own argument.
            line.passed >= free || event.is_some_and(|(_, event)| unsafe { wait(stream, event.0, 0) } == SUCCESS)
        })
    }
}
