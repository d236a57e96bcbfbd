//! The emulated machine: everything behind `libcuda.so.1`, and the rule of who may touch it when.
//!
//! Two locks. A thread of the program takes its *turn* for a whole call: calls of several threads happen one after
//! another, in the order in which they arrive. The *state* is locked inside a turn, and left whenever the device waits
//! for the engine; the engine's own threads only ever take the state, never a turn, so they can command the device
//! while it stands still for them.
//!
//! Time: one host clock. Each call adds what the profile says it costs, then the device catches up: everything that
//! happens up to the host's time is carried out, in order of virtual time ([`crate::run`]). A call that waits lets the
//! device run ahead and moves the host clock to where it got.
//!
//! After `fork` the child has no device, as in life: every call there is refused.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use deepum_core::units::{Bytes, DeviceId, Nanos};
use deepum_model::{ModelError, Notice, Options, Profile, ProfileError, UnifiedMemory};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::bytes::{self, ByteView};
use crate::config::Config;
use crate::context::Contexts;
use crate::error::{CuError, CuResult};
use crate::event::Events;
use crate::kernel::Modules;
use crate::log::{LogWriter, Totals};
use crate::pace::{DeepumHooks, Pace};
use crate::run::Running;
use crate::space::Space;
use crate::stream::Streams;
use crate::truth::Truth;
use crate::work::Work;

/// Where notices go: the driver's tools queues.
pub trait NoticeSink: Send {
    /// Whether anybody wants notices.
    fn wanted(&self) -> bool;
    /// Puts a notice into every queue that asked for its kind.
    fn put(&mut self, notice: &Notice);
    /// Counts a notice as dropped.
    fn drop_one(&mut self, notice: &Notice);
    /// Whether a queue has entries its reader has not taken.
    fn unread(&self) -> bool;
}

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

/// An engine thread that stands in a synchronous command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket {
    /// When it is let go.
    pub at: Nanos,
    /// Order of arrival.
    pub number: u64,
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
    /// Events.
    pub events: Events,
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
    /// Engine threads to be let go, soonest last.
    pub tickets: Vec<Ticket>,
    /// When an engine thread was last let go.
    pub let_go: Vec<(ThreadId, Nanos)>,
    /// Notices held back by `late_us`, soonest first.
    pub late: std::collections::VecDeque<(Nanos, Notice)>,
    /// The tools queues.
    pub sink: Option<Box<dyn NoticeSink>>,
    /// Set when a kernel died; answered by every later call.
    pub lost: Option<CuError>,
    /// Whether it was said that a stream waits in vain.
    pub said_stuck: bool,
    /// Numbers given out: tickets, notices, migrate calls.
    pub ticket_count: u64,
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

/// The emulated machine.
#[derive(Debug)]
pub struct Machine {
    /// What is played.
    pub config: Config,
    /// Its numbers.
    pub profile: Profile,
    /// The engine, if it drives.
    pub pace: Pace,
    turn: Mutex<()>,
    state: Mutex<State>,
    pub(crate) released: Condvar,
    ending: AtomicBool,
}

/// Set in a forked child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// What a call costs the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// A query answered without the driver: nothing.
    Free,
    /// A call that enqueues no kernel.
    Call,
    /// A kernel launch.
    Launch,
}

impl Machine {
    /// A machine as `config` says.
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn new(config: Config, log: Option<LogWriter>) -> Result<Self, ProfileError> {
        Self::with_space_from(config, log, Bytes::ZERO)
    }

    /// As [`Self::new`], leaving `skip` bytes of each address region unused: for several machines in one test process.
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn with_space_from(config: Config, log: Option<LogWriter>, skip: Bytes) -> Result<Self, ProfileError> {
        let profile = Profile::named(&config.profile)?;
        let options =
            Options { devices: config.devices, memory: config.memory, host_memory: config.host, page_ops: config.data };
        let devices = (0..config.devices).map(DeviceId);
        let mut streams = Streams::default();
        let mut truth = Truth::new(config.seed);
        if let Some(path) = &config.kernels
            && let Err(e) = truth.trace_to(path)
        {
            crate::say(&format!("no trace of kernels at {}: {e}", path.display()));
        }
        let state = State {
            host: Nanos::ZERO,
            now: Nanos::ZERO,
            memory: UnifiedMemory::new(&profile, &options),
            space: Space::new(config.data, skip),
            contexts: Contexts::new(devices.clone(), &mut streams),
            streams,
            running: Vec::new(),
            events: Events::default(),
            gpus: devices.map(|_| Gpu::default()).collect(),
            modules: Modules::new(profile.reported_compute_capability),
            truth,
            totals: Totals::default(),
            tickets: Vec::new(),
            let_go: Vec::new(),
            late: std::collections::VecDeque::new(),
            sink: None,
            lost: None,
            said_stuck: false,
            ticket_count: 0,
            migrate_count: 0,
            notice_count: 0,
            log,
        };
        Ok(Self {
            config,
            profile,
            pace: Pace::default(),
            turn: Mutex::new(()),
            state: Mutex::new(state),
            released: Condvar::new(),
            ending: AtomicBool::new(false),
        })
    }

    /// One call of the program: takes its turn, pays `cost`, lets the device catch up, does `f`.
    ///
    /// # Errors
    /// What `f` answers, or why there is no device (any more).
    pub fn call<R>(&self, cost: Cost, f: impl FnOnce(&mut Call<'_>) -> CuResult<R>) -> CuResult<R> {
        self.alive()?;
        let turn = (!self.pace.is_engine_thread()).then(|| self.turn.lock());
        let mut call = Call { machine: self, turn, state: self.state.lock() };
        call.state.totals.calls += 1;
        let cost = match cost {
            Cost::Free => Nanos::ZERO,
            Cost::Call => self.profile.call_cost,
            Cost::Launch => self.profile.launch_cost,
        };
        if call.turn.is_some() {
            call.state.host += cost;
            call.catch_up();
        }
        let lost = call.state.lost;
        let result = match lost {
            Some(error) => Err(error),
            None => f(&mut call),
        };
        call.state.note(&result);
        call.state.publish(&self.pace);
        result
    }

    /// Something an engine thread or a query does at this instant, without a turn and without time passing.
    ///
    /// # Errors
    /// What `f` answers, or why there is no device (any more).
    pub fn look<R>(&self, f: impl FnOnce(&mut State) -> CuResult<R>) -> CuResult<R> {
        self.alive()?;
        f(&mut self.state.lock())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn alive(&self) -> CuResult {
        if FORKED.load(Ordering::Relaxed) {
            return Err(CuError::NotInitialized);
        }
        if self.ending.load(Ordering::Relaxed) { Err(CuError::Deinitialized) } else { Ok(()) }
    }

    /// An engine takes the pace over, or (null) gives it back; then its threads that we hold are let go. False if the hooks
    /// are not acceptable.
    ///
    /// # Safety
    /// As for [`Pace::drive`].
    pub unsafe fn drive(&self, hooks: *const DeepumHooks) -> bool {
        let mut state = self.state.lock();
        // SAFETY: our own contract.
        let taken = unsafe { self.pace.drive(hooks) };
        if hooks.is_null() {
            for _ in state.tickets.drain(..) {
                self.pace.hold(-1);
            }
            self.released.notify_all();
        }
        taken
    }

    /// The process ends: whoever we hold is let go, and every later call is refused.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.released.notify_all();
    }

    /// Whether [`Self::end`] was called.
    pub fn ended(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}

impl State {
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

    /// What the model refused, as the driver says it.
    pub fn refused(&mut self, error: ModelError) -> CuError {
        match error {
            ModelError::OutOfMemory { .. } => CuError::OutOfMemory,
            ModelError::NoDevice { .. } => CuError::InvalidDevice,
            ModelError::NotManaged { .. } | ModelError::NotMappable { .. } => CuError::InvalidValue,
        }
    }

    fn note<R>(&mut self, result: &CuResult<R>) {
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
        let (mut h2d, mut d2h, mut plain) = ([0; 3], [0; 2], [0; 2]);
        for (t, bytes) in each {
            entries += t.fault_entries;
            batches += t.fault_batches;
            stall += t.stall_fault_work.0 + t.stall_copies.0;
            peak += t.peak_managed.0;
            device += bytes.0;
            for (sum, part) in h2d.iter_mut().zip([t.bytes_in.user, t.bytes_in.coherence, t.bytes_in.prefetch]) {
                *sum += part.0;
            }
            for (sum, part) in d2h.iter_mut().zip([t.bytes_out.user, t.bytes_out.eviction]) {
                *sum += part.0;
            }
            plain[0] += t.plain_bytes_in.0;
            plain[1] += t.plain_bytes_out.0;
        }
        (sums.fault_entries, sums.fault_batches, sums.stall_ns) = (entries, batches, stall);
        (sums.peak_resident, sums.device_bytes) = (peak, device);
        [sums.h2d_user, sums.h2d_fault, sums.h2d_tree] = h2d;
        [sums.d2h_user, sums.d2h_eviction] = d2h;
        [sums.copied_h2d, sums.copied_d2h] = plain;
        sums.virtual_ns = self.host.0;
        sums.settles = pace.settles();
    }

    /// The flight log, if one is written.
    pub fn log(&mut self) -> Option<&mut LogWriter> {
        self.log.as_mut()
    }
}

/// A call under way: a turn, and the state.
#[derive(Debug)]
pub struct Call<'m> {
    /// The machine.
    pub machine: &'m Machine,
    pub(crate) turn: Option<MutexGuard<'m, ()>>,
    /// Everything that changes.
    pub state: MutexGuard<'m, State>,
}

impl Call<'_> {
    /// Leaves the state to others while `f` runs; the turn is kept.
    pub(crate) fn unlocked<R>(&mut self, f: impl FnOnce() -> R) -> R {
        MutexGuard::unlocked(&mut self.state, f)
    }

    /// Leaves state and turn to others while `f` runs.
    pub(crate) fn aside<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let machine = self.machine;
        let turn = &mut self.turn;
        MutexGuard::unlocked(&mut self.state, || {
            let had = turn.take().is_some();
            let result = f();
            if had {
                *turn = Some(machine.turn.lock());
            }
            result
        })
    }

    /// Nothing can happen in virtual time, and this call still waits: for memory the program must write, or for a
    /// function of the program that another thread runs. Gives others their turn for a moment.
    pub(crate) fn linger(&mut self) -> CuResult {
        self.aside(|| std::thread::sleep(Duration::from_micros(50)));
        self.machine.alive()
    }
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// The machine of this process, once [`install`]ed.
///
/// # Errors
/// `NotInitialized` before, and in a forked child.
pub fn machine() -> CuResult<&'static Machine> {
    MACHINE.get().filter(|_| !FORKED.load(Ordering::Relaxed)).ok_or(CuError::NotInitialized)
}

/// Makes `make`'s machine the one of this process, unless there is one; also sees to `fork` and `exit`.
///
/// # Errors
/// `NotInitialized` in a forked child, and what `make` answers.
pub fn install(make: impl FnOnce() -> CuResult<Machine>) -> CuResult<&'static Machine> {
    static MAKING: Mutex<()> = Mutex::new(());
    if FORKED.load(Ordering::Relaxed) {
        return Err(CuError::NotInitialized);
    }
    let _one = MAKING.lock();
    if let Some(machine) = MACHINE.get() {
        return Ok(machine);
    }
    let made = make()?;
    // SAFETY: both handlers only store to atomics and wake a condition variable, which is allowed in them.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_exit);
    }
    Ok(MACHINE.get_or_init(|| made))
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::SeqCst);
}

extern "C" fn at_exit() {
    if let Some(machine) = MACHINE.get() {
        machine.end();
    }
}
