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

/// By how much a time may exceed another that it must not exceed.
const ROUNDING: f64 = 1.001;
/// Fault counts this far apart are the same.
const EQUAL_FAULTS: f64 = 1.01;

/// One row of Fig. 9a.
#[derive(Clone, Debug)]
pub struct SpeedUp {
    pub row: String,
    pub speed_up: f64,
    /// Nothing moves in a steady iteration, whoever decides: there is nothing to speed up.
    pub fits: bool,
}

/// The average, which is over rows that do not fit, and the slowest of all.
pub fn speed(manifest: &Manifest, rows: &[SpeedUp], complete: bool) -> Vec<Verdict> {
    let paper = manifest.fig9a.paper_average;
    let least = manifest.fig9a.least;
    let tight: Vec<f64> = rows.iter().filter(|r| !r.fits).map(|r| r.speed_up).collect();
    let mean = super::sections::mean(tight.iter().copied());
    let known = complete && !tight.is_empty();
    let slow: Vec<String> =
        rows.iter().filter(|r| r.speed_up < least).map(|r| format!("{} {:.3}", r.row, r.speed_up)).collect();
    let slowest = rows.iter().min_by(|a, b| a.speed_up.total_cmp(&b.speed_up));
    vec![
        Verdict::new(
            format!("average speed-up over naive unified memory at least the paper's {paper:.2}"),
            known.then_some(mean >= paper),
            if tight.is_empty() { "none measured".to_owned() } else { format!("{mean:.2}") },
        ),
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

/// Seconds of an iteration as parts are added, by row ID.
pub fn ablation(steps: &[(String, Vec<f64>)], complete: bool) -> Verdict {
    let rises: Vec<String> = steps
        .iter()
        .flat_map(|(row, seconds)| {
            seconds
                .windows(2)
                .enumerate()
                .filter(|(_, pair)| pair[1] > pair[0] * ROUNDING)
                .map(move |(n, pair)| format!("{row} step {}: {:.4} s to {:.4} s", n + 1, pair[0], pair[1]))
        })
        .collect();
    let held = if rises.is_empty() { (complete && !steps.is_empty()).then_some(true) } else { Some(false) };
    let found = if rises.is_empty() { format!("on {} networks", steps.len()) } else { rises.join("; ") };
    Verdict::new("each part makes no network slower", held, found)
}

/// One network's tables.
#[derive(Clone, Debug)]
pub struct TableRow {
    pub row: String,
    pub compact_mb: f64,
    /// What the paper reports.
    pub paper_mb: Option<f64>,
    /// Faults of an iteration in the compact layout, there once more, and in the paper's.
    pub faults: Option<[f64; 3]>,
}

/// How many times as many the greater is.
fn apart(one: f64, other: f64) -> f64 {
    if one == other { 1.0 } else { one.max(other) / one.min(other) }
}

/// The compact layout against the paper's sizes.
pub fn tables(manifest: &Manifest, rows: &[TableRow], complete: bool) -> Vec<Verdict> {
    let parts = manifest.tab4.parts;
    let of = |bad: Vec<String>, good: &str| {
        let held = if bad.is_empty() { (complete && !rows.is_empty()).then_some(true) } else { Some(false) };
        (held, if bad.is_empty() { good.to_owned() } else { bad.join(", ") })
    };
    let large = rows
        .iter()
        .filter(|r| r.paper_mb.is_some_and(|paper| r.compact_mb * parts > paper))
        .map(|r| format!("{} {:.2} MB of {:.0} MB", r.row, r.compact_mb, r.paper_mb.unwrap_or_default()))
        .collect();
    let (held, found) = of(large, "on every network measured");
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
    let (held_too, found_too) = of(more, &good);
    let held_too = held_too.filter(|_| !told.is_empty());
    vec![
        Verdict::new(format!("compact tables at most 1/{parts} of the paper's size"), held, found),
        Verdict::new("compact tables fault no more than the paper's layout", held_too, found_too),
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
            let row = |(row, speed_up)| SpeedUp { row, speed_up, fits: speed_up == 1.0 };
            named(values).into_iter().map(row).collect()
        };
        let held =
            |values: &[f64], complete| speed(&m, &rows(values), complete).iter().map(|v| v.held).collect::<Vec<_>>();
        assert_eq!(held(&[3.0, 3.2], true), [Some(true), Some(true)]);
        assert_eq!(held(&[3.0, 3.0], true), [Some(false), Some(true)]);
        assert_eq!(held(&[1.0, 3.1, 3.1], true), [Some(true), Some(true)], "rows that fit are not in the average");
        assert_eq!(held(&[1.0], true), [None, Some(true)]);
        assert_eq!(held(&[9.0, 0.949], false), [None, Some(false)]);
        assert_eq!(held(&[9.0], false), [None, None]);
        assert!(speed(&m, &rows(&[9.0, 0.949]), true)[1].found.contains("row1 0.949"));
    }

    #[test]
    fn faults_are_held_against_both_of_the_papers_shares() {
        let m = manifest();
        let held = |values: &[f64]| faults(&m, &named(values), true).iter().map(|v| v.held).collect::<Vec<_>>();
        assert_eq!(held(&[0.0, 0.1, 1.8]), [Some(true), Some(true)]);
        assert_eq!(held(&[0.0, 0.2, 1.9]), [Some(false), Some(false)]);
    }

    #[test]
    fn an_ablation_that_rises_names_the_step() {
        let row = |seconds: &[f64]| vec![("fig10/n".to_owned(), seconds.to_vec())];
        assert_eq!(ablation(&row(&[4.0, 3.0, 3.0, 2.0]), true).held, Some(true));
        let broken = ablation(&row(&[4.0, 3.0, 3.1, 2.0]), true);
        assert_eq!(broken.held, Some(false));
        assert!(broken.found.contains("fig10/n step 2: 3.0000 s to 3.1000 s"), "{}", broken.found);
        assert_eq!(ablation(&row(&[4.0, 3.0]), false).held, None);
    }

    #[test]
    fn tables_must_be_small_and_as_good() {
        let m = manifest();
        let row = |compact_mb, faults| TableRow { row: "tab4/n".to_owned(), compact_mb, paper_mb: Some(100.0), faults };
        let verdicts = |r: TableRow| tables(&m, &[r], true);
        let held = |r: TableRow| verdicts(r).iter().map(|v| v.held).collect::<Vec<_>>();
        let equal = Some([1000.0, 1000.0, 1000.0]);
        assert_eq!(held(row(20.0, equal)), [Some(true), Some(true)]);
        assert_eq!(held(row(20.1, Some([1100.0, 1100.0, 1000.0]))), [Some(false), Some(false)]);
        assert_eq!(held(TableRow { paper_mb: None, ..row(90.0, equal) }), [Some(true), Some(true)]);
        assert_eq!(held(row(20.0, Some([0.0, 0.0, 0.0]))), [Some(true), Some(true)]);
        assert_eq!(held(row(20.0, Some([0.0, 5.0, 0.0])))[1], None, "chance");
        assert!(verdicts(row(20.0, Some([1100.0, 1000.0, 900.0])))[1].found.contains("tab4/n (10 %)"));
    }
}
