//! The source tree that documents are written into, and which state of it they are of.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source tree: above the executable, or above the folder we are in.
pub fn repository() -> Result<PathBuf> {
    let exe = std::env::current_exe().and_then(|exe| exe.canonicalize()).ok();
    let here = std::env::current_dir().ok();
    let tree = |start: &PathBuf| {
        start.ancestors().find(|dir| dir.join("benches/paper/manifest.toml").is_file()).map(Path::to_path_buf)
    };
    [exe, here].iter().flatten().find_map(tree).context(
        "no benches/paper/manifest.toml above the deepum executable or this folder: run it in the source tree of DeepUM",
    )
}

/// The commit of the source tree, and whether it is changed; `unknown` without git.
pub fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "--short", "HEAD"]), git(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit}, changed"),
        (None, _) => "unknown".to_owned(),
    }
}
