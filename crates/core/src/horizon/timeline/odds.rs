//! How far what is foreseen of a block can be trusted, and how seldom it is used.
//!
//! Problem: of a mixture of experts each token uses other ones. Foreseen are those of an earlier token that was like this one, and they come no more often than they are drawn: who fetches them ahead brings what
//! nobody needs, and who gives up the others keeps the experts of the last few tokens, whoever they are.
//! Idea: of a block whose uses come unforeseen, the next one is known when it is issued. Until then only how often it is used counts: of blocks that are used independently of each other,
//! who keeps those used most often does best (Aho, Denning and Ullman, *Principles of Optimal Page Replacement*, J. ACM, 1971). So while it is there it is taken to be needed in as many launches as its uses were apart of late, and is not fetched before it is issued.
//!
//! The same goes for a block that can be trusted where less is foreseen than its uses were apart: behind a prompt nobody knows what comes, and the weights that each token uses are not to leave for experts that are hardly used.
//!
//! Invariant: a point that was not issued, or came, and uses a doubtful block says so, for that block is ranked anew when it is issued.

use super::holds::User;
use super::uses::Use;
use super::{LONGEST, Nth, STRIDE, Timeline, ordinal};
use crate::residency::{Handle, Ticket};
use crate::units::LaunchSeq;

/// Who was foreseen so many launches before it was issued was foreseen: behind an expert's first launch its others are no surprise.
const AHEAD: u64 = 16;

/// Whose last uses were foreseen less often than in three quarters, is doubtful.
const TRUSTED: u8 = u8::MAX / 4 * 3;

/// Of whether uses were foreseen the last count most, each an eighth.
const WEIGHT: u8 = 8;

/// How far uses are apart is the mean of so many, and of the last ones where there were more. A choice: with 8 and 32 the mixtures' answers are the same to a percent.
const MEAN_OF: u8 = 16;

/// Of a launch, so that the mean of a few is one.
const PARTS: u32 = 64;

/// How a launch came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    /// It was not issued, or nothing was foreseen then.
    Untold,
    Foreseen,
    Unforeseen,
    /// It did not, but one after it did.
    LeftOut {
        /// Others came in its place, and not for the first time: new addresses of a cache say nothing about what was used before.
        instead: bool,
    },
}

impl Came {
    /// One that was issued then, and foreseen when this was the newest launch issued.
    pub(super) fn after(since: LaunchSeq, issued: LaunchSeq) -> Self {
        if issued.0 >= since.0 + AHEAD { Self::Foreseen } else { Self::Untold }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Odds {
    /// The share of uses that were foreseen, in 255ths.
    foreseen: u8,
    /// Launches from one use to the next, in [`PARTS`], since one was unforeseen; 0 before the second.
    apart: u32,
    /// How many uses that is the mean of.
    uses: u8,
}

impl Odds {
    /// Before anything is known.
    pub(super) const NEW: Self = Self { foreseen: u8::MAX, apart: 0, uses: 0 };

    fn came(&mut self, came: Came) {
        match came {
            Came::Untold | Came::LeftOut { instead: false } => {}
            Came::Foreseen => self.foreseen += (u8::MAX - self.foreseen).div_ceil(WEIGHT),
            Came::Unforeseen | Came::LeftOut { instead: true } => self.foreseen -= self.foreseen / WEIGHT,
        }
    }

    fn used(&mut self, launches: u64) {
        let launches = u32::try_from(launches.min(LONGEST as u64)).unwrap_or(u32::MAX) * PARTS;
        self.uses = MEAN_OF.min(self.uses + 1);
        let uses = u32::from(self.uses);
        self.apart = self.apart - self.apart / uses + launches / uses;
    }

    /// Whether it comes too seldom as foreseen.
    pub(super) fn is_doubtful(self) -> bool {
        self.foreseen < TRUSTED
    }

    /// In how many launches it is needed, as far as only that is known.
    fn apart(self) -> Option<u64> {
        let apart = self.apart / PARTS;
        (apart > 0).then(|| u64::from(apart).max(AHEAD))
    }
}

impl Timeline {
    /// When the block is used next, if that is known; where that is doubtful, or beyond all that is foreseen, and `about`, when it is by how seldom it is used.
    pub fn needed(&self, at: Handle, about: bool) -> Option<Ticket> {
        let chain = self.chains.get(at.index())?;
        let mut next = self.uses.get(chain.first as usize);
        let is_doubtful = chain.odds.is_doubtful();
        if let Some(next) = next.filter(|_| !is_doubtful) {
            return Some(next.point);
        }
        let issued = self.issued.checked_sub(1).map(|last| self.points[last].ticket);
        while let Some(one) = next.filter(|one| issued.is_some_and(|issued| one.point <= issued)) {
            if self.find(one.point).is_some_and(|Nth(nth)| !matches!(self.points[nth].came, Came::LeftOut { .. })) {
                return Some(one.point);
            }
            next = self.uses.get(one.after as usize);
        }
        let apart = chain.odds.apart().filter(|_| about)?;
        let by = Ticket(self.front().0 + apart * STRIDE);
        (is_doubtful || by > self.last).then_some(by)
    }

    /// A use is over.
    pub(super) fn was_used(&mut self, one: &Use, seq: LaunchSeq, came: Came) {
        let chain = &mut self.chains[one.at.index()];
        // Of most blocks nothing ever comes unforeseen.
        if matches!(came, Came::Foreseen | Came::Untold) && chain.odds.foreseen == u8::MAX {
            chain.over = User::of(one, seq);
            return;
        }
        let was_doubtful = chain.odds.is_doubtful();
        let before = chain.over.launches_until(seq);
        let is_next = |next: &Use| ordinal(next.point) <= ordinal(one.point) + AHEAD;
        // Who has another cache with each token has it in the same blocks: foreseen is what is used, though not by whom.
        chain.odds.came(match came {
            Came::Unforeseen if self.uses.get(one.after as usize).is_some_and(is_next) => Came::Foreseen,
            Came::LeftOut { .. } if before.is_some_and(|launches| launches <= AHEAD) => Came::Untold,
            came => came,
        });
        let is_used = !matches!(came, Came::LeftOut { .. });
        if let Some(launches) = before.filter(|_| is_used) {
            chain.odds.used(launches);
        }
        // The record of one that was left out may be lost.
        if is_used || !was_doubtful {
            chain.over = User::of(one, seq);
        }
        if chain.odds.is_doubtful() && !was_doubtful {
            let mut id = one.after;
            while let Some(&Use { point, after, .. }) = self.uses.get(id as usize) {
                if let Some(Nth(nth)) = self.find(point) {
                    self.points[nth].doubtful = true;
                }
                id = after;
            }
        }
    }

    /// The blocks that a point uses.
    pub(super) fn used_by(&self, nth: usize) -> impl Iterator<Item = Handle> + '_ {
        let ticket = self.points[nth].ticket;
        let of = |id: u32| self.uses.get(id as usize);
        std::iter::successors(of(self.points[nth].first), move |one| of(one.beside))
            .filter(move |one| one.point == ticket)
            .map(|one| one.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_uses_of_which_nobody_knew_make_it_doubtful_and_three_that_were_foreseen_do_not() {
        let mut odds = Odds::NEW;
        for came in [Came::Unforeseen, Came::LeftOut { instead: true }, Came::Untold, Came::LeftOut { instead: false }]
        {
            odds.came(came);
            assert!(!odds.is_doubtful());
        }
        odds.came(Came::Unforeseen);
        assert!(odds.is_doubtful());
        (0..3).for_each(|_| odds.came(Came::Foreseen));
        assert!(!odds.is_doubtful());
        (0..100).for_each(|_| odds.came(Came::Foreseen));
        assert_eq!(odds.foreseen, u8::MAX);
    }

    #[test]
    fn how_far_apart_uses_are_follows_the_last_ones_and_never_further_than_is_foreseen() {
        let mut odds = Odds::NEW;
        odds.used(800);
        assert_eq!(odds.apart(), Some(800));
        [200, 200].into_iter().for_each(|launches| odds.used(launches));
        assert_eq!(odds.apart(), Some(400), "of a few the mean");
        (0..80).for_each(|_| odds.used(1600));
        assert!(odds.apart().is_some_and(|apart| (1500..=1600).contains(&apart)), "{odds:?}");
        (0..80).for_each(|_| odds.used(u64::MAX));
        assert!(odds.apart().is_some_and(|apart| (16_000..=LONGEST as u64).contains(&apart)), "{odds:?}");
        (0..200).for_each(|_| odds.used(2));
        assert_eq!((odds.apart(), Odds::NEW.apart()), (Some(AHEAD), None));
    }
}
