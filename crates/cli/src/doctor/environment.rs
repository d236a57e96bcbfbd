//! What the environment asks of CUDA, of PyTorch and of us, and the folders that we use.

use super::finding::Finding;
use super::system::{Entry, Kind, System};
use deepum_config::{Config, EngineIn, TablesIn};
use deepum_protocol::control;
use deepum_protocol::status::folders_of;
use std::path::{Path, PathBuf};

/// The variables of CUDA and PyTorch that stand in the way.
pub fn foreign(system: &dyn System) -> Vec<Finding> {
    const CHECK: &str = "environment";
    let mut found = Vec::new();
    let is_on = |name: &str| system.variable(name).filter(|value| value != "0");
    if let Some(value) = is_on("CUDA_MANAGED_FORCE_DEVICE_ALLOC") {
        found.push(Finding::stops(
            CHECK,
            format!("CUDA_MANAGED_FORCE_DEVICE_ALLOC={value}"),
            "managed memory stays on the GPU and cannot exceed it",
            "unset CUDA_MANAGED_FORCE_DEVICE_ALLOC",
        ));
    }
    if let Some(value) = is_on("CUDA_LAUNCH_BLOCKING") {
        found.push(Finding::costs(
            CHECK,
            format!("CUDA_LAUNCH_BLOCKING={value}"),
            "each launch waits for its end, so the GPU stands still in between, and what was issued and not run yet is never known",
            "unset CUDA_LAUNCH_BLOCKING",
        ));
    }
    if let Some(value) =
        system.variables().into_iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").map(|(_, value)| value)
        && (value.is_empty() || value.trim_start().starts_with('-'))
    {
        found.push(Finding::stops(
            CHECK,
            format!("CUDA_VISIBLE_DEVICES={value}"),
            "it hides all GPUs",
            "unset CUDA_VISIBLE_DEVICES, or name a GPU by its number",
        ));
    }
    if let Some(value) = is_on("PYTORCH_NO_CUDA_MEMORY_CACHING") {
        found.push(Finding::costs(
            CHECK,
            format!("PYTORCH_NO_CUDA_MEMORY_CACHING={value}"),
            "each tensor is an allocation of its own, which waits for the GPU when it ends, and what it held is never dropped instead of moved",
            "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        ));
    }
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"] {
        let Some(value) = system.variable(name) else { continue };
        let asked = "expandable_segments:True";
        if value.replace(' ', "").contains(asked) {
            found.push(Finding::stops(
                CHECK,
                format!("{name}={value}"),
                "memory that PyTorch takes so stays device memory and cannot exceed the GPU",
                format!("leave {asked} out of {name}"),
            ));
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, "nothing that CUDA or PyTorch are told stands in the way"));
    }
    found
}

/// Our own variables: what `Config::read` says of them, and whether we are on at all.
pub fn ours(config: &Config, lines: &[String]) -> Vec<Finding> {
    const CHECK: &str = "configuration";
    let mut found: Vec<Finding> = lines
        .iter()
        .map(|line| {
            Finding::costs(
                CHECK,
                line.clone(),
                "what was meant does not hold",
                "docs/configuration.md lists all variables",
            )
        })
        .collect();
    if !config.enabled {
        found.push(Finding::stops(CHECK, "DEEPUM=0", "DeepUM does nothing at all", "unset DEEPUM"));
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, format!("policy {}", config.policy)));
    }
    found
}

/// The folders for status sockets and for learned tables, and the daemon's socket.
pub fn places(system: &dyn System, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    let variable = |name: &str| system.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = variable("XDG_RUNTIME_DIR");
    let status: Vec<Result<PathBuf, String>> = folders_of(runtime.clone(), system.uid())
        .into_iter()
        .map(|path| usable(system, &path).map(|()| path))
        .collect();
    found.push(match status.iter().find_map(|tried| tried.as_ref().ok()) {
        Some(path) => Finding::ok("status-folder", path.display().to_string()),
        None => Finding::costs(
            "status-folder",
            status.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; "),
            "`deepum status` sees no program of yours, and emulated GPUs have no folder for their libraries",
            "set XDG_RUNTIME_DIR to a folder that you alone can write to",
        ),
    });
    let tables = match &config.tables {
        TablesIn::Off => None,
        TablesIn::Folder(path) => Some(path.clone()),
        TablesIn::Usual => TablesIn::usual(|name| system.variable(name).map(Into::into)),
    };
    found.push(match tables.map(|path| (usable(system, &path), path)) {
        None => Finding::ok(
            "tables-folder",
            "learned tables are not kept (DEEPUM_TABLES=off, or neither XDG_STATE_HOME nor HOME is set)",
        ),
        Some((Ok(()), path)) => Finding::ok("tables-folder", path.display().to_string()),
        Some((Err(why), _)) => Finding::costs(
            "tables-folder",
            why,
            "what a run learned is not kept, so the first iteration of each run is a learning one",
            "set DEEPUM_TABLES to a folder that you alone can write to",
        ),
    });
    if let EngineIn::Daemon(named) = &config.engine {
        let tried = named.clone().map_or_else(|| control::sockets_of(runtime), |path| vec![path]);
        let there = tried.iter().find(|path| system.entry(path).is_ok_and(|entry| entry.open));
        found.push(match there {
            Some(path) => Finding::ok("daemon", path.display().to_string()),
            None => Finding::costs(
                "daemon",
                format!(
                    "no deepumd that this user may speak to at {}",
                    tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
                ),
                "programs run as plain unified memory until one answers",
                "start deepumd, or leave DEEPUM_ENGINE out",
            ),
        });
    }
    found
}

/// Whether a folder is this user's alone, or can be made so.
fn usable(system: &dyn System, path: &Path) -> Result<(), String> {
    let mut at = path;
    loop {
        match system.entry(at) {
            Ok(Entry { kind, open, .. }) if at != path => {
                return match kind {
                    Kind::Folder if open => Ok(()),
                    Kind::Folder => Err(format!(
                        "{}: cannot be made, since {} is not this user's to write to",
                        path.display(),
                        at.display()
                    )),
                    _ => Err(format!("{}: cannot be made, since {} is no folder", path.display(), at.display())),
                };
            }
            Ok(Entry { kind: Kind::Folder, owner, mode, .. }) => {
                return match owner == system.uid() && mode & 0o022 == 0 {
                    true => Ok(()),
                    false => Err(format!(
                        "{}: not a folder that belongs to this user alone (owner {owner}, mode {mode:o})",
                        path.display()
                    )),
                };
            }
            Ok(_) => return Err(format!("{}: is no folder", path.display())),
            Err(_) => match at.parent() {
                Some(parent) => at = parent,
                None => return Err(format!("{}: cannot be made", path.display())),
            },
        }
    }
}
