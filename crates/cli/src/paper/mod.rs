//! `deepum paper`: the evaluation of the DeepUM paper (ASPLOS'23), regenerated on the emulated device.
//!
//! `manifest` says what is measured and what the paper says, `plan` makes rows of it and `run` the runs they need, `pool` has those carried out
//! (`crate::runs`, or as a `search`), `report` writes the document and judges it (`limits`, `reasons`).

mod limits;
mod manifest;
mod plan;
mod pool;
mod reasons;
mod report;
mod run;
mod search;
mod sections;

use crate::runs::{Bench, Store};
use crate::say::say;
use crate::source::repository;
use anyhow::{Context, Result};
use manifest::Manifest;
use std::path::PathBuf;
use std::process::ExitCode;

/// The document, in the folder of results and in the repository.
const DOCUMENT: &str = "deepum-paper.md";

#[derive(Debug, clap::Args)]
pub struct PaperArgs {
    /// Only these rows or sections, such as `fig9a` or `fig9a/gpt2-xl,tab3`; the document then has only them
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    only: Vec<String>,
    /// A few small networks on tiny devices, in seconds: shows that everything works, and no figure of the paper
    #[arg(long)]
    smoke: bool,
    /// Where results are kept, and looked for, and the document is written; relative to the current folder
    #[arg(long, value_name = "DIR", default_value = "out/paper")]
    out: PathBuf,
    /// Programs that run at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// List the rows, and run nothing
    #[arg(long)]
    list: bool,
    /// The Python that has PyTorch [default: .venv/bin/python of the repository]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
}

pub fn paper(args: &PaperArgs) -> Result<ExitCode> {
    let root = repository()?;
    let scripts = root.join("benches/paper");
    let manifest = Manifest::read(&scripts.join(if args.smoke { "smoke.toml" } else { "manifest.toml" }))?;
    let all = manifest.rows();
    for run in all.iter().flat_map(|row| &row.runs) {
        format!("emu:{}", run.device).parse::<crate::gpu::Gpu>().map_err(anyhow::Error::msg)?;
    }
    let rows = plan::choose(all, &args.only)?;
    if args.list {
        say(&rows.iter().map(|row| row.id.clone() + "\n").collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let networks = manifest.networks.iter().map(|network| network.script.as_str());
    let bench = Bench::open(&root, scripts, networks, args.python.as_deref())?;
    let store = Store::open(&args.out, &bench.build)?;
    let done = pool::carry_out(&manifest, &rows, &bench, &store, usize::from(args.jobs))?;

    let setting = bench.setting(&root, command_line(args));
    let document = report::document(&manifest, &rows, &done, &setting);
    let path = args.out.join(DOCUMENT);
    std::fs::write(&path, &document.text).with_context(|| format!("cannot write {}", path.display()))?;
    let mut places = vec![path];
    if args.only.is_empty() && !args.smoke && done.made.failures.is_empty() {
        let published = root.join("docs/results").join(DOCUMENT);
        std::fs::write(&published, &document.text).with_context(|| format!("cannot write {}", published.display()))?;
        places.push(published);
    }
    done.made.failures.iter().for_each(|failure| eprintln!("deepum: failed: {failure}"));
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let last =
        format!("{} runs made, {} in all; written: {}\n", done.made.fresh, done.made.runs.len(), places.join(", "));
    say(&(document.summary + &last))?;
    Ok(if done.made.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How to regenerate the document.
fn command_line(args: &PaperArgs) -> String {
    let mut text = "deepum paper".to_owned();
    if args.smoke {
        text += " --smoke";
    }
    if !args.only.is_empty() {
        text += &format!(" --only {}", args.only.join(","));
    }
    text
}
