//! The future, as far as it is known: which launch comes when, and which blocks it uses.
//!
//! Problem: who leaves the GPU best is who is needed furthest ahead, so of every block on it the next use must be known, an iteration ahead, and after
//! each launch of which some blocks' next use is another one.
//! Idea: a list of *points*, one for each launch: first those that were issued, then what the trail, or the execution-ID table, says follows. A point has
//! *uses*; the uses of one block are chained, nearest first. A launch that ends takes its point away, and with it the first link of each chain:
//! what comes after is known already.
//!
//! ```text
//!            issued          predicted
//! points   0    1    2    3    4    5    6
//! block A  x─────────x──────────────x            next use 0, when 0 is over 2, …
//! block B       x─────────────────────────x      next use 1, then 6
//! ```
//!
//! **Where the prediction is wrong.** Where some launches were left out, their points count as issued with the one after them. A launch that was
//! not expected is a *stray*, and gets a point of its own before those predicted; for that their numbers, [`Ticket`]s, have gaps.
//!
//! Invariants: the uses of a block are in the order of their points, at most one in a point; the numbers of points rise; at most
//! [`LONGEST`] points and [`MOST_USES`] uses beyond those issued. Adding, ending and taking back a use costs the same however long the list is.
//! Not here: what launches use (`correlate`), what follows from it (`policy::horizon`).

mod holds;
mod odds;
mod rests;
mod uses;

use std::collections::VecDeque;

use self::holds::{Holds, User};
use self::odds::{Came, Odds};
use self::uses::{Chain, NIL, Use};
use super::need::{Need, Ordinal};
use super::plan::Plan;
use crate::residency::{Handle, Ticket};
use crate::units::{ExecId, LaunchSeq, UmBlock};

/// Most points: more launches than an iteration has in most programs. Where it has more, what is needed beyond is taken to be needed last.
pub const LONGEST: usize = 1 << 14;

/// Most uses: 128 MiB of them, which only programs have whose launches use a thousand blocks each.
pub const MOST_USES: usize = 1 << 22;

/// Uses of a block that are looked at for one that writes. A block may be used by every launch, and is ranked anew with each. A choice: more than come within `policy::horizon`'s SOON.
const SEEN: usize = 64;

/// The distance of two launches that follow each other, in tickets: room for strays between them.
pub const STRIDE: u64 = 1 << 20;

/// What a launch does with a block, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Does {
    /// It uses it, and nothing more is known.
    #[default]
    Uses,
    /// It only reads it.
    Reads,
    /// It writes some of it, and may need the rest.
    Writes,
    /// It is the first to use memory that was handed out: what was in there is not needed.
    Fills,
}

impl Does {
    /// Whether it is known to write.
    pub fn writes(self) -> bool {
        self >= Self::Writes
    }
}

/// A launch.
#[derive(Debug)]
pub struct Point {
    ticket: Ticket,
    /// What it is; nothing for a copy, or where all execution IDs are given out.
    pub exec: Option<ExecId>,
    /// Its place in the device's sequence, once it was issued.
    pub issued: Option<LaunchSeq>,
    /// Whether it is known what its launch uses.
    pub known: bool,
    /// The newest launch that was issued when it was foreseen.
    since: LaunchSeq,
    came: Came,
    /// Whether any of its blocks is doubtful ([`odds`]).
    doubtful: bool,
    /// Blocks it is not taken to need, to see whether it does.
    pub left_out: Vec<UmBlock>,
    first: u32,
    /// How many uses were added to it.
    added: usize,
}

impl Point {
    const fn new(ticket: Ticket, exec: Option<ExecId>, since: LaunchSeq) -> Self {
        Self {
            ticket,
            exec,
            issued: None,
            known: false,
            since,
            came: Came::Untold,
            doubtful: false,
            left_out: Vec::new(),
            first: NIL,
            added: 0,
        }
    }
    /// The place of its launch in the device's sequence, if that came: one that was left out has the place of the one after it.
    pub fn ran(&self) -> Option<LaunchSeq> {
        self.issued.filter(|_| !matches!(self.came, Came::LeftOut { .. }))
    }
    /// How many uses were added to it.
    pub const fn added(&self) -> usize {
        self.added
    }
}

/// How manieth a point is, until points are added or go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nth(usize);

/// See the module.
#[derive(Debug)]
pub struct Timeline {
    points: VecDeque<Point>,
    /// That of the last point there was.
    last: Ticket,
    /// That of the last point that went from the front.
    gone: Ticket,
    /// The newest launch or copy that was issued.
    pub last_issued: LaunchSeq,
    /// Execution IDs below this one were issued.
    seen: u32,
    /// Whether any of them was, unforeseen, since what was foreseen last.
    instead: bool,
    /// How many points, from the front, were issued.
    issued: usize,
    /// How many uses were added to those.
    issued_uses: usize,
    uses: Vec<Use>,
    vacant: u32,
    live: usize,
    /// By block.
    chains: Vec<Chain>,
    holds: Holds,
    /// Room by launch. Here contents end and begin anew; who has no place now is noted by `policy::horizon`.
    pub need: Need,
    /// Of that, what has no contents to be fetched.
    pub births: Need,
    /// Who stays in between.
    pub plan: Plan,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            points: VecDeque::new(),
            last: Ticket(0),
            gone: Ticket(0),
            last_issued: LaunchSeq(0),
            seen: 0,
            instead: false,
            issued: 0,
            issued_uses: 0,
            uses: Vec::new(),
            vacant: NIL,
            live: 0,
            chains: Vec::new(),
            holds: Holds::default(),
            need: Need::default(),
            births: Need::default(),
            plan: Plan::default(),
        }
    }
}

impl Timeline {
    /// When the block is used next, and what that does with it.
    pub fn next_use(&self, at: Handle) -> Option<(Ticket, Does)> {
        let chain = self.chains.get(at.index())?;
        let first = self.uses.get(chain.first as usize)?;
        Some((first.point, first.does))
    }
    /// The number of the first point, or of the one that comes next.
    pub fn front(&self) -> Ticket {
        self.points.front().map_or(Ticket(self.last.0 + STRIDE), |point| point.ticket)
    }
    /// That of the last point that went from the front: none that is there is before it.
    pub fn gone(&self) -> Ticket {
        self.gone
    }
    /// Whether there is room for more points and uses.
    pub fn has_room(&self) -> bool {
        self.points.len() < LONGEST && self.live < MOST_USES
    }
    /// Whether there are points that were not issued.
    pub fn has_predicted(&self) -> bool {
        self.points.len() > self.issued
    }
    /// Whether this many launches beyond those issued are known.
    pub fn foresees(&self, launches: u64) -> bool {
        (self.points.len() - self.issued) as u64 >= launches
    }
    /// How many blocks launches use that were issued and are not over, each counted with each launch.
    pub fn issued_uses(&self) -> usize {
        self.issued_uses
    }
    /// All points.
    pub fn all(&self) -> impl Iterator<Item = Nth> + use<> {
        (0..self.points.len()).map(Nth)
    }
    /// The point of this number, if there is one.
    pub fn find(&self, ticket: Ticket) -> Option<Nth> {
        // Where there are no strays their numbers say which it is.
        let about = usize::try_from(ordinal(ticket).saturating_sub(ordinal(self.front()))).unwrap_or(usize::MAX);
        let is_it = self.points.get(about).is_some_and(|point| point.ticket == ticket);
        let search = || self.points.binary_search_by_key(&ticket, |point| point.ticket).ok();
        is_it.then_some(about).or_else(search).map(Nth)
    }
    /// The point of this launch, if it was issued.
    pub fn point_of(&self, seq: LaunchSeq) -> Option<Nth> {
        let nth = self.points.partition_point(|point| point.issued.is_some_and(|issued| issued < seq));
        self.points.get(nth).filter(|point| point.issued == Some(seq)).map(|_| Nth(nth))
    }
    /// A point.
    pub fn point(&mut self, Nth(nth): Nth) -> &mut Point {
        &mut self.points[nth]
    }
    /// The launch of a point that was issued.
    pub fn issued_at(&self, Nth(nth): Nth) -> Option<LaunchSeq> {
        self.points[nth].issued
    }
    /// The place in the device's sequence that the launch of a point has, or will have.
    pub fn seq_of(&self, Nth(nth): Nth) -> LaunchSeq {
        self.points[nth].issued.unwrap_or(self.last_issued.plus(1 + nth.saturating_sub(self.issued) as u64))
    }

    /// The place in the device's sequence behind all that is foreseen.
    pub fn seq_behind(&self) -> LaunchSeq {
        self.last_issued.plus(1 + (self.points.len() - self.issued) as u64)
    }

    /// A launch of this execution ID was issued, or a copy, which has none. `left_out`: before it so many that were predicted, if it was expected. `void` hears of the blocks
    /// whose next use was taken back, or is known to come only now. Returns its point, and whether that was predicted.
    pub fn issue(
        &mut self,
        seq: LaunchSeq,
        exec: Option<ExecId>,
        left_out: Option<usize>,
        mut void: impl FnMut(Handle),
    ) -> (Nth, bool) {
        self.last_issued = self.last_issued.max(seq);
        let predicted = left_out.map(|left_out| self.issued + left_out);
        if let Some(at) = predicted.filter(|&at| self.points.get(at).is_some_and(|point| point.exec == exec)) {
            for nth in self.issued..=at {
                let point = &mut self.points[nth];
                point.issued = Some(seq);
                let left_out = Came::LeftOut { instead: self.instead };
                point.came = if nth == at { Came::after(point.since, seq) } else { left_out };
                self.issued_uses += point.added;
                if point.doubtful {
                    self.used_by(nth).for_each(&mut void);
                }
            }
            self.issued = at + 1;
            self.instead = false;
            return (Nth(at), true);
        }
        let before = self.issued.checked_sub(1).map_or(self.gone, |before| self.points[before].ticket);
        let stray = Ticket(before.0 + 1);
        if self.points.get(self.issued).is_some_and(|next| next.ticket == stray) {
            self.take_back(void);
        }
        let ticket = if self.has_predicted() { stray } else { Ticket(before.0 + STRIDE) };
        let is_known = exec.is_some_and(|exec| exec.0 < self.seen);
        self.seen = self.seen.max(exec.map_or(0, |exec| exec.0 + 1));
        let came = if self.has_predicted() && is_known { Came::Unforeseen } else { Came::Untold };
        self.instead |= is_known;
        self.last = self.last.max(ticket);
        let point = Point { issued: Some(seq), came, ..Point::new(ticket, exec, seq) };
        self.points.insert(self.issued, point);
        self.issued += 1;
        (Nth(self.issued - 1), false)
    }

    /// Predicts a launch behind all others.
    pub fn push(&mut self, exec: ExecId) -> Nth {
        self.last = Ticket(self.last.0 + STRIDE);
        self.points.push_back(Point::new(self.last, Some(exec), self.last_issued));
        Nth(self.points.len() - 1)
    }

    /// The launch of a point uses a block. Returns whether that changes when the block is used next, or what it is used for.
    pub fn add(&mut self, Nth(nth): Nth, at: Handle, does: Does) -> bool {
        let Chain { first, last, near, odds, .. } = *self.chain(at);
        self.points[nth].doubtful |= odds.is_doubtful();
        let Point { ticket, exec, .. } = self.points[nth];
        // Most are added behind all others of the block; a stray's come near the front.
        let (mut before, mut after) = (last, NIL);
        if self.is_after(last, ticket) {
            let is_past = near == NIL || self.is_after(near, ticket);
            (before, after) = if is_past { (NIL, first) } else { (near, self.uses[near as usize].after) };
            while after != NIL && self.uses[after as usize].point < ticket {
                (before, after) = (after, self.uses[after as usize].after);
            }
        }
        for same in [before, after].into_iter().filter(|&other| other != NIL) {
            if self.uses[same as usize].point == ticket {
                self.chains[at.index()].near = same;
                return self.does_more(same, does);
            }
        }
        self.weigh(after, -1);
        let new = Use {
            at,
            point: ticket,
            exec: exec.map_or(NIL, |exec| exec.0),
            does,
            in_place: false,
            held: None,
            handed_back: false,
            before,
            after,
            beside: self.points[nth].first,
        };
        let id = self.put(new);
        self.chains[at.index()].near = id;
        self.points[nth].first = id;
        self.points[nth].added += 1;
        self.issued_uses += usize::from(nth < self.issued);
        match before {
            NIL => self.chains[at.index()].first = id,
            before => self.uses[before as usize].after = id,
        }
        match after {
            NIL => self.chains[at.index()].last = id,
            after => self.uses[after as usize].before = id,
        }
        self.uses[id as usize].in_place = self.has_place_until(id);
        for id in [id, after] {
            self.ask_hold(id);
            self.weigh(id, 1);
        }
        before == NIL || odds.is_doubtful()
    }

    /// What launches of this execution ID do with the block.
    pub fn learn(&mut self, at: Handle, exec: ExecId, does: Does) {
        let mut id = self.first(at);
        while id != NIL {
            let Use { exec: user, after, .. } = self.uses[id as usize];
            if user == exec.0 {
                self.does_more(id, does);
            }
            id = after;
        }
    }

    /// When the block is written next, if that is no later than `until`, or its next use. Of one that many launches use before, the last of those that were looked at, which are more than come
    /// [`SEEN`] launches from the front on.
    pub fn next_write(&self, at: Handle, until: Ticket) -> Option<Ticket> {
        let mut id = self.first(at);
        let mut seen = 0;
        while id != NIL {
            let Use { point, does, after, .. } = self.uses[id as usize];
            seen += 1;
            if does.writes() || seen > SEEN {
                return Some(point);
            }
            if point > until {
                return None;
            }
            id = after;
        }
        None
    }

    /// Takes the first point away if its launch is among those up to `over`. `gone` hears of each block it used.
    pub fn pop(&mut self, over: LaunchSeq, gone: impl FnMut(Handle)) -> Option<Point> {
        let point = self.points.pop_front_if(|point| point.issued.is_some_and(|issued| issued <= over))?;
        self.issued -= 1;
        self.issued_uses -= point.added;
        self.gone = point.ticket;
        self.unlink_all(point.first, point.issued.map(|seq| (seq, point.came)), gone);
        Some(point)
    }

    /// Takes back all that was predicted and not issued.
    pub fn take_back(&mut self, mut gone: impl FnMut(Handle)) {
        while self.points.len() > self.issued {
            let Some(point) = self.points.pop_back() else { return };
            self.unlink_all(point.first, None, &mut gone);
        }
        self.last = self.points.back().map_or(self.gone, |point| point.ticket);
    }

    /// Forgets all.
    pub fn clear(&mut self, mut gone: impl FnMut(Handle)) {
        (self.issued, self.issued_uses) = (0, 0);
        self.take_back(&mut gone);
    }

    /// The block is not used by its next user after all. Returns whether it was to be.
    pub fn skip(&mut self, at: Handle) -> bool {
        let Some(&Chain { first, .. }) = self.chains.get(at.index()) else { return false };
        if first == NIL {
            return false;
        }
        self.cut(first);
        true
    }

    /// The block is no more.
    pub fn forget(&mut self, at: Handle) {
        while self.skip(at) {}
        if let Some(chain) = self.chains.get_mut(at.index()) {
            (chain.over, chain.odds) = (User::NONE, Odds::NEW);
        }
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.need.bytes()
            + self.births.bytes()
            + self.plan.bytes()
            + self.holds.bytes()
            + self.uses.capacity() * size_of::<Use>()
            + self.points.capacity() * size_of::<Point>()
            + self.chains.capacity() * size_of::<Chain>()
    }
}

/// Which launch ahead a ticket is of: strays count with the one before them.
pub const fn ordinal(ticket: Ticket) -> Ordinal {
    ticket.0 / STRIDE
}
