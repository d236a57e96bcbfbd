//! The thread `deepum-record`: makes records of what the hooks saw, and writes them down.
//!
//! A trace numbers launches, copies and kernels' names by itself, GPU by GPU, in the order in which the hooks told of them. What a launch does
//! is told by the device when it starts, which may be before the hook has said that it was issued: then it waits here ([`MOST_EARLY`]).

use super::progress::{Issued as UnderWay, Progress};
use super::trace::Trace;
use super::{Clock, Issued, Said, Setup, What, file, program};
use crate::DeviceFacts;
use deepum_core::units::{Bytes, DeviceId, LaunchSeq, Nanos};
use deepum_trace::event::{Event, Header, Launch, Touch};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest time that a record stays in memory alone: what a kill may cost.
const KEPT: Duration = Duration::from_secs(1);
/// Between two looks at progress words while something is under way. A choice: a kernel of training takes some tens of microseconds, and
/// waking up a few.
const LOOK: Duration = Duration::from_micros(100);
/// Most work told of before it was issued: as much as a program's threads can have between two instructions of ours. What nobody records, such as copies of
/// memory that is not managed, is pushed out by what comes later.
const MOST_EARLY: usize = 256;

/// See the module.
pub(super) struct Scribe {
    setup: Setup,
    path: PathBuf,
    /// By GPU; the first is there from the beginning.
    traces: BTreeMap<u8, Trace>,
    /// By what the device calls it.
    orders: HashMap<u64, Place>,
    early: BTreeMap<u64, (Nanos, Vec<Touch>)>,
    progress: Progress,
    lost: Arc<AtomicU64>,
    all_lost: u64,
    clock: Clock,
}

/// A launch or copy in a trace.
#[derive(Clone, Copy)]
struct Place {
    device: DeviceId,
    place: LaunchSeq,
    is_launch: bool,
}

impl Scribe {
    /// Begins the first GPU's trace in `file`, which is at `path`.
    pub(super) fn new(setup: Setup, file: File, path: PathBuf, lost: Arc<AtomicU64>, clock: Clock) -> Self {
        let progress = Progress::new(setup.page.progress());
        let (orders, early) = (HashMap::new(), BTreeMap::new());
        let mut traces = BTreeMap::new();
        if let Some(facts) = setup.devices.first() {
            traces.insert(0, Trace::begin(file, path.clone(), &header(&setup, facts), setup.say));
        }
        Self { setup, path, traces, orders, early, progress, lost, all_lost: 0, clock }
    }

    /// Writes down what is said, to its end.
    pub(super) fn write(mut self, heard: &Receiver<Said>) {
        let mut flushed = Instant::now();
        loop {
            let patience = if self.progress.is_busy() { LOOK } else { KEPT };
            match heard.recv_timeout(patience) {
                Ok(Said::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Said::Call { at, what: What::Iteration, .. }) => {
                    self.traces.values_mut().for_each(|trace| trace.put(at, Event::Iteration));
                }
                Ok(Said::Call { device, at, what }) => self.call(device, at, what),
                Ok(Said::Work { order, time, touches }) => self.work(order, time, touches),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look();
            if flushed.elapsed() >= KEPT {
                self.traces.values_mut().for_each(Trace::flush);
                flushed = Instant::now();
            }
        }
        self.look();
        self.end();
    }

    fn call(&mut self, device: DeviceId, at: Nanos, what: What) {
        let Some(trace) = self.trace(device) else { return };
        let (place, issued, is_launch) = match what {
            What::Alloc(range) => return trace.put(at, Event::Alloc { range }),
            What::Free(range) => return trace.put(at, Event::Free { range }),
            What::PtBlock { range, active } => return trace.put(at, Event::PtBlock { range, active }),
            What::Wait { stream, waited } => return trace.put(at, Event::Wait { stream, waited }),
            What::Iteration => return trace.put(at, Event::Iteration),
            What::Copy { from, to, issued } => {
                (trace.issue(at, Event::Copy { stream: issued.stream, from, to }), issued, false)
            }
            What::Launch { key, name, pointers, issued } => {
                let kernel = trace.name(at, name);
                let launch = Launch { stream: issued.stream, kernel, key, pointers: pointers.into_vec() };
                (trace.issue(at, Event::Launch(launch)), issued, true)
            }
        };
        if let Some(place) = place {
            self.under_way(Place { device, place, is_launch }, issued);
        }
    }

    /// What a launch or copy does is known already, or will be.
    fn under_way(&mut self, place: Place, issued: Issued) {
        if issued.order > 0 {
            match self.early.remove(&issued.order) {
                Some((time, touches)) => self.does(place, time, touches),
                None => drop(self.orders.insert(issued.order, place)),
            }
        }
        if let Some((slot, seq)) = issued.progress {
            self.progress.issued(slot, UnderWay { seq, at: issued.at, place: (place.device, place.place) });
        }
    }

    /// The device says what it does.
    fn work(&mut self, order: u64, time: Nanos, touches: Vec<Touch>) {
        match self.orders.remove(&order) {
            Some(place) => self.does(place, time, touches),
            None => {
                self.early.insert(order, (time, touches));
                if self.early.len() > MOST_EARLY {
                    self.early.pop_first();
                }
            }
        }
    }

    fn does(&mut self, Place { device, place: launch, is_launch }: Place, time: Nanos, touches: Vec<Touch>) {
        let Some(trace) = self.trace(device) else { return };
        if is_launch {
            trace.know(Event::Touched { launch, touches });
        }
        trace.know(Event::Time { launch, time });
    }

    /// Looks at what may be news at any moment: progress, and what was lost.
    fn look(&mut self) {
        let Self { progress, traces, clock, lost, all_lost, path, setup, .. } = self;
        if progress.is_busy() {
            progress.look(clock.raw(), |(device, launch), time| {
                if let Some(trace) = traces.get_mut(&device.0) {
                    trace.know(Event::Time { launch, time });
                }
            });
        }
        let events = lost.swap(0, Ordering::Relaxed);
        if events > 0 {
            traces.values_mut().for_each(|trace| trace.know(Event::Lost { events }));
            if *all_lost == 0 {
                let path = path.display();
                (setup.say)(&format!(
                    "{path}: the program is faster than it can be recorded: some of it is missing there"
                ));
            }
            *all_lost += events;
        }
    }

    /// The trace of a GPU; none if there is no such GPU.
    fn trace(&mut self, device: DeviceId) -> Option<&mut Trace> {
        let Self { setup, path, traces, .. } = self;
        let facts = setup.devices.iter().find(|facts| facts.id == device)?;
        Some(traces.entry(device.0).or_insert_with(|| {
            match file::create(&file::beside(path, &format!("gpu{}", device.0))) {
                Ok((file, path)) => Trace::begin(file, path, &header(setup, facts), setup.say),
                Err((path, why)) => {
                    (setup.say)(&format!("{}: {why}; GPU {} is not recorded", path.display(), device.0));
                    Trace::nowhere(path, setup.say)
                }
            }
        }))
    }

    fn end(&mut self) {
        if self.all_lost > 0 {
            let (path, lost) = (self.path.display(), self.all_lost);
            (self.setup.say)(&format!("{path}: {lost} calls and notices of the program are missing there"));
        }
        for trace in self.traces.values_mut() {
            let places = trace.places();
            if trace.finish() {
                let bytes = Bytes(std::fs::metadata(trace.path()).map_or(0, |file| file.len()));
                (self.setup.info)(&format!("{}: {places} launches and copies, {bytes}", trace.path().display()));
            }
        }
    }
}

fn header(setup: &Setup, facts: &DeviceFacts) -> Header {
    Header { program: program().into(), device: setup.device.as_str().into(), budget: facts.budget }
}
