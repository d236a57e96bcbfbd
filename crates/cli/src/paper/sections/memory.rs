//! Tables 3, 7 and 4: the largest batches, and what the correlation tables take.

use super::{gib, show};

use crate::paper::limits::{self, TableRow};
use crate::paper::plan::Section;
use crate::paper::reasons::Compared;
use crate::paper::report::{Part, View};
use crate::rows::Outcome;
use crate::runs::{Run, host_memory};
use deepum_core::correlate::Geometry;

/// Tables 3 and 7.
pub fn largest(section: Section, view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec!["network", "paper", "GiB at the paper's", "ours", "refused", "grid", "GiB", "ratio", "why"],
        ..Part::default()
    };
    let table = if section == Section::Tab3 { &view.manifest.tab3 } else { &view.manifest.tab7 };
    let Some(table) = table else { return part };
    let host = host_memory(&table.device).ok().map(|bytes| bytes as f64);
    for row in view.rows.clone() {
        let network = view.manifest.network(&row.network);
        let found = view.done.largest.get(&row.id);
        let paper = network.paper.largest.filter(|_| table.paper);
        let peak = |run: Run| view.measured(&run).filter(|m| m.outcome == Outcome::Ok).map(|m| m.peak_managed as f64);
        let ours_peak = found.and_then(|found| peak(view.manifest.probe(network, table, found.largest)));
        let at_paper = row.runs.first().and_then(|run| view.measured(run));
        let paper_refused = at_paper.is_some_and(|m| m.outcome == Outcome::OutOfMemory);
        let paper_peak = row.runs.first().cloned().and_then(peak);
        let (ours, paper) = (found.map(|found| f64::from(found.largest)), paper.map(f64::from));
        let of_host = |peak: Option<f64>| Some(peak? / host?);
        let seen = [("of_host", of_host(ours_peak)), ("paper_batch_of_host", of_host(paper_peak))];
        let why = Option::zip(ours, paper)
            .map(|(ours, paper)| view.reasons.of(Compared { row: &row.id, ours, paper, seen: &seen }));
        part.lines.push(vec![
            network.name.clone(),
            show(paper, 0),
            if paper_refused { "refused".to_owned() } else { show(paper_peak.map(gib), 1) },
            show(ours, 0),
            show(found.map(|found| f64::from(found.refused)), 0),
            network.step.to_string(),
            show(ours_peak.map(gib), 1),
            show(Option::zip(ours, paper).map(|(ours, paper)| ours / paper), 2),
            why.unwrap_or_default(),
        ]);
    }
    part
}

/// Bytes of a table in the paper's layout (`docs/tables.md`).
fn whole_table(geometry: &str) -> Option<f64> {
    let g: Geometry = geometry.parse().ok()?;
    Some(f64::from(g.rows()) * f64::from(g.ways()) * f64::from(1 + g.successors()) * 4.0)
}

/// Table 4.
pub fn tables(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "tables",
            "paper: MB",
            "as in the paper: MB",
            "paper's layout: MB",
            "ratio",
            "why",
            "compact: MB",
            "of the paper's",
            "of its layout",
            "faults",
            "again",
            "paper's layout",
        ],
        ..Part::default()
    };
    let whole = whole_table(&view.manifest.tab4.paper_layout);
    let mut rows = Vec::new();
    for row in view.rows.clone() {
        let [compact, layout, more @ ..] = &row.runs[..] else { continue };
        let network = view.manifest.network(&row.network);
        let done = view.done;
        let tables = |run| done.made.runs.get(run).and_then(|m| m.engine);
        let mb = |run| tables(run).map(|t| t.table_bytes as f64 / 1e6);
        let faults = |run| done.made.runs.get(run).and_then(|m| m.faults);
        let again = more.first().and_then(faults);
        // The paper's least and most beside its smallest and its largest batch.
        let [least, most] = [network.batches.iter().min(), network.batches.iter().max()];
        let paper = network.paper.tables_mb.and_then(|[small, large]| match Some(&row.batch) {
            batch if batch == least => Some(small),
            batch if batch == most => Some(large),
            _ => None,
        });
        let count = tables(layout).map(|t| t.block_tables as f64);
        let seen = [("tables", count), ("tables_share", (|| Some(count? * whole? / 1e6 / mb(layout)?))())];
        let why = Option::zip(mb(layout), paper)
            .map(|(ours, paper)| view.reasons.of(Compared { row: &row.id, ours, paper, seen: &seen }));
        if let (Some(compact_mb), Some(layout_mb), Some(engine), Some(compact_faults), Some(layout_faults)) =
            (mb(compact), mb(layout), tables(compact), faults(compact), faults(layout))
        {
            rows.push(TableRow {
                row: row.id.clone(),
                tables: engine.block_tables,
                compact_mb,
                layout_mb,
                paper_mb: paper,
                faults: again.map(|again| [compact_faults, again, layout_faults]),
            });
        }
        let part_of = |of: Option<f64>| {
            Option::zip(mb(compact), of).map_or("–".to_owned(), |(ours, of)| format!("1/{:.1}", of / ours))
        };
        part.lines.push(vec![
            network.name.clone(),
            network.batch_name(row.batch),
            show(count, 0),
            show(paper, 0),
            show(more.get(1).and_then(mb), 1),
            show(mb(layout), 1),
            show(Option::zip(mb(layout), paper).map(|(ours, paper)| ours / paper), 2),
            why.unwrap_or_default(),
            show(mb(compact), 2),
            part_of(paper),
            part_of(mb(layout)),
            show(faults(compact), 0),
            show(again, 0),
            show(faults(layout), 0),
        ]);
    }
    let complete = view.complete && rows.len() == view.rows.len();
    part.verdicts = limits::tables(view.manifest, &rows, complete);
    part
}
