//! What one run did, as a row of the comparison.
//!
//! Iterations are found from the launch stream itself (`iterations`). The first one teaches the tables and is not the result, so it
//! stands apart; *steady* is the mean from the third on, or from a later one where that is asked for.

use crate::columns::columns;
use crate::iterations;
use deepum_core::policy::PolicyName;
use deepum_core::units::Bytes;
use deepum_emu_device::log::{FlightLog, layout::Entry};
use serde::{Deserialize, Serialize};

/// Iterations that are warm-up, where nothing else is said.
const WARM_UP: usize = 2;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    OutOfMemory,
    #[default]
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
    pub bytes_h2d_first_iteration: Option<u64>,
    pub bytes_d2h_first_iteration: Option<u64>,
    pub bytes_h2d_per_steady_iteration: Option<f64>,
    pub bytes_d2h_per_steady_iteration: Option<f64>,
    pub launches: u64,
    pub share_of_ideal: Option<f64>,
    /// Launches, and kernels of CUDA graphs, of which the device found what they touch.
    pub launches_decoded: u64,
    /// Those of which it knew exactly; of the others it took a seeded guess.
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
    /// `iterations`: how many there were, where that is known.
    pub fn new(policy: &str, outcome: Outcome, log: &FlightLog, iterations: Option<usize>) -> Self {
        Self::after(WARM_UP, policy, outcome, log, iterations)
    }

    /// The same, steady after so many iterations of warm-up.
    pub fn after(warm_up: usize, policy: &str, outcome: Outcome, log: &FlightLog, iterations: Option<usize>) -> Self {
        let totals = &log.totals;
        // A run that broke off has no iterations worth comparing.
        let bounds = if outcome == Outcome::Ok { bounds(&log.entries, iterations) } else { Vec::new() };
        let steady = (bounds.len() > warm_up + 1).then(|| (bounds[warm_up], bounds[bounds.len() - 1]));
        let steady_count = bounds.len().saturating_sub(warm_up + 1) as f64;
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
            bytes_d2h: totals.d2h_user + totals.d2h_eviction,
            bytes_h2d_first_iteration: first.map(|(from, to)| to.h2d - from.h2d),
            bytes_d2h_first_iteration: first.map(|(from, to)| to.d2h - from.d2h),
            bytes_h2d_per_steady_iteration: per_steady(|at| at.h2d),
            bytes_d2h_per_steady_iteration: per_steady(|at| at.d2h),
            launches: totals.launches,
            share_of_ideal: None,
            launches_decoded: totals.exact_launches + totals.guessed_launches,
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
fn bounds(entries: &[Entry], iterations: Option<usize>) -> Vec<At> {
    let identities: Vec<u64> = entries.iter().map(|entry| entry.identity).collect();
    let mut totals = vec![At::default()];
    for entry in entries {
        let before = totals[totals.len() - 1];
        totals.push(before.max(At::of(entry)));
    }
    iterations::bounds(&identities, iterations).into_iter().map(|start| totals[start]).collect()
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
        row.launches_decoded_exactly as f64 / row.launches_decoded.max(1) as f64 * 100.0
    ))
}

/// A line for each policy that plans: what it gains over `demand`, from the third iteration on.
pub fn gain_lines(rows: &[Row]) -> String {
    let of = |policy: PolicyName| {
        let row = rows.iter().find(|row| row.policy == policy.as_str())?;
        Option::zip(row.steady_seconds_per_iteration, row.faults_per_steady_iteration)
    };
    let line = |policy: PolicyName| {
        let ((seconds, faults), (demand_seconds, demand_faults)) = Option::zip(of(policy), of(PolicyName::Demand))?;
        let share = if demand_faults > 0.0 { faults / demand_faults * 100.0 } else { return None };
        let times = demand_seconds / seconds;
        Some(format!("{policy}: {times:.2} times as fast as demand, {share:.2} % of its faults\n"))
    };
    [PolicyName::Deepum, PolicyName::Horizon].into_iter().filter_map(line).collect()
}

/// The table a person reads.
pub fn table(rows: &[Row]) -> String {
    const HEADS: [&str; 10] = [
        "",
        "outcome",
        "iterations",
        "first: s",
        "faults",
        "GiB in, out",
        "steady: s/it",
        "faults/it",
        "GiB in, out/it",
        "of ideal",
    ];
    let show = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let gib = |value: Option<f64>| show(value.map(|v| v / Bytes::gib(1).get() as f64), 2);
    let gib_pair = |h2d: Option<f64>, d2h: Option<f64>| format!("{}, {}", gib(h2d), gib(d2h));
    let mut cells = vec![HEADS.map(str::to_owned).to_vec()];
    for row in rows {
        cells.push(vec![
            row.policy.clone(),
            match row.outcome {
                Outcome::Ok => "ok",
                Outcome::OutOfMemory => "out of memory",
                Outcome::Failed => "failed",
            }
            .to_owned(),
            row.iterations.to_string(),
            show(row.seconds_first_iteration, 3),
            row.faults_first_iteration.map_or("-".to_owned(), |n| n.to_string()),
            gib_pair(row.bytes_h2d_first_iteration.map(|b| b as f64), row.bytes_d2h_first_iteration.map(|b| b as f64)),
            show(row.steady_seconds_per_iteration, 3),
            show(row.faults_per_steady_iteration, 0),
            gib_pair(row.bytes_h2d_per_steady_iteration, row.bytes_d2h_per_steady_iteration),
            row.share_of_ideal.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        ]);
    }
    columns(&cells, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_emu_device::log::layout::Totals;

    /// Set-up of four launches, then iterations of ten; each launch takes 10 ns, those of iteration n raise `faults[n]` each.
    fn log(faults: &[u64]) -> FlightLog {
        let mut entries = Vec::new();
        let mut at = At::default();
        let mut launch = |identity, faults| {
            at.ns += 10;
            at.faults += faults;
            at.h2d += 4096 * faults;
            let end = Entry { identity, end: at.ns, fault_entries: at.faults, h2d: at.h2d, d2h: 7, ..Entry::default() };
            entries.push(end);
        };
        (100..104).for_each(|identity| launch(identity, 0));
        for &faults in faults {
            (0..10).for_each(|identity| launch(identity, faults));
        }
        let totals = Totals { launches: entries.len() as u64, ..Totals::default() };
        FlightLog { totals, entries, config: String::new(), pid: 1 }
    }

    #[test]
    fn the_first_iteration_stands_apart_and_the_second_counts_for_neither() {
        let row = Row::new("demand", Outcome::Ok, &log(&[9, 5, 1, 2, 3]), None);
        assert_eq!((row.outcome, row.iterations, row.launches), (Outcome::Ok, 5, 54));
        assert_eq!(row.faults_first_iteration, Some(90));
        assert_eq!(row.seconds_first_iteration, Some(100e-9));
        assert_eq!(row.faults_per_steady_iteration, Some(20.0));
        assert_eq!(row.steady_seconds_per_iteration, Some(100e-9));
        assert_eq!((row.bytes_h2d_first_iteration, row.bytes_d2h_first_iteration), (Some(90 * 4096), Some(0)));
        assert_eq!(row.bytes_h2d_per_steady_iteration, Some(20.0 * 4096.0));
        assert_eq!(row.bytes_d2h_per_steady_iteration, Some(0.0));
    }

    #[test]
    fn a_last_iteration_that_broke_off_is_not_counted() {
        let mut log = log(&[1, 1, 1, 1, 8]);
        log.entries.truncate(4 + 4 * 10 + 5);
        let row = Row::new("demand", Outcome::Ok, &log, None);
        assert_eq!((row.iterations, row.faults_per_steady_iteration), (4, Some(10.0)));
    }

    #[test]
    fn too_few_iterations_have_no_steady_state() {
        let row = Row::new("demand", Outcome::Ok, &log(&[1, 1]), None);
        assert_eq!((row.steady_seconds_per_iteration, row.share_of_ideal), (None, None));
        assert_eq!(Row::new("demand", Outcome::Ok, &log(&[]), None).iterations, 0);
    }

    #[test]
    fn a_launch_that_ends_after_its_successors_takes_nothing_back() {
        let mut log = log(&[1; 5]);
        // The last launch of the third iteration ends while the fourth runs; its successor had ended before.
        log.entries.swap(33, 34);
        log.entries[33].identity = 9;
        log.entries[34].identity = 0;
        let row = Row::new("demand", Outcome::Ok, &log, None);
        assert_eq!((row.iterations, row.faults_per_steady_iteration), (5, Some(10.0)));
    }

    #[test]
    fn a_run_that_broke_off_has_no_iterations() {
        let row = Row::new("plain", Outcome::OutOfMemory, &log(&[1; 5]), Some(5));
        assert_eq!((row.outcome, row.iterations, row.faults_first_iteration), (Outcome::OutOfMemory, 0, None));
    }

    #[test]
    fn the_ideal_is_the_row_with_unlimited_memory() {
        let row = |policy: &str, seconds| Row {
            steady_seconds_per_iteration: seconds,
            ..Row::new(policy, Outcome::Ok, &log(&[]), None)
        };
        let mut rows = [row("plain", None), row("demand", Some(4.0)), row("unlimited", Some(1.0))];
        Row::relate_to_ideal(&mut rows);
        assert_eq!(rows.map(|row| row.share_of_ideal), [None, Some(0.25), Some(1.0)]);
    }

    #[test]
    fn the_gain_is_that_over_demand() {
        let row = |policy, faults: &[u64]| Row::new(policy, Outcome::Ok, &log(faults), None);
        let mut rows = [row("demand", &[9, 9, 8, 8, 8]), row("horizon", &[9, 9, 2, 2, 2])];
        rows[1].steady_seconds_per_iteration = Some(40e-9);
        assert_eq!(gain_lines(&rows), "horizon: 2.50 times as fast as demand, 25.00 % of its faults\n");
        assert_eq!(gain_lines(&rows[..1]), "");
        assert_eq!(gain_lines(&[row("demand", &[0; 5]), row("horizon", &[0; 5])]), "");
    }

    #[test]
    fn the_table_lines_up_and_names_what_is_missing() {
        let mut rows = [
            Row::new("plain", Outcome::Failed, &log(&[]), None),
            Row::new("demand", Outcome::Ok, &log(&[9, 5, 1, 2, 3]), None),
        ];
        rows[1].argument_sets = ArgumentSets { launches: 1, touched: 200, named: 250, missed: 10, exceeding: 60 };
        (rows[1].launches_decoded, rows[1].launches_decoded_exactly) = (54, 27);
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("plain   failed") && lines[2].starts_with("demand  ok"), "{text}");
        assert!(lines.iter().skip(1).all(|line| line.len() == lines[0].len()), "{text}");
        let sets = argument_line(&rows).unwrap();
        assert!(
            sets.contains("left out 5.0 %") && sets.contains("30.0 % more") && sets.contains("(50.0 % of"),
            "{sets}"
        );
        assert_eq!(argument_line(&rows[..1]), None);
    }
}
