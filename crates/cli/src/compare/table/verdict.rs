//! What `horizon` is held to, and where it falls short.

use super::manifest::Target;
use super::plan::Point;
use crate::runs::{Made, Mode};

/// One point, judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    pub of_ideal: f64,
    /// None where no bound can be stated.
    pub of_bound: Option<f64>,
    /// How many times as fast as `deepum`; none where that did not come to its end.
    pub over_deepum: Option<f64>,
    /// Whether it is near enough to the ideal or to the bound.
    pub near: bool,
    /// Whether it is ahead of `deepum`.
    pub ahead: bool,
}

impl Verdict {
    /// Of `horizon`, with one copy or two; none where it did not come to its end.
    pub fn of(mode: Mode, point: &Point<'_>, made: &Made, target: Target) -> Option<Self> {
        let seconds = |mode| point.row(mode, made)?.seconds;
        let own: f64 = seconds(mode)?;
        let of_ideal = point.ideal / own;
        let of_bound = point.bound(made).map(|bound| bound / own);
        let over_deepum = seconds(Mode::DeepUm).map(|deepum| deepum / own);
        Some(Self {
            of_ideal,
            of_bound,
            over_deepum,
            near: of_ideal >= target.of_ideal || of_bound.is_some_and(|share| share >= target.of_bound),
            // Where `deepum` does not get through at all, whoever does is ahead.
            ahead: over_deepum.is_none_or(|times| times > 1.0),
        })
    }

    /// Whether the target is met.
    pub fn held(&self) -> bool {
        self.near && self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::runs::Measured;

    #[test]
    fn near_the_ideal_or_the_bound_and_ahead_of_deepum() {
        let manifest = plan::tests::manifest();
        let mut made = plan::tests::needs(&manifest);
        let points = plan::points(&manifest, &made);
        let target = Target { of_ideal: 0.9, of_bound: 0.95 };
        let mut judged = |bound: f64, deepum: Option<f64>, horizon: Option<f64>| {
            let seconds = |seconds| Measured { seconds, ..Measured::default() };
            made.runs.insert(points[0].bound.clone(), seconds(Some(bound)));
            for (_, run) in &points[0].rows {
                let own = match run.mode {
                    Mode::DeepUm => deepum,
                    Mode::TwoCopies => horizon,
                    _ => None,
                };
                made.runs.insert(run.clone(), seconds(own));
            }
            Verdict::of(Mode::TwoCopies, &points[0], &made, target).map(|verdict| (verdict.near, verdict.ahead))
        };
        assert_eq!(judged(1.0, Some(1.2), Some(1.1)), Some((true, true)), "near the ideal of one second");
        assert_eq!(judged(1.0, Some(1.3), Some(1.2)), Some((false, true)));
        assert_eq!(judged(1.15, Some(1.3), Some(1.2)), Some((true, true)), "near the bound");
        assert_eq!(judged(1.15, Some(1.2), Some(1.2)), Some((true, false)), "level is not ahead");
        assert_eq!(judged(1.0, None, Some(1.1)), Some((true, true)), "deepum did not get through");
        assert_eq!(judged(1.0, Some(1.2), None), None);
    }
}
