//! What PyTorch itself offers, on the same device; and what the averages owe to the device's numbers.

use super::{mean, networks, show, varied};
use crate::paper::report::{Part, View};
use crate::paper::run::AS_IS;
use crate::rows::Outcome;
use crate::runs::{Mode, Run};

/// The remedies.
pub fn remedies(view: &mut View<'_>) -> Part {
    let mut part = Part { heads: vec!["network", "batch"], ..Part::default() };
    let remedies = varied(&view.rows);
    part.heads.extend(view.manifest.remedies.remedies.iter().filter(|r| remedies.contains(&r.as_str())).map(|r| {
        match r.as_str() {
            "save_on_cpu" => "save_on_cpu: s",
            "checkpoint" => "checkpointing: s",
            "offload_optimizer" => "optimizer on the host: s",
            "checkpoint_and_offload" => "both: s",
            _ => "plain: s",
        }
    }));
    part.heads.extend(["demand: s", "deepum: s", "ideal: s"]);
    let mut remarks = Vec::new();
    for id in networks(&view.rows) {
        let network = view.manifest.network(id);
        let batch = network.one_batch();
        let mut line = vec![network.name.clone(), network.batch_name(batch)];
        for remedy in &remedies {
            let row = view.rows.iter().find(|row| row.network == id && row.vary == *remedy);
            line.push(match (network.no_remedy.get(*remedy), row) {
                (Some(reason), _) => {
                    remarks.push(format!("{}, {remedy}: {reason}", network.name));
                    "none".to_owned()
                }
                (None, Some(row)) => outcome(view, &row.runs[0]),
                (None, None) => "–".to_owned(),
            });
        }
        line.extend(
            [Mode::Demand, Mode::DeepUm, Mode::Unlimited]
                .map(|mode| outcome(view, &view.manifest.run(network, batch, mode))),
        );
        part.lines.push(line);
    }
    part.below.push(
        "Arithmetic of the host costs no virtual time, so remedies are shown at their best: an optimizer on the host costs no more than its copies, \
         eight bytes a parameter, and those of gradients run beside the backward pass. Remedies change programs; DeepUM does not."
            .to_owned(),
    );
    part.below.extend((!remarks.is_empty()).then(|| remarks.join("; ") + "."));
    part
}

/// Seconds of an iteration, or why there is none.
fn outcome(view: &View<'_>, run: &Run) -> String {
    match view.measured(run) {
        Some(m) if m.outcome == Outcome::OutOfMemory => "out of memory".to_owned(),
        Some(m) => show(m.seconds, 3),
        None => "–".to_owned(),
    }
}

/// The sensitivity table.
pub fn sensitivity(view: &mut View<'_>) -> Part {
    let mut part = Part {
        heads: vec!["number", "scaled to", "mean speed-up", "change", "demand: s", "deepum: s"],
        ..Part::default()
    };
    // Rows of one scale: mean speed-up, mean seconds under demand, under deepum.
    let of = |scale: &str| -> Option<[f64; 3]> {
        let rows = view.rows.iter().filter(|row| row.vary == scale);
        let pairs: Option<Vec<(f64, f64)>> =
            rows.map(|row| Option::zip(view.seconds(&row.runs[0]), view.seconds(&row.runs[1]))).collect();
        let pairs = pairs.filter(|pairs| !pairs.is_empty())?;
        Some([
            mean(pairs.iter().map(|(demand, deepum)| demand / deepum)),
            mean(pairs.iter().map(|(demand, _)| *demand)),
            mean(pairs.iter().map(|(_, deepum)| *deepum)),
        ])
    };
    let base = of(AS_IS);
    let mut most: Option<(String, f64)> = None;
    for scale in varied(&view.rows) {
        let (number, percent) = scale.split_once('*').unwrap_or((scale, "100"));
        let figures = of(scale);
        let change = Option::zip(figures, base).map(|(own, base)| own[0] / base[0] - 1.0);
        if let Some(change) = change
            && most.as_ref().is_none_or(|(_, most)| change.abs() > most.abs())
        {
            most = Some((scale.replace('*', " at ") + " %", change));
        }
        part.lines.push(vec![
            number.to_owned(),
            format!("{percent} %"),
            show(figures.map(|f| f[0]), 3),
            change.map_or("–".to_owned(), |change| format!("{:+.1} %", change * 100.0)),
            show(figures.map(|f| f[1]), 3),
            show(figures.map(|f| f[2]), 3),
        ]);
    }
    let names: Vec<String> = networks(&view.rows)
        .into_iter()
        .map(|id| {
            let network = view.manifest.network(id);
            format!("{} (batch {})", network.name, network.batch_name(network.one_batch()))
        })
        .collect();
    part.below.push(format!("Averages over {}.", names.join(", ")));
    part.below.extend(most.map(|(scale, change)| {
        format!("The speed-up owes most to {scale}, which changes it by {:+.1} %.", change * 100.0)
    }));
    part
}
