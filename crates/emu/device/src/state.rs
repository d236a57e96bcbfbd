//! Everything that changes on the emulated machine, and the sums over it.

use std::collections::VecDeque;

use deepum_core::units::{Bytes, DeviceId, Nanos};
use deepum_model::{Notice, Options, Profile, UnifiedMemory};

use crate::bytes::{self, ByteView};
use crate::capture::Captures;
use crate::config::Config;
use crate::context::Contexts;
use crate::error::{CuError, CuResult};
use crate::event::Events;
use crate::graph::Graphs;
use crate::graph::launch::OpenLaunches;
use crate::hands::Hands;
use crate::ipc::Opened;
use crate::kernel::Modules;
use crate::log::{LogWriter, Totals};
use crate::machine::NoticeSink;
use crate::pace::Pace;
use crate::pool::Pools;
use crate::releases::Releases;
use crate::run::Running;
use crate::space::Space;
use crate::stream::Streams;
use crate::truth::Truth;
use crate::vmm::Vmm;
use crate::work::Work;

/// What one device does besides streams.
#[derive(Debug, Default, Clone)]
pub struct Gpu {
    /// A kernel is on the compute engine.
    pub computing: bool,
    /// From when the compute engine may start the next kernel.
    pub compute_free: Nanos,
    /// Launches issued.
    pub launches: u64,
    /// Launches issued and not finished.
    pub queued_launches: u32,
    /// Device memory proper.
    pub device_bytes: Bytes,
}

/// Everything that changes.
pub struct State {
    /// The host clock.
    pub host: Nanos,
    /// The device has carried out everything up to here.
    pub now: Nanos,
    /// Managed and device memory in virtual time.
    pub memory: UnifiedMemory,
    /// Addresses.
    pub space: Space,
    /// Streams and their queues.
    pub streams: Streams<Work>,
    /// Work under way.
    pub running: Vec<Running>,
    /// Stream-ordered pools.
    pub pools: Pools,
    /// Virtual memory management.
    pub vmm: Vmm,
    /// What of other processes is open here.
    pub opened: Opened,
    /// Events.
    pub events: Events,
    /// Captures in progress.
    pub captures: Captures,
    /// Graphs.
    pub graphs: Graphs,
    /// Launches of graphs under way.
    pub open: OpenLaunches,
    /// Devices.
    pub gpus: Vec<Gpu>,
    /// Contexts.
    pub contexts: Contexts,
    /// Modules and kernels.
    pub modules: Modules,
    /// What kernels touch.
    pub truth: Truth,
    /// Sums.
    pub totals: Totals,
    /// The engine's moving threads, where they stand in our calls.
    pub hands: Hands,
    /// Words that are to be written.
    pub releases: Releases,
    /// Notices that the driver has not looked for yet, soonest first ([`State::deliver`]).
    pub channels: Vec<Notice>,
    /// Notices held back by `late_us`, soonest first.
    pub late: VecDeque<(Nanos, Notice)>,
    /// The tools queues.
    pub sink: Option<Box<dyn NoticeSink>>,
    /// Set when a kernel died; answered by every later call.
    pub lost: Option<CuError>,
    /// Whether it was said that a stream waits in vain.
    pub said_stuck: bool,
    /// Migrate calls so far.
    pub migrate_count: u64,
    /// Notices so far.
    pub notice_count: u64,
    log: Option<LogWriter>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("host", &self.host).field("now", &self.now).finish_non_exhaustive()
    }
}

impl State {
    /// Nothing has happened yet. `skip`: see [`crate::machine::Machine::with_space_from`].
    pub(crate) fn new(config: &Config, profile: &Profile, log: Option<LogWriter>, skip: Bytes) -> Self {
        let options = Options {
            devices: config.devices,
            memory: config.memory,
            host_memory: config.host,
            page_ops: config.data,
            ..Options::default()
        };
        let devices = (0..config.devices).map(DeviceId);
        let mut streams = Streams::default();
        let mut truth = Truth::new(config.seed);
        if let Some(path) = &config.kernels
            && let Err(e) = truth.trace_to(path)
        {
            crate::say(&format!("no trace of kernels at {}: {e}", path.display()));
        }
        Self {
            host: Nanos::ZERO,
            now: Nanos::ZERO,
            memory: UnifiedMemory::new(profile, &options),
            space: Space::new(config.data, skip),
            contexts: Contexts::new(devices.clone(), &mut streams),
            streams,
            running: Vec::new(),
            pools: Pools::new(config.devices),
            vmm: Vmm::default(),
            opened: Opened::default(),
            events: Events::default(),
            captures: Captures::default(),
            graphs: Graphs::default(),
            open: OpenLaunches::default(),
            gpus: devices.map(|_| Gpu::default()).collect(),
            modules: Modules::new(profile.reported_compute_capability),
            truth,
            totals: Totals::default(),
            hands: Hands::default(),
            releases: Releases::default(),
            channels: Vec::new(),
            late: VecDeque::new(),
            sink: None,
            lost: None,
            said_stuck: false,
            migrate_count: 0,
            notice_count: 0,
            log,
        }
    }

    /// The bytes of the process as the device sees them now.
    #[must_use]
    pub fn bytes(&self, data: bool) -> ByteView<'_> {
        ByteView { space: &self.space, memory: &self.memory, data }
    }

    /// Carries out on real bytes what the model did to pages. After every operation of the model, in data mode.
    pub fn settle_bytes(&mut self, data: bool) {
        if data {
            let mut ops = Vec::new();
            self.memory.take_page_ops(&mut ops);
            ops.iter().for_each(bytes::apply);
        }
    }

    pub(crate) fn note<R>(&mut self, result: &CuResult<R>) {
        if matches!(result, Err(CuError::OutOfMemory)) {
            self.totals.out_of_memory += 1;
        }
    }

    /// Brings the totals up to date and writes them to the flight log.
    pub fn publish(&mut self, pace: &Pace) {
        if self.log.is_none() {
            return;
        }
        self.sum_up(pace);
        if let Some(log) = &self.log {
            log.totals(&self.totals);
        }
    }

    /// Brings the totals up to date.
    pub fn sum_up(&mut self, pace: &Pace) {
        let sums = &mut self.totals;
        let each = (0u8..).zip(&self.gpus).map(|(n, gpu)| (self.memory.totals(DeviceId(n)), gpu.device_bytes));
        let (mut entries, mut batches, mut stall, mut peak, mut device) = (0, 0, 0, 0, 0);
        let (mut h2d, mut d2h, mut plain, mut discarded) = ([0; 3], [0; 2], [0; 2], 0);
        for (t, bytes) in each {
            entries += t.fault_entries;
            batches += t.fault_batches;
            stall += t.stall_fault_work.0 + t.stall_copies.0;
            peak += t.peak_managed.0;
            device += bytes.0;
            for (sum, part) in h2d.iter_mut().zip([t.bytes_in.user, t.bytes_in.coherence, t.bytes_in.prefetch]) {
                *sum += part.0;
            }
            // What a group takes home was asked for, too, whatever the driver calls it (facts 4.9).
            let asked = t.bytes_out.user + t.bytes_out.coherence;
            for (sum, part) in d2h.iter_mut().zip([asked, t.bytes_out.eviction]) {
                *sum += part.0;
            }
            discarded += t.bytes_discarded.0;
            plain[0] += t.plain_bytes_in.0;
            plain[1] += t.plain_bytes_out.0;
        }
        (sums.fault_entries, sums.fault_batches, sums.stall_ns) = (entries, batches, stall);
        (sums.peak_resident, sums.device_bytes) = (peak, device);
        [sums.h2d_user, sums.h2d_fault, sums.h2d_tree] = h2d;
        [sums.d2h_user, sums.d2h_eviction] = d2h;
        [sums.copied_h2d, sums.copied_d2h] = plain;
        sums.discarded = discarded;
        sums.virtual_ns = self.host.0;
        sums.settles = pace.settles();
    }

    /// The flight log, if one is written.
    pub fn log(&mut self) -> Option<&mut LogWriter> {
        self.log.as_mut()
    }
}
