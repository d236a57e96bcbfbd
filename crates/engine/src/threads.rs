//! Every thread of the engine, and what passes between them.
//!
//! | thread | waits at | takes | gives | when full |
//! | --- | --- | --- | --- | --- |
//! | `deepum-fault` | gate | nudges; driver notices | looks → inbox | waits: the driver's queue is the buffer, and counts what it drops |
//! | `deepum-correlate` | inbox | looks; records, progress, results | commands → desk | predictions drop and are counted (`deepum-core`) |
//! | `deepum-migrate`, `deepum-migrate2` | desk | batches onto the GPU, most urgent lane first | results → desk, then a nudge | never: one batch at a time |
//! | `deepum-evict` | desk | the same off the GPU | the same | the same |
//! | `deepum-give-up` | desk | contents that nobody needs | the same | the same |
//! | `deepum-status` | socket | requests | status | refuses the client |
//! | `deepum-tables` | time | what was learned | files | – |
//!
//! ```text
//!             nudge             look, token            commands
//! device ──► gate ──► fault ──► inbox ──► correlate ──► desk ──► migrate, evict, give up ──► driver
//!             ▲                                          │  results  │
//!             └──────────────────── nudge ───────────────┴───────────┘
//! ```
//!
//! A token (see [`crate::pending`]) goes along every arrow, so the count of work is exact whatever happens. A panic in
//! one of the first six ends the engine: everything closes, one line is said, the shim is told, and the program
//! goes on as plain unified memory. The status thread stays, to say so; if it panics itself, only the status is gone, and so it is with
//! the tables thread ([`crate::tables`]) and saving.
//!
//! Where virtual time decides and the engine is in the program, the first two are not there, and those who nudge take the turns ([`crate::looks`]).
//!
//! How they are started, and what becomes of a panic: [`crate::ours`].

use crate::desk::Desk;
use crate::gate::Gate;
use crate::inbox::Inbox;
use crate::invalidation::Invalidation;
use crate::launch_gate::LaunchGate;
use crate::looks::{Looks, Source};
use crate::migrate::{HandOuts, Mover, Said, Tools};
use crate::ours;
use crate::pending::{Pending, Token};
use crate::sources::{Notices, Watch};
use crate::sync::{Arc, Mutex, lock};
use crate::tables::Keeper;
use crate::work::Work;
use crate::world::{Look, World};
use crate::{Inputs, StartError};
use deepum_core::queues::Hand;
use deepum_core::units::{Bytes, DeviceId, UmBlock};
use deepum_kmod_bridge::VaSpace;
use deepum_protocol::ring::{Consumer, Ring};
use deepum_protocol::shared::Mode;
use deepum_protocol::status::Pace;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks that may wait for the correlate thread.
const LOOKS: usize = 64;

/// The thread of a hand.
const fn name(hand: Hand) -> &'static str {
    match hand {
        Hand::GiveUp => "deepum-give-up",
        Hand::Out => "deepum-evict",
        Hand::In => "deepum-migrate",
        Hand::In2 => "deepum-migrate2",
    }
}

/// What the engine has beside what the shim gives it.
pub struct Drivers {
    /// Driver notices, or why there are none.
    pub notices: Result<Box<dyn Notices>, String>,
    /// What moves pages.
    pub mover: Arc<dyn Mover>,
    /// Whose contents may be given up.
    pub hand_outs: Arc<dyn HandOuts>,
    /// What the driver can do.
    pub can: Abilities,
    /// Who says when to look.
    pub pace: Pace,
    /// And who looks then.
    pub looks: Looks,
    /// The driver's version, if known.
    pub driver: Option<String>,
    /// The count of work, as the device was given it.
    pub pending: Arc<Pending>,
    /// Where learned tables come from and go, if they are kept.
    pub tables: Option<Keeper>,
}

impl std::fmt::Debug for Drivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drivers").field("pace", &self.pace).field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// What a driver can do beyond moving pages, or why not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Give contents up.
    pub discards: Result<(), String>,
    /// Keep two copies of memory.
    pub duplicates: Result<(), String>,
}

impl Abilities {
    /// Of this address space, for an engine that hears of faults or does not.
    pub fn of(space: &VaSpace, hears: bool) -> Self {
        // Without notices nobody hears that a copy is no longer good.
        let duplicates = if hears { space.duplicates() } else { Err("page faults are not heard of".to_owned()) };
        Self { discards: space.discards().map_err(str::to_owned), duplicates }
    }

    /// None of it, for this reason.
    pub fn none(why: &str) -> Self {
        Self { discards: Err(why.to_owned()), duplicates: Err(why.to_owned()) }
    }
}

/// A running engine, as all its threads see it.
#[derive(Debug)]
pub struct Running {
    pub(crate) pending: Arc<Pending>,
    pub(crate) gate: Gate,
    pub(crate) inbox: Inbox<(Look, Token)>,
    pub(crate) desk: Desk,
    pub(crate) launch_gate: LaunchGate,
    pub(crate) world: Mutex<World>,
    pub(crate) watch: Watch,
    /// Where whoever nudges takes the turn: what it looks at.
    pub(crate) source: OnceLock<Mutex<Source>>,
    pub(crate) ring: Ring<'static>,
    pub(crate) pace: Pace,
    pub(crate) driver: Option<String>,
    /// What is done about contents that nobody needs.
    pub(crate) invalidation: Invalidation,
    /// Why notices are missing, if they are.
    pub(crate) no_notices: Mutex<Option<String>>,
    /// Why the engine is off, if it is.
    off: OnceLock<String>,
    pub(crate) tables: OnceLock<Keeper>,
    ending: AtomicBool,
    said: Said,
    /// What the movers did.
    pub(crate) work: Work,
    pub(crate) say: fn(&str),
}

impl Running {
    /// An engine without threads: nothing happens in it.
    pub fn new(
        inputs: &Inputs,
        reader: Consumer<'static>,
        pending: Arc<Pending>,
        pace: Pace,
        driver: Option<String>,
        no_notices: Option<String>,
        Abilities { discards, duplicates }: Abilities,
    ) -> Arc<Self> {
        let invalidation = Invalidation::within(inputs.config.invalidate, discards, inputs.page.is_reached());
        let saving = inputs.config.two_copies && duplicates.is_ok();
        let world = World::new(inputs, reader, no_notices.is_none(), invalidation.what, saving);
        let devices: Vec<_> = inputs.devices.iter().map(|facts| facts.id).collect();
        Arc::new(Self {
            gate: Gate::new(Arc::clone(&pending)),
            inbox: Inbox::new(LOOKS),
            desk: Desk::new(Arc::clone(&pending), &devices, pace == Pace::Driven),
            pending,
            launch_gate: LaunchGate::new(inputs.page.gates(), inputs.config.gate),
            watch: Watch::new(inputs.ring, &world.progress),
            source: OnceLock::new(),
            world: Mutex::new(world),
            ring: inputs.ring,
            pace,
            driver,
            invalidation,
            no_notices: Mutex::new(no_notices),
            off: OnceLock::new(),
            tables: OnceLock::new(),
            ending: AtomicBool::new(false),
            said: Said::default(),
            work: Work::default(),
            say: inputs.say,
        })
    }

    /// An engine with its first six threads, which reads the ring by `reader`.
    ///
    /// # Errors
    /// [`StartError`]; then none of them is left.
    pub fn start(inputs: &Inputs, reader: Consumer<'static>, drivers: Drivers) -> Result<Arc<Self>, StartError> {
        let Drivers { notices, mover, hand_outs, can, pace, looks, driver, pending, tables } = drivers;
        let (source, missing) = match notices {
            Ok(source) => (Some(source), None),
            Err(why) => (None, Some(why)),
        };
        if let (Some(_), Err(why), true) = (&source, &can.duplicates, inputs.config.two_copies) {
            (inputs.say)(why);
        }
        let running = Self::new(inputs, reader, pending, pace, driver, missing, can);
        if let Some(source) = &source {
            running.watch.also(source.watch());
        }
        if let Some(keeper) = tables {
            keeper.load(&mut lock(&running.world), running.say);
            let _ = running.tables.set(keeper);
        }
        let source = Source::new(source);
        let looks = match looks {
            Looks::Nudgers => running.source.set(Mutex::new(source)).map_err(|_| "it looks already".to_owned()),
            Looks::Own => running
                .spawn("deepum-fault", |running| running.fault(source))
                .and_then(|()| running.spawn("deepum-correlate", Self::correlate)),
        };
        let started = looks.and_then(|()| {
            Hand::ALL.into_iter().try_for_each(|hand| {
                let (mover, hand_outs) = (Arc::clone(&mover), Arc::clone(&hand_outs));
                running.spawn(name(hand), move |running| running.migrate(hand, &*mover, &*hand_outs))
            })
        });
        match started {
            Ok(()) => {
                running.keep_tables();
                Ok(running)
            }
            Err(why) => {
                running.retire(why.clone());
                Err(StartError(why))
            }
        }
    }

    /// A thread of the engine: named, without signals, and with a panic that ends the engine.
    fn spawn(self: &Arc<Self>, name: &'static str, body: impl FnOnce(&Self) + Send + 'static) -> Result<(), String> {
        let running = Arc::clone(self);
        ours::spawn(name, move || body(&running), {
            let running = Arc::clone(self);
            move |why| running.turn_off(why)
        })
    }

    /// A thread that moves.
    fn migrate(&self, hand: Hand, mover: &dyn Mover, hand_outs: &dyn HandOuts) {
        let tools = Tools { desk: &self.desk, mover, hand_outs, said: &self.said, work: &self.work };
        tools.run(
            hand,
            || self.look_soon(),
            |failure| {
                // At the end of a program the driver refuses what it likes; nobody needs to hear it.
                if !self.ending.load(Ordering::Relaxed) {
                    (self.say)(failure);
                }
            },
        );
    }

    /// For tests: runs `f` while no turn is taken.
    pub fn between_turns<R>(&self, f: impl FnOnce() -> R) -> R {
        let world = lock(&self.world);
        let result = f();
        drop(world);
        result
    }

    /// So much of this GPU may be filled from now on. False if there is no such GPU.
    pub fn set_budget(&self, device: DeviceId, bytes: Bytes) -> bool {
        let known = lock(&self.world).set_budget(device, bytes);
        // A turn, whether or not anything else is new: what is to leave waits for one.
        self.look_soon();
        known
    }

    /// What the arguments of a launch name (see [`World::may_touch`]).
    pub fn may_touch(&self, number: u64) -> Vec<UmBlock> {
        lock(&self.world).may_touch(number)
    }

    /// How many streams can report progress.
    pub fn progress_words(&self) -> usize {
        self.watch.progress_words()
    }

    /// The process is going away: nothing is worth a line or a wait any more. Takes no lock.
    pub fn program_ends(&self) {
        self.launch_gate.give_up();
        self.ending.store(true, Ordering::Relaxed);
    }

    /// The device has given us up: one of our threads hangs. Nothing may wait for us any more. Takes no lock.
    pub fn given_up(&self) {
        self.ring.shared().set_mode(Mode::Off);
        self.launch_gate.give_up();
    }

    /// In a forked child, where none of our threads is: there is no work. Takes no lock.
    pub fn forget_pending(&self) {
        self.pending.word().store(0, Ordering::Relaxed);
    }

    /// Pieces of work inside the engine.
    pub fn pending(&self) -> u32 {
        self.pending.count()
    }

    /// Why the engine is off, if it is.
    pub fn is_off(&self) -> Option<&str> {
        self.off.get().map(String::as_str)
    }

    /// Ends the engine for good, with one line.
    pub fn turn_off(&self, why: String) {
        let line = format!("{why}; DeepUM is off, the program goes on as plain unified memory");
        if self.retire(why) {
            (self.say)(&line);
        }
    }

    /// Ends the engine for good, saying nothing. False if it was off already.
    pub fn retire(&self, why: String) -> bool {
        if self.off.set(why).is_err() {
            return false;
        }
        self.launch_gate.give_up();
        self.gate.close();
        self.inbox.close();
        self.desk.close();
        // Under the lock, so that a turn that is just ending does not say otherwise after us.
        let world = lock(&self.world);
        self.ring.shared().set_mode(Mode::Off);
        drop(world);
        true
    }
}
