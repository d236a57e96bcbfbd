//! Blocks by when they are needed next, apart for what may be done about them.
//!
//! Problem: who is to come is asked from the near end, who is to leave from the far end, and both change with every launch.
//! Idea: for each [`Class`] the points of the timeline at which blocks of it are needed next, in order, and for each of those a list of these blocks. To
//! put a block somewhere else is to look up a point; who is in the middle of a list leaves without.
//!
//! Blocks of which no use is known are needed last, the one that came to be so longest ago furthest: what was used once lies there in the order of its last
//! use, and a backward pass needs it the other way round.
//!
//! Invariant: a block is in one list at most.

use std::collections::BTreeMap;

use crate::residency::{Handle, Ticket};

/// What may be done about a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It has no contents and no place: only room is needed.
    Unborn,
    /// Its contents are elsewhere.
    Away,
    /// It is on its way onto the GPU.
    Coming,
    /// On the GPU, and its contents nowhere else.
    Only,
    /// On the GPU and on the host: it can leave without a copy.
    Saved,
    /// It is being copied to the host, and stays.
    Saving,
    /// It is being taken off the GPU.
    Leaving,
    /// On the GPU, and nobody needs its contents.
    Dead,
    /// The same, and the host has them, too.
    DeadSaved,
}

/// How many classes there are.
const CLASSES: usize = 9;

/// When a block is needed of which no use is known.
pub const NEVER: Ticket = Ticket(u64::MAX);

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Seat {
    class: Option<Class>,
    ticket: Ticket,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

#[derive(Default, Debug)]
struct Lists {
    lists: BTreeMap<Ticket, List>,
    count: usize,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Ranks {
    classes: [Lists; CLASSES],
    /// By block.
    seats: Vec<Seat>,
}

impl Ranks {
    /// Puts a block where it belongs now, or nowhere. Returns where it was.
    pub fn place(&mut self, at: Handle, class: Option<Class>, ticket: Ticket) -> Option<(Class, Ticket)> {
        if self.seats.len() <= at.index() {
            let nowhere = Seat { class: None, ticket: NEVER, before: NIL, after: NIL };
            self.seats.resize(at.index() + 1, nowhere);
        }
        let seat = self.seats[at.index()];
        let before = seat.class.map(|class| (class, seat.ticket));
        if before == class.map(|class| (class, ticket)) {
            return before;
        }
        if let Some(class) = seat.class {
            self.take_out(at, class);
        }
        self.seats[at.index()].class = class;
        if let Some(class) = class {
            self.put_in(at, class, ticket);
        }
        before
    }

    fn put_in(&mut self, at: Handle, class: Class, ticket: Ticket) {
        let id = at.id();
        let lists = &mut self.classes[class as usize];
        lists.count += 1;
        let list = lists.lists.entry(ticket).or_insert(List { first: NIL, last: NIL });
        if list.first == NIL {
            list.first = id;
        } else {
            self.seats[list.last as usize].after = id;
        }
        let before = std::mem::replace(&mut list.last, id);
        self.seats[at.index()] = Seat { class: Some(class), ticket, before, after: NIL };
    }

    fn take_out(&mut self, at: Handle, class: Class) {
        let Seat { ticket, before, after, .. } = self.seats[at.index()];
        let lists = &mut self.classes[class as usize];
        lists.count -= 1;
        if before != NIL {
            self.seats[before as usize].after = after;
        }
        if after != NIL {
            self.seats[after as usize].before = before;
        }
        if before != NIL && after != NIL {
            return;
        }
        let Some(list) = lists.lists.get_mut(&ticket) else { return };
        if before == NIL {
            list.first = after;
        }
        if after == NIL {
            list.last = before;
        }
        if list.first == NIL {
            lists.lists.remove(&ticket);
        }
    }

    /// Who of a class is needed first, and when.
    pub fn first(&self, class: Class) -> Option<(Ticket, Handle)> {
        let (&ticket, list) = self.classes[class as usize].lists.first_key_value()?;
        Some((ticket, Handle::of(list.first)))
    }
    /// Who of a class is needed last, and when.
    pub fn last(&self, class: Class) -> Option<(Ticket, Handle)> {
        let (&ticket, list) = self.classes[class as usize].lists.last_key_value()?;
        Some((ticket, Handle::of(list.first)))
    }
    /// Those of a class in the order in which they are needed.
    pub fn nearest_first(&self, class: Class) -> impl Iterator<Item = (Ticket, Handle)> + '_ {
        self.classes[class as usize].lists.iter().flat_map(|(&ticket, list)| self.all_of(ticket, list))
    }
    fn all_of(&self, ticket: Ticket, list: &List) -> impl Iterator<Item = (Ticket, Handle)> + '_ {
        let next = |&id: &u32| Some(self.seats[id as usize].after).filter(|&id| id != NIL);
        std::iter::successors(Some(list.first), next).map(move |id| (ticket, Handle::of(id)))
    }
    /// Memory it takes, without that of the trees: an entry for each launch by which somebody is needed.
    pub fn bytes(&self) -> usize {
        self.seats.capacity() * size_of::<Seat>()
    }
    /// How many there are of a class.
    pub fn count(&self, class: Class) -> usize {
        self.classes[class as usize].count
    }
}
