//! Fig. 9a and Table 5: each network and batch under naive unified memory and under `deepum`.

use super::{geometric_mean, gib, mean, percent, show};
use crate::paper::limits::{self, SpeedUp};
use crate::paper::one::Measured;
use crate::paper::plan::Run;
use crate::paper::reasons::Compared;
use crate::paper::report::{Part, View};
use deepum_emu_device::config::Config;
use deepum_model::Profile;

/// Fig. 9a.
pub fn speed(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "GiB",
            "demand: s",
            "deepum: s",
            "ideal: s",
            "speed-up: ours",
            "of ideal",
            "link",
        ],
        ..Part::default()
    };
    let (mut rows, mut links, mut ideals) = (Vec::new(), Vec::new(), Vec::new());
    for row in view.rows.clone() {
        let [demand, deepum, ideal] = &row.runs[..] else { continue };
        let network = view.manifest.network(&row.network);
        let speed_up = view.speed_up(demand, deepum);
        let of_ideal = view.speed_up(ideal, deepum);
        let link = view.measured(deepum).and_then(|m| link_share(deepum, m));
        let fits = view.measured(demand).is_some_and(|m| m.bytes_h2d == Some(0.0));
        if let (Some(speed_up), Some(of_ideal), Some(link)) = (speed_up, of_ideal, link) {
            rows.push(SpeedUp { row: row.id.clone(), speed_up, fits });
            if !fits {
                links.push(link);
                ideals.push(of_ideal);
            }
        }
        let size = show(view.measured(demand).map(|m| gib(m.peak_managed as f64)), 1);
        part.lines.push(vec![
            network.name.clone(),
            format!("{}{}", row.batch, if network.more.contains(&row.batch) { " (ours)" } else { "" }),
            if fits { size + ", fits" } else { size },
            show(view.seconds(demand), 3),
            show(view.seconds(deepum), 3),
            show(view.seconds(ideal), 3),
            show(speed_up, 2),
            percent(of_ideal, 1),
            percent(link, 0),
        ]);
    }
    let complete = view.complete && rows.len() == view.rows.len();
    let speed_ups: Vec<f64> = rows.iter().filter(|row| !row.fits).map(|row| row.speed_up).collect();
    if !speed_ups.is_empty() {
        let ours = mean(speed_ups.iter().copied());
        let paper = view.manifest.fig9a.paper_average;
        let why = view.reasons.of(Compared { row: "fig9a", ours, paper, link: Some(mean(links.into_iter())) });
        part.below.push(format!(
            "Average over the {} rows that do not fit: paper {paper:.2}, ours **{ours:.2}** (geometric mean {:.2}), ratio {:.2} {why}; {:.1} % of ideal. \
             Over all {} rows: {:.2}. The paper's figures of single rows: –.",
            speed_ups.len(),
            geometric_mean(speed_ups.iter().copied()),
            ours / paper,
            mean(ideals.into_iter()) * 100.0,
            rows.len(),
            mean(rows.iter().map(|row| row.speed_up)),
        ));
    }
    part.below.extend(rows.iter().any(|row| row.fits).then(|| view.manifest.fig9a.fits.trim().to_owned()));
    part.verdicts = limits::speed(view.manifest, &rows, complete);
    part
}

/// Share of an iteration for which the busier direction of the link is busy.
fn link_share(run: &Run, measured: &Measured) -> Option<f64> {
    let config = Config::parse(&run.device, &Profile::NAMES).ok()?;
    let profile = Profile::scaled(&config.profile, &config.scale).ok()?;
    let (h2d, d2h) = (measured.bytes_h2d? / profile.h2d_bandwidth, measured.bytes_d2h? / profile.d2h_bandwidth);
    Some(h2d.max(d2h) / measured.seconds?)
}

/// Table 5.
pub fn faults(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "demand",
            "deepum",
            "first iteration",
            "of demand's: paper",
            "ours",
            "ratio",
            "why",
        ],
        ..Part::default()
    };
    let bound = view.manifest.tab5.paper_all;
    let mut shares = Vec::new();
    for row in view.rows.clone() {
        let [demand, deepum] = &row.runs[..] else { continue };
        let of = |run| view.measured(run).and_then(|m| m.faults);
        let (slow, fast) = (of(demand), of(deepum));
        let share = Option::zip(slow, fast).filter(|(slow, _)| *slow > 0.0).map(|(slow, fast)| fast / slow * 100.0);
        let first = view.measured(deepum).and_then(|m| m.faults_first).map(|n| n as f64);
        shares.extend(share.map(|s| (row.id.clone(), s)));
        // Below the paper's bound there is nothing to explain.
        let above = share.filter(|s| *s > bound);
        let why = above.map(|ours| view.reasons.of(Compared { row: &row.id, ours, paper: bound, link: None }));
        part.lines.push(vec![
            view.manifest.network(&row.network).name.clone(),
            row.batch.to_string(),
            show(slow, 0),
            show(fast, 0),
            show(first, 0),
            format!("≤ {bound} %"),
            share.map_or("–".to_owned(), |s| format!("{s:.4} %")),
            show(share.map(|s| s / bound), 2),
            why.unwrap_or_default(),
        ]);
    }
    let complete = view.complete && shares.len() == view.rows.len();
    part.verdicts = limits::faults(view.manifest, &shares, complete);
    part
}
