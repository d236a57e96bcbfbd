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
use std::time::Duration;

use deepum_core::units::{Bytes, Nanos};
use deepum_model::{Notice, Profile, ProfileError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::Config;
use crate::error::{CuError, CuResult};
use crate::log::LogWriter;
use crate::pace::{DeepumHooks, Pace};
use crate::stack::clean;
use crate::state::State;
use crate::uvm::Semaphore;
use crate::watch::Watch;

/// Where notices go: the driver's tools queues.
pub trait NoticeSink: Send {
    /// Whether anybody wants notices.
    fn wanted(&self) -> bool;
    /// Puts a notice into every queue that asked for its kind.
    fn put(&mut self, notice: &Notice);
    /// Counts a notice as dropped.
    fn drop_one(&mut self, notice: &Notice);
    /// Writes a word that a migration was to be followed by.
    fn release(&mut self, semaphore: Semaphore);
    /// Whether a queue has entries its reader has not taken.
    fn unread(&self) -> bool;
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
    /// Who is told what work does.
    pub watch: Watch,
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
    /// The program waits for so long by itself.
    Nap(Nanos),
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
        let profile = Profile::scaled(&config.profile, &config.scale)?;
        let state = State::new(&config, &profile, log, skip);
        Ok(Self {
            config,
            profile,
            pace: Pace::default(),
            watch: Watch::default(),
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
        clean(|| {
            let turn = (!self.pace.is_engine_thread()).then(|| self.turn.lock());
            let mut call = Call { machine: self, turn, state: self.state.lock() };
            call.state.totals.calls += 1;
            let cost = match cost {
                Cost::Free => Nanos::ZERO,
                Cost::Call => self.profile.call_cost,
                Cost::Launch => self.profile.launch_cost,
                Cost::Nap(time) => time,
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
        })
    }

    /// Something an engine thread or a query does at this instant, without a turn and without time passing.
    ///
    /// # Errors
    /// What `f` answers, or why there is no device (any more).
    pub fn look<R>(&self, f: impl FnOnce(&mut State) -> CuResult<R>) -> CuResult<R> {
        self.alive()?;
        clean(|| f(&mut self.state.lock()))
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
            state.release_all(self);
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
