//! Blocks by when they are needed next, apart for what may be done about them.
//!
//! Problem: who is to come is asked from the near end, who is to leave from the far end, and both change with every launch.
//! Idea: for each [`Class`] a list of blocks for each launch ahead, and which of these lists have any ([`Marks`]). Of a launch and the strays behind it, which share a list, those needed first come first.
//!
//! Blocks of which no use is known are needed last, the one that came to be so longest ago furthest: what was used once lies there in the order of its last
//! use, and a backward pass needs it the other way round.
//!
//! Invariants: a block is in one list at most; no launch that has a list is a round of the ring ahead of the first one.

use super::marks::Marks;
use super::need::{Ordinal, SPAN, place};
use super::timeline::ordinal;
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

/// The list of those of which no use is known: behind those of the launches.
const UNKNOWN: usize = SPAN;

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

impl List {
    const EMPTY: Self = Self { first: NIL, last: NIL };
}

#[derive(Default, Debug)]
struct Lists {
    /// By launch ahead, and the one of those needed last; none before the class has blocks.
    by_launch: Vec<List>,
    marks: Marks,
    count: usize,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Ranks {
    classes: [Lists; CLASSES],
    /// By block.
    seats: Vec<Seat>,
    /// No launch before this one has a list, but for who is [overdue](Ranks::overdue).
    from: Ordinal,
    /// None before this one has.
    looked: Ordinal,
}

impl Ranks {
    /// Launches before this one are over, and no block is needed by any.
    pub fn begin(&mut self, from: Ordinal) {
        self.from = from;
    }

    /// Who may leave, and was to be needed by a launch that is over: how often it is used said so, and not what was foreseen. It has to be put elsewhere before the next is asked for.
    pub fn overdue(&mut self) -> Option<Handle> {
        for class in [Class::Only, Class::Saved] {
            let lists = &self.classes[class as usize];
            if let Some(number) = lists.marks.first(place(self.looked))
                && (number + SPAN - place(self.looked)) % SPAN
                    < usize::try_from(self.from - self.looked).unwrap_or(SPAN)
            {
                return self.seat(lists.by_launch[number].first).map(|(_, at)| at);
            }
        }
        self.looked = self.from;
        None
    }

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
        let Lists { by_launch, marks, count } = &mut self.classes[class as usize];
        if by_launch.is_empty() {
            by_launch.resize(UNKNOWN + 1, List::EMPTY);
        }
        *count += 1;
        let number = list(ticket);
        let of_launch = &mut by_launch[number];
        if of_launch.first == NIL && number != UNKNOWN {
            marks.insert(number);
        }
        // Behind all who are needed then, or before: strays are few.
        let (mut before, mut after) = (of_launch.last, NIL);
        while before != NIL && self.seats[before as usize].ticket > ticket {
            (before, after) = (self.seats[before as usize].before, before);
        }
        match before {
            NIL => of_launch.first = id,
            before => self.seats[before as usize].after = id,
        }
        match after {
            NIL => of_launch.last = id,
            after => self.seats[after as usize].before = id,
        }
        self.seats[at.index()] = Seat { class: Some(class), ticket, before, after };
    }

    fn take_out(&mut self, at: Handle, class: Class) {
        let Seat { ticket, before, after, .. } = self.seats[at.index()];
        let Lists { by_launch, marks, count } = &mut self.classes[class as usize];
        let number = list(ticket);
        let of_launch = &mut by_launch[number];
        match before {
            NIL => of_launch.first = after,
            before => self.seats[before as usize].after = after,
        }
        match after {
            NIL => of_launch.last = before,
            after => self.seats[after as usize].before = before,
        }
        *count -= 1;
        if of_launch.first == NIL && number != UNKNOWN {
            marks.remove(number);
        }
    }

    /// Who of a class is needed first, and when.
    pub fn first(&self, class: Class) -> Option<(Ticket, Handle)> {
        let lists = &self.classes[class as usize];
        let number = lists.marks.first(place(self.from)).unwrap_or(UNKNOWN);
        self.seat(lists.by_launch.get(number)?.first)
    }
    /// Who of a class is needed last, and when.
    pub fn last(&self, class: Class) -> Option<(Ticket, Handle)> {
        let lists = &self.classes[class as usize];
        if lists.by_launch.get(UNKNOWN)?.first != NIL {
            return self.seat(lists.by_launch[UNKNOWN].first);
        }
        let List { first, mut last } = lists.by_launch[lists.marks.last(place(self.from))?];
        let ticket = self.seats[last as usize].ticket;
        if self.seats[first as usize].ticket == ticket {
            return self.seat(first);
        }
        while self.seats[self.seats[last as usize].before as usize].ticket == ticket {
            last = self.seats[last as usize].before;
        }
        self.seat(last)
    }
    /// Those of a class in the order in which they are needed.
    pub fn nearest_first(&self, class: Class) -> impl Iterator<Item = (Ticket, Handle)> + '_ {
        let lists = &self.classes[class as usize];
        let numbers = lists.marks.all(place(self.from)).chain([UNKNOWN]);
        numbers.filter_map(|number| lists.by_launch.get(number)).flat_map(|list| {
            std::iter::successors(self.seat(list.first), |&(_, at)| self.seat(self.seats[at.index()].after))
        })
    }
    /// When a block is needed, if it is of this class.
    pub fn of(&self, at: Handle, class: Class) -> Option<Ticket> {
        self.seats.get(at.index()).filter(|seat| seat.class == Some(class)).map(|seat| seat.ticket)
    }
    fn seat(&self, id: u32) -> Option<(Ticket, Handle)> {
        (id != NIL).then(|| (self.seats[id as usize].ticket, Handle::of(id)))
    }
    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        let lists = self.classes.iter().map(|lists| lists.by_launch.capacity() * size_of::<List>() + Marks::BYTES);
        self.seats.capacity() * size_of::<Seat>() + lists.sum::<usize>()
    }
    /// How many there are of a class.
    pub fn count(&self, class: Class) -> usize {
        self.classes[class as usize].count
    }
}

/// The list of what is needed then.
fn list(ticket: Ticket) -> usize {
    if ticket == NEVER { UNKNOWN } else { place(ordinal(ticket)) }
}
