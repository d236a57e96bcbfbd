//! Stream capture: what a stream is given becomes nodes of a graph, and does not run.
//!
//! A *capture* begins in one stream, its origin, and spreads with dependencies: a stream that waits for an event recorded in a
//! captured stream is captured, too. For each stream it keeps the nodes that the next one comes after. At its end every other stream must
//! have joined the origin again.
//!
//!     origin: begin  A  record e ──────────── wait f  C  end      graph: A ─► B ─► C
//!     other:               wait e  B  record f
//!
//! What cannot be a node, or asks how far captured work is, breaks the capture: it is *invalid* until its end, where that is the error.
//! Some calls are unsafe beside any capture, by the modes of the threads ([`Call::permitted`]). All of it: CUDA driver API reference,
//! `cuStreamBeginCapture`, `cuStreamGetCaptureInfo`, `cuThreadExchangeStreamCaptureMode`; CUDA programming guide, "Creating a Graph Using Stream
//! Capture"; facts 21.1, 21.2.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::thread::{self, ThreadId};

use deepum_core::units::DeviceId;

use crate::error::{CuError, CuResult};
use crate::graph::{GraphId, NodeId, Task};
use crate::machine::Call;
use crate::run::Until;
use crate::stream::{Flavour, Mark, StreamId};
use crate::work::Work;

/// What a capture, or a thread, thinks of calls that are unsafe beside captures (`CUstreamCaptureMode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Forbidden to all threads.
    Global,
    /// Forbidden to the thread that captures.
    ThreadLocal,
    /// Allowed.
    Relaxed,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// The calling thread's mode, which becomes `new`.
#[must_use]
pub fn exchange(new: Mode) -> Mode {
    MODE.replace(new)
}

/// One capture in progress.
#[derive(Debug)]
pub struct Capture {
    /// Its number, of no other capture of the process.
    pub id: u64,
    /// What it adds to.
    pub graph: GraphId,
    /// Whether something broke it.
    pub invalid: bool,
    origin: StreamId,
    mode: Mode,
    thread: ThreadId,
    /// Whether the graph was made for it.
    made: bool,
    /// The streams that are captured, and after which nodes the next one of each comes.
    streams: BTreeMap<StreamId, Vec<NodeId>>,
}

impl Capture {
    /// After which nodes the next one of `stream` comes.
    #[must_use]
    pub fn next_after(&self, stream: StreamId) -> &[NodeId] {
        self.streams.get(&stream).map_or(&[], Vec::as_slice)
    }
}

/// Every capture in progress.
#[derive(Debug, Default)]
pub struct Captures {
    next: u64,
    active: Vec<Capture>,
    /// Events that were last recorded in a capture: in which, and behind which nodes.
    events: HashMap<u32, (u64, Vec<NodeId>)>,
}

impl Captures {
    /// The capture that a stream is in.
    #[must_use]
    pub fn of(&self, stream: StreamId) -> Option<&Capture> {
        self.active.iter().find(|capture| capture.streams.contains_key(&stream))
    }

    fn of_mut(&mut self, stream: StreamId) -> Option<&mut Capture> {
        self.active.iter_mut().find(|capture| capture.streams.contains_key(&stream))
    }

    /// An event is gone.
    pub fn forget_event(&mut self, event: u32) {
        self.events.remove(&event);
    }

    /// Breaks those that `which` picks; whether there was one.
    fn invalidate(&mut self, which: impl Fn(&Capture) -> bool) -> bool {
        let hit = self.active.iter_mut().filter(|capture| which(capture));
        hit.map(|capture| capture.invalid = true).count() > 0
    }
}

fn extend(nodes: &mut Vec<NodeId>, more: &[NodeId]) {
    for node in more {
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
}

impl Call<'_> {
    /// Begins a capture into `graph`, or into a new one.
    ///
    /// # Errors
    /// `CaptureUnsupported` for the NULL stream, `IllegalState` for a stream that is captured, `InvalidValue` for dependencies of another
    /// graph.
    pub fn begin_capture(&mut self, stream: StreamId, mode: Mode, into: Option<(GraphId, Vec<NodeId>)>) -> CuResult {
        let state = &mut *self.state;
        if state.streams.get(stream).ok_or(CuError::InvalidHandle)?.flavour == Flavour::Legacy {
            return Err(CuError::CaptureUnsupported);
        }
        if state.captures.of(stream).is_some() {
            return Err(CuError::IllegalState);
        }
        let made = into.is_none();
        let (graph, after) = into.unwrap_or_else(|| (state.graphs.create(), Vec::new()));
        if after.iter().any(|node| state.graphs.home(*node) != Ok(graph)) {
            return Err(CuError::InvalidValue);
        }
        state.graphs.graph_mut(graph)?.capturing += 1;
        state.captures.next += 1;
        state.captures.active.push(Capture {
            id: state.captures.next,
            graph,
            invalid: false,
            origin: stream,
            mode,
            thread: thread::current().id(),
            made,
            streams: BTreeMap::from([(stream, after)]),
        });
        Ok(())
    }

    /// Ends the capture that began in `stream`.
    ///
    /// # Errors
    /// `IllegalState` if there is none, `CaptureUnmatched` and `CaptureWrongThread` if it is not to be ended here; if it was broken,
    /// `CaptureInvalidated`, if not all streams have joined, `CaptureUnjoined`: it has ended then, without a graph.
    pub fn end_capture(&mut self, stream: StreamId) -> CuResult<GraphId> {
        let state = &mut *self.state;
        let capture = state.captures.of(stream).ok_or(CuError::IllegalState)?;
        if capture.origin != stream {
            state.captures.invalidate(|capture| capture.streams.contains_key(&stream));
            return Err(CuError::CaptureUnmatched);
        }
        if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
            return Err(CuError::CaptureWrongThread);
        }
        let id = capture.id;
        let at = state.captures.active.iter().position(|other| other.id == id).ok_or(CuError::IllegalState)?;
        let capture = state.captures.active.swap_remove(at);
        let graph = state.graphs.graph_mut(capture.graph)?;
        graph.capturing -= 1;
        let joined = graph.before(capture.next_after(stream));
        let unjoined = capture.streams.values().flatten().any(|node| !joined.contains(node));
        let error = match (capture.invalid, unjoined) {
            (true, _) => CuError::CaptureInvalidated,
            (_, true) => CuError::CaptureUnjoined,
            _ => return Ok(capture.graph),
        };
        if capture.made {
            state.graphs.destroy(capture.graph)?;
        }
        Err(error)
    }

    /// Whether what is given to `stream` becomes a node.
    ///
    /// # Errors
    /// `CaptureInvalidated` in a broken capture; `CaptureImplicit` for the NULL stream while a stream that it waits for is captured, which
    /// breaks that capture.
    pub fn captures(&mut self, stream: StreamId) -> CuResult<bool> {
        if self.implicit(stream) {
            self.break_blocking(stream);
            return Err(CuError::CaptureImplicit);
        }
        match self.state.captures.of(stream) {
            Some(capture) if capture.invalid => Err(CuError::CaptureInvalidated),
            found => Ok(found.is_some()),
        }
    }

    /// Whether `stream` is a NULL stream that waits for streams that are captured.
    #[must_use]
    pub fn implicit(&self, stream: StreamId) -> bool {
        self.state.captures.active.iter().any(|capture| self.holds_up(stream, capture))
    }

    /// Whether `stream` is a NULL stream, and waits for a stream of `capture`.
    fn holds_up(&self, stream: StreamId, capture: &Capture) -> bool {
        let streams = &self.state.streams;
        let Some(null) = streams.get(stream).filter(|s| s.flavour == Flavour::Legacy) else { return false };
        let waited_for =
            |s: &StreamId| streams.get(*s).is_some_and(|s| s.device == null.device && s.flavour == Flavour::Blocking);
        capture.streams.keys().any(waited_for)
    }

    fn break_blocking(&mut self, null: StreamId) {
        let hit: Vec<u64> =
            self.state.captures.active.iter().filter(|c| self.holds_up(null, c)).map(|c| c.id).collect();
        self.state.captures.invalidate(|capture| hit.contains(&capture.id));
    }

    /// Adds a node to the capture of `stream`, behind what the stream was given before.
    ///
    /// # Errors
    /// `IllegalState` if it is in none.
    pub fn capture(&mut self, stream: StreamId, task: Task) -> CuResult {
        let state = &mut *self.state;
        let device = state.streams.device_of(stream).ok_or(CuError::InvalidHandle)?;
        let capture = state.captures.of_mut(stream).ok_or(CuError::IllegalState)?;
        let node = state.graphs.add(capture.graph, device, task, capture.next_after(stream))?;
        capture.streams.insert(stream, vec![node]);
        Ok(())
    }

    /// Gives work to a stream: it is queued, or becomes a node.
    ///
    /// # Errors
    /// As for [`Self::captures`] and [`Self::queue`].
    pub fn give(&mut self, stream: StreamId, work: Work) -> CuResult {
        if self.captures(stream)? {
            self.capture(stream, Task::Work(work))
        } else {
            self.queue(stream, &[], work).map(drop)
        }
    }

    /// For what can be no node.
    ///
    /// # Errors
    /// `CaptureUnsupported` if `stream` is captured, which breaks the capture; as for [`Self::captures`].
    pub fn not_captured(&mut self, stream: StreamId) -> CuResult {
        if self.captures(stream)? {
            self.state.captures.invalidate(|capture| capture.streams.contains_key(&stream));
            return Err(CuError::CaptureUnsupported);
        }
        Ok(())
    }

    /// For a call in which the host may wait for `stream`, or asks how far it is.
    ///
    /// # Errors
    /// As for [`Self::not_captured`] and [`Self::permitted`].
    pub fn may_wait(&mut self, stream: StreamId) -> CuResult {
        self.not_captured(stream)?;
        self.permitted()
    }

    /// For a call that waits for all of a device.
    ///
    /// # Errors
    /// `CaptureUnsupported` while a stream of it is captured, which breaks the capture; as for [`Self::permitted`].
    pub fn may_wait_for_all(&mut self, device: DeviceId) -> CuResult {
        let state = &mut *self.state;
        let streams = &state.streams;
        let here = |stream: &StreamId| streams.device_of(*stream) == Some(device);
        if state.captures.invalidate(|capture| capture.streams.keys().any(here)) {
            return Err(CuError::CaptureUnsupported);
        }
        self.permitted()
    }

    /// For a call that waits for an event, or asks about it.
    ///
    /// # Errors
    /// `CapturedEvent` if it was last recorded in a capture, which is broken then; as for [`Self::permitted`].
    pub fn may_wait_for_event(&mut self, event: u32) -> CuResult {
        self.state.events.get(event)?;
        let captures = &mut self.state.captures;
        if let Some(&(id, _)) = captures.events.get(&event) {
            captures.invalidate(|capture| capture.id == id);
            return Err(CuError::CapturedEvent);
        }
        self.permitted()
    }

    /// For a call that captures do not see, such as one that allocates.
    ///
    /// # Errors
    /// `CaptureUnsupported` if a capture forbids it to this thread; that capture is broken.
    pub fn permitted(&mut self) -> CuResult {
        let (me, mode) = (thread::current().id(), MODE.get());
        let forbids = |capture: &Capture| match mode {
            Mode::Relaxed => false,
            _ if capture.thread == me => capture.mode != Mode::Relaxed,
            Mode::ThreadLocal => false,
            Mode::Global => capture.mode == Mode::Global,
        };
        if self.state.captures.invalidate(forbids) { Err(CuError::CaptureUnsupported) } else { Ok(()) }
    }

    /// Records an event: behind what the stream was given, or behind its nodes; `external` as a node.
    ///
    /// # Errors
    /// `InvalidHandle` for an event of another device; as for [`Self::give`].
    pub fn record(&mut self, stream: StreamId, event: u32, external: bool) -> CuResult {
        // Event and stream are of one context (CUDA driver API reference, cuEventRecord).
        if Some(self.state.events.get(event)?.device) != self.state.streams.device_of(stream) {
            return Err(CuError::InvalidHandle);
        }
        if !self.captures(stream)? {
            let mark = self.queue(stream, &[], Work::Record(event))?;
            self.recorded(event, mark);
            // Other processes, whose clocks are their own, are to find it over.
            if self.state.events.get(event)?.shared {
                self.run(Until::Reached(mark))?;
            }
            return Ok(());
        }
        if external {
            return self.capture(stream, Task::Work(Work::Record(event)));
        }
        let captures = &mut self.state.captures;
        if let Some(capture) = captures.of(stream) {
            let point = (capture.id, capture.next_after(stream).to_vec());
            captures.events.insert(event, point);
        }
        Ok(())
    }

    /// An event was recorded behind `mark`, in no capture.
    pub(crate) fn recorded(&mut self, event: u32, mark: Mark) {
        self.state.captures.forget_event(event);
        // An event that is gone is recorded by nobody but a graph that still has it.
        let _ = self.state.events.record(event, mark);
    }

    /// A stream waits for an event; in a capture it comes behind the event's nodes, and a stream that was in none joins. `external` is a node.
    ///
    /// # Errors
    /// `CaptureIsolation` if a captured stream would wait for what is not captured, `CaptureMerge` for an event of another capture, both of
    /// which break the capture; `CapturedEvent` for an event of a capture that has ended, `CaptureUnsupported` for the NULL stream.
    pub fn await_event(&mut self, stream: StreamId, event: u32, external: bool) -> CuResult {
        let found = self.state.events.get(event)?;
        let captured = self.captures(stream)?;
        if captured && external {
            return self.capture(stream, Task::Await(event));
        }
        let state = &mut *self.state;
        let Some((id, nodes)) = state.captures.events.get(&event).cloned() else {
            return match found.mark {
                // An event that was never recorded holds nobody back.
                None => Ok(()),
                Some(_) if captured => {
                    state.captures.invalidate(|capture| capture.streams.contains_key(&stream));
                    Err(CuError::CaptureIsolation)
                }
                Some(mark) => self.queue(stream, &[mark], Work::Nothing).map(drop),
            };
        };
        if state.captures.of(stream).is_some_and(|capture| capture.id != id) {
            state.captures.invalidate(|capture| capture.id == id || capture.streams.contains_key(&stream));
            return Err(CuError::CaptureMerge);
        }
        let null = state.streams.get(stream).is_none_or(|s| s.flavour == Flavour::Legacy);
        let capture = state.captures.active.iter_mut().find(|capture| capture.id == id);
        let capture = capture.ok_or(CuError::CapturedEvent)?;
        if capture.invalid {
            return Err(CuError::CaptureInvalidated);
        }
        if null {
            capture.invalid = true;
            return Err(CuError::CaptureUnsupported);
        }
        extend(capture.streams.entry(stream).or_default(), &nodes);
        Ok(())
    }

    /// Changes after which nodes the next one of `stream` comes: these alone, or these too.
    ///
    /// # Errors
    /// `IllegalState` if it is not captured, `InvalidValue` for nodes of another graph; `CaptureInvalidated`.
    pub fn come_after(&mut self, stream: StreamId, nodes: &[NodeId], alone: bool) -> CuResult {
        if !self.captures(stream)? {
            return Err(CuError::IllegalState);
        }
        let state = &mut *self.state;
        let capture = state.captures.of_mut(stream).ok_or(CuError::IllegalState)?;
        if nodes.iter().any(|node| state.graphs.home(*node) != Ok(capture.graph)) {
            return Err(CuError::InvalidValue);
        }
        let after = capture.streams.entry(stream).or_default();
        if alone {
            after.clear();
        }
        extend(after, nodes);
        Ok(())
    }

    /// A stream is about to be destroyed: a capture that it is in cannot go on, and one that began in it never ends otherwise.
    pub fn leave_capture(&mut self, stream: StreamId) {
        let state = &mut *self.state;
        state.captures.invalidate(|capture| capture.streams.contains_key(&stream));
        let ended = state.captures.active.extract_if(.., |capture| capture.origin == stream).collect::<Vec<_>>();
        for capture in ended {
            if let Ok(graph) = state.graphs.graph_mut(capture.graph) {
                graph.capturing -= 1;
            }
            if capture.made {
                // Nobody else has it.
                let _ = state.graphs.destroy(capture.graph);
            }
        }
    }
}
