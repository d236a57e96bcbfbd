//! What came of a trace under a policy, as a row.

use crate::columns::columns;
use crate::rows::Outcome;
use deepum_core::units::{Bytes, Nanos};
use deepum_sim::replay::Replayed;
use serde::Serialize;

/// One replay. Figures are of the last iteration, or of the one that counts; there are none where it did not get there.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub trace: String,
    pub policy: String,
    pub outcome: Outcome,
    /// Why there are no figures, if it failed.
    pub why: Option<String>,
    pub seconds: Option<f64>,
    /// Of each iteration.
    pub iterations: Vec<f64>,
    /// Of the speed with all the memory that is wanted.
    pub share_of_ideal: Option<f64>,
    /// Of the speed that no schedule exceeds.
    pub share_of_bound: Option<f64>,
    pub stall_seconds: Option<Stalls>,
    pub faults: Option<u64>,
    pub bytes_h2d: Option<u64>,
    pub bytes_d2h: Option<u64>,
    /// Of these, from and to the SSD.
    pub bytes_ssd_read: Option<u64>,
    pub bytes_ssd_write: Option<u64>,
    /// Bytes whose contents were given up instead of being copied.
    pub bytes_discarded: Option<u64>,
    pub peak_bytes: Option<u64>,
    /// Real time of the core, over the launches of the whole replay.
    pub planner_ns_per_launch: Option<f64>,
    /// Its tables at the end.
    pub planner_bytes: Option<u64>,
}

/// How long the GPU waited, and for what.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Stalls {
    /// The driver's own work on faults.
    pub fault: f64,
    /// Room that somebody had to leave first.
    pub eviction: f64,
    /// What had been asked for too late: launches at the gate, and faults on what was on its way.
    pub late: f64,
    /// Copies of what faulted.
    pub link: f64,
    /// The same, where it came from the SSD.
    pub ssd: f64,
}

impl Row {
    /// One that did not get to its end.
    pub fn broken(trace: &str, policy: &str, outcome: Outcome) -> Self {
        Self {
            trace: trace.to_owned(),
            policy: policy.to_owned(),
            outcome,
            why: None,
            seconds: None,
            iterations: Vec::new(),
            share_of_ideal: None,
            share_of_bound: None,
            stall_seconds: None,
            faults: None,
            bytes_h2d: None,
            bytes_d2h: None,
            bytes_ssd_read: None,
            bytes_ssd_write: None,
            bytes_discarded: None,
            peak_bytes: None,
            planner_ns_per_launch: None,
            planner_bytes: None,
        }
    }

    /// One that failed for this reason, which is said, too.
    pub fn failed(trace: &str, policy: &str, why: String) -> Self {
        eprintln!("deepum: {trace}, {policy}: {why}");
        Self { why: Some(why), ..Self::broken(trace, policy, Outcome::Failed) }
    }

    /// One that did. `ideal` and `bound`: how long an iteration takes then, where that is known.
    pub fn new(trace: &str, policy: &str, replayed: &Replayed, ideal: Option<Nanos>, bound: Option<Nanos>) -> Self {
        let Some(last) = replayed.iterations.last() else { return Self::broken(trace, policy, Outcome::Failed) };
        let share = |best: Option<Nanos>| best.map(|best| best.0 as f64 / last.time.0.max(1) as f64);
        let totals = &last.totals;
        let late = last.gate + totals.stall_late;
        let link = totals.stall_copies.saturating_sub(totals.stall_late + totals.stall_room + totals.stall_ssd);
        let tables = replayed.core.map(|(_, core)| core.exec_id_bytes + core.tables.bytes());
        Self {
            outcome: Outcome::Ok,
            seconds: Some(seconds(last.time)),
            iterations: replayed.iterations.iter().map(|one| seconds(one.time)).collect(),
            share_of_ideal: share(ideal),
            share_of_bound: share(bound),
            stall_seconds: Some(Stalls {
                fault: seconds(totals.stall_fault_work),
                eviction: seconds(totals.stall_room),
                late: seconds(late),
                link: seconds(link),
                ssd: seconds(totals.stall_ssd),
            }),
            faults: Some(totals.fault_entries),
            bytes_h2d: Some(totals.bytes_in.total().0),
            bytes_d2h: Some(totals.bytes_out.total().0),
            bytes_ssd_read: Some(totals.bytes_ssd_in.0),
            bytes_ssd_write: Some(totals.bytes_ssd_out.0),
            bytes_discarded: Some(totals.bytes_discarded.0),
            peak_bytes: Some(totals.peak_managed.0),
            planner_ns_per_launch: Some(replayed.thought.as_nanos() as f64 / replayed.launches.max(1) as f64),
            planner_bytes: tables.map(Bytes::get),
            ..Self::broken(trace, policy, Outcome::Ok)
        }
    }
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// The table a person reads.
pub fn table(rows: &[Row]) -> String {
    const HEADS: [&str; 16] = [
        "trace",
        "policy",
        "s",
        "of ideal",
        "of bound",
        "stall: fault",
        "eviction",
        "late",
        "link",
        "SSD",
        "faults",
        "GiB in",
        "out",
        "SSD in/out",
        "peak",
        "planner ns/launch",
    ];
    let show = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
    let gib = |bytes: Option<u64>| show(bytes.map(|bytes| bytes as f64 / Bytes::gib(1).get() as f64), 2);
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let mut cells = vec![HEADS.map(str::to_owned).to_vec()];
    for row in rows {
        let outcome = match row.outcome {
            Outcome::Ok => show(row.seconds, 4),
            Outcome::OutOfMemory => "out of memory".to_owned(),
            Outcome::Failed => "failed".to_owned(),
        };
        let stall = |of: fn(&Stalls) -> f64| show(row.stall_seconds.as_ref().map(of), 4);
        cells.push(vec![
            row.trace.clone(),
            row.policy.clone(),
            outcome,
            share(row.share_of_ideal),
            share(row.share_of_bound),
            stall(|stalls| stalls.fault),
            stall(|stalls| stalls.eviction),
            stall(|stalls| stalls.late),
            stall(|stalls| stalls.link),
            stall(|stalls| stalls.ssd),
            row.faults.map_or("-".to_owned(), |faults| faults.to_string()),
            gib(row.bytes_h2d),
            gib(row.bytes_d2h),
            format!("{}/{}", gib(row.bytes_ssd_read), gib(row.bytes_ssd_write)),
            gib(row.peak_bytes),
            show(row.planner_ns_per_launch, 0),
        ]);
    }
    columns(&cells, 2)
}
