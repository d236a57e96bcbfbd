//! Fig. 9a and Table 5: each network and batch under naive unified memory and under `deepum`, one of each also as in the paper.

use super::{geometric_mean, gib, mean, percent, show};
use crate::paper::limits::{self, SpeedUp};
use crate::paper::reasons::Compared;
use crate::paper::report::{Part, View};
use crate::runs::Engine;

/// Fig. 9a.
pub fn speed(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "GiB",
            "demand: s",
            "as in the paper: s",
            "deepum: s",
            "ideal: s",
            "speed-up: as in the paper",
            "ours",
            "of ideal",
            "link: demand",
            "deepum",
        ],
        ..Part::default()
    };
    let (mut rows, mut links, mut demand_links, mut ideals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Speed-ups of the paper's algorithm and of ours, where both were run.
    let mut both = Vec::new();
    for row in view.rows.clone() {
        let [demand, deepum, ideal, paper @ ..] = &row.runs[..] else { continue };
        let paper = paper.first();
        let network = view.manifest.network(&row.network);
        let speed_up = view.speed_up(demand, deepum);
        let of_paper = paper.and_then(|paper| view.speed_up(demand, paper));
        let of_ideal = view.speed_up(ideal, deepum);
        let link = view.link_share(deepum);
        let demand_link = view.link_share(demand);
        let fits = view.measured(demand).is_some_and(|m| m.bytes_h2d == Some(0.0));
        if let (Some(speed_up), Some(of_ideal), Some(link), Some(demand_link)) = (speed_up, of_ideal, link, demand_link)
        {
            rows.push(SpeedUp {
                row: row.id.clone(),
                network: row.network.clone(),
                batch: row.batch,
                ours: network.more.contains(&row.batch),
                speed_up,
                fits,
            });
            if !fits {
                links.push(link);
                demand_links.push(demand_link);
                ideals.push(of_ideal);
            }
        }
        both.extend(Option::zip(of_paper, speed_up));
        let size = show(view.measured(demand).map(|m| gib(m.peak_managed as f64)), 1);
        part.lines.push(vec![
            network.name.clone(),
            network.batch_name(row.batch),
            if fits { size + ", fits" } else { size },
            show(view.seconds(demand), 3),
            show(paper.and_then(|paper| view.seconds(paper)), 3),
            show(view.seconds(deepum), 3),
            show(view.seconds(ideal), 3),
            show(of_paper, 2),
            show(speed_up, 2),
            percent(of_ideal, 1),
            percent(demand_link, 0),
            percent(link, 0),
        ]);
    }
    let complete = view.complete && rows.len() == view.rows.len();
    let tight = |ours: bool| -> Vec<f64> {
        rows.iter().filter(|row| !row.fits && (ours || !row.ours)).map(|row| row.speed_up).collect()
    };
    let (papers, all) = (tight(false), tight(true));
    if !papers.is_empty() {
        let ours = mean(papers.iter().copied());
        let paper = view.manifest.fig9a.paper_average;
        let over = (!both.is_empty()).then(|| mean(both.iter().map(|(paper, ours)| ours / paper)));
        let seen = [
            ("link", Some(mean(links.into_iter()))),
            ("demand_link", Some(mean(demand_links.into_iter()))),
            ("over_as_in_paper", over),
        ];
        let why = view.reasons.of(Compared { row: "fig9a", ours, paper, seen: &seen });
        part.below.push(format!(
            "Average over the {} rows of the paper that do not fit: paper {paper:.2}, ours **{ours:.2}** (geometric mean {:.2}), ratio {:.2} {why}. \
             With our own rows that do not fit, {}: {:.2}; {:.1} % of ideal. Over all {} rows: {:.2}. The paper's figures of single rows: –.",
            papers.len(),
            geometric_mean(papers.iter().copied()),
            ours / paper,
            all.len(),
            mean(all.iter().copied()),
            mean(ideals.into_iter()) * 100.0,
            rows.len(),
            mean(rows.iter().map(|row| row.speed_up)),
        ));
    }
    if !both.is_empty() {
        part.below.push(format!(
            "The paper's own algorithm, on the {} rows where it was run: {:.2} times as fast as naive unified memory on average, ours {:.2}.",
            both.len(),
            mean(both.iter().map(|(paper, _)| *paper)),
            mean(both.iter().map(|(_, ours)| *ours)),
        ));
    }
    part.below.extend(rows.iter().any(|row| row.fits).then(|| view.manifest.fig9a.fits.trim().to_owned()));
    part.verdicts = limits::speed(view.manifest, &rows, complete);
    part
}

/// Table 5.
pub fn faults(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "demand",
            "as in the paper",
            "deepum",
            "first iteration",
            "of demand's: paper",
            "as in the paper",
            "ours",
            "why",
            "left out",
            "late",
        ],
        ..Part::default()
    };
    let bound = view.manifest.tab5.paper_all;
    let mut shares = Vec::new();
    for row in view.rows.clone() {
        let [demand, deepum, paper @ ..] = &row.runs[..] else { continue };
        let network = view.manifest.network(&row.network);
        let of = |run| view.measured(run).and_then(|m| m.faults);
        let (slow, fast, paper) = (of(demand), of(deepum), paper.first().and_then(of));
        let share_of = |fast| Some(share(slow?, fast?));
        let ours = share_of(fast);
        shares.extend(ours.map(|s| (row.id.clone(), s)));
        let engine = view.measured(deepum).and_then(|m| m.engine);
        let part_of = |what: fn(&Engine) -> u64| {
            engine.as_ref().filter(|e| e.faulted > 0).map(|e| what(e) as f64 / e.faulted as f64)
        };
        let (left_out, late) = (part_of(|e| e.left_out), part_of(|e| e.late));
        let first = view.measured(deepum).and_then(|m| m.faults_first).map(|n| n as f64);
        let seen = [("left_out", left_out), ("late", late)];
        // Below the paper's bound there is nothing to explain.
        let above = ours.filter(|s| *s > bound);
        let why = above.map(|ours| view.reasons.of(Compared { row: &row.id, ours, paper: bound, seen: &seen }));
        let shown = |share: Option<f64>| share.map_or("–".to_owned(), |s| format!("{s:.4} %"));
        part.lines.push(vec![
            network.name.clone(),
            network.batch_name(row.batch),
            show(slow, 0),
            show(paper, 0),
            show(fast, 0),
            show(first, 0),
            format!("≤ {bound} %"),
            shown(share_of(paper)),
            shown(ours),
            why.unwrap_or_default(),
            percent(left_out, 0),
            percent(late, 0),
        ]);
    }
    let complete = view.complete && shares.len() == view.rows.len();
    part.verdicts = limits::faults(view.manifest, &shares, complete);
    part
}

/// Faults in per cent of naive unified memory's. None of none is none of them.
fn share(demand: f64, faults: f64) -> f64 {
    if faults == 0.0 { 0.0 } else { faults / demand * 100.0 }
}

#[cfg(test)]
mod tests {
    use crate::paper::manifest::Manifest;
    use crate::paper::plan::Section;
    use crate::paper::pool::Done;
    use crate::paper::reasons::Reasons;
    use crate::paper::report::View;
    use crate::runs::{Measured, Mode};

    /// Table 5 with every run measured: demand faults this often on rows that do not fit, the others one in two thousand as often.
    fn verdicts(faults: f64) -> Vec<Option<bool>> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/paper/manifest.toml");
        let manifest = Manifest::read(&path).unwrap();
        let rows: Vec<_> = manifest.rows().into_iter().filter(|row| row.section == Section::Tab5).collect();
        let mut done = Done::default();
        for run in rows.iter().flat_map(|row| &row.runs) {
            let fits = run.batch < manifest.network(&run.network).one_batch();
            let own = if fits { 0.0 } else { faults };
            let faults = Some(if run.mode == Mode::Demand { own } else { own / 2000.0 });
            done.made.runs.insert(run.clone(), Measured { faults, ..Measured::default() });
        }
        let reasons = Reasons::new(&manifest);
        let mut view = View { manifest: &manifest, rows: rows.iter().collect(), complete: true, done: &done, reasons };
        super::faults(&mut view).verdicts.iter().map(|verdict| verdict.held).collect()
    }

    #[test]
    fn a_table_with_rows_that_fit_is_complete() {
        assert_eq!(verdicts(1e6), [Some(true), Some(true)]);
        assert_eq!(super::share(0.0, 0.0), 0.0);
        assert!(super::share(0.0, 1.0) > 1.8, "faults where naive unified memory has none are no small share");
    }
}
