//! Blocks by when they are needed next, apart for what may be done about them.
//!
//! Problem: who is to come is asked from the near end, who is to leave from the far end, and both change with every launch.
//! Idea: for each [`Class`] the points of the timeline at which blocks of it are needed next, in order, and for each of those a list of these blocks. A list
//! is looked up where it begins or ends, and where what is put in belongs elsewhere than what was before; whoever leaves knows theirs.
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
    /// The number of its list.
    list: u32,
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
    by_ticket: BTreeMap<Ticket, u32>,
    /// The list that was last put something into: what comes next often belongs there, too.
    latest: Option<(Ticket, u32)>,
    count: usize,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Ranks {
    classes: [Lists; CLASSES],
    /// By number, and those of them that are empty.
    lists: Vec<List>,
    empty: Vec<u32>,
    /// By block.
    seats: Vec<Seat>,
}

impl Ranks {
    /// Puts a block where it belongs now, or nowhere. Returns where it was.
    pub fn place(&mut self, at: Handle, class: Option<Class>, ticket: Ticket) -> Option<(Class, Ticket)> {
        if self.seats.len() <= at.index() {
            let nowhere = Seat { class: None, list: NIL, ticket: NEVER, before: NIL, after: NIL };
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
        let of_class = &mut self.classes[class as usize];
        of_class.count += 1;
        let list = match of_class.latest {
            Some((latest, list)) if latest == ticket => list,
            _ => *of_class.by_ticket.entry(ticket).or_insert_with(|| {
                self.empty.pop().unwrap_or_else(|| {
                    self.lists.push(List { first: NIL, last: NIL });
                    u32::try_from(self.lists.len() - 1).expect("there are no more lists than blocks")
                })
            }),
        };
        of_class.latest = Some((ticket, list));
        let List { first, last } = &mut self.lists[list as usize];
        let before = std::mem::replace(last, id);
        match before {
            NIL => *first = id,
            before => self.seats[before as usize].after = id,
        }
        self.seats[at.index()] = Seat { class: Some(class), list, ticket, before, after: NIL };
    }

    fn take_out(&mut self, at: Handle, class: Class) {
        let Seat { ticket, list: number, before, after, .. } = self.seats[at.index()];
        let list = &mut self.lists[number as usize];
        match before {
            NIL => list.first = after,
            before => self.seats[before as usize].after = after,
        }
        match after {
            NIL => list.last = before,
            after => self.seats[after as usize].before = before,
        }
        let of_class = &mut self.classes[class as usize];
        of_class.count -= 1;
        if list.first == NIL {
            of_class.by_ticket.remove(&ticket);
            of_class.latest = of_class.latest.filter(|&(_, latest)| latest != number);
            self.empty.push(number);
        }
    }

    /// Who of a class is needed first, and when.
    pub fn first(&self, class: Class) -> Option<(Ticket, Handle)> {
        let (&ticket, &list) = self.classes[class as usize].by_ticket.first_key_value()?;
        Some((ticket, Handle::of(self.lists[list as usize].first)))
    }
    /// Who of a class is needed last, and when.
    pub fn last(&self, class: Class) -> Option<(Ticket, Handle)> {
        let (&ticket, &list) = self.classes[class as usize].by_ticket.last_key_value()?;
        Some((ticket, Handle::of(self.lists[list as usize].first)))
    }
    /// Those of a class in the order in which they are needed.
    pub fn nearest_first(&self, class: Class) -> impl Iterator<Item = (Ticket, Handle)> + '_ {
        self.classes[class as usize].by_ticket.iter().flat_map(|(&ticket, &list)| self.all_of(ticket, list))
    }
    fn all_of(&self, ticket: Ticket, list: u32) -> impl Iterator<Item = (Ticket, Handle)> + '_ {
        let next = |&id: &u32| Some(self.seats[id as usize].after).filter(|&id| id != NIL);
        std::iter::successors(Some(self.lists[list as usize].first), next).map(move |id| (ticket, Handle::of(id)))
    }
    /// Memory it takes, without that of the trees: an entry for each launch by which somebody is needed.
    pub fn bytes(&self) -> usize {
        self.seats.capacity() * size_of::<Seat>() + self.lists.capacity() * size_of::<List>()
    }
    /// How many there are of a class.
    pub fn count(&self, class: Class) -> usize {
        self.classes[class as usize].count
    }
}
