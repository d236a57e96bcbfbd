//! Launching an executable graph.
//!
//! Its nodes go into the stream one after the other, in the order of their dependencies, between a beginning and an end: so they
//! are before and after what else the stream does, as one kernel is, and each plays its own memory truth. (Real GPUs overlap nodes that do not
//! depend on each other.) To the host it is one launch: one overhead, one place in the device's sequence and in the flight log, one position
//! for whoever watches.
//!
//! What its nodes touch is gathered while they run, and told and compared with what the shim named when the graph ends.

use std::collections::HashMap;

use deepum_core::units::Nanos;

use super::{ExecId, Task};
use crate::error::{CuError, CuResult};
use crate::machine::Call;
use crate::stream::{Mark, StreamId};
use crate::truth::Touch;
use crate::work::{Counted, Work};

/// A graph's launch whose nodes run now.
#[derive(Debug)]
pub struct Open {
    /// Its position among all that was issued.
    pub order: u64,
    /// When its first node could start.
    pub start: Nanos,
    /// What the shim named for it, if it was asked.
    pub named: Option<Vec<u64>>,
    /// What its nodes touched so far.
    pub touches: Vec<Touch>,
    /// How long they take if nothing is missing.
    pub compute: Nanos,
}

impl Open {
    /// Another of its nodes runs: its touches come after those of the others.
    pub fn add(&mut self, touches: &[Touch], compute: Nanos) {
        let first = self.touches.iter().map(|t| t.phase + 1).max().unwrap_or(0);
        self.touches.extend(touches.iter().map(|&t| Touch { phase: first + t.phase, ..t }));
        self.compute += compute;
    }
}

/// Launches under way, by stream: a stream runs one at a time.
pub type OpenLaunches = HashMap<StreamId, Open>;

impl Call<'_> {
    /// Launches an executable graph; where the stream is captured, it becomes a child node.
    ///
    /// # Errors
    /// `InvalidValue` for what is none; `InvalidHandle` for a stream that is gone; `NotSupported` if its nodes are of
    /// another device than the stream.
    pub fn launch_graph(&mut self, stream: StreamId, id: ExecId) -> CuResult {
        self.state.graphs.exec(id)?;
        if self.captures(stream)? {
            let graph = self.state.graphs.graph_of(id)?;
            let added = self.capture(stream, Task::Child(graph));
            // The node has a copy of its own.
            self.state.graphs.destroy(graph)?;
            return added;
        }
        let device = self.state.streams.get(stream).ok_or(CuError::InvalidHandle)?.device;
        let exec = self.state.graphs.exec(id)?;
        if exec.steps().any(|node| node.device != device) {
            return Err(CuError::NotSupported);
        }
        let (last, identity) = (exec.last, identity(exec.steps().map(|node| &node.task)));
        // Making room may let the device run, and a function of the program with it; the nodes are looked at afterwards.
        let counted = self.count_launch(stream, identity)?;
        let tasks: Vec<Task> = self.state.graphs.exec(id)?.steps().map(|node| node.task.clone()).collect();
        self.queue(stream, last.as_slice(), Work::Begin(counted))?;
        for task in tasks {
            match task {
                Task::Work(Work::Record(event)) => {
                    let mark = self.queue_part(stream, &[], Work::Record(event))?;
                    self.recorded(event, mark);
                }
                Task::Work(work) => drop(self.queue_part(stream, &[], work)?),
                Task::Await(event) => {
                    let mark = self.state.events.get(event).ok().and_then(|event| event.mark);
                    self.queue_part(stream, mark.as_slice(), Work::Nothing)?;
                }
                // Its nodes are among the steps.
                Task::Child(_) => {}
            }
        }
        let end = self.queue_part(stream, &[], Work::End(counted))?;
        self.state.graphs.exec_mut(id)?.last = Some(end);
        Ok(())
    }

    fn queue_part(&mut self, stream: StreamId, after: &[Mark], work: Work) -> CuResult<Mark> {
        let now = self.state.host;
        self.state.streams.push_part(stream, now, after, work).ok_or(CuError::InvalidHandle)
    }

    /// A launch's nodes run from now on.
    pub(crate) fn open(&mut self, stream: StreamId, order: u64, counted: Counted) {
        let device = self.state.streams.device_of(stream);
        let named = device.and_then(|device| self.named(device, counted.seq));
        let start = self.state.now;
        let open = Open { order, start, named, touches: Vec::new(), compute: Nanos::ZERO };
        self.state.open.insert(stream, open);
    }

    /// They have run.
    pub(crate) fn close(&mut self, stream: StreamId) -> Option<Open> {
        let open = self.state.open.remove(&stream)?;
        self.machine.watch.tell(open.order, open.compute, &open.touches);
        if let Some(named) = &open.named {
            self.state.compare(named, &open.touches);
        }
        Some(open)
    }
}

/// What a graph is, from what its nodes are: the same in every run.
fn identity<'a>(tasks: impl Iterator<Item = &'a Task>) -> u64 {
    tasks.fold(0xcbf2_9ce4_8422_2325, |hash: u64, task| {
        let one = match task {
            Task::Work(Work::Launch(launch)) => launch.identity(),
            other => u64::from(other.kind().unsigned_abs()),
        };
        (hash.rotate_left(5) ^ one).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
