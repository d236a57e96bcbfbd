//! The largest batch that trains: a bisection over runs of two iterations, the second of which has the optimizer's state.
//!
//! Memory grows evenly with the batch, so the next guess is where the line through what two runs needed meets what the host
//! has; after a few such guesses the interval is halved, so that a wrong line costs little. A search that is told where another one
//! ended tries that answer and the batch above it first: where they hold, it is over.

use crate::rows::Outcome;
use crate::runs::Measured;
use anyhow::{Result, bail};

/// No batch is larger.
const MOST: u32 = 1 << 24;

/// The largest batch that trains; the next larger one on the grid does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub largest: u32,
    pub refused: u32,
}

/// Asks `probe` for runs until the answer is known to `step` samples: of the batches `first`, as far as they are still open, before
/// all others. `room`: bytes of host memory.
pub fn largest(step: u32, first: &[u32], room: f64, probe: &mut dyn FnMut(u32) -> Result<Measured>) -> Result<Found> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "clamped to what fits, and the part after the point is not on the grid"
    )]
    let on_grid = |batch: f64| ((batch / f64::from(step)).clamp(1.0, f64::from(MOST / step)) as u32) * step;
    let mut fits: Vec<(u32, f64)> = Vec::new();
    let mut refused: Option<u32> = None;
    let mut first = first.iter().map(|&batch| on_grid(f64::from(batch)));
    let mut next = first.next().unwrap_or(step);
    let mut guesses = 0;
    loop {
        let measured = probe(next)?;
        match measured.outcome {
            Outcome::Ok => fits.push((next, measured.peak_managed as f64)),
            Outcome::OutOfMemory => refused = Some(refused.map_or(next, |r: u32| r.min(next))),
            Outcome::Failed => bail!("batch {next}: {}", measured.words),
        }
        fits.sort_unstable_by_key(|(batch, _)| *batch);
        let low = fits.last().map_or(0, |(batch, _)| *batch);
        if refused.is_none() && low >= MOST / step * step {
            bail!("a batch of {low} trains, and a larger one is not tried");
        }
        let high = refused.unwrap_or(MOST + 1);
        if refused.is_some() && high - low <= step {
            if low == 0 {
                bail!("not even a batch of {high} trains");
            }
            return Ok(Found { largest: low, refused: high });
        }
        if let Some(batch) = first.find(|batch| (low + 1..high).contains(batch)) {
            next = batch;
            continue;
        }
        let middle = match refused {
            Some(high) => on_grid(f64::from(low) + f64::from(high - low) / 2.0),
            None => low * 2,
        };
        // Aimed a little above and a little below in turn, so that the answer ends up between two of them.
        let aimed =
            line(&fits).map(|(base, each)| on_grid((room - base) / each) + if guesses % 2 == 1 { step } else { 0 });
        guesses += 1;
        next = aimed.filter(|_| guesses <= 4).unwrap_or(middle).clamp(low + step, (high - 1) / step * step);
        if next == 0 || next <= low || next >= high {
            next = (low + step).min(high - 1);
        }
    }
}

/// The line through the two largest batches that fit: bytes without any sample, and for each. One batch alone makes it one through
/// the origin.
fn line(fits: &[(u32, f64)]) -> Option<(f64, f64)> {
    let (b, y) = *fits.last()?;
    let (a, x) = if fits.len() > 1 { fits[fits.len() - 2] } else { (0, 0.0) };
    let each = (y - x) / f64::from(b - a);
    (each > 0.0).then(|| (y - each * f64::from(b), each))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that needs `base` and `each` for every sample, in a host of 1,000.
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    fn search(first: &[u32], step: u32, base: f64, each: f64) -> (Result<Found>, Vec<u32>) {
        let mut asked = Vec::new();
        let found = largest(step, first, 1000.0, &mut |batch| {
            asked.push(batch);
            let needs = base + each * f64::from(batch);
            let outcome = if needs <= 1000.0 { Outcome::Ok } else { Outcome::OutOfMemory };
            Ok(Measured { outcome, peak_managed: needs as u64, ..Measured::default() })
        });
        (found, asked)
    }

    #[test]
    fn the_answer_is_the_last_on_the_grid_that_fits() {
        for (first, step, base, each) in [
            (3, 1, 100.0, 50.0),
            (16, 1, 0.0, 10.0),
            (64, 8, 300.0, 1.5),
            (1, 1, 900.0, 7.0),
            (500, 100, 10.0, 0.25),
            (7, 2, 1.0, 3.0),
        ] {
            let (found, asked) = search(&[first], step, base, each);
            let found = found.unwrap();
            let case = format!("{first} {step} {base} {each}: {found:?} {asked:?}");
            assert!(base + each * f64::from(found.largest) <= 1000.0, "{case}");
            assert!(base + each * f64::from(found.refused) > 1000.0, "{case}");
            assert!(found.refused - found.largest <= step, "{case}");
            assert!(asked.len() <= 8, "{case}");
            let mut once = asked.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), asked.len(), "no batch is tried twice: {case}");
            let (again, asked) = search(&[found.largest, found.refused], step, base, each);
            assert_eq!((again.unwrap(), asked), (found, vec![found.largest, found.refused]), "{case}");
        }
    }

    #[test]
    fn a_search_that_is_told_wrong_finds_the_answer_all_the_same() {
        for told in [[10, 11], [17, 18], [19, 20], [20, 21], [60, 61], [1, 0]] {
            let (found, asked) = search(&told, 1, 0.0, 50.0);
            assert_eq!(found.unwrap(), Found { largest: 20, refused: 21 }, "{told:?}: {asked:?}");
        }
    }

    #[test]
    fn what_was_never_tried_is_not_claimed_to_be_refused() {
        for step in [1, 100] {
            let (found, asked) = search(&[4], step, 0.0, 0.0);
            assert!(found.unwrap_err().to_string().contains("a larger one is not tried"), "{step}: {asked:?}");
        }
        let (found, _) = search(&[MOST], 1, 0.0, 1000.0 / f64::from(MOST - 1));
        assert_eq!(found.unwrap(), Found { largest: MOST - 1, refused: MOST });
    }

    #[test]
    fn a_network_that_never_fits_is_said_so() {
        let (found, _) = search(&[4], 1, 2000.0, 1.0);
        assert!(found.unwrap_err().to_string().contains("not even a batch of 1"));
    }
}
