//! `deepum paper`: the evaluation of the DeepUM paper (ASPLOS'23), regenerated on the emulated device.
//!
//! `manifest` says what is measured and what the paper says, `plan` makes rows of it and `run` the runs they need, `pool` carries those out
//! (`one` by one, or as a `search`) and keeps them (`store`), `report` writes the document and judges it (`limits`, `reasons`).
//! Nothing here decides a figure: those come from the flight log of the device and the status of the engine.

mod limits;
mod manifest;
mod one;
mod plan;
mod pool;
mod reasons;
mod report;
mod run;
mod search;
mod sections;
mod store;

use crate::libraries::Libraries;
use crate::say::say;
use crate::source::{commit, repository};
use anyhow::{Context, Result, bail, ensure};
use deepum_emu_device::config::Config;
use deepum_model::Profile;
use manifest::Manifest;
use one::Bench;
use report::Setting;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    let python = args.python.clone().unwrap_or_else(|| root.join(".venv/bin/python"));
    let versions = versions(&python)?;
    let libraries = Libraries::find()?;
    let deepum = std::env::current_exe().context("cannot tell where the deepum executable is")?;
    let build = store::fingerprint(&versions, &deciding_files(&libraries, &scripts, &python, &deepum)?)?;
    let store = store::Store::open(&args.out, &build)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let bench = Bench { libraries: &libraries, scripts, python, deepum, interrupted: &interrupted };
    let done = pool::carry_out(&manifest, &rows, &bench, &store, usize::from(args.jobs))?;

    let setting = Setting { command: command_line(args), commit: commit(&root), build, versions };
    let document = report::document(&manifest, &rows, &done, &setting);
    let path = args.out.join(DOCUMENT);
    std::fs::write(&path, &document.text).with_context(|| format!("cannot write {}", path.display()))?;
    let mut places = vec![path];
    if args.only.is_empty() && !args.smoke && done.failures.is_empty() {
        let published = root.join("docs/results").join(DOCUMENT);
        std::fs::write(&published, &document.text).with_context(|| format!("cannot write {}", published.display()))?;
        places.push(published);
    }
    done.failures.iter().for_each(|failure| eprintln!("deepum: failed: {failure}"));
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let last = format!("{} runs made, {} in all; written: {}\n", done.fresh, done.runs.len(), places.join(", "));
    say(&(document.summary + &last))?;
    Ok(if done.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files that decide a run's figures, beside the run itself: the libraries it runs on, what counts, its scripts.
fn deciding_files(libraries: &Libraries, scripts: &Path, python: &Path, deepum: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![deepum.to_owned(), libraries.path("libdeepum.so")?, libraries.path("libdeepum_emu_node.so")?];
    let mut vendor: Vec<PathBuf> = std::fs::read_dir(libraries.vendor_links()?)?
        .map(|entry| Ok(entry?.path().canonicalize()?))
        .collect::<Result<_>>()?;
    let mut sources: Vec<PathBuf> =
        std::fs::read_dir(scripts)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
    vendor.append(&mut sources);
    vendor.sort();
    vendor.dedup();
    files.append(&mut vendor);
    // What `scripts/setup` made the environment from: more than the versions tell.
    files.extend(python.ancestors().nth(2).map(|venv| venv.join(".stamp")).filter(|stamp| stamp.is_file()));
    Ok(files)
}

/// Versions of what the networks come from; asks no GPU.
fn versions(python: &Path) -> Result<String> {
    const ASK: &str = "import importlib.metadata as m, platform
print('Python', platform.python_version(), *(', %s %s' % (n, m.version(n)) for n in ('torch', 'transformers')), sep=' ')";
    let asked = Command::new(python).args(["-c", ASK]).output().with_context(|| {
        format!("cannot start {}; scripts/setup makes it, or --python names another", python.display())
    })?;
    ensure!(
        asked.status.success(),
        "{} lacks torch or transformers: {}",
        python.display(),
        String::from_utf8_lossy(&asked.stderr).lines().last().unwrap_or_default()
    );
    Ok(String::from_utf8_lossy(&asked.stdout).trim().replace(" ,", ","))
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

/// Host memory of a device, in bytes.
fn host_memory(device: &str) -> Result<u64> {
    let config = Config::parse(device, &Profile::NAMES)?;
    let Ok(profile) = Profile::named(&config.profile) else { bail!("no profile {}", config.profile) };
    Ok(config.host.unwrap_or(profile.host_memory).get())
}
