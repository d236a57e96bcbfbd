//! What one run did, as a row of the comparison.
//!
//! Iterations are found from the launch stream itself: its period, by the kernels' identities. The first
//! iteration teaches the tables and is not the result, so it stands apart; *steady* is the mean from the third on.

use deepum_core::period;
use deepum_core::units::Bytes;
use deepum_emu_device::log::{FlightLog, layout::Entry};
use serde::Serialize;

/// Iterations before this one (counted from 0) are warm-up.
const STEADY_FROM: usize = 2;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    OutOfMemory,
    Failed,
}

/// One run. Absent figures are absent because the run did not get there (no third iteration, say).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub policy: String,
    pub outcome: Outcome,
    pub virtual_seconds: f64,
    pub iterations: usize,
    pub seconds_first_iteration: Option<f64>,
    pub steady_seconds_per_iteration: Option<f64>,
    pub faults_first_iteration: Option<u64>,
    pub faults_per_steady_iteration: Option<f64>,
    pub bytes_h2d: u64,
    pub bytes_d2h: u64,
    pub bytes_h2d_per_steady_iteration: Option<f64>,
    pub bytes_d2h_per_steady_iteration: Option<f64>,
    pub launches: u64,
    pub share_of_ideal: Option<f64>,
    /// Launches of which the device knew exactly what they touch; of the others it took a seeded guess.
    pub launches_decoded_exactly: u64,
    pub argument_sets: ArgumentSets,
}

/// What the shim's argument sets named, against what the device knows was touched; UM blocks, summed over launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ArgumentSets {
    pub launches: u64,
    pub touched: u64,
    pub named: u64,
    pub missed: u64,
    pub exceeding: u64,
}

/// Running totals of the device at the end of a launch.
#[derive(Clone, Copy, Default)]
struct At {
    ns: u64,
    faults: u64,
    h2d: u64,
    d2h: u64,
}

impl At {
    fn of(entry: &Entry) -> Self {
        Self { ns: entry.end, faults: entry.fault_entries, h2d: entry.h2d, d2h: entry.d2h }
    }

    /// Launches of several streams may end out of order; totals only grow.
    fn max(self, other: Self) -> Self {
        Self {
            ns: self.ns.max(other.ns),
            faults: self.faults.max(other.faults),
            h2d: self.h2d.max(other.h2d),
            d2h: self.d2h.max(other.d2h),
        }
    }
}

impl Row {
    /// `success` is the program's own exit status.
    pub fn new(policy: &str, success: bool, log: &FlightLog) -> Self {
        let totals = &log.totals;
        let outcome = match (success, totals.out_of_memory) {
            (true, _) => Outcome::Ok,
            (false, 0) => Outcome::Failed,
            (false, _) => Outcome::OutOfMemory,
        };
        // A run that broke off has no iterations worth comparing.
        let bounds = if outcome == Outcome::Ok { bounds(&log.entries) } else { Vec::new() };
        let steady = (bounds.len() > STEADY_FROM + 1).then(|| (bounds[STEADY_FROM], bounds[bounds.len() - 1]));
        let steady_count = bounds.len().saturating_sub(STEADY_FROM + 1) as f64;
        let per_steady =
            |field: fn(&At) -> u64| steady.map(|(from, to)| (field(&to) - field(&from)) as f64 / steady_count);
        let first = (bounds.len() > 1).then(|| (bounds[0], bounds[1]));
        Self {
            policy: policy.to_owned(),
            outcome,
            virtual_seconds: totals.virtual_ns as f64 / 1e9,
            iterations: bounds.len().saturating_sub(1),
            seconds_first_iteration: first.map(|(from, to)| (to.ns - from.ns) as f64 / 1e9),
            steady_seconds_per_iteration: per_steady(|at| at.ns).map(|ns| ns / 1e9),
            faults_first_iteration: first.map(|(from, to)| to.faults - from.faults),
            faults_per_steady_iteration: per_steady(|at| at.faults),
            bytes_h2d: totals.h2d_user + totals.h2d_fault + totals.h2d_tree,
            bytes_d2h: totals.d2h_user + totals.d2h_fault + totals.d2h_eviction,
            bytes_h2d_per_steady_iteration: per_steady(|at| at.h2d),
            bytes_d2h_per_steady_iteration: per_steady(|at| at.d2h),
            launches: totals.launches,
            share_of_ideal: None,
            launches_decoded_exactly: totals.exact_launches,
            argument_sets: ArgumentSets {
                launches: totals.named_launches,
                touched: totals.blocks_touched,
                named: totals.blocks_named,
                missed: totals.blocks_missed,
                exceeding: totals.blocks_exceeding,
            },
        }
    }

    /// Fills in each row's share of the `unlimited` row's speed.
    pub fn relate_to_ideal(rows: &mut [Self]) {
        let ideal = rows.iter().find(|row| row.policy == "unlimited").and_then(|row| row.steady_seconds_per_iteration);
        for row in rows {
            row.share_of_ideal = Option::zip(ideal, row.steady_seconds_per_iteration).map(|(ideal, own)| ideal / own);
        }
    }
}

/// The device's totals at the iterations' boundaries: one more than there are iterations, or none.
fn bounds(entries: &[Entry]) -> Vec<At> {
    let identities: Vec<u64> = entries.iter().map(|entry| entry.identity).collect();
    let Some(period) = period::find(&identities) else { return Vec::new() };
    let mut starts = period.boundaries;
    // The last iteration counts if the run did not break off in it.
    if starts.last().is_some_and(|last| (entries.len() - last) * 10 >= period.length * 9) {
        starts.push(entries.len());
    }
    let mut totals = vec![At::default()];
    for entry in entries {
        let before = totals[totals.len() - 1];
        totals.push(before.max(At::of(entry)));
    }
    starts.into_iter().map(|start| totals[start]).collect()
}

/// One line for the last row that has argument sets: how far they were from the truth.
pub fn argument_line(rows: &[Row]) -> Option<String> {
    let row = rows.iter().rev().find(|row| row.argument_sets.touched > 0)?;
    let sets = &row.argument_sets;
    let share = |part: u64| part as f64 / sets.touched as f64 * 100.0;
    Some(format!(
        "{}: of the UM blocks its launches touched, their arguments left out {:.1} % and named {:.1} % more ({:.1} % of launches decoded exactly)\n",
        row.policy,
        share(sets.missed),
        share(sets.exceeding),
        row.launches_decoded_exactly as f64 / row.launches.max(1) as f64 * 100.0
    ))
}

/// The table a person reads.
pub fn table(rows: &[Row]) -> String {
    const HEADS: [&str; 9] = [
        "",
        "outcome",
        "iterations",
        "first s",
        "steady s/it",
        "first faults",
        "faults/it",
        "GiB in, out/it",
        "of ideal",
    ];
    let show = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let gib = |value: Option<f64>| show(value.map(|v| v / Bytes::gib(1).get() as f64), 2);
    let mut cells = vec![HEADS.map(str::to_owned)];
    for row in rows {
        cells.push([
            row.policy.clone(),
            match row.outcome {
                Outcome::Ok => "ok",
                Outcome::OutOfMemory => "out of memory",
                Outcome::Failed => "failed",
            }
            .to_owned(),
            row.iterations.to_string(),
            show(row.seconds_first_iteration, 3),
            show(row.steady_seconds_per_iteration, 3),
            row.faults_first_iteration.map_or("-".to_owned(), |n| n.to_string()),
            show(row.faults_per_steady_iteration, 0),
            format!("{}, {}", gib(row.bytes_h2d_per_steady_iteration), gib(row.bytes_d2h_per_steady_iteration)),
            row.share_of_ideal.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        ]);
    }
    let widths: Vec<usize> =
        (0..HEADS.len()).map(|c| cells.iter().map(|row| row[c].len()).max().unwrap_or(0)).collect();
    cells
        .iter()
        .map(|row| {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(c, (cell, &width))| if c < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
                .collect();
            line.join("  ").trim_end().to_owned() + "\n"
        })
        .collect()
}
