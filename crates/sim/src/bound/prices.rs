//! What is proven: whatever the prices, no schedule is faster than they say.
//!
//! A schedule pays a price for every byte that it moves, by step and direction; and earns one at the beginning of each step for every byte that is
//! away then. Two things are known of every schedule: a step lasts as long as its kernels and as its bytes of either direction, so also
//! as long as any mean of the three; and at the beginning of each step no more than the capacity is on the GPU, so the rest of what lives is away.
//! The first turns bytes into time, the second what is away into bytes. What remains is what the bytes of a version do
//! at best, one by one ([`Prices::best`]), and that needs no search. The proof is `docs/bound.md`.
//!
//! Invariants: any prices at all give a true bound, the best ones the tightest; all is integers, rounded so that the bound can
//! only get lower. Prices are fixed point, [`ONE`] being one nanosecond (for a byte).

use super::Limits;
use super::steps::{Away, Steps, Story, Version};
use crate::tiers::Rate;
use deepum_core::units::Nanos;

/// A nanosecond, or one per byte.
const ONE: u64 = 1 << 40;
/// A second: what a step's moves pay for may not be more, for each second of it.
const SECOND: u128 = ONE as u128 * 1_000_000_000;
/// No price of a move is higher: with it, and with those of what is away at all beginnings together, sums stay far inside 64 bits.
const MOST: u64 = 1 << 58;

/// Shares of time, by step, as somebody wishes them.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// Of each step's time, how much is accounted for by bytes off the GPU: 0 to 1.
    pub out: Vec<f64>,
    /// By bytes onto the GPU: 0 to 1; with `out` at most 1.
    pub into: Vec<f64>,
    /// What a byte away at the beginning of each step earns, in nanoseconds.
    pub room: Vec<f64>,
}

impl Wish {
    /// Prices of 0.
    pub fn nothing(steps: usize) -> Self {
        Self { out: vec![0.0; steps], into: vec![0.0; steps], room: vec![0.0; steps] }
    }
}

/// Prices that keep the rules.
#[derive(Debug)]
pub(super) struct Prices {
    /// Of a byte moved off the GPU, by step.
    out: Vec<i64>,
    /// Of a byte moved onto it.
    into: Vec<i64>,
    /// How much of each nanosecond of the steps these pay for; at most `ONE`.
    paid: Vec<i128>,
    /// What a byte away at the beginning of each step earns.
    room: Vec<i64>,
    /// What one earns that is away at the beginnings of all steps before this one, through two iterations.
    before: Vec<i64>,
}

impl Prices {
    /// As wished, as far as the rules allow: none negative, and what both directions pay for is at most the step's time.
    pub fn new(wish: &Wish, limits: &Limits) -> Self {
        let steps = wish.room.len();
        let (mut out, mut into, mut paid) = (Vec::new(), Vec::new(), Vec::new());
        for (&off, &on) in wish.out.iter().zip(&wish.into) {
            let mut left = SECOND;
            out.push(per_byte(off, limits.d2h, &mut left));
            into.push(per_byte(on, limits.h2d, &mut left));
            paid.push((SECOND - left).div_ceil(1_000_000_000) as i128);
        }
        let most = MOST / steps as u64;
        let room: Vec<_> = wish.room.iter().map(|&ns| fixed(ns * ONE as f64).min(most).cast_signed()).collect();
        let mut before = vec![0];
        for step in 0..2 * steps {
            before.push(before[step] + room[step % steps]);
        }
        Self { out, into, paid, room, before }
    }

    /// The bound that these prices prove, and for each version what its bytes do at best.
    pub fn bound(&self, steps: &Steps, limits: &Limits) -> (Nanos, Vec<Story>) {
        let time = steps.times.iter().zip(&self.paid).map(|(time, paid)| i128::from(time.0) * (i128::from(ONE) - paid));
        let room = steps.live.iter().zip(&self.room);
        let room =
            room.map(|(live, &earned)| (i128::from(live.0) - i128::from(limits.capacity.0)) * i128::from(earned));
        let mut total: i128 = time.chain(room).sum();
        let mut stories = Vec::with_capacity(steps.versions.len());
        for (version, bytes) in &steps.versions {
            let (pays, story) = self.best(version);
            total += i128::from(pays) * i128::from(bytes.0);
            stories.push(story);
        }
        let whole = total.max(0) / i128::from(ONE);
        (Nanos(u64::try_from(whole).unwrap_or(u64::MAX)), stories)
    }

    /// The least that a byte of this version can pay, less what it earns; and how.
    ///
    /// Backwards: a byte whose copy is there takes from each idle time the best that it offers, on its own. From the one in which the copy is
    /// made it takes what is left of it then. One from which nothing comes back it takes to its end.
    fn best(&self, version: &Version) -> (i64, Story) {
        let steps = self.room.len();
        let (mut least, mut story) = (0i64, (None, None, 0));
        let (mut later, mut aways) = (0, Vec::new());
        for (number, idle) in version.idles.iter().enumerate().rev() {
            let begin = if number == 0 { version.copied } else { Some(version.idles[number - 1].to + 1) };
            let begin = begin.unwrap_or(idle.from).min(idle.from);
            let mut fetch = (!idle.returns).then(|| (-self.before[idle.to + 1], idle.to));
            let (mut pays, mut away) = (0, None);
            for step in (begin..=idle.to).rev() {
                if step >= idle.from {
                    (pays, away) = match fetch {
                        Some((price, last)) if price + self.before[step + 1] < 0 => {
                            let away = Away { first: step + 1, last, returns: idle.returns };
                            (price + self.before[step + 1], Some(away))
                        }
                        _ => (0, None),
                    };
                    let price = self.into[step % steps] - self.before[step + 1];
                    if idle.returns && fetch.is_none_or(|(least, _)| price < least) {
                        fetch = Some((price, step));
                    }
                }
                let all = self.out[step % steps] + pays + later;
                if version.copied.is_some() && all < least {
                    (least, story) = (all, (Some(step), away, aways.len()));
                }
            }
            later += pays;
            aways.push(away);
        }
        if version.copied.is_none() {
            (least, story) = (later, (None, None, aways.len()));
        }
        let (copied, away, known) = story;
        let away = away.into_iter().chain(aways[..known].iter().rev().copied().flatten()).collect();
        (least, Story { copied, away })
    }
}

/// What a byte pays that moves at this rate and accounts for this share of the time, if as much of a second is left.
fn per_byte(share: f64, rate: Rate, left: &mut u128) -> i64 {
    let rate = u128::from(rate.0);
    let wished = share * SECOND as f64 / rate as f64;
    let price = fixed(wished).min(MOST).min(u64::try_from(*left / rate).unwrap_or(u64::MAX));
    *left -= u128::from(price) * rate;
    price.cast_signed()
}

/// Rounded down; nothing for what is negative or not a number.
#[expect(clippy::cast_possible_truncation, reason = "saturates, and the callers have a limit")]
fn fixed(value: f64) -> u64 {
    value as u64
}
