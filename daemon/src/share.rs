//! How programs share a GPU: the rule of `docs/daemon.md`, as a function of what is known at one moment.
//!
//! Problem: users who do not trust each other share a card, each program is greedy, and some of what they say may be a lie.
//!
//! Idea: *filling by weight* ([`fill`]): everybody is poured to in proportion to weight until full, and what the full ones leave
//! goes on to the rest. Applied in turn to floors, to what active programs hold, to what idle ones hold, and to room for
//! growth; between users first, all alike, then between one user's programs by weight. So a user gains nothing
//! by starting more programs, and an idle program has only what no active one needs.
//!
//! The budget is the program's own claim: the whole division is made anew with the memory that each program names, and only
//! its own part is taken from that. So naming another memory changes nobody else's share.
//!
//! Invariants (tests below): shares of programs that agree on the memory never exceed it; nobody gets more than wanted; one alone gets
//! all that it wants; nothing is left over that somebody wants. Not here: when shares are told to workers (`programs`).

use deepum_core::units::{Bytes, UmBlock};
use std::collections::BTreeMap;

/// What every program gets, as far as the budget goes: so that it can run at all.
pub const FLOOR: Bytes = Bytes(64 << 20);
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

/// The share of each claim, in their order.
pub fn shares(claims: &[Claim]) -> Vec<Bytes> {
    // Honest programs agree on the budget, so this is one division almost always.
    let mut by_budget: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let own = |(i, claim): (usize, &Claim)| {
        let total = claim.budget.get();
        let share = by_budget.entry(total).or_insert_with(|| divide(total, claims))[i];
        let most = claim.wanted.get().min(total);
        // Whole blocks, since nothing smaller moves; but what is wanted is given to the byte.
        Bytes(if share >= most { most } else { share - share % UmBlock::SIZE.get() })
    };
    claims.iter().enumerate().map(own).collect()
}

/// Divides `total` among all.
fn divide(total: u64, claims: &[Claim]) -> Vec<u64> {
    let most: Vec<u64> = claims.iter().map(|claim| claim.wanted.get().min(total)).collect();
    let floors: Vec<(u32, u64)> = most.iter().map(|most| (1, FLOOR.get().min(*most))).collect();
    let mut given = fill(total, &floors);
    let held = |i: usize| claims[i].managed.get().saturating_add(STEP - 1) / STEP * STEP;
    for (active, to_grow) in [(true, false), (false, false), (true, true), (false, true)] {
        let left = total - given.iter().sum::<u64>();
        let need = |i: usize| {
            let up_to = if to_grow { most[i] } else { held(i).min(most[i]) };
            if claims[i].active == active { up_to.saturating_sub(given[i]) } else { 0 }
        };
        let needs: Vec<u64> = (0..claims.len()).map(need).collect();
        for (given, more) in given.iter_mut().zip(between_users(left, claims, &needs)) {
            *given += more;
        }
    }
    given
}

/// Users alike, then each user's programs by weight.
fn between_users(total: u64, claims: &[Claim], needs: &[u64]) -> Vec<u64> {
    let mut users: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, claim) in claims.iter().enumerate() {
        users.entry(claim.user).or_default().push(i);
    }
    let of_users: Vec<(u32, u64)> =
        users.values().map(|own| (1, own.iter().fold(0u64, |sum, i| sum.saturating_add(needs[*i])))).collect();
    let mut given = vec![0; claims.len()];
    for (own, part) in users.values().zip(fill(total, &of_users)) {
        let parties: Vec<(u32, u64)> = own.iter().map(|i| (claims[*i].weight.max(1), needs[*i])).collect();
        for (i, share) in own.iter().zip(fill(part, &parties)) {
            given[*i] = share;
        }
    }
    given
}

/// Pours `total` to parties (weight, need) in proportion to weight; who is full leaves the rest to the others. Nobody gets
/// more than needed, and nothing is kept back while somebody needs it.
pub fn fill(total: u64, parties: &[(u32, u64)]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..parties.len()).collect();
    // Who is full first comes first: then what is left at each step is what all behind are entitled to.
    order.sort_by_key(|i| {
        let (weight, need) = parties[*i];
        (u128::from(need) << 32) / u128::from(weight.max(1))
    });
    let mut weights: u128 = parties.iter().map(|(weight, _)| u128::from((*weight).max(1))).sum();
    let mut left = total;
    let mut given = vec![0; parties.len()];
    for i in order {
        let (weight, need) = parties[i];
        let weight = u128::from(weight.max(1));
        // At most `left`, since the weight is one of those summed up.
        let part = u64::try_from(u128::from(left) * weight / weights).unwrap_or(left);
        given[i] = need.min(part);
        left -= given[i];
        weights -= weight;
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

    fn gib(shares: &[Bytes]) -> Vec<f64> {
        shares.iter().map(|b| (b.get() as f64 / GIB as f64 * 10.0).round() / 10.0).collect()
    }

    #[test]
    fn by_weight_within_a_user_and_alike_between_users() {
        let hungry = |user, weight| claim(user, weight, 40 * GIB, true);
        assert_eq!(gib(&shares(&[hungry(1, 1), hungry(1, 1)])), [8.0, 8.0]);
        assert_eq!(gib(&shares(&[hungry(1, 3), hungry(1, 1)])), [12.0, 4.0]);
        // User 2 has one program, user 1 three: 15.75 GiB beyond the floors, 7.875 for each user, 1.97 for each weight of user 1.
        let four = shares(&[hungry(1, 1), hungry(1, 1), hungry(2, 100), hungry(1, 2)]);
        assert_eq!(four.iter().map(|b| b.get() >> 20).collect::<Vec<_>>(), [2080, 2080, 8128, 4096]);
    }

    #[test]
    fn what_one_does_not_need_the_others_get_and_the_idle_come_last() {
        let small = claim(1, 1, 2 * GIB, true);
        let big = claim(2, 1, 40 * GIB, true);
        assert_eq!(gib(&shares(&[small, big])), [2.0, 14.0]);
        let idle = claim(3, 100, 40 * GIB, false);
        assert_eq!(shares(&[small, big, idle])[2], FLOOR);
        // Two that need 2 GiB each leave 12 to the idle one.
        assert_eq!(gib(&shares(&[small, small, idle])), [2.0, 2.0, 12.0]);
        // Where there is room for all, the active grow first.
        let resting = claim(3, 1, 4 * GIB, false);
        assert_eq!(gib(&shares(&[small, resting])), [12.0, 4.0]);
    }

    #[test]
    fn a_card_too_small_for_all_floors_is_divided_alike() {
        let tiny = |user| Claim { budget: Bytes(100 << 20), ..claim(user, 1, GIB, true) };
        let shares = shares(&[tiny(1), tiny(1), tiny(2), tiny(3)]);
        assert_eq!(shares, [Bytes(24 << 20); 4], "25 MiB each, in whole blocks");
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
            // What rounding loses is less than a block and a byte for each.
            prop_assert!(sum + claims.len() as u64 * (UmBlock::SIZE.get() + 8) >= total.min(wanted));
            for (claim, share) in claims.iter().zip(&shares) {
                prop_assert!(*share <= claim.wanted);
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

        /// Whatever one program says of the memory, the others' shares stay.
        #[test]
        fn a_lie_about_the_memory_changes_nobody_elses_share(claims in claims(), who: prop::sample::Index, lie in 1u64..u64::MAX) {
            let mut lied = claims.clone();
            let who = who.index(claims.len());
            lied[who].budget = Bytes(lie);
            let (before, after) = (shares(&claims), shares(&lied));
            for i in (0..claims.len()).filter(|i| *i != who) {
                prop_assert_eq!(before[i], after[i]);
            }
        }

        /// A user's part does not depend on how many programs it is spread over, but for the floors.
        #[test]
        fn more_programs_are_no_more_memory(count in 1usize..10, weight in 1u32..100) {
            let other = claim(1, 1, 40 * GIB, true);
            let mut claims = vec![claim(2, weight, 40 * GIB, true); count];
            claims.push(other);
            let share = shares(&claims)[count].get();
            let floors = count as u64 * FLOOR.get();
            prop_assert!(share + floors + UmBlock::SIZE.get() >= 8 * GIB, "{}", share);
        }

        #[test]
        fn filling_is_fair(total in 0u64..1000, parties in prop::collection::vec((1u32..10, 0u64..300), 1..8)) {
            let given = fill(total, &parties);
            let sum: u64 = given.iter().sum();
            let needed: u64 = parties.iter().map(|p| p.1).sum();
            prop_assert!(sum <= total);
            prop_assert!(sum + parties.len() as u64 > total.min(needed));
            // Who is not full has no less for its weight than anybody, but for one unit of rounding.
            for (i, (weight, need)) in parties.iter().enumerate().filter(|(i, p)| given[*i] < p.1) {
                let _ = need;
                for (j, (other, _)) in parties.iter().enumerate() {
                    prop_assert!((given[i] + 1) * u64::from(*other) + u64::from(*weight) * 8 >= given[j] * u64::from(*weight));
                }
            }
        }
    }
}
