//! The document: what was measured where, the limits, then a table for each figure and table of the paper.

use super::limits::{self, Verdict};
use super::manifest::Manifest;
use super::plan::{Row, Section};
use super::pool::Done;
use super::reasons::Reasons;
use super::sections;
use crate::rows::Outcome;
use crate::runs::{Measured, Mode, Run, Setting, spoken};

/// The document, and its limits for the terminal.
#[derive(Debug)]
pub struct Document {
    pub text: String,
    pub summary: String,
}

/// What a section is made from.
#[derive(Debug)]
pub struct View<'a> {
    pub manifest: &'a Manifest,
    /// The section's own.
    pub rows: Vec<&'a Row>,
    /// Whether these are all that the section has.
    pub complete: bool,
    pub done: &'a Done,
    pub reasons: Reasons<'a>,
}

/// A section of the document.
#[derive(Debug, Default)]
pub struct Part {
    pub heads: Vec<&'static str>,
    pub lines: Vec<Vec<String>>,
    /// Paragraphs below the table.
    pub below: Vec<String>,
    pub verdicts: Vec<Verdict>,
}

impl View<'_> {
    /// What a run measured, if it was made and came to its end.
    pub fn measured(&self, run: &Run) -> Option<&Measured> {
        self.done.made.runs.get(run)
    }

    /// Seconds of a steady iteration.
    pub fn seconds(&self, run: &Run) -> Option<f64> {
        self.measured(run)?.seconds
    }

    /// How many times as fast as the first the second run is.
    pub fn speed_up(&self, slow: &Run, fast: &Run) -> Option<f64> {
        Some(self.seconds(slow)? / self.seconds(fast)?)
    }

    /// Share of an iteration for which the busier direction of the link is busy.
    pub fn link_share(&self, run: &Run) -> Option<f64> {
        self.measured(run)?.link_share(&run.device)
    }

    /// By how much the times of two runs of the same differ, over the shorter: `deepum` at the batch of sections that take one.
    pub fn spread(&self, network: &str) -> Option<f64> {
        let [one, again] = self.manifest.twice(self.manifest.network(network)).map(|run| self.seconds(&run));
        let (one, again) = (one?, again?);
        Some(one.max(again) / one.min(again) - 1.0)
    }
}

/// Writes the document for the rows that were asked for.
pub fn document(manifest: &Manifest, rows: &[Row], done: &Done, setting: &Setting) -> Document {
    let all = manifest.rows();
    let mut view = View { manifest, rows: Vec::new(), complete: false, done, reasons: Reasons::new(manifest) };
    let (mut body, mut verdicts) = (String::new(), vec![limits::measured(done.made.failures.len())]);
    for section in Section::ALL {
        view.rows = rows.iter().filter(|row| row.section == section).collect();
        if view.rows.is_empty() {
            continue;
        }
        view.complete = view.rows.len() == all.iter().filter(|row| row.section == section).count();
        let part = sections::part(section, &mut view);
        body += &format!("\n## {}\n\n{}\n\n{}", section.title(), sections::lead(section, manifest), table(&part));
        part.below.iter().for_each(|paragraph| body += &format!("\n{paragraph}\n"));
        verdicts.extend(part.verdicts);
    }
    verdicts.push(limits::explained(&view.reasons.unexplained));

    let mut text = head(manifest, setting);
    text += "\n## Limits\n\n| limit | | found |\n| --- | --- | --- |\n";
    verdicts.iter().for_each(|v| text += &format!("| {} | {} | {} |\n", v.limit, said(v), v.found));
    if !done.made.failures.is_empty() {
        text += "\nNot measured:\n\n";
        done.made.failures.iter().for_each(|failure| text += &format!("- {failure}\n"));
    }
    text += &body;
    let notes = view.reasons.notes();
    if !notes.is_empty() {
        text += &format!("\n## Where ours differ, and why\n\n{notes}");
    }
    let runs = done.made.runs.values();
    let whole = runs.clone().filter(|m| m.outcome == Outcome::Ok);
    if let Some(exact) = whole.map(|m| m.exact).min_by(f64::total_cmp) {
        text += &format!(
            "\n{} runs, {} of processor time. In each that came to its end the device knew of at least {:.1} % of launches exactly what they touch \
             (`docs/emulated-device.md`).\n",
            done.made.runs.len(),
            spoken(runs.map(|m| m.cpu_seconds).sum()),
            exact * 100.0
        );
    }
    let summary = verdicts.iter().map(|v| format!("{:<12} {}: {}\n", said(v), v.limit, v.found)).collect();
    Document { text, summary }
}

fn said(verdict: &Verdict) -> &'static str {
    match verdict.held {
        Some(true) => "held",
        Some(false) => "**broken**",
        None => "open",
    }
}

fn head(manifest: &Manifest, setting: &Setting) -> String {
    let networks: String = manifest
        .networks
        .iter()
        .map(|n| {
            let mut batches: Vec<String> = n.all_batches().map(|batch| n.batch_name(batch)).collect();
            if batches.is_empty() {
                batches.push("its largest".to_owned());
            }
            let words = format!("{} {}", n.script, n.args.join(" "));
            let iterations = if n.batch.is_some() { manifest.iterations(n).to_string() } else { "–".to_owned() };
            format!("| {} | `{}` | {} | {iterations} | {} |\n", n.name, words.trim(), batches.join(", "), n.data)
        })
        .collect();
    let policy = Mode::AsInPaper.policy().expect("the paper's has one");
    let paper: Vec<String> = std::iter::once(("DEEPUM_POLICY", policy))
        .chain(manifest.as_in_paper.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .map(|(name, value)| format!("`{name}={value}`"))
        .collect();
    format!(
        "# The evaluation of the DeepUM paper, on an emulated device\n\n\
         Jung, Kim, Lee: DeepUM, ASPLOS'23. Regenerated by\n\n    {}\n\n\
         at commit {} (build {}), with {}, fp32, on the emulated device `{}`. Its numbers stand with their sources in \
         `crates/model/profiles`; they were fixed before anything here was measured, and `docs/model.md` says what is known of their quality. \
         Times are virtual, and the device is deterministic: the same calls give the same figures. PyTorch's calls may differ from run to run, \
         since it leaves words of kernels' arguments unwritten; the section on the same run twice says by how much figures do. An iteration is a \
         steady one: the mean from the third on, of as many as the table below says; a run whose launches do not show all that it was to run failed. Faults are entries of the \
         fault buffer, duplicates included. *as in the paper* is the paper's own algorithm and configuration ({}; `docs/policies.md`) on the same \
         device. *(ours)* marks batches that the paper does not have. *ratio* is ours over the paper's. A dash in a column *paper* means that we have no source for the \
         paper's figure of that row, not that it has none; numbers in a column *why* refer to the notes at the end. {}\n\n\
         | network | program in `benches/paper` | batches | iterations | data |\n| --- | --- | --- | --- | --- |\n{networks}",
        setting.command,
        setting.commit,
        setting.build,
        setting.versions,
        manifest.device,
        paper.join(" "),
        manifest.left_out.trim(),
    )
}

fn table(part: &Part) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = part.heads.iter().map(|head| (*head).to_owned()).collect();
    let rule: Vec<String> = part.heads.iter().map(|_| "---".to_owned()).collect();
    line(&heads) + &line(&rule) + &part.lines.iter().map(|cells| line(cells)).collect::<String>()
}
