//! Good prices: the duals of the relaxation, by column generation.
//!
//! The relaxation is a linear program: how many bytes of each version follow which [`Story`], so that bytes of either direction fit into their
//! steps, stretched as far as needed, and what is not away fits into the capacity. Stories are many, so they are found as they are
//! needed: the program is solved over those known, its duals are the prices, and [`Prices::bound`] answers both what these prove and
//! which story each version would rather follow. Those are added until what is proven comes up to what is solved for.
//!
//! The solver works in floating point and may be as wrong as it likes: the bound is that of the prices, whatever they are.
//!
//! Not here: why a price proves anything (`prices.rs`).

use super::Limits;
use super::prices::{Prices, Wish};
use super::steps::{Away, Steps, Story};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, ZeroConeT};
use deepum_core::units::Nanos;
use std::collections::BTreeSet;

/// What is proven and what is solved for are as good as equal: a part in this many.
const CLOSE: f64 = 1.0 / 10_000.0;
/// More rounds are not worth their time.
const ROUNDS: usize = 40;

/// How the link's time is accounted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// Over the whole iteration: a byte may cross whenever there is time.
    Whole,
    /// Step by step.
    Steps,
}

/// The prices that prove most, of all that were found.
pub(super) fn best(steps: &Steps, limits: &Limits, link: Link) -> Wish {
    let widest = steps.versions.iter().map(|(version, _)| version.widest());
    let mut known: BTreeSet<(usize, Story)> = widest.enumerate().collect();
    let mut best = (Nanos::ZERO, Wish::nothing(steps.len()));
    for _ in 0..ROUNDS {
        let Some(solved) = (Master { steps, limits, link, stories: &known }).solve() else { break };
        let (proven, stories) = Prices::new(&solved.wish, limits).bound(steps, limits);
        if proven > best.0 {
            best = (proven, solved.wish);
        }
        let before = known.len();
        known.extend(stories.into_iter().enumerate().filter(|(_, story)| !story.away.is_empty()));
        if known.len() == before || best.0.0 as f64 >= solved.time * (1.0 - CLOSE) {
            break;
        }
    }
    best.1
}

/// What the solver says.
struct Solved {
    /// The least time over the stories known, in nanoseconds.
    time: f64,
    /// The duals.
    wish: Wish,
}

/// The program over the stories known.
///
/// Its variables: how far each piece of the link's time is stretched, what is away at the beginning of each step, how much follows each story.
/// Its rows: what is away follows from the stories; then, as upper limits, what leaves, what comes, what is not away, what there is of each
/// version; last, that stretches and stories are not negative. Bytes are counted in parts of the capacity, and time by
/// how long the faster direction takes for one of these, so that most numbers are near 1.
struct Master<'a> {
    steps: &'a Steps,
    limits: &'a Limits,
    link: Link,
    stories: &'a BTreeSet<(usize, Story)>,
}

/// Where the rows of each kind begin; those of the first kind, at 0.
struct Rows {
    leaves: usize,
    comes: usize,
    room: usize,
    versions: usize,
    signs: usize,
    all: usize,
}

impl Master<'_> {
    fn pieces(&self) -> usize {
        if self.link == Link::Whole { 1 } else { self.steps.len() }
    }
    /// The piece of the link's time in which this step is.
    fn piece(&self, step: usize) -> usize {
        step % self.steps.len() % self.pieces()
    }
    fn rows(&self) -> Rows {
        let (steps, pieces) = (self.steps.len(), self.pieces());
        let leaves = steps;
        let comes = leaves + pieces;
        let room = comes + pieces;
        let versions = room + steps;
        let signs = versions + self.steps.versions.len();
        Rows { leaves, comes, room, versions, signs, all: signs + pieces + self.stories.len() }
    }
    /// Bytes.
    fn unit(&self) -> f64 {
        self.limits.capacity.0.max(1) as f64 / 64.0
    }
    /// Bytes per second.
    fn fastest(&self) -> f64 {
        self.limits.h2d.max(self.limits.d2h).0 as f64
    }

    /// The left sides: three entries for each stretch and what is away, and a few for each story.
    fn matrix(&self) -> CscMatrix<f64> {
        let (rows, steps, pieces) = (self.rows(), self.steps.len(), self.pieces());
        let mut entries = Vec::new();
        for piece in 0..pieces {
            entries.extend([rows.leaves, rows.comes, rows.signs].map(|kind| (kind + piece, piece, -1.0)));
        }
        for step in 0..steps {
            entries.extend([(step, pieces + step, 1.0), (rows.room + step, pieces + step, -1.0)]);
            if step > 0 {
                entries.push((step, pieces + step - 1, -1.0));
            }
        }
        for (number, (version, story)) in self.stories.iter().enumerate() {
            let column = pieces + steps + number;
            entries.extend([(rows.versions + version, column, 1.0), (rows.signs + pieces + number, column, -1.0)]);
            if let Some(step) = story.copied {
                entries.push((rows.leaves + self.piece(step), column, self.fastest() / self.limits.d2h.0 as f64));
            }
            for &Away { first, last, returns } in &story.away {
                if returns {
                    entries.push((rows.comes + self.piece(last), column, self.fastest() / self.limits.h2d.0 as f64));
                }
                // Row 0 says what is away there; the others, how much more is than at the beginning before.
                if first % steps == 0 || first / steps != last / steps {
                    entries.push((0, column, -1.0));
                }
                let changes = [(first % steps, column, -1.0), ((last + 1) % steps, column, 1.0)];
                entries.extend(changes.into_iter().filter(|&(row, ..)| row > 0));
            }
        }
        let rows_of = entries.iter().map(|entry| entry.0).collect();
        let columns_of = entries.iter().map(|entry| entry.1).collect();
        let values = entries.iter().map(|entry| entry.2).collect();
        CscMatrix::new_from_triplets(rows.all, pieces + steps + self.stories.len(), rows_of, columns_of, values)
    }

    /// Nothing if the solver does not take it.
    fn solve(&self) -> Option<Solved> {
        let (rows, pieces, unit) = (self.rows(), self.pieces(), self.unit());
        let tick = unit / self.fastest() * 1e9;
        let mut right = vec![0.0; rows.all];
        for (step, (time, live)) in self.steps.times.iter().zip(&self.steps.live).enumerate() {
            right[rows.leaves + self.piece(step)] += time.0 as f64 / tick;
            right[rows.comes + self.piece(step)] += time.0 as f64 / tick;
            right[rows.room + step] = (self.limits.capacity.0 as f64 - live.0 as f64) / unit;
        }
        for (right, (_, bytes)) in right[rows.versions..].iter_mut().zip(&self.steps.versions) {
            *right = bytes.0 as f64 / unit;
        }
        let matrix = self.matrix();
        let mut costs = vec![0.0; matrix.n];
        costs[..pieces].fill(1.0);
        let settings = DefaultSettings { verbose: false, max_iter: 60, ..DefaultSettings::default() };
        let cones = [ZeroConeT(rows.leaves), NonnegativeConeT(rows.all - rows.leaves)];
        let linear = CscMatrix::zeros((matrix.n, matrix.n));
        let mut solver = DefaultSolver::new(&linear, &costs, &matrix, &right, &cones, settings).ok()?;
        solver.solve();
        let (duals, stretched) = (&solver.solution.z, solver.solution.obj_val * tick);
        let steps = 0..self.steps.len();
        let wish = Wish {
            out: steps.clone().map(|step| duals[rows.leaves + self.piece(step)]).collect(),
            into: steps.clone().map(|step| duals[rows.comes + self.piece(step)]).collect(),
            room: steps.map(|step| duals[rows.room + step] / self.fastest() * 1e9).collect(),
        };
        let kernels: f64 = self.steps.times.iter().map(|time| time.0 as f64).sum();
        Some(Solved { time: kernels + stretched, wish })
    }
}
