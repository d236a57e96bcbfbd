//! How a batch is carried out: the driver's calls, one after the other.
//!
//! Problem: most batches are one call, but a block may have contents in two places (`copies`), which the driver knows as a mode of the block (read
//! duplication, facts 4.7), and no call of it says "copy" or "drop". Two movers carry batches out, on a driver and in a replay.
//! Idea: the calls are listed here, once; a mover knows what each is.
//!
//! - *Evict*: to the host, all that most programs ever need.
//! - *Save*: the mode on, then to the host, which copies what the host lacks.
//! - *Drop* and *evict*: the mode off if it may be on, which leaves the host's copies; to the host, for what it had no copy of; the mode on if what is fetched is to leave
//!   its copy there.
//! - *Fetch* of such a block: to the host, then to the GPU. The first copies nothing, as a rule, but makes the host map all of it: without that the
//!   driver lets the GPU write to a page of which the host keeps a copy, and nobody would know.
//! - *Own* of a block that is not on the GPU: the mode off, and fetched. Of one that is: the GPU is made the preferred location, so that ending the mode
//!   leaves its copies; and since they stay mapped for reading, it is said to access the block, which maps them for writing.
//!
//! What comes onto the GPU does so in calls that do not wait ([`comes`]). Problem: a `UVM_MIGRATE` that waits holds the address space's lock for as long as its copies take, and whoever wants it for
//! writing waits that long: each call about blocks that leave does, three times. Between two calls that wait, the link is idle. Idea: calls that do not wait, of two blocks each. Their end is known by a
//! word that the driver writes, where it does, and by a call that waits behind them where it does not. Then the one that is awaited is not the last, so that the link always has something to carry: one call
//! more is enough for words, two for calls, which brings in as much as any that were tried on an H200 (facts 4.10, 4.11). What is empty, or there already, has nothing to carry: one call for all
//! of it, whose end a word tells, too: an H200 gave a block its place in 9 to 12 us so, and in 35 by calls that wait (`docs/gpu-results/2026-11-27-h200/moving.txt`).
//!
//! Invariants: whatever is believed wrongly about a block, or fails half-way, no contents are lost. At worst bytes are copied in vain.

use crate::queues::{Batch, Lane};
use crate::units::{AddrRange, Bytes, DevAddr, UmBlock};

/// What is known of blocks to be moved; the blocks of a batch are alike in it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Way {
    /// They have one copy.
    #[default]
    Move,
    /// The same; once they have left, the mode is to be on.
    Keep,
    /// They may have two: the mode is on, unless something failed.
    Duplicated,
    /// The same; once they have left, it is to be on again.
    KeepOn,
    /// The same; they are to have one, on the GPU, which is not believed to have any.
    OwnAway,
    /// The same; they are to have one, on the GPU, which is believed to have one.
    OwnThere,
}

/// One call of the driver about all of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// To the host, which need not map what has one copy (`kmod-bridge/src/leave.rs`).
    Leave,
    /// Onto the GPU, in the calls that [`comes`] lists.
    Fetch,
    /// `UVM_MIGRATE` to the host, which maps it.
    ToHost,
    /// `UVM_MIGRATE` to the GPU, in one call.
    ToDevice,
    /// `UVM_ENABLE_READ_DUPLICATION`, or `UVM_DISABLE_READ_DUPLICATION`.
    Duplicate(bool),
    /// `UVM_SET_PREFERRED_LOCATION` to the GPU, or `UVM_UNSET_PREFERRED_LOCATION`.
    Prefer(bool),
    /// `UVM_SET_ACCESSED_BY` the GPU, or `UVM_UNSET_ACCESSED_BY`.
    Access(bool),
}

/// What one call asks for, unless it waits for all that is left.
const PIECE: Bytes = Bytes(2 * UmBlock::SIZE.0);

/// How it is known that what was begun is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A call that waits.
    Call,
    /// A word that is written.
    Word,
}

impl By {
    /// How many calls are under way beside the one that is waited for.
    const fn ahead(self) -> u64 {
        match self {
            Self::Call => 2,
            Self::Word => 1,
        }
    }
}

/// A `UVM_MIGRATE` to the GPU about a part of what is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comes {
    /// That does not wait.
    Begin(AddrRange),
    /// That waits until all of it is there, which was asked for before; or no call, but a look at words.
    Await(AddrRange),
}

/// The calls that fetch all of `range`, whole UM blocks, one after the other.
pub fn comes(range: AddrRange, by: By) -> impl Iterator<Item = Comes> {
    let ahead = by.ahead();
    let piece = move |n: u64| {
        let start = DevAddr(range.start.0 + n * PIECE.0);
        AddrRange::new(start, PIECE.min(Bytes(range.end().0 - start.0)))
    };
    let pieces = range.len.0.div_ceil(PIECE.0);
    let each = (0..pieces).flat_map(move |n| {
        let earlier = n.checked_sub(ahead).map(|earlier| Comes::Await(piece(earlier)));
        [Some(Comes::Begin(piece(n))), earlier].into_iter().flatten()
    });
    let rest = piece(pieces.saturating_sub(ahead)).start;
    each.chain([Comes::Await(AddrRange::new(rest, Bytes(range.end().0 - rest.0)))])
}

impl Batch {
    /// Whether the driver may keep two copies of its blocks afterwards, if the calls touch on that.
    pub fn duplicates(self) -> Option<bool> {
        self.steps().iter().rev().find_map(|step| if let Step::Duplicate(on) = *step { Some(on) } else { None })
    }

    /// The calls. None for a discard, which is no matter of these.
    pub const fn steps(self) -> &'static [Step] {
        use Step::{Access, Duplicate, Fetch, Leave, Prefer, ToDevice, ToHost};
        match (self.lane, self.way) {
            (Lane::Discard, _) => &[],
            (Lane::Save, _) => &[Duplicate(true), ToHost],
            (Lane::Drop | Lane::Evict, Way::Move) => &[Leave],
            (Lane::Drop | Lane::Evict, Way::Keep) => &[ToHost, Duplicate(true)],
            (Lane::Drop | Lane::Evict, Way::KeepOn) => &[Duplicate(false), ToHost, Duplicate(true)],
            (Lane::Drop | Lane::Evict, _) => &[Duplicate(false), ToHost],
            // They are believed to be there.
            (Lane::Keep, Way::Move | Way::Keep) => &[ToDevice],
            (_, Way::Move | Way::Keep) if self.is_empty => &[ToDevice],
            (_, Way::Move | Way::Keep) => &[Fetch],
            (_, Way::Duplicated | Way::KeepOn) => &[ToHost, Fetch],
            (_, Way::OwnAway) => &[Duplicate(false), Fetch],
            (_, Way::OwnThere) => {
                &[Prefer(true), Duplicate(false), Prefer(false), ToDevice, Access(true), Access(false)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of a fetch, from 100 on, by call: begun (`true`) or waited for.
    fn calls(blocks: u64, by: By) -> Vec<(bool, u64, u64)> {
        let range = AddrRange::new(UmBlock(100).start(), Bytes(blocks * UmBlock::SIZE.0));
        let span = |range: AddrRange| (UmBlock::containing(range.start).0, range.len.0 / UmBlock::SIZE.0);
        comes(range, by)
            .map(|call| match call {
                Comes::Begin(range) => (true, span(range).0, span(range).1),
                Comes::Await(range) => (false, span(range).0, span(range).1),
            })
            .collect()
    }

    #[test]
    fn what_comes_is_begun_in_pieces_and_waited_for_pieces_later() {
        for by in [By::Call, By::Word] {
            assert_eq!(calls(1, by), [(true, 100, 1), (false, 100, 1)]);
        }
        assert_eq!(calls(4, By::Call), [(true, 100, 2), (true, 102, 2), (false, 100, 4)]);
        assert_eq!(calls(4, By::Word), [(true, 100, 2), (true, 102, 2), (false, 100, 2), (false, 102, 2)]);
        assert_eq!(
            calls(5, By::Word),
            [(true, 100, 2), (true, 102, 2), (false, 100, 2), (true, 104, 1), (false, 102, 2), (false, 104, 1)]
        );
        assert_eq!(
            calls(7, By::Call),
            [
                (true, 100, 2),
                (true, 102, 2),
                (true, 104, 2),
                (false, 100, 2),
                (true, 106, 1),
                (false, 102, 2),
                (false, 104, 3)
            ]
        );
    }
}
