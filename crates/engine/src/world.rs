//! What the correlate thread owns: one core engine per GPU, and the reading ends of what feeds them.
//!
//! One observation is one turn: *records, then notices, then progress, then results of moves*. A launch is recorded before
//! the GPU can fault in it, faults happen before the launch is reported finished, and the driver tells of a migration before
//! the call that made it returns; so in this order a cause always comes before its effects, in both paces. All commands of a
//! turn are handed over at its end.
//!
//! Not here: locks and threads ([`crate::threads`]), what to do about an event (`deepum-core`).

use crate::desk::{Desk, Moved};
use crate::launch_gate::LaunchGate;
use crate::managed::Managed;
use crate::numbers::Numbers;
use crate::sources::Progress;
use crate::{DeviceFacts, Inputs};
use deepum_core::command::Commands;
use deepum_core::engine::{Config, Engine};
use deepum_core::event::Event;
use deepum_core::invalidate::Invalidate;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, LaunchSeq, Place, StreamSlot, UmBlock};
use deepum_kmod_bridge::{Notice, QueueStats};
use deepum_protocol::grace::GraceWords;
use deepum_protocol::inflight::InFlight;
use deepum_protocol::page::Page;
use deepum_protocol::ring::{Consumer, Record, RingError};
use deepum_protocol::shared::Mode;

/// What one look at the driver showed.
#[derive(Debug, Default)]
pub struct Look {
    /// Its notices, oldest first.
    pub notices: Vec<Notice>,
    /// Whether the source ended with them.
    pub source_lost: bool,
    /// What came out of the source so far.
    pub stats: QueueStats,
}

/// See the module.
#[derive(Debug)]
pub struct World {
    ring: Consumer<'static>,
    page: Page,
    pub(crate) progress: Progress,
    /// Since when what was given up is left alone by the GPUs.
    grace: GraceWords<'static>,
    streams: InFlight<'static>,
    pub(crate) gpus: Vec<Gpu>,
    /// What lives, and on which GPU.
    managed: Managed,
    /// Which GPU each stream slot belongs to, learned from its launches.
    slots: Vec<Option<usize>>,
    /// Of the first GPU, whose launches the emulated device asks for by number.
    numbers: Numbers,
    pub(crate) stats: QueueStats,
    pub(crate) counters: Counters,
    results: Vec<Moved>,
}

/// One GPU and who thinks for it.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) facts: DeviceFacts,
    pub(crate) engine: Engine,
    commands: Commands,
    /// When what was issued before this stamp is over, all up to that launch is.
    asked: Option<(u64, LaunchSeq)>,
}

/// What this package counts by itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Turns taken.
    pub observations: u64,
    /// Records read from the ring.
    pub records: u64,
    /// Records and notices about devices or memory nobody told us of.
    pub strangers: u64,
}

impl World {
    /// Takes the reading ends; `ring` is that of the record ring.
    pub fn new(
        inputs: &Inputs,
        ring: Consumer<'static>,
        faults_visible: bool,
        invalidate: Invalidate,
        saving: bool,
    ) -> Self {
        let config = &inputs.config;
        let gpu = |facts: &DeviceFacts| {
            let mut engine = Engine::new(Config {
                device: facts.id,
                budget: facts.budget,
                degree: config.degree,
                geometry: config.table,
                preevict: config.preevict,
                invalidate,
                saving,
                ..Config::new(config.policy, facts.memory)
            });
            let mut commands = Commands::new();
            if !faults_visible {
                engine.on(&Event::FaultSource { up: false }, &mut commands);
            }
            Gpu { facts: *facts, engine, commands, asked: None }
        };
        inputs.ring.shared().set_mode(Mode::Dormant);
        Self {
            ring,
            page: inputs.page,
            grace: inputs.page.grace(),
            streams: inputs.page.in_flight(),
            progress: Progress::new(inputs.page),
            gpus: inputs.devices.iter().map(gpu).collect(),
            managed: Managed::default(),
            slots: vec![None; inputs.page.progress().len()],
            numbers: Numbers::default(),
            stats: QueueStats::default(),
            counters: Counters::default(),
            results: Vec::new(),
        }
    }

    /// One turn.
    ///
    /// # Errors
    /// [`RingError`] if the ring is corrupt: nothing can be learned any more.
    pub fn observe(&mut self, look: &Look, desk: &Desk, gate: &LaunchGate) -> Result<(), RingError> {
        self.counters.observations += 1;
        self.stats = look.stats;
        self.records()?;
        for notice in &look.notices {
            self.notice(notice);
        }
        if look.source_lost {
            self.everywhere(&Event::FaultSource { up: false });
        }
        self.progress();
        self.grace.look(&self.streams);
        self.end_doubts();
        gate.moved(self.results(desk));
        desk.hand_over(|queues| {
            for (gpu, (_, queues)) in self.gpus.iter_mut().zip(queues) {
                gpu.engine.decide(&mut gpu.commands);
                gpu.engine.hand_over(&mut gpu.commands, queues);
            }
        });
        self.set_mode();
        let shared = self.ring.ring().shared();
        for gpu in &mut self.gpus {
            let ordinal = usize::from(gpu.facts.id.0);
            gate.set(ordinal, gpu.engine.gate(), &shared);
            self.page.set_lead(ordinal, gpu.engine.lead());
            self.page.set_clear_until(ordinal, gpu.engine.clear_until());
        }
        Ok(())
    }

    fn records(&mut self) -> Result<(), RingError> {
        let Self { ring, gpus, managed, slots, numbers, counters, .. } = self;
        let whole = ring.ring();
        while let Some((device, mut record)) = ring.pop()? {
            counters.records += 1;
            let by_device = gpus.iter().position(|gpu| gpu.facts.id == device);
            let at = match record {
                Record::Alloc { range } => {
                    if let Some(at) = by_device
                        && let Some((range, before)) = managed.alloc(range, at)?
                    {
                        let gpu = &mut gpus[before];
                        gpu.engine.tell(&Event::Free { range }, &mut gpu.commands);
                    }
                    by_device
                }
                Record::Free { ref mut range } => managed.free(range.start).map(|(all, at)| {
                    *range = all;
                    at
                }),
                Record::PtBlock { ref mut range, .. } => managed.find(*range).map(|(inside, at)| {
                    *range = inside;
                    at
                }),
                Record::Launch(ref mut launch) => {
                    if by_device == Some(0) {
                        numbers.launch(launch.seq);
                    }
                    match slots.get_mut(usize::from(launch.stream.0)) {
                        Some(slot) => *slot = by_device,
                        None => launch.stream = StreamSlot::NONE,
                    }
                    by_device
                }
                Record::Copy { ref mut stream, ref mut range, seq, .. } => {
                    if by_device == Some(0) {
                        numbers.copy(seq);
                    }
                    match slots.get_mut(usize::from(stream.0)) {
                        Some(slot) => *slot = by_device,
                        None => *stream = StreamSlot::NONE,
                    }
                    // Of memory that nobody announced, only the place in the sequence counts.
                    *range = managed.find(*range).map_or(AddrRange::new(DevAddr(0), Bytes::ZERO), |(inside, _)| inside);
                    by_device
                }
            };
            match at {
                Some(at) => {
                    let gpu = &mut gpus[at];
                    // Whoever uses a tensor was issued before it was given up.
                    if let Record::PtBlock { active: false, issued, .. } = record {
                        let seq = if gpu.facts.id == device { issued } else { whole.shared().issued(gpu.facts.id) };
                        gpu.engine.tell(&Event::Issued { seq }, &mut gpu.commands);
                    }
                    gpu.engine.tell(&record.into(), &mut gpu.commands);
                }
                None => counters.strangers += 1,
            }
        }
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        match notice.event {
            Event::Migrated(piece) => {
                // Between two GPUs it concerns both.
                for place in [piece.from, piece.to] {
                    if let Place::Device(id) = place {
                        self.on(id, &notice.event);
                    }
                }
            }
            _ => match notice.device {
                Some(id) => self.on(id, &notice.event),
                None => self.everywhere(&notice.event),
            },
        }
    }

    fn progress(&mut self) {
        let Self { progress, gpus, slots, streams, .. } = self;
        progress.look(|slot, done| {
            // Threads have slots of their own; the core knows streams.
            let Ok(slot) = u16::try_from(slot) else { return };
            let stream = streams.stream(StreamSlot(slot));
            // The launch record may have been dropped; with one GPU there is no doubt whose stream it is.
            let at = slots.get(usize::from(stream.0)).copied().flatten().or_else(|| (gpus.len() == 1).then_some(0));
            if let Some(at) = at {
                let gpu = &mut gpus[at];
                let event = Event::Progress { stream, done: LaunchSeq(done) };
                gpu.engine.tell(&event, &mut gpu.commands);
            }
        });
    }

    /// Launches that nobody told of are over with all that was issued until now.
    fn end_doubts(&mut self) {
        for gpu in &mut self.gpus {
            match gpu.asked {
                Some((stamp, seq)) if self.grace.is_over(stamp) => {
                    gpu.engine.tell(&Event::Over { seq }, &mut gpu.commands);
                    gpu.asked = None;
                }
                Some(_) => {}
                None => gpu.asked = gpu.engine.doubts().map(|seq| (self.grace.stamp(), seq)),
            }
        }
    }

    /// How many there were.
    fn results(&mut self, desk: &Desk) -> usize {
        let mut results = std::mem::take(&mut self.results);
        desk.take_results(&mut results);
        let count = results.len();
        for moved in results.drain(..) {
            self.on(moved.device, &moved.event);
        }
        self.results = results;
        count
    }

    fn on(&mut self, device: DeviceId, event: &Event<'_>) {
        match self.gpus.iter_mut().find(|gpu| gpu.facts.id == device) {
            Some(gpu) => gpu.engine.tell(event, &mut gpu.commands),
            None => self.counters.strangers += 1,
        }
    }

    /// So much of this GPU may be filled from now on; what is to be done about it goes out with the next turn. False if there is
    /// no such GPU.
    pub fn set_budget(&mut self, device: DeviceId, bytes: Bytes) -> bool {
        let gpu = self.gpus.iter_mut().find(|gpu| gpu.facts.id == device);
        let Some(Gpu { engine, commands, .. }) = gpu else { return false };
        engine.on(&Event::Budget { bytes }, commands);
        true
    }

    fn everywhere(&mut self, event: &Event<'_>) {
        for gpu in &mut self.gpus {
            gpu.engine.tell(event, &mut gpu.commands);
        }
    }

    /// Tells the shim whether to send launches. Off is nobody's to take back.
    fn set_mode(&mut self) {
        let shared = self.ring.ring().shared();
        let want = if self.awake() { Mode::Awake } else { Mode::Dormant };
        let have = shared.mode();
        if have != want && have != Mode::Off {
            if want == Mode::Awake {
                let first = self.gpus.first().map_or(DeviceId(0), |gpu| gpu.facts.id);
                self.numbers.wake(shared.issued(first), shared.copies(first));
            }
            shared.set_mode(want);
        }
    }

    /// Whether any GPU's engine wants launches.
    pub fn awake(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.engine.awake())
    }

    /// What the arguments of this launch of the first GPU name, ascending; nothing if it is over or unknown. Launches are numbered
    /// from 1, and copies are not counted.
    pub fn may_touch(&self, number: u64) -> Vec<UmBlock> {
        let (Some(gpu), Some(seq)) = (self.gpus.first(), self.numbers.place(number)) else { return Vec::new() };
        gpu.engine.may_touch(seq)
    }
}
