//! Starting a piece of work, and what is left to do when it is over.

use deepum_core::units::{AddrRange, Bytes, DeviceId, Nanos};
use deepum_model::{Accessor, KernelRun, Precision};

use crate::bytes::ByteView;
use crate::log::Entry;
use crate::machine::Call;
use crate::run::{Running, Stage};
use crate::space::Kind;
use crate::state::State;
use crate::stream::{Ready, StreamId};
use crate::testing;
use crate::truth::{Access, KernelCall, Source, Touch};
use crate::work::{Copy, Counted, Direction, Fill, HostFn, Launch, Word, Work};

/// What is to be done when work is over.
#[derive(Debug)]
pub enum Ending {
    /// Nothing.
    None,
    /// A kernel: its results, its log entry.
    Launch(Box<Launch>, Nanos),
    /// A graph's launch: its log entry.
    Graph(Counted, Nanos),
    /// A copy: its bytes.
    Copy(Box<Copy>),
    /// A memset: its bytes.
    Fill(Fill),
    /// A stream write: its word.
    Write(Word),
}

impl Call<'_> {
    /// Starts the head of a stream.
    pub(crate) fn start(&mut self, Ready { stream, order, .. }: Ready) {
        let seen = |work: &Work| matches!(work, Work::Launch(_) | Work::Begin(_) | Work::Wait(..));
        if self.state.streams.ready().any(|(r, _, work)| r.stream == stream && seen(work)) {
            // Before a launch, and before the wait in front of one, the engine sees everything so far (ARCHITECTURE section 5).
            self.settle(true);
        }
        let Some(device) = self.state.streams.device_of(stream) else { return };
        let Some(work) = self.state.streams.start(stream) else { return };
        let now = self.state.now;
        let data = self.machine.config.data;
        let profile = &self.machine.profile;
        let mut running =
            Running { stream, device, at: now, stage: Stage::Over, ending: Ending::None, computes: false };
        match work {
            Work::Launch(launch) => {
                let (touches, compute) = self.launch_work(device, &launch);
                running.stage = self.walk(stream, order, Accessor::Kernel, &touches, compute);
                running.computes = true;
                running.ending = Ending::Launch(launch, now);
            }
            Work::Begin(counted) => self.open(stream, order, counted),
            Work::End(counted) => {
                let start = self.close(stream).map_or(now, |open| open.start);
                running.ending = Ending::Graph(counted, start);
            }
            Work::Fill(fill) => {
                let bytes = Bytes(fill.width.saturating_mul(fill.height));
                let compute = profile.kernel_time(bytes, 0.0, Precision::Fp32);
                let touches = self.state.managed(fill.target(), Access::Write);
                running.stage = self.walk(stream, order, Accessor::CopyEngine, &touches, compute);
                running.computes = true;
                running.ending = Ending::Fill(fill);
            }
            Work::Copy(copy) => {
                running.stage = self.start_copy(stream, device, order, &copy);
                running.computes = copy.direction == Direction::OnDevice;
                running.ending = Ending::Copy(copy);
            }
            Work::Record(event) => self.state.events.reach(event, now),
            Work::Nothing => {}
            Work::Wait(word, condition) => {
                running.at = now + profile.stream_write_cost;
                running.stage = Stage::Waits(word, condition);
            }
            Work::Host(call) => {
                running.stage = Stage::Elsewhere;
                self.state.running.push(running);
                self.call_program(stream, call);
                return;
            }
            Work::Write(word) => {
                running.at = now + profile.stream_write_cost;
                running.ending = Ending::Write(word);
            }
            Work::Prefetch(range, to) => match self.state.memory.migrate(range, to, now) {
                Ok(moved) => running.at = moved.done,
                // The call was accepted long ago; the pages stay where they are and are fetched when touched.
                Err(_) => self.state.totals.out_of_memory += 1,
            },
            Work::Discard(range) => {
                running.at = self.state.memory.discard(range, true, now).unwrap_or(now);
            }
        }
        self.state.settle_bytes(data);
        if running.computes
            && let Some(gpu) = self.state.gpus.get_mut(usize::from(device.0))
        {
            gpu.computing = true;
        }
        self.state.running.push(running);
    }

    /// Work walks over what it touches, and whoever watches is told; of a graph's nodes when the graph ends.
    fn walk(&mut self, stream: StreamId, order: u64, accessor: Accessor, touches: &[Touch], compute: Nanos) -> Stage {
        let device = self.state.streams.device_of(stream).unwrap_or(DeviceId(0));
        match self.state.open.get_mut(&stream) {
            Some(graph) => graph.add(touches, compute),
            None => self.machine.watch.tell(order, compute, touches),
        }
        let touches: Vec<_> = touches.iter().map(|&touch| touch.into()).collect();
        Stage::Walk(Box::new(KernelRun::new(device, accessor, &touches, compute)))
    }

    fn start_copy(&mut self, stream: StreamId, device: DeviceId, order: u64, copy: &Copy) -> Stage {
        let now = self.state.now;
        let profile = &self.machine.profile;
        let rate = match copy.direction {
            Direction::ToDevice => profile.h2d_bandwidth,
            Direction::ToHost => profile.d2h_bandwidth,
            // Every byte is read and written. Between host memories: assumption, no card says how fast that is.
            Direction::OnDevice | Direction::OnHost => profile.memory_bandwidth / 2.0,
        };
        #[expect(clippy::cast_possible_truncation, reason = "a float to integer cast saturates")]
        let mut over = Nanos((copy.bytes().0 as f64 / rate * 1e9) as u64);
        let mut touches = self.state.managed(copy.source(), Access::Read);
        touches.extend(self.state.managed(copy.target(), Access::Write));
        if matches!(copy.direction, Direction::ToDevice | Direction::ToHost) {
            let to_device = copy.direction == Direction::ToDevice;
            let (_, end) = self.state.memory.plain_copy(device, to_device, copy.bytes(), now);
            over = end.saturating_sub(now);
        }
        self.walk(stream, order, Accessor::CopyEngine, &touches, over)
    }

    /// What a launch touches of managed memory, and how long it would take if nothing were missing.
    fn launch_work(&mut self, device: DeviceId, launch: &Launch) -> (Vec<Touch>, Nanos) {
        let data = self.machine.config.data;
        let state = &mut *self.state;
        let call = KernelCall {
            name: &launch.kernel.info.name,
            layout: &launch.kernel.info.params,
            params: &launch.params,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
        };
        let view = ByteView { space: &state.space, memory: &state.memory, data };
        let work = testing::work(&call).unwrap_or_else(|| {
            let work = state.truth.work(&call, &view);
            view.leave(&call, &work);
            work
        });
        let bytes = work.traffic;
        let compute = self.machine.profile.kernel_time(bytes, work.flops, work.class);
        let touches: Vec<Touch> = work
            .touches
            .into_iter()
            .filter(|t| !t.range.is_empty())
            .filter(|t| state.space.find(t.range.start).is_some_and(|a| a.kind == Kind::Managed))
            .collect();
        let (launches, sum) = match work.source {
            Source::Exact => (&mut state.totals.exact_launches, &mut state.totals.exact_bytes),
            Source::Guessed => (&mut state.totals.guessed_launches, &mut state.totals.guessed_bytes),
        };
        *launches += 1;
        *sum += bytes.0;
        // The launch of a graph has one comparison, with what all its nodes touched.
        if let Some(counted) = launch.counted
            && let Some(named) = self.named(device, counted.seq)
        {
            self.state.compare(&named, &touches);
        }
        (touches, compute)
    }

    /// What the shim named for launch `seq`, in order; nothing if there is nobody to ask.
    pub(crate) fn named(&mut self, device: DeviceId, seq: u64) -> Option<Vec<u64>> {
        // The engine's record of arguments is of the first device (ARCHITECTURE section 5).
        if device != DeviceId(0) {
            return None;
        }
        let mut named = Vec::new();
        let machine = self.machine;
        if !self.unlocked(|| machine.pace.may_touch(seq, &mut named)) {
            return None;
        }
        named.sort_unstable();
        named.dedup();
        Some(named)
    }

    /// Calls a function of the program in stream order, with nothing of ours held.
    fn call_program(&mut self, stream: StreamId, call: HostFn) {
        // SAFETY: the program handed function and argument over for exactly this call (cuLaunchHostFunc).
        self.aside(|| unsafe { (call.function)(call.argument) });
        let found = self.state.running.iter().position(|r| r.stream == stream && matches!(r.stage, Stage::Elsewhere));
        if let Some(n) = found {
            let done = self.state.running.swap_remove(n);
            self.finish(done);
        }
    }

    /// Work is over now.
    pub(crate) fn finish(&mut self, done: Running) {
        let now = self.state.now;
        let data = self.machine.config.data;
        let limit = self.machine.config.copy_limit;
        let state = &mut *self.state;
        match &done.ending {
            Ending::None => {}
            Ending::Copy(copy) if data || copy.bytes() <= limit => {
                // SAFETY: both ends were checked, or vouched for by the program, when the copy was issued; freeing
                // memory of ours waits for the device, and freeing its own before is the program's error.
                unsafe { state.bytes(data).copy(copy) };
            }
            Ending::Fill(fill) if data || fill.width.saturating_mul(fill.height) <= limit.0 => {
                // SAFETY: the target was checked to be ours when the fill was issued.
                unsafe { state.bytes(data).fill(fill) };
            }
            Ending::Copy(_) | Ending::Fill(_) => {}
            Ending::Write(word) => state.bytes(data).set_word(*word),
            Ending::Launch(launch, start) => {
                testing::compute(&launch.kernel.info.name, &launch.params, &state.bytes(data));
                if let Some(counted) = launch.counted {
                    state.log_launch(&done, counted, *start, now);
                }
            }
            Ending::Graph(counted, start) => state.log_launch(&done, *counted, *start, now),
        }
        if done.computes
            && let Some(gpu) = state.gpus.get_mut(usize::from(done.device.0))
        {
            gpu.computing = false;
            gpu.compute_free = now;
            if matches!(done.ending, Ending::Launch(..)) {
                gpu.compute_free += self.machine.profile.kernel_gap;
            }
        }
        state.streams.complete(done.stream, now);
        if matches!(done.ending, Ending::Write(_)) {
            // A word in memory the engine may be watching: a progress word.
            self.settle(true);
        }
    }
}

impl State {
    /// A touch of `range`, if it is managed memory.
    fn managed(&self, range: AddrRange, access: Access) -> Vec<Touch> {
        let managed = !range.is_empty() && self.space.find(range.start).is_some_and(|a| a.kind == Kind::Managed);
        if managed { vec![Touch { range, access, phase: 0 }] } else { Vec::new() }
    }

    /// Counts how far what the shim named for a launch, in order, misses and exceeds what it touched.
    pub(crate) fn compare(&mut self, named: &[u64], touches: &[Touch]) {
        let mut touched: Vec<u64> = touches.iter().flat_map(|t| t.range.blocks()).map(|b| b.0).collect();
        touched.sort_unstable();
        touched.dedup();
        let both = touched.iter().filter(|b| named.binary_search(b).is_ok()).count() as u64;
        let totals = &mut self.totals;
        totals.named_launches += 1;
        totals.blocks_touched += touched.len() as u64;
        totals.blocks_named += named.len() as u64;
        totals.blocks_missed += touched.len() as u64 - both;
        totals.blocks_exceeding += named.len() as u64 - both;
    }

    fn log_launch(&mut self, done: &Running, counted: Counted, start: Nanos, end: Nanos) {
        self.totals.launches_done += 1;
        if let Some(gpu) = self.gpus.get_mut(usize::from(done.device.0)) {
            gpu.queued_launches -= 1;
        }
        let Some(index) = counted.entry else { return };
        let sums = (0u8..).zip(&self.gpus).map(|(n, _)| self.memory.totals(DeviceId(n)));
        let (faults, h2d, d2h) = sums
            .fold((0, 0, 0), |(f, i, o), t| (f + t.fault_entries, i + t.bytes_in.total().0, o + t.bytes_out.total().0));
        let entry = Entry {
            identity: counted.identity,
            issued: counted.issued,
            start: start.0,
            end: end.0,
            fault_entries: faults,
            h2d,
            d2h,
            place: u64::from(done.device.0) | u64::from(done.stream.0) << 32,
        };
        if let Some(log) = self.log() {
            log.set(index, &entry);
        }
    }
}
