//! Events in, commands out.
//!
//! The engine keeps what every policy needs ([`Known`]: residency, window, PT blocks, counters), tells the
//! policy, and keeps the budget. Same events, same commands: it has no clock, lock, I/O or randomness.
//!
//! **Dormant and awake.** While all managed memory fits into [`WAKE_SHARE`] of the budget nothing can be gained
//! by knowing launches: the engine is *dormant*. New memory is populated (if the policy does that), tables do
//! not grow, and the shim may leave launches and progress out. [`Engine::awake`] says which; look at it after
//! each `Alloc`, `Free`, `Launch` and `Budget`. What was learned is kept when the engine goes dormant again.
//! A workload of which an earlier run left tables will not fit; there the engine is awake from the start, so that the GPU is not behind with
//! launches that nobody told of when memory fills up. If it fits all the same for [`PATIENCE`] launches, it is another workload.
//!
//! Of several events that come together each is told, and then it is decided once what to do: what decides looks at the state that they leave.
//!
//! Commands go into [`Queues`]; [`Engine::step`] does that too, and tells the engine of what found no room.
//!
//! What the program issues and what of it ends is in `launches`, what the driver and the mover report in `moves`.

mod launches;
mod moves;
mod tables;

use crate::command::{Command, Commands, Why};
use crate::copies;
use crate::correlate::{Geometry, Places};
use crate::counters::Counters;
use crate::event::{DiscardOutcome, Event};
use crate::evict;
use crate::exec_id::Interner;
use crate::invalidate::{self, Dying, Invalidate};
use crate::known::{FoundLess, Known};
use crate::policy::{Policy, PolicyName, TableSizes};
use crate::pt_blocks::PtBlocks;
use crate::queues::{Lane, Pushed, Queues};
use crate::residency::{Ask, Residency, Ticket};
use crate::sequence::Sequence;
use crate::units::{AddrRange, Bytes, DeviceId, LaunchSeq, UmBlock};
use crate::window::{Issued, Window};

/// Tenths of the budget that managed memory may reach before the engine wakes. A choice: the last
/// tenth is for what shares the GPU with managed memory, contexts and workspaces, whose size we do not see.
pub const WAKE_SHARE: u64 = 9;

/// Launches for which a workload that is said not to fit is watched while it does. An iteration has some thousands.
pub const PATIENCE: u64 = 1 << 16;

/// How many launches ahead prediction runs by default. The paper uses 32 (DeepUM, ASPLOS'23, section 6), since a
/// fetch too early pushes out what is needed sooner. Here the room of the plan sees to that (`predict`), and what is left is
/// that the link stands idle in one phase of an iteration and is short in another: `docs/policies.md` has the numbers.
pub const DEGREE: u32 = 512;

/// How an engine is set up. Parsed elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// What decides.
    pub policy: PolicyName,
    /// The GPU looked after.
    pub device: DeviceId,
    /// Its memory.
    pub device_memory: Bytes,
    /// How much of it managed memory may fill; more than the memory counts as all of it.
    pub budget: Bytes,
    /// How many launches ahead prediction may run.
    pub degree: u32,
    /// Size of each UM-block table.
    pub geometry: Geometry,
    /// Most execution IDs.
    pub exec_ids: u32,
    /// Whether blocks are moved out before their room is needed.
    pub preevict: bool,
    /// What is done about contents that nobody needs.
    pub invalidate: Invalidate,
    /// Whether the driver is known to be able to keep two copies of a block ([`crate::copies`]).
    pub saving: bool,
}

impl Config {
    /// The paper's tables for a GPU of this much memory, all of it to be used.
    ///
    /// 2^20 execution IDs are a choice: iterations repeat their launches, so a program has about as many as one iteration has
    /// launches.
    pub fn new(policy: PolicyName, device_memory: Bytes) -> Self {
        Self {
            policy,
            device: DeviceId(0),
            device_memory,
            budget: device_memory,
            degree: DEGREE,
            geometry: Geometry::default(),
            exec_ids: 1 << 20,
            preevict: true,
            invalidate: Invalidate::Discard,
            saving: false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Engine {
    known: Known,
    policy: Box<dyn Policy>,
    device_memory: Bytes,
    geometry: Geometry,
    most_exec_ids: u32,
    budget: Bytes,
    /// Whether the budget is ours to keep: below the GPU's memory. At it, the driver evicts by itself, and
    /// more cheaply than we could ask for it (facts 4.1).
    keeps_budget: bool,
    awake: bool,
    /// An earlier run left tables, so memory will not fit.
    foretold: bool,
    /// Nothing was told since the engine woke.
    just_awake: bool,
    last_batch: Option<u32>,
    /// Where the policy wanted the gate when last asked, and how many blocks were brought since it first did.
    gate: Option<LaunchSeq>,
    brought: usize,
    /// Something was told that may ask for something else.
    undecided: bool,
    spill: Commands,
}

/// Figures for people, at one moment. Counters are apart: [`Engine::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// What decides.
    pub policy: PolicyName,
    /// Whether launches are being learned from.
    pub awake: bool,
    /// How much managed memory may fill.
    pub budget: Bytes,
    /// Managed memory the program has.
    pub managed: Bytes,
    /// GPU memory its blocks hold: chunks, 2 MiB each. Who has come may be known before it is who was evicted for that; it is never more than there is.
    pub on_device: Bytes,
    /// Execution IDs given out.
    pub exec_ids: usize,
    /// Memory of the table of execution IDs, and of the numbers of blocks.
    pub exec_id_bytes: Bytes,
    /// The correlation tables and the plan.
    pub tables: TableSizes,
}

impl Engine {
    /// An engine that knows nothing yet, dormant.
    pub fn new(config: Config) -> Self {
        Self::deciding(config, config.policy.build(config.degree, config.geometry))
    }

    /// The same with a policy of the caller's.
    pub fn deciding(config: Config, policy: Box<dyn Policy>) -> Self {
        let budget = config.budget.min(config.device_memory);
        let blocks = blocks_of(budget);
        let mut residency = Residency::new(config.device);
        if policy.watches_blocks() {
            residency.watch();
        }
        Self {
            known: Known {
                residency,
                window: Window::default(),
                sequence: Sequence::default(),
                dying: Dying::default(),
                preevict: config.preevict,
                invalidate: config.invalidate,
                saving: config.saving,
                nobody_leaves: None,
                behind: None,
                pt_blocks: PtBlocks::default(),
                places: Places::default(),
                exec_ids: Interner::new(config.exec_ids),
                counters: Counters::default(),
                budget: blocks,
                fits: blocks,
                found_less: FoundLess::default(),
                crowded: false,
                front: Ticket(1),
                faults_visible: true,
            },
            policy,
            device_memory: config.device_memory,
            geometry: config.geometry,
            most_exec_ids: config.exec_ids,
            budget,
            keeps_budget: budget < config.device_memory,
            awake: false,
            foretold: false,
            just_awake: false,
            last_batch: None,
            gate: None,
            brought: 0,
            undecided: false,
            spill: Commands::new(),
        }
    }

    /// Takes in one event; what is to be done about it is appended to `out`.
    pub fn on(&mut self, event: &Event<'_>, out: &mut Commands) {
        self.tell(event, out);
        self.decide(out);
    }

    /// Takes in one event. What it asks for by itself is appended to `out`; what follows from it beside all else is [decided](Self::decide) once several are taken in.
    pub fn tell(&mut self, event: &Event<'_>, out: &mut Commands) {
        match event {
            Event::Alloc { range } => self.alloc(*range, out),
            Event::Free { range } => self.free(*range, out),
            Event::PtBlock { range, active } => self.pt_block(*range, *active, out),
            Event::Launch(launch) => self.launch(launch, out),
            Event::Progress { stream, done } => {
                self.known.window.progress(*stream, *done);
                self.finish(out);
            }
            Event::Fault(fault) => self.fault(fault, out),
            Event::Migrated(piece) => self.migrated(piece, out),
            Event::MoveDone { block, to, ok } => self.move_done(*block, *to, *ok),
            Event::Saved { block, ok } => copies::saved(*block, *ok, &mut self.known),
            Event::Discarded { block, outcome } => self.discarded(*block, *outcome),
            Event::Copy { seq, stream, range, write } => self.copy(*seq, *stream, *range, *write, out),
            Event::Issued { seq } => self.known.sequence.issue(*seq),
            Event::Over { seq } => self.all_over(*seq, out),
            Event::Budget { bytes } => self.set_budget(*bytes, out),
            Event::FaultSource { up } => self.known.faults_visible = *up,
            Event::NoticesLost { count } => self.known.counters.notices_lost += count,
        }
        // A move that failed made no room and took none. To ask again at once could go on for ever; but whose contents somebody has is not asked for them again.
        let failed = match event {
            Event::MoveDone { ok, .. } => !ok,
            Event::Discarded { outcome, .. } => *outcome == DiscardOutcome::Failed,
            _ => false,
        };
        self.undecided |= !failed;
        if self.awake {
            self.policy.heed(&mut self.known);
        }
    }

    /// Appends to `out` what is to be done about the events taken in since the last time.
    pub fn decide(&mut self, out: &mut Commands) {
        if std::mem::take(&mut self.undecided) {
            let acts = self.awake && self.policy.act(&mut self.known, out);
            if self.keeps_budget {
                evict::enforce(&mut self.known, out);
            }
            if self.awake && !acts {
                evict::ahead(&mut self.known, out);
            }
        }
        if !self.known.faults_visible {
            self.assume_evictions(out);
        }
    }

    /// [`Self::on`], and the commands put into `queues`. Returns whether anything new waits there.
    pub fn step(&mut self, event: &Event<'_>, queues: &mut Queues) -> bool {
        let mut out = std::mem::take(&mut self.spill);
        self.on(event, &mut out);
        let queued = self.hand_over(&mut out, queues);
        self.spill = out;
        queued
    }

    /// Empties `out` into `queues`, and learns what found no room. Returns whether anything new waits there.
    pub fn hand_over(&mut self, out: &mut Commands, queues: &mut Queues) -> bool {
        let mut queued = false;
        for command in out.drain() {
            match queues.push_about(command, self.is_there(command)) {
                Pushed::Queued => queued = true,
                Pushed::Replaced(before) => {
                    self.known.counters.discards_cancelled += u64::from(before == Lane::Discard);
                    queued = true;
                }
                Pushed::Cancelled(Some(Lane::Discard)) => self.known.counters.discards_cancelled += 1,
                Pushed::Full => self.dropped(command.block()),
                // Whoever takes something back has noted so; what cannot be is being carried out, and ends with its own event.
                Pushed::Known | Pushed::Cancelled(_) => {}
            }
        }
        queues.set_room(self.room());
        queues.set_due(self.known.window.oldest().map(|launch| launch.seq));
        queued
    }

    /// How many blocks may come before somebody has left. Where nobody is asked to leave nothing is waited for, so that fetches, and
    /// launches that wait for them, wait for moves alone.
    fn room(&self) -> usize {
        let residency = &self.known.residency;
        if self.keeps_budget && residency.blocks_leaving() > 0 {
            self.known.budget.saturating_sub(residency.blocks_on_device())
        } else {
            usize::MAX
        }
    }

    fn alloc(&mut self, range: AddrRange, out: &mut Commands) {
        self.known.residency.alloc(range);
        self.known.pt_blocks.alloc(range);
        self.known.places.alloc(range);
        self.wake_or_sleep(out);
        // What the memory that woke the engine is for may have been issued already, and nobody tells of that.
        let untold = self.just_awake && self.known.sequence.issued() > self.known.sequence.told();
        if !self.fits() && !untold || !self.policy.populates() {
            return;
        }
        for block in range.blocks() {
            let residency = &self.known.residency;
            if residency.blocks_staying() + residency.blocks_coming() >= self.known.budget {
                return;
            }
            let Some(at) = self.known.residency.find(block) else { continue };
            if self.known.residency.get(at).ask() == Ask::None && !self.known.residency.get(at).on_device {
                self.known.counters.populate_asked += 1;
                self.known.residency.set_ask(at, Ask::Populate);
                self.known.residency.asked(at);
                out.push(Command::Fetch { block, why: Why::Populate { by: self.known.sequence.issued().plus(1) } });
            }
        }
    }

    fn free(&mut self, range: AddrRange, out: &mut Commands) {
        let Known { residency, counters, front, .. } = &mut self.known;
        let policy = &mut self.policy;
        residency.free(range, |at, block| {
            policy.freed(at, block, *front);
            match block.ask() {
                Ask::Predicted => counters.prefetch_dropped += 1,
                Ask::Unproven => counters.prefetch_useless += 1,
                _ => {}
            }
            if !matches!(block.ask(), Ask::None | Ask::Urgent | Ask::Unproven) {
                out.push(Command::Cancel { block: block.block });
            }
        });
        self.known.dying.forget(range);
        self.known.pt_blocks.free(range);
        self.known.places.free(range);
        self.wake_or_sleep(out);
    }

    fn fits(&self) -> bool {
        self.known.residency.managed().get() <= self.budget.get() / 10 * WAKE_SHARE
    }

    fn wake_or_sleep(&mut self, out: &mut Commands) {
        let crowded = !self.fits();
        let before = std::mem::replace(&mut self.known.crowded, crowded);
        if self.awake && crowded && !before {
            self.policy.shrunk(&mut self.known, out);
        }
        let awake = (self.foretold || crowded) && self.policy.watches_launches();
        if awake && !self.awake {
            self.known.counters.wakes += 1;
            self.just_awake = true;
        }
        if self.awake && !awake {
            self.policy.sleep(&mut self.known, out);
            if !self.known.window.is_empty() {
                // They go on, and nobody will tell when they end.
                self.known.sequence.lose(self.known.sequence.told());
                self.known.window.clear();
            }
            self.known.dying.clear();
            self.known.behind = None;
        }
        self.awake = awake;
    }

    fn set_budget(&mut self, bytes: Bytes, out: &mut Commands) {
        let known = &mut self.known;
        self.budget = bytes.min(self.device_memory);
        self.keeps_budget = self.budget < self.device_memory;
        let before = std::mem::replace(&mut known.budget, blocks_of(self.budget));
        // What others leave free is found out again where the budget grows.
        known.fits = if known.budget > before { known.budget } else { known.fits.min(known.budget).max(1) };
        known.found_less = FoundLess::default();
        self.wake_or_sleep(out);
        if self.awake && self.known.budget < before {
            self.policy.shrunk(&mut self.known, out);
        }
    }

    fn pt_block(&mut self, range: AddrRange, active: bool, out: &mut Commands) {
        let Known { pt_blocks, sequence, dying, invalidate, .. } = &mut self.known;
        pt_blocks.report(range, active, sequence.told(), sequence.issued());
        if active {
            invalidate::handed_out(range, &mut self.known, out);
            if self.awake {
                self.policy.handed_out(range, &mut self.known);
            }
        } else if self.awake && *invalidate != Invalidate::No {
            dying.died(range, sequence.issued());
            self.policy.handed_back(range, &mut self.known);
            invalidate::quieten(&mut self.known, out);
        }
    }

    /// Whether the shim is to send launches and progress. See the module.
    pub fn awake(&self) -> bool {
        self.awake
    }
    /// The first launch that shall not start yet: blocks fetched for it are on their way. Launches before it may run; with
    /// nothing, all may. Ask after each step; the answer changes with the commands' outcomes alone, never with the GPU's
    /// progress past it, and not even those keep a launch waiting once as much was brought for it as fits; so whoever waits for it waits a bounded time.
    pub fn gate(&mut self) -> Option<LaunchSeq> {
        let gate = self.policy.gate(&self.known);
        if gate != self.gate {
            self.known.counters.gates_closed += u64::from(gate.is_some());
            (self.gate, self.brought) = (gate, 0);
        }
        // For whom more was brought than the GPU has room for, it was in vain, and so will be what comes next.
        gate.filter(|_| self.brought <= self.known.budget)
    }
    /// How many launches and copies the program shall be ahead of the GPU at most; with nothing, as many as the driver lets it. Memory that
    /// the program has handed out again before the GPU was done with it is never free, and its contents move for nothing. Ask after each step; the GPU's progress
    /// alone lets a program go on that waits for this.
    pub fn lead(&self) -> Option<u64> {
        self.policy.lead(&self.known).filter(|_| self.awake)
    }
    /// Launches before this one lack nothing, as far as is foreseen, so that they need not look at the [gate](Self::gate). Ask after each step; the answer may be stale, since nothing
    /// worse becomes of a launch that lacks something after all than that it faults.
    pub fn clear_until(&self) -> LaunchSeq {
        if self.awake { self.policy.clear_until(&self.known) } else { LaunchSeq(0) }
    }
    /// Where some launches were not told, it would be of use to know that all up to this one are over ([`Event::Over`]).
    pub fn doubts(&self) -> Option<LaunchSeq> {
        let sequence = &self.known.sequence;
        (self.awake && sequence.doubt() > LaunchSeq(0)).then_some(sequence.told())
    }
    /// Whether each block that the GPU faults on is asked for, so that it matters little what the driver does about the fault.
    pub fn brings_faults(&self) -> bool {
        self.known.faults_visible && !self.known.saving && self.policy.name().brings_faults()
    }
    /// Every counter.
    pub fn counters(&self) -> &Counters {
        &self.known.counters
    }
    /// Figures for people.
    pub fn snapshot(&self) -> Snapshot {
        let known = &self.known;
        Snapshot {
            policy: self.policy.name(),
            awake: self.awake,
            budget: self.budget,
            managed: known.residency.managed(),
            on_device: Bytes(known.residency.blocks_on_device() as u64 * UmBlock::SIZE.get()).min(self.device_memory),
            exec_ids: known.exec_ids.len(),
            exec_id_bytes: known.exec_ids.bytes() + known.places.bytes(),
            tables: self.policy.tables(),
        }
    }
    /// What the launch `seq` may touch, judging by its arguments, if it is issued and not finished: each block once,
    /// ascending.
    pub fn may_touch(&self, seq: LaunchSeq) -> Vec<UmBlock> {
        let mut blocks: Vec<UmBlock> = self.known.window.get(seq).into_iter().flat_map(Issued::blocks).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

/// Whole blocks in so many bytes.
fn blocks_of(bytes: Bytes) -> usize {
    usize::try_from(bytes.get() / UmBlock::SIZE.get()).unwrap_or(usize::MAX)
}
