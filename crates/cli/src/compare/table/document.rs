//! The document of a table: at a glance, the target and who misses it, then every figure of each network.

use super::manifest::{Manifest, Network};
use super::plan::Point;
use super::verdict::Verdict;
use crate::rows::Outcome;
use crate::runs::{Made, Measured, Mode, Setting, spoken};
use deepum_core::units::Bytes;
use std::collections::BTreeSet;

/// Writes it.
pub fn document(manifest: &Manifest, points: &[Point<'_>], made: &Made, setting: &Setting) -> String {
    let view = View { manifest, points, made };
    let mut text = view.head(setting);
    if !made.failures.is_empty() {
        text += "\nNot measured:\n\n";
        made.failures.iter().for_each(|failure| text += &format!("- {failure}\n"));
    }
    text += &view.glance();
    text += &view.target();
    manifest.networks.iter().for_each(|network| text += &view.network(network));
    if !manifest.notes.is_empty() {
        text += "\n## Notes\n\n";
        manifest.notes.iter().for_each(|note| text += &format!("- {}\n", note.trim()));
    }
    text + &view.foot()
}

struct View<'a> {
    manifest: &'a Manifest,
    points: &'a [Point<'a>],
    made: &'a Made,
}

impl View<'_> {
    fn head(&self, setting: &Setting) -> String {
        let Manifest { device, iterations, warm_up, .. } = self.manifest;
        let mut rows = vec![
            [
                "network",
                "program, from the manifest",
                "batch",
                "a sample, and what is trained",
                "needs: GiB",
                "ideal: s/it",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for network in &self.manifest.networks {
            let (need, ideal) = self.manifest.needs(network, self.made).unzip();
            rows.push(vec![
                network.name.clone(),
                format!("`{}`", [network.script.as_str(), &network.args.join(" ")].join(" ").trim()),
                network.batch.to_string(),
                network.data.clone(),
                number(need.map(gib), 1),
                number(ideal, 3),
            ]);
        }
        format!(
            "# {}\n\nMade by\n\n    {}\n\nat commit {} (build {}), with {}, on the emulated device `{device}` (`docs/model.md`: its parameters and their \
             sources) with less memory than the networks need. Times are virtual seconds. What a network *needs* is the most managed memory that it \
             holds at a time where there is room for everything; each then gets a share of that, as `{device}:memory=…`. {iterations} iterations, each a \
             forward pass, a backward pass and the optimizer's step; figures are the mean of those from number {} on. *Ideal*: the same program, without DeepUM, \
             with room for everything. *Bound*: the time that no schedule of moves can be below in which kernels begin when all they touch is there, with copies kept \
             (`docs/bound.md`), worked out from a recording of the program; it counts what kernels take and not what the GPU waits for the host, so it may lie a little below the \
             ideal. *Of moves alone* is the same where no byte is on both sides at a time, *of whole blocks* the same where UM blocks of 2 MiB move as a whole, with whatever is in them, as `deepum` and `horizon` \
             move them (the driver, which `demand` leaves all to, brings pages), and all but `horizon, two copies` have each in one place at a time. No bound of a remedy, which is another program. *link*: the time that the bytes moved take on the busier direction of the link, as a share of the iteration. Faults are fault-buffer entries, duplicates \
             included; GiB are those of managed memory. `plain` is PyTorch alone; the remedies ({}) are what a PyTorch user has today, also without DeepUM, in the \
             same memory; `demand`, `deepum` and `horizon` are values of `DEEPUM_POLICY` (`docs/policies.md`), with all else at its default, and *two copies* is `DEEPUM_COPIES=2`. Weights are random.\n\n{}",
            self.manifest.title,
            setting.command,
            setting.commit,
            setting.build,
            setting.versions,
            warm_up + 1,
            self.manifest.remedies.iter().map(|remedy| format!("`{remedy}`")).collect::<Vec<_>>().join(", "),
            table(&rows)
        )
    }

    /// Shares of ideal speed, a line for each amount of memory.
    fn glance(&self) -> String {
        let Some(first) = self.points.first() else { return String::new() };
        let heads = ["network", "memory"].map(str::to_owned).into_iter();
        let mut rows: Vec<Vec<String>> = vec![
            heads.chain(first.rows.iter().map(|(name, _)| format!("`{name}`"))).chain(["bound".to_owned()]).collect(),
        ];
        for point in self.points {
            let mut cells = vec![point.network.name.clone(), memory(point)];
            let fastest =
                point.rows.iter().filter_map(|(_, run)| self.made.runs.get(run)?.seconds).min_by(f64::total_cmp);
            for (_, run) in &point.rows {
                let measured = self.made.runs.get(run);
                let share = outcome(measured, |seconds| percent(Some(point.ideal / seconds)));
                let best = fastest.is_some() && measured.and_then(|measured| measured.seconds) == fastest;
                cells.push(if best { format!("**{share}**") } else { share });
            }
            cells.push(percent(point.bound(self.made).map(|bound| point.ideal / bound)));
            rows.push(cells);
        }
        format!("\n## At a glance\n\nSpeed as a share of the ideal; the fastest of a line is bold.\n\n{}", table(&rows))
    }

    fn target(&self) -> String {
        let target = self.manifest.target;
        let all: Vec<String> = [Mode::Horizon, Mode::TwoCopies].map(|mode| self.held(mode)).into();
        format!(
            "\n## Target\n\n{:.0} % of the ideal speed or {:.0} % of the bound's, and ahead of `deepum`. The bound is that of how blocks move: as a whole, and with one copy each in one place at a time.\n\n{}",
            target.of_ideal * 100.0,
            target.of_bound * 100.0,
            all.join("\n")
        )
    }

    /// Where this mode holds the target, and where not.
    fn held(&self, mode: Mode) -> String {
        let target = self.manifest.target;
        let mut rows = vec![
            [
                "network",
                "memory",
                "of ideal",
                "of bound",
                "of moves alone",
                "of whole blocks",
                "times as fast as `deepum`",
                "misses",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        let (mut held, mut held_alone, mut held_by_any) = (0, 0, 0);
        for point in self.points {
            let verdict = Verdict::of(mode, point, self.made, target);
            if let Some(verdict) = &verdict {
                held_alone += usize::from(verdict.held_by(verdict.of_moves_alone, target));
                held_by_any += usize::from(verdict.held_by(verdict.of_bound, target));
            }
            if verdict.as_ref().is_some_and(Verdict::held) {
                held += 1;
                continue;
            }
            let misses: Vec<&str> = match &verdict {
                None => vec!["it did not come to its end"],
                Some(verdict) => [(!verdict.near, "the share"), (!verdict.ahead, "being ahead of `deepum`")]
                    .iter()
                    .filter(|(misses, _)| *misses)
                    .map(|(_, what)| *what)
                    .collect(),
            };
            rows.push(vec![
                point.network.name.clone(),
                memory(point),
                percent(verdict.as_ref().map(|verdict| verdict.of_ideal)),
                percent(verdict.as_ref().and_then(|verdict| verdict.of_bound)),
                percent(
                    verdict.as_ref().filter(|_| mode != Mode::TwoCopies).and_then(|verdict| verdict.of_moves_alone),
                ),
                percent(verdict.as_ref().and_then(|verdict| verdict.of_blocks)),
                number(verdict.as_ref().and_then(|verdict| verdict.over_deepum), 3),
                misses.join(", "),
            ]);
        }
        let below = if rows.len() == 1 { String::new() } else { format!(" These miss it:\n\n{}", table(&rows)) };
        let alone = if mode == Mode::TwoCopies { String::new() } else { format!("moves alone in {held_alone}, ") };
        format!(
            "`{}`: held in {held} of {} lines; by the bound of bytes, {alone}with copies kept in {held_by_any}.{}\n",
            mode.name(),
            self.points.len(),
            below.trim_end()
        )
    }

    fn network(&self, network: &Network) -> String {
        let heads = ["memory", "", "s/it", "of ideal", "of bound", "faults/it", "GiB in/it", "GiB out/it", "link"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for point in self.points.iter().filter(|point| point.network.id == network.id) {
            let bound = point.bound(self.made);
            rows.push(vec![
                format!("{}, {:.2} GiB", memory(point), gib(point.memory)),
                "bound".to_owned(),
                number(bound, 3),
                percent(bound.map(|bound| point.ideal / bound)),
            ]);
            let bounds = point.bounds(self.made);
            for (name, seconds) in [
                ("of moves alone", bounds.map(|bounds| bounds.moves_alone)),
                ("of whole blocks", bounds.and_then(|bounds| bounds.blocks)),
                ("of whole blocks, moves alone", bounds.and_then(|bounds| bounds.blocks_alone)),
            ] {
                rows.push(vec![
                    String::new(),
                    name.to_owned(),
                    number(seconds, 3),
                    percent(seconds.map(|seconds| point.ideal / seconds)),
                    percent(Option::zip(bound, seconds).map(|(bound, seconds)| bound / seconds)),
                ]);
            }
            for (name, run) in &point.rows {
                let measured = self.made.runs.get(run);
                let seconds = measured.and_then(|measured| measured.seconds);
                // Without DeepUM no memory is managed, and there is nothing to count.
                let managed = measured.filter(|_| run.mode != Mode::Plain);
                let moved = |bytes: Option<f64>| number(bytes.map(|bytes| bytes / Bytes::gib(1).get() as f64), 2);
                rows.push(vec![
                    String::new(),
                    format!("`{name}`"),
                    outcome(measured, |seconds| number(Some(seconds), 3)),
                    percent(seconds.map(|seconds| point.ideal / seconds)),
                    percent(managed.and(seconds).and_then(|seconds| Some(bound? / seconds))),
                    number(managed.and_then(|managed| managed.faults), 0),
                    moved(managed.and_then(|managed| managed.bytes_h2d)),
                    moved(managed.and_then(|managed| managed.bytes_d2h)),
                    managed
                        .and_then(|managed| managed.link_share(&run.device))
                        .map_or("–".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                ]);
            }
        }
        let points = self.points.iter().filter(|point| point.network.id == network.id);
        let why: BTreeSet<&str> = points
            .filter_map(|point| self.made.runs.get(&point.bound))
            .map(|measured| measured.words.as_str())
            .filter(|words| !words.is_empty())
            .collect();
        let why: String = why.iter().map(|why| format!("\nNo bound: {why}.\n")).collect();
        format!("\n## {}, batch {}\n\n{}{why}", network.name, network.batch, table(&rows))
    }

    fn foot(&self) -> String {
        let runs = self.made.runs.values();
        let whole = runs.clone().filter(|measured| measured.outcome == Outcome::Ok);
        let Some(exact) = whole.map(|measured| measured.exact).min_by(f64::total_cmp) else { return String::new() };
        format!(
            "\n{} runs, {} of processor time. In each that came to its end the device knew of at least {:.1} % of launches exactly what they touch \
             (`docs/emulated-device.md`).\n",
            self.made.runs.len(),
            spoken(runs.map(|measured| measured.cpu_seconds).sum()),
            exact * 100.0
        )
    }
}

/// Its seconds as `shown`, or why there are none.
fn outcome(measured: Option<&Measured>, shown: impl Fn(f64) -> String) -> String {
    match measured {
        Some(Measured { outcome: Outcome::Ok, seconds: Some(seconds), .. }) => shown(*seconds),
        Some(Measured { outcome: Outcome::OutOfMemory, .. }) => "out of memory".to_owned(),
        _ => "–".to_owned(),
    }
}

fn memory(point: &Point<'_>) -> String {
    format!("{} %", point.percent)
}

fn gib(bytes: Bytes) -> f64 {
    bytes.get() as f64 / Bytes::gib(1).get() as f64
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A table of Markdown; the first row is its head, and a row may be short.
fn table(rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let line = |cells: &[String]| {
        let missing = vec![String::new(); head.len().saturating_sub(cells.len())];
        format!("| {} |\n", [cells, &missing].concat().join(" | "))
    };
    let rule = vec!["---".to_owned(); head.len()];
    [line(head), line(&rule)].into_iter().chain(rows.iter().map(|row| line(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;
    use crate::replay::Bounds;

    #[test]
    fn each_row_says_how_it_ended_and_the_target_names_who_misses_it() {
        let manifest = plan::tests::manifest();
        let mut made = plan::tests::needs(&manifest);
        let points = plan::points(&manifest, &made);
        made.runs.insert(
            points[0].bound.clone(),
            Measured {
                seconds: Some(1.25),
                bounds: Some(Bounds { any: 1.25, moves_alone: 1.6, blocks: None, blocks_alone: Some(1.7) }),
                ..Measured::default()
            },
        );
        for (name, run) in &points[0].rows {
            let seconds = match name.as_str() {
                "plain" => None,
                "checkpoint" => Some(1.5),
                "deepum" => Some(2.5),
                "horizon" => Some(2.0),
                _ => Some(8.0),
            };
            let outcome = if seconds.is_some() { Outcome::Ok } else { Outcome::OutOfMemory };
            let [bytes_h2d, bytes_d2h] = [3.0, 1.0].map(|gib| Some(gib * f64::from(1 << 30)));
            let measured = Measured { outcome, seconds, bytes_h2d, bytes_d2h, exact: 1.0, ..Measured::default() };
            made.runs.insert(run.clone(), measured);
        }
        let setting = Setting {
            command: "deepum compare --table T".to_owned(),
            commit: "abc".to_owned(),
            build: "b".to_owned(),
            versions: "torch 1".to_owned(),
        };
        let text = document(&manifest, &points, &made, &setting);
        let name = &manifest.networks[0].name;
        for line in [
            format!(
                "| {name} | 50 % | out of memory | 12.5 % | **66.7 %** | 12.5 % | 40.0 % | 50.0 % | 12.5 % | 80.0 % |\n"
            ),
            format!("| {name} | 50 % | 50.0 % | 62.5 % | 80.0 % | 85.0 % | 1.250 | the share |\n"),
            format!("| {name} | 50 % | 12.5 % | 15.6 % | – | – | 0.312 | the share, being ahead of `deepum` |\n"),
            "|  | `horizon` | 2.000 | 50.0 % | 62.5 % | – | 3.00 | 1.00 | 13 % |\n".to_owned(),
            "|  | of moves alone | 1.600 | 62.5 % | 78.1 % |  |  |  |  |\n".to_owned(),
            "|  | of whole blocks | – | – | – |  |  |  |  |\n".to_owned(),
            "|  | of whole blocks, moves alone | 1.700 | 58.8 % | 73.5 % |  |  |  |  |\n".to_owned(),
            "|  | `checkpoint` | 1.500 | 66.7 % | – | – | – | – | – |\n".to_owned(),
            "| 50 %, 0.49 GiB | bound | 1.250 | 80.0 % |  |  |  |  |  |\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}\nis not in\n{text}");
        }
        let by_bytes = "held in 0 of 1 lines; by the bound of bytes,";
        assert!(text.contains(&format!("`horizon`: {by_bytes} moves alone in 0, with copies kept in 0.")), "{text}");
        assert!(text.contains(&format!("`horizon, two copies`: {by_bytes} with copies kept in 0.")), "{text}");
        assert!(!text.contains("No bound:"), "{text}");

        let none = Measured { outcome: Outcome::Ok, words: "it never repeats".to_owned(), ..Measured::default() };
        made.runs.insert(points[0].bound.clone(), none);
        let text = document(&manifest, &points, &made, &setting);
        assert!(text.contains("\nNo bound: it never repeats.\n"), "{text}");
        assert!(text.contains("|  | `horizon` | 2.000 | 50.0 % | – | – | 3.00 | 1.00 | 13 % |\n"), "{text}");
    }
}
