//! What must hold of the results, judged by the tool, so that a document cannot pass over what is broken.

use super::manifest::Manifest;

/// One limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    pub limit: String,
    /// Absent: not all rows that it is about were measured.
    pub held: Option<bool>,
    pub found: String,
}

impl Verdict {
    fn new(limit: impl Into<String>, held: Option<bool>, found: impl Into<String>) -> Self {
        Self { limit: limit.into(), held, found: found.into() }
    }
}

/// By how much a time may exceed another that it must not exceed, where two runs of the same differ by less.
const ROUNDING: f64 = 0.001;
/// Fault counts this far apart are the same.
const EQUAL_FAULTS: f64 = 1.01;

/// One row of Fig. 9a.
#[derive(Clone, Debug)]
pub struct SpeedUp {
    pub row: String,
    pub network: String,
    pub batch: u32,
    /// The batch is ours, not the paper's.
    pub ours: bool,
    pub speed_up: f64,
    /// Nothing moves in a steady iteration, whoever decides: there is nothing to speed up.
    pub fits: bool,
}

/// The averages over rows that do not fit, the slowest of all, and whether sections that take one batch take the right one.
pub fn speed(manifest: &Manifest, rows: &[SpeedUp], complete: bool) -> Vec<Verdict> {
    let paper = manifest.fig9a.paper_average;
    let least = manifest.fig9a.least;
    let average = |which: &str, tight: Vec<f64>| {
        let mean = super::sections::mean(tight.iter().copied());
        Verdict::new(
            format!("average speed-up over naive unified memory at least the paper's {paper:.2}, {which}"),
            (complete && !tight.is_empty()).then_some(mean >= paper),
            if tight.is_empty() { "none measured".to_owned() } else { format!("{mean:.2}") },
        )
    };
    let tight = |r: &&SpeedUp| !r.fits;
    let slow: Vec<String> =
        rows.iter().filter(|r| r.speed_up < least).map(|r| format!("{} {:.3}", r.row, r.speed_up)).collect();
    let slowest = rows.iter().min_by(|a, b| a.speed_up.total_cmp(&b.speed_up));
    let wrong: Vec<String> = (manifest.fig9a.networks.iter())
        .filter_map(|id| {
            let first = rows.iter().filter(|r| r.network == *id).filter(tight).map(|r| r.batch).min();
            let taken = manifest.network(id).one_batch();
            let found = first.map_or("none".to_owned(), |batch| batch.to_string());
            (first != Some(taken)).then(|| format!("{id}: {found}, not {taken}"))
        })
        .collect();
    vec![
        average("paper's batches", rows.iter().filter(tight).filter(|r| !r.ours).map(|r| r.speed_up).collect()),
        average("ours, too", rows.iter().filter(tight).map(|r| r.speed_up).collect()),
        Verdict::new(
            format!("no row below {least:.2}"),
            // One slow row breaks it, however many were not measured.
            if slow.is_empty() { (complete && !rows.is_empty()).then_some(true) } else { Some(false) },
            match (slow.is_empty(), slowest) {
                (true, Some(r)) => format!("slowest: {} {:.3}", r.row, r.speed_up),
                (true, None) => "none measured".to_owned(),
                (false, _) => slow.join(", "),
            },
        ),
        Verdict::new(
            "sections of one batch take the smallest at which naive unified memory moves anything",
            complete.then_some(wrong.is_empty()),
            match (complete, wrong.is_empty()) {
                (true, true) => "on every network".to_owned(),
                (true, false) => wrong.join("; "),
                (false, _) => "not all rows were measured".to_owned(),
            },
        ),
    ]
}

/// Faults of an iteration in per cent of naive UM's, by row ID.
pub fn faults(manifest: &Manifest, shares: &[(String, f64)], complete: bool) -> Vec<Verdict> {
    let (most, all) = (manifest.tab5.paper_most, manifest.tab5.paper_all);
    let above: Vec<String> =
        shares.iter().filter(|(_, s)| *s > all).map(|(row, s)| format!("{row} {s:.3} %")).collect();
    let few = shares.iter().filter(|(_, s)| *s <= most).count();
    let known = complete && !shares.is_empty();
    vec![
        Verdict::new(
            format!("faults at most {all} % of naive unified memory's on every row"),
            if above.is_empty() { known.then_some(true) } else { Some(false) },
            if above.is_empty() { "on every row measured".to_owned() } else { above.join(", ") },
        ),
        Verdict::new(
            format!("at most {most} % on most rows"),
            known.then_some(few * 2 > shares.len()),
            format!("{few} of {}", shares.len()),
        ),
    ]
}

/// One network of Fig. 10.
#[derive(Clone, Debug)]
pub struct Ablated {
    pub row: String,
    /// Of an iteration, as parts are added.
    pub seconds: Vec<f64>,
    /// By how much two runs of the same differ, over the faster.
    pub spread: f64,
}

/// That no part makes a network slower by more than chance.
pub fn ablation(rows: &[Ablated], complete: bool) -> Verdict {
    let rises: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            let most = 1.0 + row.spread.max(ROUNDING);
            let steps = row.seconds.windows(2).enumerate().filter(move |(_, pair)| pair[1] > pair[0] * most);
            steps.map(|(n, pair)| format!("{} step {}: {:.4} s to {:.4} s", row.row, n + 1, pair[0], pair[1]))
        })
        .collect();
    let held = if rises.is_empty() { (complete && !rows.is_empty()).then_some(true) } else { Some(false) };
    let found = if rises.is_empty() { format!("on {} networks", rows.len()) } else { rises.join("; ") };
    let limit =
        format!("each part makes no network slower than two runs of the same differ, or {} %", ROUNDING * 100.0);
    Verdict::new(limit, held, found)
}

/// One network's tables.
#[derive(Clone, Debug)]
pub struct TableRow {
    pub row: String,
    /// How many there are; none where DeepUM slept because everything fits.
    pub tables: u64,
    pub compact_mb: f64,
    /// In the paper's layout, from the same program.
    pub layout_mb: f64,
    /// What the paper reports.
    pub paper_mb: Option<f64>,
    /// Faults of an iteration in the compact layout, there once more, and in the paper's.
    pub faults: Option<[f64; 3]>,
}

/// How many times as many the greater is.
fn apart(one: f64, other: f64) -> f64 {
    if one == other { 1.0 } else { one.max(other) / one.min(other) }
}

/// The compact layout against what the paper reports, and against the paper's layout here.
pub fn tables(manifest: &Manifest, rows: &[TableRow], complete: bool) -> Vec<Verdict> {
    let parts = manifest.tab4.parts;
    let of = |bad: Vec<String>, good: &str| {
        let held = if bad.is_empty() { (complete && !rows.is_empty()).then_some(true) } else { Some(false) };
        (held, if bad.is_empty() { good.to_owned() } else { bad.join(", ") })
    };
    let small = |limit: &str, of_what: fn(&TableRow) -> Option<f64>| {
        let large = rows
            .iter()
            .filter_map(|r| Some((r, of_what(r)?)))
            .filter(|(r, than)| r.compact_mb * parts > *than)
            .map(|(r, than)| format!("{} {:.2} MB of {than:.1} MB", r.row, r.compact_mb))
            .collect();
        let (held, found) = of(large, "on every row measured");
        Verdict::new(format!("compact tables at most 1/{parts} of {limit}"), held, found)
    };
    // Where two runs of the same are further apart than two layouts may be, a third tells nothing.
    let pairs = rows.iter().filter_map(|r| Some((r, r.faults?)));
    let (told, chance): (Vec<_>, Vec<_>) = pairs.partition(|(_, [one, again, _])| apart(*one, *again) <= EQUAL_FAULTS);
    let more = (told.iter().filter(|(_, [compact, _, paper])| *compact > paper * EQUAL_FAULTS))
        .map(|(r, [compact, _, paper])| format!("{} {compact:.0} instead of {paper:.0}", r.row))
        .collect();
    let chance: Vec<String> = (chance.iter())
        .map(|(r, [one, again, _])| format!("{} ({:.0} %)", r.row, (apart(*one, *again) - 1.0) * 100.0))
        .collect();
    let mut good = format!("on {} networks", told.len());
    if !chance.is_empty() {
        good += &format!("; no telling where two runs of the same differ by more: {}", chance.join(", "));
    }
    let (held, found) = of(more, &good);
    // Of fewer than half the networks it is not known of `deepum`.
    let enough = told.len() * 2 >= manifest.tab4.networks.len();
    let held = held.filter(|held| !held || enough);
    vec![
        // What fits has no tables; what they take all the same is no table's size.
        small("what the paper reports", |r| r.paper_mb.filter(|_| r.tables > 0)),
        small("the paper's layout at the same batch", |r| Some(r.layout_mb).filter(|_| r.tables > 0)),
        Verdict::new("compact tables fault no more than the paper's layout", held, found),
    ]
}

/// That every difference has a reason.
pub fn explained(unexplained: &[String]) -> Verdict {
    let found = if unexplained.is_empty() { "yes".to_owned() } else { unexplained.join(", ") };
    Verdict::new("every row that differs from the paper's says why", Some(unexplained.is_empty()), found)
}

/// That nothing failed.
pub fn measured(failures: usize) -> Verdict {
    let found = if failures == 0 { "no failures".to_owned() } else { format!("{failures} failed, listed below") };
    Verdict::new("every row was measured", Some(failures == 0), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/paper/manifest.toml");
        Manifest::read(&path).unwrap()
    }

    fn named(values: &[f64]) -> Vec<(String, f64)> {
        values.iter().enumerate().map(|(n, v)| (format!("row{n}"), *v)).collect()
    }

    #[test]
    fn a_slow_row_is_named_even_if_others_are_missing() {
        let m = manifest();
        let rows = |values: &[f64]| -> Vec<SpeedUp> {
            let row = |(row, speed_up)| SpeedUp {
                row,
                network: "n".to_owned(),
                batch: 1,
                ours: speed_up > 9.0,
                speed_up,
                fits: speed_up == 1.0,
            };
            named(values).into_iter().map(row).collect()
        };
        let held = |values: &[f64], complete| -> Vec<_> {
            speed(&m, &rows(values), complete).iter().take(3).map(|v| v.held).collect()
        };
        assert_eq!(held(&[3.0, 3.2], true), [Some(true), Some(true), Some(true)]);
        assert_eq!(held(&[3.0, 3.0], true), [Some(false), Some(false), Some(true)]);
        assert_eq!(held(&[3.0, 9.5], true), [Some(false), Some(true), Some(true)], "a batch of ours");
        assert_eq!(
            held(&[1.0, 3.1, 3.1], true),
            [Some(true), Some(true), Some(true)],
            "rows that fit are in no average"
        );
        assert_eq!(held(&[1.0], true), [None, None, Some(true)]);
        assert_eq!(held(&[8.0, 0.949], false), [None, None, Some(false)]);
        assert_eq!(held(&[8.0], false), [None, None, None]);
        assert!(speed(&m, &rows(&[8.0, 0.949]), true)[2].found.contains("row1 0.949"));
    }

    #[test]
    fn the_one_batch_is_the_smallest_that_does_not_fit() {
        let m = manifest();
        let rows = |moved: u32| -> Vec<SpeedUp> {
            let networks = m.fig9a.networks.iter().map(|id| m.network(id));
            let batches = networks.flat_map(|n| n.all_batches().map(move |batch| (n, batch)));
            let row = |(n, batch): (&super::super::manifest::Network, u32)| SpeedUp {
                row: String::new(),
                network: n.id.clone(),
                batch,
                ours: false,
                speed_up: 4.0,
                fits: batch < n.one_batch() + moved,
            };
            batches.map(row).collect()
        };
        let said = |moved, complete| speed(&m, &rows(moved), complete)[3].clone();
        assert_eq!(said(0, true).held, Some(true), "{}", said(0, true).found);
        assert_eq!((said(1, true).held, said(1, false).held), (Some(false), None));
        assert!(said(1, true).found.contains("gpt2-xl: 5, not 3"), "{}", said(1, true).found);
    }

    #[test]
    fn faults_are_held_against_both_of_the_papers_shares() {
        let m = manifest();
        let held = |values: &[f64]| faults(&m, &named(values), true).iter().map(|v| v.held).collect::<Vec<_>>();
        assert_eq!(held(&[0.0, 0.1, 1.8]), [Some(true), Some(true)]);
        assert_eq!(held(&[0.0, 0.2, 1.9]), [Some(false), Some(false)]);
    }

    #[test]
    fn an_ablation_that_rises_by_more_than_chance_names_the_step() {
        let row = |seconds: &[f64], spread| [Ablated { row: "fig10/n".to_owned(), seconds: seconds.to_vec(), spread }];
        assert_eq!(ablation(&row(&[4.0, 3.0, 3.0, 2.0], 0.0), true).held, Some(true));
        let broken = ablation(&row(&[4.0, 3.0, 3.1, 2.0], 0.03), true);
        assert_eq!(broken.held, Some(false));
        assert!(broken.found.contains("fig10/n step 2: 3.0000 s to 3.1000 s"), "{}", broken.found);
        assert_eq!(ablation(&row(&[4.0, 3.0, 3.1, 2.0], 0.04), true).held, Some(true));
        assert_eq!(ablation(&row(&[4.0, 3.0], 0.0), false).held, None);
    }

    #[test]
    fn tables_must_be_small_and_as_good() {
        let m = manifest();
        let row = |compact_mb, faults| TableRow {
            row: "tab4/n".to_owned(),
            tables: 9,
            compact_mb,
            layout_mb: 100.0,
            paper_mb: Some(100.0),
            faults,
        };
        let half = m.tab4.networks.len().div_ceil(2);
        let held = |r: TableRow| -> Vec<_> { tables(&m, &vec![r; half], true).iter().map(|v| v.held).collect() };
        let equal = Some([1000.0, 1000.0, 1000.0]);
        assert_eq!(held(row(20.0, equal)), [Some(true), Some(true), Some(true)]);
        assert_eq!(held(row(20.1, Some([1100.0, 1100.0, 1000.0]))), [Some(false), Some(false), Some(false)]);
        assert_eq!(held(TableRow { paper_mb: None, ..row(90.0, equal) }), [Some(true), Some(false), Some(true)]);
        assert_eq!(held(TableRow { layout_mb: 99.0, ..row(20.0, equal) }), [Some(true), Some(false), Some(true)]);
        assert_eq!(held(TableRow { tables: 0, layout_mb: 20.0, ..row(20.0, equal) })[1], Some(true), "asleep");
        assert_eq!(held(row(20.0, Some([0.0, 0.0, 0.0])))[2], Some(true));
        assert_eq!(held(row(20.0, Some([0.0, 5.0, 0.0])))[2], None, "chance");
        let few = |faults| tables(&m, &vec![row(20.0, faults); half - 1], true)[2].held;
        assert_eq!(few(equal), None, "fewer than half");
        assert_eq!(few(Some([1100.0, 1100.0, 1000.0])), Some(false));
        assert!(tables(&m, &[row(20.0, Some([1100.0, 1000.0, 900.0]))], true)[2].found.contains("tab4/n (10 %)"));
    }
}
