//! The programs that are served, what their workers report, and when shares are told.
//!
//! Shares are computed anew whenever something was reported, a program came or went, or one fell idle ([`crate::share`]). A share
//! that shrinks is told at once. One that grows is told once shrinking ones had time to take effect: otherwise the GPU
//! would be promised twice for that long, and the driver would evict by its own lights.
//!
//! No clock, no sockets: the caller says what time it is, and is told what to send.

use crate::peer::Peer;
use crate::report::{Figures, Report};
use crate::share::{Claim, shares};
use deepum_core::units::Bytes;
use deepum_protocol::control::{Device, Hello};
use deepum_protocol::programs::{Program as Told, ProgramDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Who has not launched for so long is idle.
pub const IDLE: Duration = Duration::from_secs(1);
/// How long room may take to be made: two reports.
pub const MAKING_ROOM: Duration = Duration::from_millis(200);

/// What a GPU may be filled with, by all programs together.
pub type BudgetOf = dyn Fn(&Device) -> Bytes + Send;

/// A number for each program, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId(u64);

/// One program.
#[derive(Debug)]
pub struct Program {
    /// Who it is.
    pub peer: Peer,
    command: String,
    worker: u32,
    attachment: u32,
    weight: u32,
    devices: Vec<Device>,
    figures: Vec<Figures>,
    told: Vec<Bytes>,
    since: Instant,
    launched: Instant,
}

impl Program {
    /// One that has just come. What it may fill is not known yet.
    pub fn new(peer: Peer, hello: &Hello, now: Instant) -> Self {
        Self {
            peer,
            command: peer.command(),
            worker: 0,
            attachment: hello.attachment,
            weight: hello.weight,
            figures: vec![Figures::default(); hello.devices.len()],
            told: vec![Bytes::ZERO; hello.devices.len()],
            devices: hello.devices.clone(),
            since: now,
            launched: now,
        }
    }

    fn active(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.launched) < IDLE
    }
}

/// All of them.
pub struct Programs {
    all: BTreeMap<ProgramId, Program>,
    next: u64,
    budget_of: Box<BudgetOf>,
    /// From when on shares may grow.
    room_from: Option<Instant>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("all", &self.all).finish_non_exhaustive()
    }
}

impl Programs {
    /// None yet. `budget_of` says what there is to share on a GPU, by what the program says of it.
    pub fn new(budget_of: Box<BudgetOf>) -> Self {
        Self { all: BTreeMap::new(), next: 0, budget_of, room_from: None }
    }

    /// How many there are, of one user and together.
    pub fn count(&self, uid: u32) -> (usize, usize) {
        (self.all.values().filter(|one| one.peer.uid == uid).count(), self.all.len())
    }

    /// One more. Gives its number, and what it may fill at first.
    pub fn join(&mut self, program: Program, now: Instant) -> (ProgramId, Vec<Bytes>) {
        let id = ProgramId(self.next);
        self.next += 1;
        self.all.insert(id, program);
        let share = self.targets(now).remove(&id).unwrap_or_default();
        if let Some(program) = self.all.get_mut(&id) {
            program.told.clone_from(&share);
        }
        (id, share)
    }

    /// The process that serves it.
    pub fn set_worker(&mut self, id: ProgramId, worker: u32) {
        if let Some(program) = self.all.get_mut(&id) {
            program.worker = worker;
        }
    }

    /// One less. What it had is free at once: its worker is gone, and so is all that it held.
    pub fn leave(&mut self, id: ProgramId) -> Option<Program> {
        self.all.remove(&id)
    }

    /// What a worker says of its program.
    ///
    /// # Errors
    /// What makes no sense about it.
    pub fn report(&mut self, id: ProgramId, report: Report, now: Instant) -> Result<(), String> {
        let Some(program) = self.all.get_mut(&id) else { return Ok(()) };
        if report.gpus.len() != program.devices.len() {
            return Err(format!("a report of {} GPUs; the program has {}", report.gpus.len(), program.devices.len()));
        }
        if report.gpus.iter().zip(&program.figures).any(|(new, old)| new.launches != old.launches) {
            program.launched = now;
        }
        program.figures = report.gpus;
        Ok(())
    }

    /// What to tell whom now, all GPUs of a program at once.
    pub fn orders(&mut self, now: Instant) -> Vec<(ProgramId, Vec<Bytes>)> {
        let targets = self.targets(now);
        let shrinks = |id: &ProgramId, target: &[Bytes]| {
            self.all.get(id).is_some_and(|program| target.iter().zip(&program.told).any(|(target, told)| target < told))
        };
        if targets.iter().any(|(id, target)| shrinks(id, target)) {
            self.room_from = Some(now + MAKING_ROOM);
        }
        let may_grow = self.room_from.is_none_or(|from| now >= from);
        let mut grows = false;
        let mut orders = Vec::new();
        for (id, target) in targets {
            let Some(program) = self.all.get_mut(&id) else { continue };
            let tell = |(target, told): (&Bytes, &Bytes)| if may_grow { *target } else { *target.min(told) };
            let new: Vec<Bytes> = target.iter().zip(&program.told).map(tell).collect();
            grows |= new != target;
            if new != program.told {
                program.told.clone_from(&new);
                orders.push((id, new));
            }
        }
        if !grows {
            self.room_from = None;
        }
        orders
    }

    /// When to ask [`Self::orders`] again though nothing was reported.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        // Who is alone at its GPUs has what it wants, active or not.
        let idle = self.shared().into_iter().filter_map(|id| self.all.get(&id)).map(|program| program.launched + IDLE);
        idle.filter(|at| *at > now).chain(self.room_from).min()
    }

    /// Those that share a GPU with another.
    fn shared(&self) -> BTreeSet<ProgramId> {
        let by_gpu = self.by_gpu();
        by_gpu.into_values().filter(|at| at.len() > 1).flatten().map(|(id, _)| id).collect()
    }

    /// Who is at which GPU, and which of its GPUs it is.
    fn by_gpu(&self) -> BTreeMap<[u8; 16], Vec<(ProgramId, usize)>> {
        let mut by_gpu: BTreeMap<[u8; 16], Vec<(ProgramId, usize)>> = BTreeMap::new();
        for (id, program) in &self.all {
            for (at, device) in program.devices.iter().enumerate() {
                by_gpu.entry(device.uuid).or_default().push((*id, at));
            }
        }
        by_gpu
    }

    fn targets(&self, now: Instant) -> BTreeMap<ProgramId, Vec<Bytes>> {
        let mut targets: BTreeMap<ProgramId, Vec<Bytes>> =
            self.all.iter().map(|(id, program)| (*id, program.told.clone())).collect();
        for at_gpu in self.by_gpu().into_values() {
            let claim = |(id, at): &(ProgramId, usize)| {
                let program = &self.all[id];
                let device = &program.devices[*at];
                Claim {
                    user: program.peer.uid,
                    weight: program.weight,
                    budget: (self.budget_of)(device),
                    wanted: device.budget,
                    managed: Bytes(program.figures[*at].managed),
                    active: program.active(now),
                }
            };
            let claims: Vec<Claim> = at_gpu.iter().map(claim).collect();
            for ((id, at), share) in at_gpu.iter().zip(shares(&claims)) {
                if let Some(target) = targets.get_mut(id) {
                    target[*at] = share;
                }
            }
        }
        targets
    }

    /// What whoever asks may see of them.
    pub fn told(&self, may_see: impl Fn(&Peer) -> bool, now: Instant) -> Vec<Told> {
        let millis =
            |since: Instant| u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let device = |((device, figures), told): ((&Device, &Figures), &Bytes)| ProgramDevice {
            uuid: device.uuid.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
            wanted_bytes: device.budget.get(),
            share_bytes: told.get(),
            managed_bytes: figures.managed,
            resident_bytes: figures.resident,
            launches: figures.launches,
        };
        let one = |program: &Program| Told {
            pid: program.peer.pid,
            uid: program.peer.uid,
            command: program.command.clone(),
            worker: program.worker,
            attachment: program.attachment,
            weight: program.weight,
            up_ms: millis(program.since),
            active: program.active(now),
            devices: program.devices.iter().zip(&program.figures).zip(&program.told).map(device).collect(),
        };
        self.all.values().filter(|program| may_see(&program.peer)).map(one).collect()
    }
}
