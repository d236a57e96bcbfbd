//! The programs that are served, what their workers report, and when shares are told.
//!
//! Shares are computed anew ([`crate::share`]) when a program came or went, fell idle or woke, or holds more or less than before;
//! and not otherwise, however often somebody reports or connects. They are told when there is room ([`crate::room`]), each GPU by
//! itself. A newcomer begins with what nobody else was promised, its floor in any case, and grows like others.
//!
//! Programs share a GPU when they name the same UUID, and all real ones or all emulated ones: what a device that a program has
//! made up calls itself is no claim to a real GPU.
//!
//! No clock, no sockets: the caller says what time it is, and is told what to send.

use crate::admit;
use crate::peer::Peer;
use crate::report::{Figures, Report};
use crate::room::{self, Room, Share};
use crate::share::{self, Claim};
use deepum_core::units::Bytes;
use deepum_protocol::control::{Device, Hello};
use deepum_protocol::programs::{Program as Told, ProgramDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Who has not launched for so long is idle.
pub const IDLE: Duration = Duration::from_secs(1);
/// What a GPU may be filled with, by all programs together.
pub type BudgetOf = dyn Fn(&Device) -> Bytes + Send;

/// A number for each program, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId(u64);

#[cfg(test)]
impl ProgramId {
    pub(crate) const fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// A GPU: real or not, and its UUID.
type Gpu = (admit::Device, [u8; 16]);
/// A program at a GPU: whose, and which of its GPUs it is.
type Place = (ProgramId, usize);

/// One program.
#[derive(Debug)]
pub struct Program {
    /// Who it is.
    pub peer: Peer,
    command: String,
    worker: u32,
    attachment: u32,
    weight: u32,
    kind: admit::Device,
    devices: Vec<Device>,
    figures: Vec<Figures>,
    told: Vec<Bytes>,
    since: Instant,
    launched: Instant,
}

impl Program {
    /// One that has just come, with GPUs of this kind. What it may fill is not known yet.
    pub fn new(peer: Peer, hello: &Hello, kind: admit::Device, now: Instant) -> Self {
        Self {
            peer,
            command: peer.command(),
            worker: 0,
            attachment: hello.attachment,
            weight: hello.weight,
            kind,
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
    /// Where room is being made.
    rooms: BTreeMap<Gpu, Room>,
    /// Whether shares may be others than at the last [`Self::orders`].
    changed: bool,
    /// When they may be though nothing was reported.
    look: Option<Instant>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("all", &self.all).finish_non_exhaustive()
    }
}

impl Programs {
    /// None yet. `budget_of` says what there is to share on a GPU, by what the program says of it.
    pub fn new(budget_of: Box<BudgetOf>) -> Self {
        Self { all: BTreeMap::new(), next: 0, budget_of, rooms: BTreeMap::new(), changed: false, look: None }
    }

    /// How many there are, of one user and together.
    pub fn count(&self, uid: u32) -> (usize, usize) {
        (self.all.values().filter(|one| one.peer.uid == uid).count(), self.all.len())
    }

    /// One more. Gives its number, and what it may fill at first.
    pub fn join(&mut self, program: Program, now: Instant) -> (ProgramId, Vec<Bytes>) {
        let id = ProgramId(self.next);
        self.next += 1;
        let mut first = program.told.clone();
        self.all.insert(id, program);
        self.changed = true;
        for (gpu, places) in self.by_gpu() {
            if let Some(own) = places.iter().position(|(who, _)| *who == id) {
                first[places[own].1] = self.at_first(&gpu, &places, own, now);
            }
        }
        if let Some(program) = self.all.get_mut(&id) {
            program.told.clone_from(&first);
        }
        (id, first)
    }

    /// What the program at place `own` may fill before others have made room for it.
    fn at_first(&self, gpu: &Gpu, places: &[Place], own: usize, now: Instant) -> Bytes {
        let claims = self.claims(places, now);
        let share = share::shares(&claims)[own];
        if places.len() == 1 {
            return share;
        }
        // What others have left lately is theirs who wait for it.
        let free = if self.rooms.contains_key(gpu) {
            Bytes::ZERO
        } else {
            let others = places.iter().enumerate().filter(|(i, _)| *i != own);
            let told = others.fold(0u64, |sum, (_, (who, at))| sum.saturating_add(self.all[who].told[*at].get()));
            share::budget(&claims, claims[own].user).saturating_sub(Bytes(told))
        };
        share.min(share::floor(&claims, own).max(share::whole_blocks(free)))
    }

    /// The process that serves it.
    pub fn set_worker(&mut self, id: ProgramId, worker: u32) {
        if let Some(program) = self.all.get_mut(&id) {
            program.worker = worker;
        }
    }

    /// One less. What it had is free at once: its worker is gone, and so is all that it held.
    pub fn leave(&mut self, id: ProgramId) -> Option<Program> {
        self.changed = true;
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
        let was_active = program.active(now);
        let differs = |what: fn(&Figures) -> u64| {
            report.gpus.iter().zip(&program.figures).any(|(new, old)| what(new) != what(old))
        };
        let (launched, holds_other) = (differs(|gpu| gpu.launches), differs(|gpu| gpu.managed));
        if launched {
            program.launched = now;
        }
        self.changed |= holds_other || (launched && !was_active);
        program.figures = report.gpus;
        Ok(())
    }

    /// What to tell whom now, all GPUs of a program at once.
    pub fn orders(&mut self, now: Instant) -> Vec<(ProgramId, Vec<Bytes>)> {
        if !self.changed && self.look.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut rooms = std::mem::take(&mut self.rooms);
        let mut concerned = BTreeSet::new();
        let mut looks = Vec::new();
        for (gpu, places) in self.by_gpu() {
            let told = |(who, at): &Place| self.all[who].told[*at];
            let targets = share::shares(&self.claims(&places, now));
            let shares: Vec<Share> = places
                .iter()
                .zip(targets)
                .map(|(place, target)| Share { who: place.0, told: told(place), target })
                .collect();
            let (new, room) = room::tell(rooms.remove(&gpu), &shares, now);
            looks.extend(room.as_ref().map(Room::ready));
            self.rooms.extend(room.map(|room| (gpu, room)));
            // Who is alone at its GPU has what it wants, active or not.
            if places.len() > 1 {
                looks.extend(places.iter().map(|(who, _)| self.all[who].launched + IDLE).filter(|at| *at > now));
            }
            for ((who, at), new) in places.iter().zip(new) {
                if let Some(program) = self.all.get_mut(who).filter(|program| program.told[*at] != new) {
                    program.told[*at] = new;
                    concerned.insert(*who);
                }
            }
        }
        self.changed = false;
        self.look = looks.into_iter().min();
        concerned.into_iter().map(|who| (who, self.all[&who].told.clone())).collect()
    }

    /// When to ask [`Self::orders`] again though nothing was reported.
    pub const fn deadline(&self) -> Option<Instant> {
        self.look
    }

    /// Who is at which GPU.
    fn by_gpu(&self) -> BTreeMap<Gpu, Vec<Place>> {
        let mut by_gpu: BTreeMap<Gpu, Vec<Place>> = BTreeMap::new();
        for (id, program) in &self.all {
            for (at, device) in program.devices.iter().enumerate() {
                by_gpu.entry((program.kind, device.uuid)).or_default().push((*id, at));
            }
        }
        by_gpu
    }

    fn claims(&self, places: &[Place], now: Instant) -> Vec<Claim> {
        let claim = |(id, at): &Place| {
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
        places.iter().map(claim).collect()
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

#[cfg(test)]
mod tests;
