//! Fig. 10, 11, 12: what DeepUM's parts, its degree and the geometry of its tables do.

use super::{mean, networks, percent, show, varied};
use crate::paper::limits::{self, Ablated};
use crate::paper::reasons::Compared;
use crate::paper::report::{Part, View};

/// Fig. 10.
pub fn ablation(view: &mut View<'_>) -> Part {
    let steps = &view.manifest.fig10.steps;
    let mut part = Part { heads: vec!["network", "batch", "demand: s"], ..Part::default() };
    let mut measured: Vec<Ablated> = Vec::new();
    let mut links = Vec::new();
    for row in view.rows.clone() {
        let network = view.manifest.network(&row.network);
        let own = &row.runs[..=steps.len()];
        let seconds: Vec<Option<f64>> = own.iter().map(|run| view.seconds(run)).collect();
        let (link, spread) = (view.link_share(&own[0]), view.spread(&row.network));
        let mut line = vec![network.name.clone(), network.batch_name(row.batch), show(seconds[0], 3)];
        line.extend(seconds[1..].iter().map(|s| {
            Option::zip(*s, seconds[0]).map_or("–".to_owned(), |(s, of)| format!("{s:.3} ({:+.1} %)", -cut(of, s)))
        }));
        line.extend([percent(link, 0), percent(spread, 2)]);
        part.lines.push(line);
        if let (Some(seconds), Some(spread)) = (seconds.into_iter().collect(), spread) {
            measured.push(Ablated { row: row.id.clone(), seconds, spread });
            links.extend(link);
        }
    }
    part.below.push({
        let columns: Vec<String> =
            steps.iter().enumerate().map(|(n, step)| format!("{} {}", n + 1, step.name)).collect();
        format!(
            "Columns: {}; *link* as in Fig. 9a, of `demand`; *chance* is how far two runs of the same are apart.",
            columns.join("; ")
        )
    });
    part.heads.extend(["1", "2", "3", "4", "5", "6"].iter().take(steps.len()));
    part.heads.extend(["link", "chance"]);
    if !measured.is_empty() {
        let seen = [("demand_link", Some(mean(links.into_iter())))];
        for (n, step) in steps.iter().enumerate() {
            let ours = mean(measured.iter().map(|row| cut(row.seconds[0], row.seconds[n + 1])));
            let why = view.reasons.of(Compared { row: "fig10", ours, paper: step.paper_cut, seen: &seen });
            part.below.push(format!(
                "{}: execution time cut on average by: paper {:.1} %, ours {ours:.1} %, ratio {:.2} {why}",
                step.name,
                step.paper_cut,
                ours / step.paper_cut,
            ));
        }
    }
    part.verdicts.push(limits::ablation(&measured, view.complete && measured.len() == view.rows.len()));
    part
}

/// By how much `seconds` is less than `of`, in per cent.
fn cut(of: f64, seconds: f64) -> f64 {
    (1.0 - seconds / of) * 100.0
}

/// Fig. 11.
pub fn degrees(view: &mut View<'_>) -> Part {
    let mut part = grid(view, "N");
    // Each row has its network's run under our default, too.
    let ours: Vec<Option<f64>> = networks(&view.rows)
        .iter()
        .map(|id| {
            let row = view.rows.iter().find(|row| row.network == *id)?;
            view.speed_up(&row.runs[1], &row.runs[2])
        })
        .collect();
    let degree = deepum_config::Config::default().degree;
    part.lines.push(line(format!("{degree} (ours)"), &ours));
    let paper = view.manifest.fig11.paper_best.to_string();
    let at_paper: Vec<f64> =
        view.rows.iter().filter(|row| row.vary == paper).filter_map(|row| view.link_share(&row.runs[0])).collect();
    let link = (!at_paper.is_empty()).then(|| mean(at_paper.into_iter()));
    part.below.extend(link.map(|link| {
        format!(
            "At N = {paper} the busier direction of the link is busy for {:.0} % of an iteration on average.",
            link * 100.0
        )
    }));
    best(view, &mut part, "fig11", &paper, "N", &[("link", link)]);
    part
}

/// Fig. 12 and Table 6.
pub fn geometries(view: &mut View<'_>) -> Part {
    let mut part = grid(view, "rows x ways x successors");
    let best_of_paper = view.manifest.fig12.paper_best.replace(',', "x");
    best(view, &mut part, "fig12", &best_of_paper, "geometry", &[]);
    // What the geometries cost, summed over networks.
    for (line, vary) in part.lines.iter_mut().zip(varied(&view.rows)) {
        let bytes: Option<Vec<f64>> = view
            .rows
            .iter()
            .filter(|row| row.vary == vary)
            .map(|row| Some(view.measured(&row.runs[0])?.engine?.table_bytes as f64))
            .collect();
        line.push(show(bytes.map(|b| b.iter().sum::<f64>() / 1e6), 2));
    }
    part.heads.push("tables, all networks: MB");
    part
}

/// Lines of what is varied, columns of networks, cells of speed-ups.
fn grid(view: &View<'_>, head: &'static str) -> Part {
    let ids = networks(&view.rows);
    let mut part = Part { heads: vec![head], ..Part::default() };
    part.below.push({
        let columns = ids.iter().enumerate().map(|(n, id)| {
            let network = view.manifest.network(id);
            let batch = network.batch_name(network.one_batch());
            format!(
                "{} {}, batch {batch}, two runs of the same {} apart",
                letter(n),
                network.name,
                percent(view.spread(id), 2)
            )
        });
        format!("Columns: {}. What differs by less may be chance.", columns.collect::<Vec<_>>().join("; "))
    });
    part.heads.extend(LETTERS.iter().take(ids.len()));
    part.heads.push("mean");
    for vary in varied(&view.rows) {
        let cells: Vec<Option<f64>> = ids
            .iter()
            .map(|id| {
                let row = view.rows.iter().find(|row| row.network == *id && row.vary == vary)?;
                view.speed_up(&row.runs[1], &row.runs[0])
            })
            .collect();
        part.lines.push(line(vary.to_owned(), &cells));
    }
    part
}

const LETTERS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

fn letter(n: usize) -> &'static str {
    LETTERS.get(n).copied().unwrap_or("–")
}

fn line(name: String, cells: &[Option<f64>]) -> Vec<String> {
    let all: Option<Vec<f64>> = cells.iter().copied().collect();
    let mut line = vec![name];
    line.extend(cells.iter().map(|cell| show(*cell, 2)));
    line.push(show(all.map(|all| mean(all.into_iter())), 3));
    line
}

/// Says which value is best beside the paper's, and how far the paper's is behind.
fn best(
    view: &mut View<'_>,
    part: &mut Part,
    row: &str,
    paper: &str,
    what: &str,
    seen: &[(&'static str, Option<f64>)],
) {
    let means: Vec<(String, f64)> =
        part.lines.iter().filter_map(|line| Some((line.first()?.clone(), line.last()?.parse().ok()?))).collect();
    let Some((name, top)) = means.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let of_paper = means.iter().find(|(name, _)| name == paper).map(|(_, mean)| *mean);
    let why = of_paper
        .map(|of_paper| view.reasons.of(Compared { row, ours: *top, paper: of_paper, seen }))
        .unwrap_or_default();
    part.below.push(format!(
        "Best {what}: paper {paper}, ours {name}; the paper's reaches {} of our best here. {why}",
        of_paper.map_or("–".to_owned(), |m| format!("{:.1} %", m / top * 100.0)),
    ));
}
