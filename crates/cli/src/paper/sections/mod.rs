//! The sections of the document, each from its rows' runs: tables here, what they mean in `limits` and in the manifest's reasons.

mod memory;
mod parts;
mod repeats;
mod speed;
mod today;

use super::manifest::Manifest;
use super::plan::{Row, Section};
use super::report::{Part, View};

/// Makes one section.
pub fn part(section: Section, view: &mut View<'_>) -> Part {
    match section {
        Section::Fig9a => speed::speed(view),
        Section::Tab5 => speed::faults(view),
        Section::Tab3 | Section::Tab7 => memory::largest(section, view),
        Section::Tab4 => memory::tables(view),
        Section::Repeats => repeats::repeats(view),
        Section::Fig10 => parts::ablation(view),
        Section::Fig11 => parts::degrees(view),
        Section::Fig12 => parts::geometries(view),
        Section::Remedies => today::remedies(view),
        Section::Sensitivity => today::sensitivity(view),
    }
}

/// What a section's table shows, in a sentence or two.
pub fn lead(section: Section, manifest: &Manifest) -> String {
    match section {
        Section::Fig9a => "Seconds of an iteration under naive unified memory (`demand`), as in the paper, under `deepum`, and on the same device with \
             memory for everything (`ideal`). *link* is the time that the bytes moved take on the busier direction of the link, as a share of the \
             iteration: near 100 %, nothing that predicts better can be faster without moving less. As in the paper is run at one batch of a \
             network, the smallest at which naive unified memory moves anything in a steady iteration; so are all sections of one batch."
            .to_owned(),
        Section::Tab3 | Section::Tab7 => {
            let table = if section == Section::Tab3 { &manifest.tab3 } else { &manifest.tab7 };
            let (title, device) = table.as_ref().map(|t| (t.title.as_str(), t.device.as_str())).unwrap_or_default();
            format!(
                "{title} On `{device}`. The largest batch that trains two iterations, and the one that was tried next and ended in CUDA's \
                 out-of-memory; they are one step of the grid apart (column *grid*, samples). *GiB* is what a program takes."
            )
        }
        Section::Tab4 => format!(
            "All correlation tables of a program when it ends, in MB of 10^6 bytes: as the paper's own algorithm makes them, which only \
             learns from faults; of `deepum` in the paper's layout (`DEEPUM_TABLE={}`), which \
             takes a whole table for each execution ID, and in the compact one, our default, which has more ways, for they take no memory while nothing is in \
             them. The paper's least stands beside its smallest batch, its most beside its largest. From the same events both layouts of a geometry predict \
             the same (`crates/core/tests/oracle.rs`); `again` is the compact one a second time (`DEEPUM_TABLE={}`), to tell a difference from chance.",
            manifest.tab4.paper_layout, manifest.again
        ),
        Section::Tab5 => format!(
            "The paper reports at most {} % of naive unified memory's faults for most networks, and at most {} % for all. Where neither \
             faults the share is 0. Of the UM blocks that faulted under `deepum` in the whole run: *left out* were left out of its plan on purpose, to \
             see whether they are used; *late* had been asked for.",
            manifest.tab5.paper_most, manifest.tab5.paper_all
        ),
        Section::Repeats => format!(
            "`deepum` at the batch of sections that take one, and the same again (`DEEPUM_TABLE={}` is the default by its name). What differs in \
             Figs. 10 to 12 by no more than a network's times here are apart may be chance.",
            manifest.again
        ),
        Section::Fig10 => "Seconds of an iteration as DeepUM's parts are added, and by how much each cuts naive unified memory's.".to_owned(),
        Section::Fig11 => format!(
            "Speed-up over naive unified memory when prefetching runs at most N launches ahead (`DEEPUM_DEGREE`); the last line is our default. \
             The paper finds N = {} best.",
            manifest.fig11.paper_best
        ),
        Section::Fig12 => format!(
            "Speed-up over naive unified memory for tables of rows, ways and successors (`DEEPUM_TABLE`). The paper finds {} best.",
            manifest.fig12.paper_best
        ),
        Section::Remedies => "The same scripts on the same device without DeepUM: saved tensors on the host (`torch.autograd.graph.save_on_cpu(pin_memory=True)`), \
             activation checkpointing (`torch.utils.checkpoint`), the optimizer on the host (gradients leave the device as the backward pass makes them, \
             parameters come back), and the last two together. Seconds of an iteration."
            .to_owned(),
        Section::Sensitivity => "Each number of the device's profile by itself at half and at one and a half times its value: the mean speed-up of `deepum` over naive \
             unified memory, and the mean seconds of an iteration of both."
            .to_owned(),
    }
}

/// The arithmetic mean; not a number of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The geometric mean.
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    mean(values.map(f64::ln)).exp()
}

/// A number, or a dash.
fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.digits$}"))
}

fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |v| format!("{:.digits$} %", v * 100.0))
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// Each once, in order.
fn once<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

/// Networks of a section's rows.
fn networks<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    once(rows.iter().map(|row| row.network.as_str()))
}

/// What a section varies.
fn varied<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    once(rows.iter().map(|row| row.vary.as_str()))
}
