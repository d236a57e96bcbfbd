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
    /// Of the bound of bytes that are in one place at a time.
    pub of_moves_alone: Option<f64>,
    /// Of the bound of those who move blocks as this mode does.
    pub of_blocks: Option<f64>,
    /// How many times as fast as `deepum`; none where that did not come to its end.
    pub over_deepum: Option<f64>,
    /// Whether it is near enough to the ideal, or to the bound of how programs run in this mode.
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
        let of_moves_alone = point.bounds(made).map(|bounds| bounds.moves_alone / own);
        let of_blocks = point.bound_of(mode, made).map(|bound| bound / own);
        let over_deepum = seconds(Mode::DeepUm).map(|deepum| deepum / own);
        Some(Self {
            of_ideal,
            of_bound,
            of_moves_alone,
            of_blocks,
            over_deepum,
            near: target.is_met(of_ideal, of_blocks.or(of_bound)),
            // Where `deepum` does not get through at all, whoever does is ahead.
            ahead: over_deepum.is_none_or(|times| times > 1.0),
        })
    }

    /// Whether the target is met.
    pub fn held(&self) -> bool {
        self.near && self.ahead
    }

    /// Whether it is met by this share of another bound.
    pub fn held_by(&self, of_bound: Option<f64>, target: Target) -> bool {
        target.is_met(self.of_ideal, of_bound) && self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::replay::Bounds;
    use crate::runs::Measured;

    #[test]
    fn near_the_ideal_or_the_bound_and_ahead_of_deepum() {
        let manifest = plan::tests::manifest();
        let mut made = plan::tests::needs(&manifest);
        let points = plan::points(&manifest, &made);
        let target = Target { of_ideal: 0.9, of_bound: 0.95 };
        // Bounds of bytes, of bytes with moves alone, of blocks, and of blocks with moves alone.
        let mut judge = |mode, bounds: [f64; 4], deepum: Option<f64>, horizon: Option<f64>| {
            let seconds = |seconds| Measured { seconds, ..Measured::default() };
            let [any, moves_alone, blocks, blocks_alone] = bounds;
            let bounds = Bounds { any, moves_alone, blocks: Some(blocks), blocks_alone: Some(blocks_alone) };
            made.runs.insert(points[0].bound.clone(), Measured { bounds: Some(bounds), ..seconds(Some(any)) });
            for (_, run) in &points[0].rows {
                let own = match run.mode {
                    Mode::DeepUm => deepum,
                    own if own == mode => horizon,
                    _ => None,
                };
                made.runs.insert(run.clone(), seconds(own));
            }
            let verdict = Verdict::of(mode, &points[0], &made, target)?;
            let by_any = verdict.held_by(verdict.of_bound, target);
            assert!(verdict.held() || !by_any, "the bound of bytes with copies kept is the lowest");
            assert!(!verdict.held_by(verdict.of_moves_alone, target) || verdict.held() || mode == Mode::TwoCopies);
            Some((verdict.near, verdict.ahead))
        };
        let is = |near, ahead| Some((near, ahead));
        let [copies, alone] = [[1.0, 1.0, 1.2, 1.2], [1.0, 1.1, 1.1, 1.2]];
        assert_eq!(judge(Mode::TwoCopies, copies, Some(1.3), Some(1.2)), is(true, true), "near the bound of blocks");
        assert_eq!(judge(Mode::TwoCopies, alone, Some(1.3), Some(1.2)), is(false, true), "copies may be kept");
        assert_eq!(judge(Mode::Horizon, alone, Some(1.3), Some(1.2)), is(true, true), "they are not");
        assert_eq!(judge(Mode::Horizon, [1.0, 1.0, 1.0, 1.1], Some(1.3), Some(1.2)), is(false, true));
        let mut judged = |bound, deepum, horizon| judge(Mode::TwoCopies, [bound; 4], deepum, horizon);
        assert_eq!(judged(1.0, Some(1.2), Some(1.1)), Some((true, true)), "near the ideal of one second");
        assert_eq!(judged(1.0, Some(1.3), Some(1.2)), Some((false, true)));
        assert_eq!(judged(1.15, Some(1.3), Some(1.2)), Some((true, true)), "near the bound");
        assert_eq!(judged(1.15, Some(1.2), Some(1.2)), Some((true, false)), "level is not ahead");
        assert_eq!(judged(1.0, None, Some(1.1)), Some((true, true)), "deepum did not get through");
        assert_eq!(judged(1.0, Some(1.2), None), None);
    }

    #[test]
    fn where_blocks_have_no_bound_that_of_bytes_counts() {
        let manifest = plan::tests::manifest();
        let mut made = plan::tests::needs(&manifest);
        let points = plan::points(&manifest, &made);
        let bounds = Bounds { any: 1.15, moves_alone: 1.15, ..Bounds::default() };
        for (_, run) in &points[0].rows {
            let seconds = if run.mode == Mode::DeepUm { 1.3 } else { 1.2 };
            made.runs.insert(run.clone(), Measured { seconds: Some(seconds), ..Measured::default() });
        }
        for (bound, near) in [(1.15, true), (1.1, false)] {
            let measured = Measured { seconds: Some(bound), bounds: Some(bounds), ..Measured::default() };
            made.runs.insert(points[0].bound.clone(), measured);
            let target = Target { of_ideal: 0.9, of_bound: 0.95 };
            let verdict = Verdict::of(Mode::Horizon, &points[0], &made, target).unwrap();
            assert_eq!((verdict.of_blocks, verdict.near), (None, near));
        }
    }
}
