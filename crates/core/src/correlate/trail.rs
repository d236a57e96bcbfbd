//! The trail: the execution IDs of all launches, in the order they came.
//!
//! Problem: a record of the execution-ID table ([`exec`](super::exec)) tells apart what three predecessors tell apart. Layers whose tensors the caching allocator puts into the same memory have the same
//! execution IDs for hundreds of launches; who follows such records for a whole iteration goes round once too often, or leaves a layer out, and is wrong about all that comes after.
//! Idea: a program that repeats itself repeats all of itself. So the future is what came behind the *cursor*: the place at which the launches before were the same as now, for as long
//! as possible. While it tells right it moves on with the program, and its context becomes as long as the trail.
//!
//! ```text
//! … a b b b c a b b b c a b │          what comes: b b c a b, and from there on as before
//!               ▲ cursor    ▲ now
//! ```
//!
//! Where launches were the same is found as in a compressor: a table by the last [`CONTEXT`] of them has the newest place, and every place the one before it with the same entry.
//!
//! Records get lost, and programs do something else now and then; neither changes what the rest of an iteration is. So a launch that is not the one expected but the one after it means that one
//! was left out, and any other is a stray, for which the cursor stays; behind some of them as many may be left out, for strays may be in the place of others: what a model does with its cache
//! has new addresses for each token. Only the [`STRAYS`]th in a row sends the cursor where most launches before were the same.
//! One that was left out where nothing else came, and that came there more than once before, is more likely lost than gone: it is put into the trail all the same, as *presumed*, or it would be missing from what is
//! expected of the next iteration. If it is left out there again, it is gone. One that came once may be of addresses that do not come again.
//!
//! Not here: what launches use (`correlate::block`); what becomes of predictions that were wrong (`horizon::timeline`).

use super::exec::NONE;
use crate::mix::Mix;
use crate::units::ExecId;

/// Launches that must be the same for a place to be looked at: as many as the execution-ID table goes by.
const CONTEXT: u64 = 4;

/// Places looked at, newest first, and how many launches before them are compared at most.
const LOOKS: usize = 64;
const COMPARED: u64 = 512;

/// So many launches that nobody expected, one after the other, and the program is somewhere else.
const STRAYS: u32 = 3;

/// Somewhere else so close behind the cursor is where it was to be soon: what lies between was left out.
const LEFT_OUT: u64 = 16;

/// Launches kept: two iterations of a million each.
const LENGTH: u64 = 1 << 21;

/// Bits of the table's index.
const BITS: u32 = 16;

/// Which launch of the trail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position(u64);

/// What a launch was to the trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// The one expected, after so many that were left out.
    Expected {
        /// Launches.
        left_out: u64,
    },
    /// Another one; what comes is expected as before.
    Astray,
    /// Another one, and what is expected from now on is something else.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
struct Launch {
    id: u32,
    /// How many launches ago another one was with the same entry in the table; nothing if none is kept.
    back: u32,
}

impl Launch {
    /// In `back`, which never is so long: it did not come, and is presumed lost.
    const PRESUMED: u32 = 1 << 31;

    fn is_presumed(self) -> bool {
        self.back & Self::PRESUMED != 0
    }
    fn back(self) -> u32 {
        self.back & !Self::PRESUMED
    }
}

/// See the module.
#[derive(Debug)]
pub struct Trail {
    /// By place, in a ring once it is full.
    launches: Vec<Launch>,
    /// The newest place of each entry, and one, as far as that fits; 0 if there is none.
    newest: Vec<u32>,
    len: u64,
    cursor: Option<Position>,
    strays: u32,
}

impl Default for Trail {
    fn default() -> Self {
        Self { launches: Vec::new(), newest: vec![0; 1 << BITS], len: 0, cursor: None, strays: 0 }
    }
}

impl Trail {
    /// A launch was issued.
    pub fn push(&mut self, exec: Option<ExecId>) -> Came {
        let id = exec.map_or(NONE, |exec| exec.0);
        if let Some(lost) = self.lost_before(id) {
            self.append(Launch { id: lost, back: Launch::PRESUMED });
        }
        let now = self.append(Launch { id, back: 0 });
        let (came, cursor) = self.find(now, id);
        self.cursor = cursor;
        self.strays = if came == Came::Astray { self.strays + 1 } else { 0 };
        came
    }

    fn append(&mut self, launch: Launch) -> Position {
        let now = Position(self.len);
        let slot = slot(now);
        match self.launches.get_mut(slot) {
            Some(oldest) => *oldest = launch,
            None => self.launches.push(launch),
        }
        self.len += 1;
        if let Some(entry) = self.entry(now) {
            // Who was there is looked at before it counts, and so it does no harm if it is of another round of these numbers.
            let this = low(self.len);
            let before = std::mem::replace(&mut self.newest[entry], this);
            let back = Some(before).filter(|&before| before > 0).map(|before| this.wrapping_sub(before));
            self.launches[slot].back |= back.filter(|&back| back < Launch::PRESUMED).unwrap_or(0);
        }
        now
    }

    /// The one expected, if only it was left out before this one, and came where it is expected from.
    fn lost_before(&self, id: u32) -> Option<u32> {
        let Position(at) = self.cursor.filter(|_| self.strays == 0)?;
        let [lost, next] = [self.launch(Position(at + 1))?, self.launch(Position(at + 2))?];
        let is_lost = lost.id != id && next.id == id && lost.id != NONE && !lost.is_presumed() && lost.back() > 0;
        is_lost.then_some(lost.id)
    }

    fn find(&self, now: Position, id: u32) -> (Came, Option<Position>) {
        let Some(Position(at)) = self.cursor else { return (Came::Elsewhere, self.most_alike(now)) };
        for left_out in [0, 1, u64::from(self.strays).min(LEFT_OUT)] {
            let next = Position(at + 1 + left_out);
            if next < now && self.id(next) == Some(id) {
                return (Came::Expected { left_out }, Some(next));
            }
        }
        match (self.strays + 1 >= STRAYS).then(|| self.most_alike(now)).flatten() {
            Some(found) if (at + 1..=at + LEFT_OUT).contains(&found.0) => {
                (Came::Expected { left_out: found.0 - at - 1 }, Some(found))
            }
            Some(found) => (Came::Elsewhere, Some(found)),
            None => (Came::Astray, self.cursor),
        }
    }

    /// The place before `now` at which most launches before were the same; the newest of several.
    fn most_alike(&self, now: Position) -> Option<Position> {
        let mut best: Option<(u64, Position)> = None;
        let mut place = now;
        for _ in 0..LOOKS {
            let back = self.launches[slot(place)].back();
            place = Position(place.0.checked_sub(u64::from(back))?);
            if back == 0 || self.id(place).is_none() {
                break;
            }
            let same = self.same(place, now);
            if same >= CONTEXT && best.is_none_or(|(most, _)| same > most) {
                best = Some((same, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// How many launches up to these two were the same.
    fn same(&self, Position(one): Position, Position(other): Position) -> u64 {
        let id = |at: u64, back| at.checked_sub(back).and_then(|at| self.id(Position(at)));
        (0..COMPARED).find(|&back| id(one, back).is_none() || id(one, back) != id(other, back)).unwrap_or(COMPARED)
    }

    /// The table's entry for the launches up to this one.
    fn entry(&self, Position(at): Position) -> Option<usize> {
        let first = at.checked_sub(CONTEXT - 1)?;
        let mix = (first..=at).fold(Mix::new(), |mix, at| mix.word(self.id(Position(at)).unwrap_or(NONE).into()));
        usize::try_from(mix.end() >> (u64::BITS - BITS)).ok()
    }

    fn id(&self, place: Position) -> Option<u32> {
        self.launch(place).map(|launch| launch.id)
    }
    fn launch(&self, place: Position) -> Option<Launch> {
        let is_kept = place.0 < self.len && place.0 + LENGTH >= self.len;
        is_kept.then(|| self.launches[slot(place)])
    }

    /// Where the program is again; nothing if it was not there before.
    pub fn cursor(&self) -> Option<Position> {
        self.cursor
    }

    /// How many launches ago it was there.
    pub fn period(&self) -> Option<u64> {
        self.cursor.map(|Position(at)| self.len - 1 - at)
    }

    /// What came behind a place; behind the last, what came behind the cursor.
    pub fn after(&self, Position(at): Position) -> Option<(Position, ExecId)> {
        let next = if at + 1 < self.len { Position(at + 1) } else { Position(self.cursor?.0 + 1) };
        self.id(next).filter(|&id| id != NONE).map(|id| (next, ExecId(id)))
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.launches.capacity() * size_of::<Launch>() + self.newest.capacity() * size_of::<u32>()
    }

    /// Where the program is now is not known any more.
    pub fn lose(&mut self) {
        self.cursor = None;
        self.strays = 0;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn low(count: u64) -> u32 {
    count as u32
}

fn slot(Position(at): Position) -> usize {
    (at % LENGTH) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(trail: &mut Trail, ids: impl IntoIterator<Item = u32>) -> Vec<Came> {
        ids.into_iter().map(|id| trail.push(Some(ExecId(id)))).collect()
    }

    /// What is expected, so many launches ahead.
    fn ahead(trail: &Trail, count: usize) -> Vec<u32> {
        let first = trail.cursor().and_then(|cursor| trail.after(cursor));
        std::iter::successors(first, |&(place, _)| trail.after(place)).take(count).map(|(_, exec)| exec.0).collect()
    }

    /// A step of which all layers are the same launches, one by one; there are more of them than one way back.
    fn step() -> Vec<u32> {
        let layers = |launches: [u32; 5], count: usize| launches.into_iter().cycle().take(5 * count);
        [0].into_iter().chain(layers([1, 2, 3, 2, 4], 12)).chain([5]).chain(layers([6, 7, 8, 7, 9], 12)).collect()
    }

    #[test]
    fn equal_layers_are_counted() {
        let (mut trail, step) = (Trail::default(), step());
        push(&mut trail, step.iter().copied().chain(step.iter().copied()).chain(step[..20].iter().copied()));
        assert_eq!(trail.period(), Some(step.len() as u64));
        let expected: Vec<u32> = step.iter().copied().cycle().skip(20).take(3 * step.len()).collect();
        assert_eq!(ahead(&trail, expected.len()), expected, "thrice around, from where it is");
    }

    #[test]
    fn launches_left_out_and_strays_change_nothing_of_what_is_expected() {
        let (mut trail, step) = (Trail::default(), (0..50).collect::<Vec<u32>>());
        push(&mut trail, step.iter().copied().chain(0..20));
        let expected = |left_out| Came::Expected { left_out };
        assert_eq!(push(&mut trail, [21, 99, 98, 22]), [expected(1), Came::Astray, Came::Astray, expected(0)]);
        assert_eq!(ahead(&trail, 3), [23, 24, 25]);
        // In the place of three that were expected.
        assert_eq!(push(&mut trail, [97, 96, 95, 26])[3], expected(3));
        assert_eq!(ahead(&trail, 3), [27, 28, 29]);
        // What is nowhere near is looked for by what came before it.
        let came = push(&mut trail, [0, 1, 2, 3]);
        assert_eq!(came, [Came::Astray, Came::Astray, Came::Astray, Came::Elsewhere]);
        assert_eq!(ahead(&trail, 3), [4, 5, 6]);
        let came = push(&mut trail, [9, 10, 11, 12]);
        assert_eq!(came[..3], [Came::Astray; 3]);
        assert_eq!(came[3], expected(8), "4 to 8, and three that came as strays");
    }

    /// In the trail of a step of equal layers, of whose records some are lost, one iteration after the other.
    #[test]
    fn equal_layers_are_counted_where_some_launches_are_lost() {
        let (mut trail, step) = (Trail::default(), step());
        let lost = |n: &usize| n % 37 == 5;
        let (mut expected, mut others) = (0, 0);
        for n in 0..20 * step.len() {
            if lost(&n) {
                continue;
            }
            let came = trail.push(Some(ExecId(step[n % step.len()])));
            if n >= 2 * step.len() {
                expected += usize::from(matches!(came, Came::Expected { .. }));
                others += usize::from(came == Came::Elsewhere);
            }
        }
        assert_eq!(others, 0);
        // Not what was lost twice.
        let came = (2 * step.len()..20 * step.len()).filter(|n| !lost(n)).count();
        assert!(expected * 100 >= 99 * came, "{expected} of {came}");
    }

    #[test]
    fn what_was_left_out_once_is_expected_again_and_what_was_twice_is_not() {
        let (mut trail, step) = (Trail::default(), (0..20).collect::<Vec<u32>>());
        let without = || step.iter().copied().filter(|&id| id != 7);
        push(&mut trail, step.iter().copied().chain(without()).chain(0..7));
        assert_eq!(ahead(&trail, 3), [8, 9, 10], "it came once");
        trail = Trail::default();
        push(&mut trail, step.iter().copied().chain(step.iter().copied()).chain(without()).chain(0..7));
        assert_eq!(ahead(&trail, 3), [7, 8, 9]);
        assert_eq!(trail.period(), Some(20));
        push(&mut trail, without().skip(7).chain(0..7));
        assert_eq!(ahead(&trail, 3), [8, 9, 10]);
        assert_eq!(trail.period(), Some(19));
    }

    #[test]
    fn a_launch_without_an_id_is_expected_by_nobody() {
        let mut trail = Trail::default();
        for _ in 0..2 {
            push(&mut trail, [1, 2, 3, 4]);
            trail.push(None);
            push(&mut trail, [5, 6]);
        }
        push(&mut trail, [1, 2, 3, 4]);
        assert_eq!(ahead(&trail, 5), [0; 0]);
        trail.lose();
        assert_eq!((trail.cursor(), trail.period()), (None, None));
    }

    #[test]
    fn a_full_trail_goes_on_over_the_oldest() {
        let mut trail = Trail::default();
        push(&mut trail, (0..1000).cycle().take(usize::try_from(LENGTH).unwrap() + 2500));
        let at = u32::try_from((LENGTH + 2500) % 1000).unwrap();
        assert_eq!(ahead(&trail, 2), [at, at + 1]);
        assert_eq!(push(&mut trail, [7000])[0], Came::Astray);
        assert_eq!(push(&mut trail, 500..504)[3], Came::Elsewhere);
        assert_eq!(ahead(&trail, 1), [504]);
    }

    /// The rules, over the launches written out.
    fn plainly(ids: &[u32], cursor: Option<usize>, strays: u32) -> (Came, Option<usize>) {
        let (now, id) = (ids.len() - 1, ids[ids.len() - 1]);
        let same = |place: usize| (0..=place).take_while(|&back| ids[place - back] == ids[now - back]).count();
        let best = (0..now).filter(|&place| same(place) >= 4).max_by_key(|&place| (same(place), place));
        let Some(at) = cursor else { return (Came::Elsewhere, best) };
        if let Some(next) =
            [at + 1, at + 2, at + 1 + strays.min(16) as usize].into_iter().find(|&next| next < now && ids[next] == id)
        {
            return (Came::Expected { left_out: (next - at - 1) as u64 }, Some(next));
        }
        match best {
            Some(_) if strays < 2 => (Came::Astray, cursor),
            Some(best) if best > at && best <= at + 16 => {
                (Came::Expected { left_out: (best - at - 1) as u64 }, Some(best))
            }
            Some(best) => (Came::Elsewhere, Some(best)),
            None => (Came::Astray, cursor),
        }
    }

    proptest! {
        #[test]
        fn the_cursor_is_where_the_rules_say(pushed in prop::collection::vec(0u32..3, 1..60)) {
            let (mut trail, mut cursor, mut strays) = (Trail::default(), None, 0);
            let (mut ids, mut presumed): (Vec<u32>, Vec<bool>) = Default::default();
            for id in pushed {
                let followed = cursor.filter(|&at: &usize| strays == 0 && at + 2 < ids.len());
                let context = usize::try_from(CONTEXT).unwrap();
                let came_before = |at: usize| {
                    let now = (at + 1).checked_sub(context).map(|first| &ids[first..=at]);
                    now.is_some_and(|now| ids[..at].windows(context).any(|other| other == now))
                };
                let lost = followed.filter(|&at| ids[at + 1] != id && ids[at + 2] == id && !presumed[at + 1]);
                if let Some(at) = lost.filter(|&at| came_before(at + 1)) {
                    ids.push(ids[at + 1]);
                    presumed.push(true);
                }
                ids.push(id);
                presumed.push(false);
                let (came, place) = plainly(&ids, cursor, strays);
                cursor = place;
                strays = if came == Came::Astray { strays + 1 } else { 0 };
                prop_assert_eq!(trail.push(Some(ExecId(id))), came);
                prop_assert_eq!(trail.cursor(), place.map(|place| Position(place as u64)));
            }
        }
    }
}
