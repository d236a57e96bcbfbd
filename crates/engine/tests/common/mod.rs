//! A world made of a script: a driver whose notices the test writes, and a device that holds the moving threads until the test
//! lets them go, as the emulated device does.

#![allow(dead_code, reason = "each test program uses its part")]

use deepum_config::Config;
use deepum_core::event::{Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, DeviceId, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use deepum_engine::looks::Looks;
use deepum_engine::migrate::{HandOuts, Mover};
use deepum_engine::pending::Pending;
use deepum_engine::sources::Notices;
use deepum_engine::threads::{Abilities, Drivers, Running};
use deepum_engine::{DeviceFacts, Inputs};
use deepum_kmod_bridge::{
    Advice, AdviseError, DiscardError, DiscardFailure, MigrateError, MigrateFailure, Notice, QueueBroken, QueueStats,
};
use deepum_protocol::AtomicU64;
use deepum_protocol::gate::Gates;
use deepum_protocol::page::{Page, WORDS};
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring};
use deepum_protocol::status::Pace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub const GPU: DeviceId = DeviceId(0);
pub const BASE: u64 = 1 << 20;
pub const RING: usize = HEADER_WORDS + (1 << 12);

/// What the engine said, over the whole test program.
pub static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn say(line: &str) {
    SAID.lock().unwrap().push(line.to_owned());
}

pub fn words(count: usize) -> &'static [AtomicU64] {
    Box::leak((0..count).map(|_| AtomicU64::new(0)).collect())
}

pub fn block(n: u64) -> UmBlock {
    UmBlock(BASE + n)
}

/// What the script's device is and was asked.
#[derive(Default)]
pub struct Device {
    state: Mutex<State>,
    bell: Condvar,
    held: AtomicU32,
    /// Whether migrations wait for [`Device::release`].
    pub holds: AtomicBool,
    pub panics: AtomicBool,
    pub fails: AtomicBool,
    /// Ranges about which advice is refused.
    pub deaf: Mutex<Vec<AddrRange>>,
}

#[derive(Default)]
struct State {
    notices: VecDeque<Notice>,
    /// Onto the GPU, and off it.
    calls: [Vec<(AddrRange, Place)>; 2],
    /// Those whose calls we hold: onto the GPU first, then by where they begin.
    standing: BTreeMap<(usize, DevAddr), (AddrRange, Place)>,
    discards: Vec<AddrRange>,
    advice: Vec<(AddrRange, Advice)>,
    broken: Option<QueueBroken>,
    lost: Option<AddrRange>,
}

/// Which way.
fn hand(to: Place) -> usize {
    usize::from(to == Place::Host)
}

impl Device {
    pub fn put(&self, notice: Notice) {
        self.state.lock().unwrap().notices.push_back(notice);
    }

    pub fn fault(&self, n: u64, batch: u32) {
        let fault = Fault { block: block(n), batch, entries: 1, write: false, at: Nanos(1) };
        self.put(Notice { device: Some(GPU), event: Event::Fault(fault) });
    }

    /// The driver moved a whole block by itself.
    pub fn moved(&self, block: UmBlock, to: Place, cause: MigrationCause) {
        let gpu = Place::Device(GPU);
        let from = if to == gpu { Place::Host } else { gpu };
        let piece = Migration { block, bytes: UmBlock::SIZE, from, to, cause, at: Nanos(1) };
        self.put(Notice { device: Some(GPU), event: Event::Migrated(piece) });
    }

    pub fn break_source(&self) {
        self.state.lock().unwrap().broken = Some(QueueBroken::Index { index: 9, capacity: 8 });
    }

    /// Those onto the GPU first: the order between threads is nobody's. Of those that we hold, in the order in which they were let go.
    pub fn calls(&self) -> Vec<(AddrRange, Place)> {
        self.state.lock().unwrap().calls.concat()
    }

    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Acquire)
    }

    pub fn unread(&self) -> bool {
        !self.state.lock().unwrap().notices.is_empty()
    }

    /// The call that is let go next.
    pub fn next(&self) -> Option<(AddrRange, Place)> {
        self.state.lock().unwrap().standing.values().next().copied()
    }

    /// Tells what the call moved that is let go next, and gives it: the driver does so before that returns.
    pub fn tell_next(&self) -> Option<(AddrRange, Place)> {
        let mut state = self.state.lock().unwrap();
        let &(range, to) = state.standing.values().next()?;
        for block in range.blocks() {
            let (from, to) = if to == Place::Host { (Place::Device(GPU), to) } else { (Place::Host, to) };
            let piece = Migration { block, bytes: UmBlock::SIZE, from, to, cause: MigrationCause::User, at: Nanos(1) };
            state.notices.push_back(Notice { device: Some(GPU), event: Event::Migrated(piece) });
        }
        Some((range, to))
    }

    /// Lets the thread go on that stands in this call.
    pub fn let_go(&self, (range, to): (AddrRange, Place)) {
        let mut state = self.state.lock().unwrap();
        state.standing.remove(&(hand(to), range.start)).expect("it stands there");
        state.calls[hand(to)].push((range, to));
        // Before it wakes: from here on it is the engine's again.
        self.held.fetch_sub(1, Ordering::Release);
        self.bell.notify_all();
    }

    /// Lets a thread we hold go on, that onto the GPU first: its bytes have arrived. Says what it moved.
    pub fn release(&self) -> Option<(AddrRange, Place)> {
        let call = self.tell_next()?;
        self.let_go(call);
        Some(call)
    }

    /// What is held, the first of each way: onto the GPU and off it.
    pub fn standing(&self) -> [Option<(AddrRange, Place)>; 2] {
        let state = self.state.lock().unwrap();
        [0, 1].map(|way| state.standing.iter().find(|((other, _), _)| *other == way).map(|(_, &call)| call))
    }

    pub fn advice(&self) -> Vec<(AddrRange, Advice)> {
        self.state.lock().unwrap().advice.clone()
    }

    pub fn discards(&self) -> Vec<AddrRange> {
        self.state.lock().unwrap().discards.clone()
    }

    /// Lets a thread onto the GPU, which we hold, go on: the driver says that it could not move.
    pub fn lose(&self) {
        let mut state = self.state.lock().unwrap();
        let call = state.standing.pop_first().map(|(_, call)| call);
        state.calls[0].extend(call);
        state.lost = call.map(|(range, _)| range);
        self.held.fetch_sub(1, Ordering::Release);
        self.bell.notify_all();
    }
}

/// The script as a source of notices.
pub struct Script(pub Arc<Device>);

impl Notices for Script {
    fn drain(&mut self, into: &mut Vec<Notice>) -> Result<(), QueueBroken> {
        let mut state = self.0.state.lock().unwrap();
        into.extend(state.notices.drain(..));
        state.broken.map_or(Ok(()), Err)
    }
    fn watch(&self) -> Box<dyn Fn() -> bool + Send + Sync> {
        let device = Arc::clone(&self.0);
        Box::new(move || {
            let state = device.state.lock().unwrap();
            !state.notices.is_empty() || state.broken.is_some()
        })
    }
    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

/// The script as a mover.
pub struct Hands(pub Arc<Device>);

impl Mover for Hands {
    fn migrate(&self, range: AddrRange, to: Place) -> Result<(), MigrateError> {
        let device = &self.0;
        assert!(!device.panics.load(Ordering::Relaxed), "planted panic");
        let mut state = device.state.lock().unwrap();
        let holds = device.holds.load(Ordering::Relaxed);
        if !holds {
            state.calls[hand(to)].push((range, to));
        }
        if device.fails.load(Ordering::Relaxed) {
            return Err(MigrateError { range, to, why: MigrateFailure::NoMemory });
        }
        if holds {
            let key = (hand(to), range.start);
            state.standing.insert(key, (range, to));
            device.held.fetch_add(1, Ordering::Release);
            while state.standing.contains_key(&key) {
                state = device.bell.wait(state).unwrap();
            }
            if to != Place::Host && state.lost == Some(range) {
                state.lost = None;
                return Err(MigrateError { range, to, why: MigrateFailure::NoMemory });
            }
        }
        Ok(())
    }

    fn leave(&self, range: AddrRange) -> Result<(), MigrateError> {
        self.migrate(range, Place::Host)
    }

    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), AdviseError> {
        self.0.state.lock().unwrap().advice.push((range, advice));
        if self.0.deaf.lock().unwrap().contains(&range) {
            return Err(AdviseError { range, advice, why: MigrateFailure::NotManaged });
        }
        Ok(())
    }

    fn discard(&self, range: AddrRange) -> Result<(), DiscardError> {
        assert!(!self.0.panics.load(Ordering::Relaxed), "planted panic");
        self.0.state.lock().unwrap().discards.push(range);
        if self.0.fails.load(Ordering::Relaxed) {
            return Err(DiscardError { range, why: DiscardFailure::NotManaged });
        }
        Ok(())
    }
}

/// Hand-outs in the hand of the test.
#[derive(Default)]
pub struct Shop {
    /// Blocks that hold a tensor.
    pub held: Mutex<BTreeSet<UmBlock>>,
    /// Blocks whose discard has begun and not ended.
    pub discarding: Mutex<BTreeSet<UmBlock>>,
}

impl HandOuts for Shop {
    fn begin_discard(&self, block: UmBlock) -> bool {
        !self.held.lock().unwrap().contains(&block) && self.discarding.lock().unwrap().insert(block)
    }
    fn end_discard(&self, block: UmBlock) {
        assert!(self.discarding.lock().unwrap().remove(&block), "{block:?} was not being discarded");
    }
}

/// An engine over a script.
pub struct World {
    pub device: Arc<Device>,
    pub ring: Ring<'static>,
    pub ring_words: &'static [AtomicU64],
    pub progress: &'static [AtomicU64],
    pub gates: Gates,
    pub running: Arc<Running>,
}

pub fn config(policy: &str) -> Config {
    Config::read([("DEEPUM_POLICY", policy)]).config
}

/// A page that the GPU sees.
pub fn page() -> Page {
    let page = Page::format(words(WORDS)).unwrap();
    page.set_reached();
    page
}

pub fn inputs(config: Config, budget: Bytes, ring: &'static [AtomicU64]) -> Inputs {
    Inputs {
        ring: Ring::format(ring).unwrap(),
        page: page(),
        devices: vec![DeviceFacts { id: GPU, uuid: [1; 16], memory: budget, budget }],
        config,
        say,
    }
}

impl World {
    pub fn new(policy: &str, budget: Bytes, pace: Pace) -> Self {
        Self::with_gpus(policy, budget, pace, &[GPU])
    }

    pub fn with_gpus(policy: &str, budget: Bytes, pace: Pace, gpus: &[DeviceId]) -> Self {
        Self::with_tables(policy, budget, pace, gpus, None)
    }

    /// In driven pace, with an engine whose own threads look, as it is in another process.
    pub fn apart(policy: &str, budget: Bytes) -> Self {
        Self::with(policy, budget, Pace::Driven, Looks::Own, &[GPU], None)
    }

    pub fn with_tables(
        policy: &str,
        budget: Bytes,
        pace: Pace,
        gpus: &[DeviceId],
        tables: Option<deepum_engine::tables::Keeper>,
    ) -> Self {
        let looks = if pace == Pace::Driven { Looks::Nudgers } else { Looks::Own };
        Self::with(policy, budget, pace, looks, gpus, tables)
    }

    fn with(
        policy: &str,
        budget: Bytes,
        pace: Pace,
        looks: Looks,
        gpus: &[DeviceId],
        tables: Option<deepum_engine::tables::Keeper>,
    ) -> Self {
        let ring_words = words(RING);
        let mut inputs = inputs(config(policy), budget, ring_words);
        let facts = inputs.devices[0];
        inputs.devices = gpus.iter().map(|id| DeviceFacts { id: *id, ..facts }).collect();
        let device = Arc::new(Device::default());
        let drivers = Drivers {
            notices: Ok(Box::new(Script(Arc::clone(&device)))),
            mover: Arc::new(Hands(Arc::clone(&device))),
            hand_outs: Arc::new(Shop::default()),
            can: Abilities { discards: Ok(()), duplicates: Ok(()) },
            pace,
            looks,
            driver: Some("580.65.06".to_owned()),
            pending: Arc::new(Pending::default()),
            tables,
        };
        let running = Running::start(&inputs, inputs.ring.consumer().unwrap(), drivers).unwrap();
        let page = inputs.page;
        Self { device, ring: inputs.ring, ring_words, progress: page.progress(), gates: page.gates(), running }
    }

    pub fn alloc(&self, first: u64, blocks: u64) {
        let range = AddrRange::new(block(first).start(), Bytes(UmBlock::SIZE.0 * blocks));
        assert!(self.ring.push(GPU, &Record::Alloc { range }));
    }

    pub fn launch(&self, seq: u64, key: u64, blocks: &[u64]) -> bool {
        let pointers: Vec<DevAddr> = blocks.iter().map(|n| block(*n).start()).collect();
        let launch = Launch {
            seq: LaunchSeq(seq),
            stream: StreamSlot(0),
            key: LaunchKey(key),
            kernel: KernelId(0),
            pointers: &pointers,
        };
        self.ring.push(GPU, &Record::Launch(launch))
    }

    /// Makes the first word of the record that starts `at` words into the ring one that no producer writes.
    pub fn corrupt(&self, at: usize, kind: u64) {
        self.ring_words[HEADER_WORDS + at].store(kind, Ordering::Release);
    }

    /// As the device does: nudges, and waits until the engine has settled.
    pub fn settle(&self) {
        self.running.nudge();
        let start = Instant::now();
        while self.running.pending() != self.device.held() || self.device.unread() {
            assert!(start.elapsed() < Duration::from_secs(30), "does not settle: {}", self.running.pending());
            if self.running.pending() == self.device.held() {
                self.running.nudge();
            }
            std::thread::yield_now();
        }
    }
}

/// Waits for something that must become true.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
