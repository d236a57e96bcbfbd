//! What all runs of a document have in common: libraries, scripts, Python, and what a document says of them.

use super::store::fingerprint;
use crate::libraries::Libraries;
use crate::source::commit;
use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Bench {
    pub(super) libraries: Libraries,
    /// The folder from which the scripts of runs are named.
    pub(super) folder: PathBuf,
    pub(super) python: PathBuf,
    /// The `deepum` that scripts ask for the status.
    pub(super) deepum: PathBuf,
    interrupted: Arc<AtomicBool>,
    versions: String,
    /// A hash of everything that decides a run's figures, beside the run itself.
    pub build: String,
}

/// What a document says about where it comes from.
#[derive(Debug)]
pub struct Setting {
    pub command: String,
    pub commit: String,
    pub build: String,
    pub versions: String,
}

impl Bench {
    /// Finds everything that scripts of `folder` need; from now on a signal interrupts the runs instead of ending this program. Without `python`
    /// it is the one that `scripts/setup` makes in the source tree.
    pub fn open<'a>(
        root: &Path,
        folder: PathBuf,
        scripts: impl Iterator<Item = &'a str>,
        python: Option<&Path>,
    ) -> Result<Self> {
        let python = python.map_or_else(|| root.join(".venv/bin/python"), Path::to_owned);
        let versions = versions(&python)?;
        let libraries = Libraries::find()?;
        let deepum = std::env::current_exe().context("cannot tell where the deepum executable is")?;
        let mut files = vec![deepum.clone()];
        files.extend(deciding_files(&libraries, &folder, scripts, &python)?);
        let build = fingerprint(&versions, &files)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(Self { libraries, folder, python, deepum, interrupted, versions, build })
    }

    /// Whether a signal has come.
    pub fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// For the document that `command` makes.
    pub fn setting(&self, root: &Path, command: String) -> Setting {
        Setting { command, commit: commit(root), build: self.build.clone(), versions: self.versions.clone() }
    }
}

/// The files that decide a run's figures, beside the run itself and this program, which counts: the libraries it runs on, and all of Python that
/// lies beside its scripts.
fn deciding_files<'a>(
    libraries: &Libraries,
    folder: &Path,
    scripts: impl Iterator<Item = &'a str>,
    python: &Path,
) -> Result<Vec<PathBuf>> {
    let mut files = vec![libraries.path("libdeepum.so")?, libraries.path("libdeepum_emu_node.so")?];
    let mut others: Vec<PathBuf> = std::fs::read_dir(libraries.vendor_links()?)?
        .map(|entry| Ok(entry?.path().canonicalize()?))
        .collect::<Result<_>>()?;
    let folders: BTreeSet<PathBuf> =
        scripts.filter_map(|script| Some(folder.join(script).parent()?.to_owned())).collect();
    for folder in folders {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut sources: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
        others.append(&mut sources);
    }
    others.sort();
    others.dedup();
    files.append(&mut others);
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
