//! How programs share a GPU: the rule of `docs/daemon.md`, as a function of what is known at one moment.
//!
//! Problem: users who do not trust each other share a card, each program is greedy, and some of what they say may be a lie.
//!
//! Idea: *filling to a level* ([`fill`]): like water into vessels as wide as their weights. Who is full takes no more, who has more than
//! the level keeps it, and everybody else ends as high as the others. In turn: floors, what active programs hold, what
//! idle ones hold, room for growth. Each time users are filled first, all alike, and then one user's programs by weight. What a user
//! has from an earlier turn counts, and floors are a part of the budget that is divided between users first ([`floors`]). So a
//! user gains nothing by starting more programs, and an idle program has only what no active one needs.
//!
//! The budget is each user's own claim ([`budget`]): the whole division is made anew with the memory that a user's programs name, and
//! only that user's part is taken from it. So naming another memory changes no other user's share, and costs one
//! division more at most, however many programs name however many memories.
//!
//! Invariants (tests below): shares of users that agree on the memory never exceed it; nobody gets more than wanted; one alone gets
//! all that it wants; nothing is left over that somebody wants. Not here: when shares are told to workers (`programs`).

use deepum_core::units::{Bytes, UmBlock};
use std::collections::BTreeMap;

/// What every program gets, as far as the part for floors goes: so that it can run at all.
pub const FLOOR: Bytes = Bytes(64 << 20);
/// All floors together have the budget divided by this.
const FLOORS: u64 = 4;
/// What a program holds is rounded up to this, so that shares do not move with every allocation.
const STEP: u64 = 64 << 20;

/// A program at one GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Whose it is.
    pub user: u32,
    /// Its part among its user's programs; 1 or more.
    pub weight: u32,
    /// What there is to share, by this program's account.
    pub budget: Bytes,
    /// What it wants at most.
    pub wanted: Bytes,
    /// What it holds, on the GPU or not.
    pub managed: Bytes,
    /// Whether it has launched lately.
    pub active: bool,
}

/// What there is to share, by a user's account: the least that its programs say. Zero for a user without programs.
pub fn budget(claims: &[Claim], user: u32) -> Bytes {
    claims.iter().filter(|claim| claim.user == user).map(|claim| claim.budget).min().unwrap_or_default()
}

/// The share of each claim, in their order.
pub fn shares(claims: &[Claim]) -> Vec<Bytes> {
    let users = by_user(claims);
    let mut shares = vec![Bytes::ZERO; claims.len()];
    // Honest users agree on the budget, so this is one division almost always.
    let mut divided: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (user, own) in &users {
        let total = budget(claims, *user).get();
        let division = divided.entry(total).or_insert_with(|| divide(total, claims, &users));
        for i in own {
            let most = claims[*i].wanted.get().min(total);
            // What is wanted is given to the byte.
            shares[*i] = if division[*i] >= most { Bytes(most) } else { whole_blocks(Bytes(division[*i])) };
        }
    }
    shares
}

/// What claim `i` has in any case. Never more than its share.
pub fn floor(claims: &[Claim], i: usize) -> Bytes {
    let total = budget(claims, claims[i].user).get();
    whole_blocks(Bytes(floors(total, claims, &by_user(claims))[i]))
}

/// Nothing smaller than a block moves.
pub fn whole_blocks(bytes: Bytes) -> Bytes {
    Bytes(bytes.get() - bytes.get() % UmBlock::SIZE.get())
}

/// The claims of each user.
fn by_user(claims: &[Claim]) -> BTreeMap<u32, Vec<usize>> {
    let mut users: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, claim) in claims.iter().enumerate() {
        users.entry(claim.user).or_default().push(i);
    }
    users
}

/// Divides `total` among all.
fn divide(total: u64, claims: &[Claim], users: &BTreeMap<u32, Vec<usize>>) -> Vec<u64> {
    let mut given = floors(total, claims, users);
    for (active, to_grow) in [(true, false), (false, false), (true, true), (false, true)] {
        let up_to = |i: usize| {
            let held = claims[i].managed.get().saturating_add(STEP - 1) / STEP * STEP;
            let most = claims[i].wanted.get().min(total);
            let wants = if to_grow { most } else { held.min(most) };
            if claims[i].active == active { wants.max(given[i]) } else { given[i] }
        };
        let up_to: Vec<u64> = (0..claims.len()).map(up_to).collect();
        let sum = |own: &[usize], of: &[u64]| own.iter().fold(0u64, |sum, i| sum.saturating_add(of[*i]));
        let alike = |own: &Vec<usize>| Party { weight: 1, has: sum(own, &given), most: sum(own, &up_to) };
        let parts = fill(total, &users.values().map(alike).collect::<Vec<_>>());
        for (own, part) in users.values().zip(parts) {
            let by_weight = |i: &usize| Party { weight: claims[*i].weight.max(1), has: given[*i], most: up_to[*i] };
            let shares = fill(part, &own.iter().map(by_weight).collect::<Vec<_>>());
            for (i, share) in own.iter().zip(shares) {
                given[*i] = share;
            }
        }
    }
    given
}

/// The floors: users have equal parts for theirs, whether they need them or not, and a user's programs are alike. So a crowd of one
/// user's makes the floors of this user smaller, and never has more than other users may come to.
fn floors(total: u64, claims: &[Claim], users: &BTreeMap<u32, Vec<usize>>) -> Vec<u64> {
    let mut floors = vec![0; claims.len()];
    let of_user = total / FLOORS / users.len().max(1) as u64;
    for own in users.values() {
        let alike = |i: &usize| Party { weight: 1, has: 0, most: FLOOR.min(claims[*i].wanted).get().min(total) };
        for (i, floor) in own.iter().zip(fill(of_user, &own.iter().map(alike).collect::<Vec<_>>())) {
            floors[*i] = floor;
        }
    }
    floors
}

/// Who is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Party {
    /// How wide it is; 1 or more.
    pub weight: u32,
    /// What it has and keeps.
    pub has: u64,
    /// What it takes at most; not less than it has.
    pub most: u64,
}

/// Fills all parties to one level, so that together they have `total`: at that level a party has as much for its weight as any other,
/// but who has more from before keeps that, and who is full below it has no more. Nothing is kept back while somebody takes it, but
/// less than a byte for each. What all have must not be more than `total`.
pub fn fill(total: u64, parties: &[Party]) -> Vec<u64> {
    let mut given: Vec<u64> = parties.iter().map(|party| party.has).collect();
    // The levels at which a party begins to take and ends, as fractions: bytes for so much weight.
    let takes = parties.iter().enumerate().filter(|(_, party)| party.has < party.most);
    let mut turns: Vec<(u64, u32, usize)> =
        takes.flat_map(|(i, party)| [(party.has, party.weight, i), (party.most, party.weight, i)]).collect();
    turns.sort_by(|(a, of_a, _), (b, of_b, _)| {
        (u128::from(*a) * u128::from(*of_b)).cmp(&(u128::from(*b) * u128::from(*of_a)))
    });
    // Those that take, and what they have together, from before and now.
    let mut taking = vec![false; parties.len()];
    let mut weights: u128 = 0;
    let mut pot = total.saturating_sub(given.iter().sum());
    for (level, weight, i) in turns {
        let (party, width) = (parties[i], u128::from(weight));
        if weights * u128::from(level) > u128::from(pot) * width {
            break;
        }
        if taking[i] {
            (pot, weights, given[i]) = (pot - party.most, weights - width, party.most);
        } else {
            (pot, weights) = (pot + party.has, weights + width);
        }
        taking[i] = !taking[i];
    }
    for i in (0..parties.len()).filter(|i| taking[*i]) {
        // Less than the pot, since the weight is one of those summed up.
        given[i] = u64::try_from(u128::from(pot) * u128::from(parties[i].weight) / weights).unwrap_or(given[i]);
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn claim(user: u32, weight: u32, managed: u64, active: bool) -> Claim {
        Claim { user, weight, budget: Bytes(16 * GIB), wanted: Bytes(16 * GIB), managed: Bytes(managed), active }
    }

    fn mib(shares: &[Bytes]) -> Vec<u64> {
        shares.iter().map(|b| b.get() >> 20).collect()
    }

    #[test]
    fn by_weight_within_a_user_and_alike_between_users() {
        let hungry = |user, weight| claim(user, weight, 40 * GIB, true);
        assert_eq!(mib(&shares(&[hungry(1, 1), hungry(1, 1)])), [8192, 8192]);
        assert_eq!(mib(&shares(&[hungry(1, 3), hungry(1, 1)])), [12_288, 4096]);
        // User 2 has one program, user 1 three: 8 GiB for each user, 2 for each weight of user 1.
        let four = shares(&[hungry(1, 1), hungry(1, 1), hungry(2, 100), hungry(1, 2)]);
        assert_eq!(mib(&four), [2048, 2048, 8192, 4096]);
    }

    #[test]
    fn what_one_does_not_need_the_others_get_and_the_idle_come_last() {
        let small = claim(1, 1, 2 * GIB, true);
        let big = claim(2, 1, 40 * GIB, true);
        assert_eq!(mib(&shares(&[small, big])), [2048, 14_336]);
        let idle = claim(3, 100, 40 * GIB, false);
        assert_eq!(shares(&[small, big, idle])[2], FLOOR);
        // Two that need 2 GiB each leave 12 to the idle one.
        assert_eq!(mib(&shares(&[small, small, idle])), [2048, 2048, 12_288]);
        // Where there is room for all, the active grow first, and to one level: not by what they hold.
        let resting = claim(3, 1, 4 * GIB, false);
        assert_eq!(mib(&shares(&[small, resting])), [12_288, 4096]);
        assert_eq!(mib(&shares(&[small, claim(2, 1, 4 * GIB, true)])), [8192, 8192]);
    }

    #[test]
    fn floors_are_a_part_of_the_budget_and_divided_between_users_first() {
        let idle = |user| claim(user, 1, 0, false);
        let all = |claims: &[Claim]| (0..claims.len()).map(|i| floor(claims, i).get() >> 20).collect::<Vec<_>>();
        assert_eq!(all(&[idle(1), idle(1), idle(2)]), [64, 64, 64]);
        // A quarter of 16 GiB, half of it for each user: 20.48 MiB for each of a hundred.
        let mut crowd = vec![idle(1); 100];
        crowd.push(idle(2));
        let floors = all(&crowd);
        assert!(floors[..100].iter().all(|floor| *floor == 20) && floors[100] == 64, "{floors:?}");
        let tiny = |user| Claim { budget: Bytes(100 << 20), ..idle(user) };
        assert_eq!(all(&[tiny(1), tiny(1), tiny(2), tiny(3)]), [4, 4, 8, 8], "a third of 25 MiB, in whole blocks");
    }

    #[test]
    fn a_card_too_small_for_all_is_divided_between_users() {
        let tiny = |user| Claim { budget: Bytes(100 << 20), ..claim(user, 1, GIB, true) };
        assert_eq!(mib(&shares(&[tiny(1), tiny(1), tiny(2), tiny(3)])), [16, 16, 32, 32]);
    }

    /// So what a user can make us compute is one division.
    #[test]
    fn a_users_programs_are_believed_the_least_memory_that_one_of_them_names() {
        let says = |user, gib: u64| Claim { budget: Bytes(gib * GIB), ..claim(user, 1, 40 * GIB, true) };
        assert_eq!(mib(&shares(&[says(1, 64), says(1, 8), says(2, 16)])), [2048, 2048, 8192]);
        let liars: Vec<Claim> = (8..72).map(|gib| says(1, gib)).collect();
        assert!(shares(&liars).iter().all(|share| share.get() == 8 * GIB / 64));
        assert_eq!((budget(&liars, 1).get(), budget(&liars, 2)), (8 * GIB, Bytes::ZERO));
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let one = (0u32..4, 1u32..100, 0u64..40 * GIB, 1u64..20 * GIB, any::<bool>());
        prop::collection::vec(one, 1..12).prop_map(|all| {
            let claim = |(user, weight, managed, wanted, active)| Claim {
                wanted: Bytes(wanted),
                ..claim(user, weight, managed, active)
            };
            all.into_iter().map(claim).collect()
        })
    }

    proptest! {
        #[test]
        fn never_more_than_there_is_nor_than_is_wanted_and_nothing_is_kept_back(claims in claims()) {
            let shares = shares(&claims);
            let total = 16 * GIB;
            let sum: u64 = shares.iter().map(|b| b.get()).sum();
            let wanted: u64 = claims.iter().map(|c| c.wanted.get().min(total)).sum();
            prop_assert!(sum <= total);
            // What rounding loses is less than a block and a few bytes for each.
            prop_assert!(sum + claims.len() as u64 * (UmBlock::SIZE.get() + 8) >= total.min(wanted));
            for (i, (claim, share)) in claims.iter().zip(&shares).enumerate() {
                prop_assert!(*share <= claim.wanted && floor(&claims, i) <= *share);
            }
        }

        #[test]
        fn an_idle_program_has_more_than_its_floor_only_where_every_active_one_has_what_it_holds(claims in claims()) {
            let shares = shares(&claims);
            let slack = 16 * UmBlock::SIZE.get();
            let idle_has = claims.iter().zip(&shares).any(|(c, s)| !c.active && s.get() > FLOOR.get() + slack);
            for (claim, share) in claims.iter().zip(&shares).filter(|(c, _)| c.active && idle_has) {
                prop_assert!(share.get() + slack >= claim.managed.min(claim.wanted).min(Bytes(16 * GIB)).get());
            }
        }

        #[test]
        fn one_alone_gets_what_it_wants(claim in claims().prop_map(|claims| claims[0])) {
            prop_assert_eq!(shares(&[claim])[0], claim.wanted.min(claim.budget));
        }

        /// Whatever one program says of the memory, the shares of other users stay.
        #[test]
        fn a_lie_about_the_memory_changes_no_other_users_share(claims in claims(), who: prop::sample::Index, lie in 1u64..u64::MAX) {
            let mut lied = claims.clone();
            let who = who.index(claims.len());
            lied[who].budget = Bytes(lie);
            let (before, after) = (shares(&claims), shares(&lied));
            for i in (0..claims.len()).filter(|i| claims[*i].user != claims[who].user) {
                prop_assert_eq!(before[i], after[i]);
            }
        }

        /// A user's part does not depend on how many programs it is spread over.
        #[test]
        fn more_programs_are_no_more_memory(busy in 1usize..64, resting in 0usize..64, weight in 1u32..100) {
            let mut claims = vec![claim(2, weight, 40 * GIB, true); busy];
            claims.extend(vec![claim(2, weight, 40 * GIB, false); resting]);
            claims.push(claim(1, 1, 40 * GIB, true));
            let share = shares(&claims)[claims.len() - 1].get();
            prop_assert!(share + UmBlock::SIZE.get() >= 8 * GIB, "{}", share);
        }

        #[test]
        fn filling_is_fair(more in 0u64..1000, parties in prop::collection::vec((1u32..10, 0u64..100, 0u64..300), 1..8)) {
            let party = |(weight, has, room)| Party { weight, has, most: has + room };
            let parties: Vec<Party> = parties.into_iter().map(party).collect();
            let total = more + parties.iter().map(|p| p.has).sum::<u64>();
            let given = fill(total, &parties);
            let sum: u64 = given.iter().sum();
            let most: u64 = parties.iter().map(|p| p.most).sum();
            prop_assert!(sum <= total && sum + parties.len() as u64 > total.min(most));
            for (own, party) in given.iter().zip(&parties) {
                prop_assert!(party.has <= *own && *own <= party.most);
                // Who was given anything has no more for its weight than who could take more, but for a byte.
                for (other, rival) in given.iter().zip(&parties).filter(|(other, rival)| **other > rival.has && *own < party.most) {
                    prop_assert!(other * u64::from(party.weight) <= (own + 1) * u64::from(rival.weight));
                }
            }
        }
    }
}
