//! Tables 3, 7 and 4: the largest batches, and what the correlation tables take.

use super::{gib, show};
use crate::paper::limits::{self, TableRow};
use crate::paper::plan::{Mode, Section};
use crate::paper::reasons::Compared;
use crate::paper::report::{Part, View};

/// Tables 3 and 7.
pub fn largest(section: Section, view: &mut View<'_>) -> Part {
    let mut part =
        Part { heads: vec!["network", "paper", "ours", "refused", "GiB", "ratio", "why"], ..Part::default() };
    let table = if section == Section::Tab3 { &view.manifest.tab3 } else { &view.manifest.tab7 };
    let Some(table) = table else { return part };
    for row in view.rows.clone() {
        let network = view.manifest.network(&row.network);
        let found = view.done.largest.get(&row.id);
        let paper = network.paper.largest.filter(|_| table.paper).map(f64::from);
        let ours = found.map(|found| f64::from(found.largest));
        let mut run = view.manifest.run(network, found.map_or(0, |found| found.largest), Mode::DeepUm);
        run.device.clone_from(&table.device);
        network.keys.iter().for_each(|key| run.add_key(key));
        run.iterations = 2;
        let why = Option::zip(ours, paper)
            .map(|(ours, paper)| view.reasons.of(Compared { row: &row.id, ours, paper, link: None }));
        part.lines.push(vec![
            network.name.clone(),
            show(paper, 0),
            show(ours, 0),
            show(found.map(|found| f64::from(found.refused)), 0),
            show(view.measured(&run).map(|m| gib(m.peak_managed as f64)), 1),
            show(Option::zip(ours, paper).map(|(ours, paper)| ours / paper), 2),
            why.unwrap_or_default(),
        ]);
    }
    part
}

/// Table 4.
pub fn tables(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec![
            "network",
            "batch",
            "execution IDs",
            "paper: MB",
            "paper's layout: MB",
            "ratio",
            "why",
            "compact: MB",
            "of the paper's",
            "faults",
            "again",
            "paper's layout",
        ],
        ..Part::default()
    };
    let mut rows = Vec::new();
    for row in view.rows.clone() {
        let [compact, layout, again @ ..] = &row.runs[..] else { continue };
        let network = view.manifest.network(&row.network);
        let done = view.done;
        let tables = |run| done.runs.get(run).and_then(|m| m.tables);
        let mb = |run| tables(run).map(|t| t.bytes as f64 / 1e6);
        let faults = |run| done.runs.get(run).and_then(|m| m.faults);
        let again = again.first().and_then(faults);
        let smallest = network.outer_batches().next() == Some(row.batch);
        let paper = network.paper.tables_mb.map(|[least, most]| if smallest { least } else { most });
        let why = Option::zip(mb(layout), paper)
            .map(|(ours, paper)| view.reasons.of(Compared { row: &row.id, ours, paper, link: None }));
        if let (Some(compact_mb), Some(compact_faults), Some(paper_layout_faults)) =
            (mb(compact), faults(compact), faults(layout))
        {
            let faults = again.map(|again| [compact_faults, again, paper_layout_faults]);
            rows.push(TableRow { row: row.id.clone(), compact_mb, paper_mb: paper, faults });
        }
        part.lines.push(vec![
            network.name.clone(),
            row.batch.to_string(),
            show(tables(compact).map(|t| t.exec_ids as f64), 0),
            show(paper, 0),
            show(mb(layout), 1),
            show(Option::zip(mb(layout), paper).map(|(ours, paper)| ours / paper), 2),
            why.unwrap_or_default(),
            show(mb(compact), 2),
            Option::zip(mb(compact), paper).map_or("–".to_owned(), |(ours, paper)| format!("1/{:.0}", paper / ours)),
            show(faults(compact), 0),
            show(again, 0),
            show(faults(layout), 0),
        ]);
    }
    let complete = view.complete && rows.len() == view.rows.len();
    part.verdicts = limits::tables(view.manifest, &rows, complete);
    part
}
