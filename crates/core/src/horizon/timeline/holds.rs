//! How long memory is held after its last use.
//!
//! Problem: nobody may give contents up before the program has handed their memory back, and all that it issued until then has run. A framework hands back what it has used as its host
//! comes to it, some launches later, and may take it again in between and use it for nothing. Who counts on a place as soon as its last use is over has launches wait for it.
//! Idea: that is the same in each iteration. So it is remembered of a block and who used it last how many launches later it was handed back, and its place is counted on after those.

use super::uses::{NIL, Use};
use super::{Does, Timeline};
use crate::mix::Map;
use crate::residency::{Handle, Ticket};
use crate::units::LaunchSeq;
use std::num::NonZeroU8;

/// What is held for more launches than these is not waited for: it comes when it comes.
const LONGEST: u64 = 63;

/// Most blocks and users remembered, in 16 MiB.
const MOST: usize = 1 << 19;

/// For how many launches, at most 254; of the size of a byte, even where it is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold(NonZeroU8);

impl Hold {
    const fn of(launches: u8) -> Self {
        Self(NonZeroU8::MIN.saturating_add(launches))
    }
    pub(super) const fn launches(self) -> u8 {
        self.0.get() - 1
    }
}

/// Who used a block last, of those that are over.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    exec: u32,
    seq: LaunchSeq,
    /// How long it was to be held.
    held: Option<Hold>,
    /// Whether the block was handed back since.
    handed_back: bool,
}

impl User {
    /// Nobody.
    pub(super) const NONE: Self = Self { exec: NIL, seq: LaunchSeq(0), held: None, handed_back: true };

    /// How many launches later than this user that one is; nothing after nobody.
    pub(super) fn launches_until(&self, seq: LaunchSeq) -> Option<u64> {
        (self.seq > LaunchSeq(0)).then(|| seq.0.saturating_sub(self.seq.0))
    }

    pub(super) const fn of(one: &Use, seq: LaunchSeq) -> Self {
        Self { exec: one.exec, seq, held: one.held, handed_back: one.handed_back }
    }
}

/// By block and the execution ID that used it last: for how many launches more it is held. Not in it: for none.
#[derive(Default, Debug)]
pub(super) struct Holds(Map<(u32, u32), u8>);

impl Holds {
    /// After a use by this execution ID, if it is the last.
    fn after(&self, at: Handle, exec: u32) -> u8 {
        self.0.get(&(at.id(), exec)).copied().unwrap_or(0)
    }

    /// It was held for so many. What is handed back for the first time says all, what is taken again and handed back once more says for how much longer.
    fn learn(&mut self, at: Handle, exec: u32, launches: u64, again: bool) {
        let key = (at.id(), exec);
        match u8::try_from(launches) {
            Ok(held) if (1..=LONGEST).contains(&launches) => {
                if self.0.len() < MOST || self.0.contains_key(&key) {
                    self.0.insert(key, held);
                }
            }
            _ if again => {}
            _ => _ = self.0.remove(&key),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<((u32, u32), u8)>()
    }
}

impl Timeline {
    /// These blocks, all of each, were handed back when launches and copies up to this one were issued.
    pub fn handed_back(&mut self, issued: LaunchSeq, blocks: impl Iterator<Item = Handle>) {
        let until = self.issued_until(issued);
        for at in blocks {
            let (mut id, mut last) = (self.first(at), NIL);
            while let Some(one) = self.uses.get(id as usize).filter(|one| one.point <= until) {
                (last, id) = (id, one.after);
            }
            let user = match self.uses.get(last as usize).copied() {
                Some(one) => {
                    self.uses[last as usize].handed_back = true;
                    self.find(one.point).map(|nth| User::of(&one, self.seq_of(nth)))
                }
                None => {
                    let user = self.chain(at).over;
                    self.chain(at).over.handed_back = true;
                    Some(user)
                }
            };
            let Some(user) = user.filter(|user| user.exec != NIL) else { continue };
            let launches = issued.0.saturating_sub(user.seq.0);
            if user.held.is_none_or(|held| u64::from(held.launches()) != launches) {
                self.holds.learn(at, user.exec, launches, user.handed_back);
            }
        }
    }

    /// The number of the last point whose launch is up to this one, of which nobody may have told yet; or of the last one that is over.
    fn issued_until(&self, issued: LaunchSeq) -> Ticket {
        let told = self.points.iter().take(self.issued);
        let ahead = usize::try_from(issued.0.saturating_sub(self.last_issued.0)).unwrap_or(usize::MAX);
        let behind = told.rev().take_while(|point| point.issued.is_some_and(|seq| seq > issued)).count();
        let count = (self.issued - behind).saturating_add(ahead).min(self.points.len());
        count.checked_sub(1).map_or(self.gone, |nth| self.points[nth].ticket)
    }

    /// If this use fills its block anew: how long it is held after the use before. Not while that is noted in the curves.
    pub(super) fn ask_hold(&mut self, id: u32) {
        if let Some(&Use { before, .. }) = self.uses.get(id as usize).filter(|one| one.does == Does::Fills)
            && let Some(last) = self.uses.get_mut(before as usize)
        {
            last.held = Some(Hold::of(self.holds.after(last.at, last.exec)));
        }
    }
}
