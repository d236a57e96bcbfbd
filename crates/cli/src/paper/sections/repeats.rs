//! The same run twice: what of a difference between two runs is chance.

use super::{percent, show};
use crate::paper::report::{Part, View};

pub fn repeats(view: &mut View<'_>) -> Part {
    let mut part =
        Part { heads: vec!["network", "batch", "s", "again", "apart", "faults", "again"], ..Part::default() };
    for row in view.rows.clone() {
        let [one, again] = &row.runs[..] else { continue };
        let network = view.manifest.network(&row.network);
        let faults = |run| show(view.measured(run).and_then(|m| m.faults), 0);
        part.lines.push(vec![
            network.name.clone(),
            network.batch_name(row.batch),
            show(view.seconds(one), 4),
            show(view.seconds(again), 4),
            percent(view.spread(&row.network), 2),
            faults(one),
            faults(again),
        ]);
    }
    part
}
