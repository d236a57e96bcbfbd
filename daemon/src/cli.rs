//! The command line: options, their values, and what they come to.

use crate::listen;
use crate::spawn::Workers;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use deepum_config::{Budget, TablesIn};
use deepum_core::units::Bytes;
use deepum_protocol::control::{Device, SYSTEM_SOCKET};
use nix::unistd::{Gid, Group, Uid, User, getuid};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Run DeepUM's engine for many programs, which share GPUs by a rule.
///
/// Programs use it with DEEPUM_ENGINE=daemon. Run by an ordinary user it serves this user's programs; run by root, everybody's.
/// It stays in the foreground and logs to standard error, as systemd likes it.
#[derive(Debug, Parser)]
#[command(name = "deepumd", version)]
#[command(after_help = "\
Files: the socket; beside it deepumd.status (the status of all programs, also shown by `deepum status`) and deepumd.lock.
Signals: TERM and INT end it in order: tables are saved, programs go on as plain unified memory until a daemon is there again.
HUP does nothing: there is nothing to read again, and it outlives its terminal.
More: docs/daemon.md")]
pub struct Cli {
    /// Where programs connect [default: /run/deepum/deepumd.sock for root, $XDG_RUNTIME_DIR/deepum/deepumd.sock otherwise]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Serve this user (name or number); may be repeated; root only [default: everybody]
    #[arg(long, value_name = "USER")]
    allow_user: Vec<String>,
    /// Serve the members of this group (name or number); may be repeated; root only
    #[arg(long, value_name = "GROUP")]
    allow_group: Vec<String>,
    /// What all programs together may fill: of every GPU (16GiB, 80%) or of one (UUID=16GiB); may be repeated [default: 100%]
    #[arg(long, value_name = "BUDGET")]
    budget: Vec<String>,
    /// Keep learned tables in this folder [default: /var/lib/deepum/tables for root, $XDG_STATE_HOME/deepum/tables or
    /// ~/.local/state/deepum/tables otherwise]
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_tables")]
    tables: Option<PathBuf>,
    /// Keep no tables; a program that names a folder (DEEPUM_TABLES) has its own there nevertheless
    #[arg(long)]
    no_tables: bool,
    /// Most programs of one user [1 to 256]
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    programs: u16,
    /// How much is logged
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["error", "warn", "info", "debug"])]
    log: String,
    /// Say what these options come to and whether it could start, and end
    #[arg(long)]
    check: bool,
    /// For deepumd itself: parent, user, group and descriptors of a worker
    #[arg(long, value_name = "ERRAND", hide = true, exclusive = true)]
    worker: Option<String>,
}

/// What to do.
#[derive(Debug)]
pub enum Task {
    /// Be a worker on this errand.
    Worker(String),
    /// Serve.
    Serve(Settings),
    /// Only say.
    Check(Settings),
}

/// What the options come to.
#[derive(Debug)]
pub struct Settings {
    /// Where programs connect.
    pub socket: PathBuf,
    /// Who may.
    pub allowed: Allowed,
    /// What there is to share.
    pub budgets: Budgets,
    /// Where tables are kept: by user.
    pub tables: Option<PathBuf>,
    /// Most programs of one user.
    pub programs: usize,
    /// How much is logged.
    pub log: tracing::Level,
    /// How workers are started.
    pub workers: Workers,
}

/// Who is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Who runs the daemon.
    Own(u32),
    /// Everybody: the system's daemon.
    Everybody,
    /// These; root always.
    Some {
        /// By user.
        users: Vec<u32>,
        /// By group.
        groups: Vec<u32>,
    },
}

impl Allowed {
    /// Whether somebody is served. `groups` is asked only where it matters.
    pub fn may(&self, uid: u32, gid: u32, groups: impl FnOnce() -> Vec<u32>) -> bool {
        match self {
            Self::Own(own) => uid == *own,
            Self::Everybody => true,
            Self::Some { users, groups: allowed } => {
                uid == 0
                    || users.contains(&uid)
                    || allowed.contains(&gid)
                    || (!allowed.is_empty() && groups().iter().any(|gid| allowed.contains(gid)))
            }
        }
    }

    /// Whether it serves others than who runs it.
    pub const fn is_system(&self) -> bool {
        !matches!(self, Self::Own(_))
    }
}

/// What all programs together may fill, by GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budgets {
    all: Budget,
    one: BTreeMap<[u8; 16], Budget>,
}

impl Budgets {
    /// On the GPU that a program describes so.
    pub fn of(&self, device: &Device) -> Bytes {
        self.one.get(&device.uuid).unwrap_or(&self.all).of(device.memory)
    }
}

impl Cli {
    /// What these options come to.
    ///
    /// # Errors
    /// Option, value, and what is allowed.
    pub fn task(self) -> Result<Task> {
        if let Some(errand) = self.worker {
            return Ok(Task::Worker(errand));
        }
        let uid = getuid();
        ensure!(
            uid.is_root() || (self.allow_user.is_empty() && self.allow_group.is_empty()),
            "--allow-user and --allow-group are for a daemon run by root; run by user {uid} it serves this user"
        );
        let users: Vec<u32> = self.allow_user.iter().map(|name| user(name)).collect::<Result<_>>()?;
        let groups: Vec<u32> = self.allow_group.iter().map(|name| group(name)).collect::<Result<_>>()?;
        let allowed = match (uid.is_root(), users.is_empty() && groups.is_empty()) {
            (false, _) => Allowed::Own(uid.as_raw()),
            (true, true) => Allowed::Everybody,
            (true, false) => Allowed::Some { users, groups },
        };
        let level = self.log.parse().ok().context("--log is none of error, warn, info, debug")?;
        let tables = if self.no_tables { None } else { Some(tables(self.tables, uid)?) };
        let settings = Settings {
            socket: self.socket.map_or_else(|| default_socket(uid), Ok)?,
            allowed,
            budgets: budgets(&self.budget)?,
            tables,
            programs: usize::from(self.programs),
            log: level,
            workers: Workers::find(),
        };
        Ok(if self.check { Task::Check(settings) } else { Task::Serve(settings) })
    }
}

impl Settings {
    /// What they come to, for people, and whether a daemon could start with them.
    ///
    /// # Errors
    /// What is in the way.
    pub fn check(&self) -> Result<String> {
        listen::folder(&self.socket, self.allowed.is_system())?;
        let place = listen::Place::open(&self.socket, self.allowed.is_system())?;
        drop(place);
        let allowed = match &self.allowed {
            Allowed::Own(uid) => format!("user {uid}"),
            Allowed::Everybody => "everybody".to_owned(),
            Allowed::Some { users, groups } => format!("users {users:?}, groups {groups:?}, root"),
        };
        let tables = self.tables.as_ref().map_or("none kept".to_owned(), |path| path.display().to_string());
        let emulated = self
            .workers
            .emulated
            .as_ref()
            .map_or("not served: libdeepum_emu_node.so is not beside deepumd".to_owned(), |path| {
                format!("served, with {}", path.display())
            });
        Ok(format!(
            "socket         {}\nserves         {allowed}\nbudget         {}{}\ntables         {tables}\nemulated GPUs  {emulated}\n\
             it could start\n",
            self.socket.display(),
            self.budgets.all,
            if self.budgets.one.is_empty() { "" } else { ", other for single GPUs" },
        ))
    }
}

fn user(name: &str) -> Result<u32> {
    match name.parse() {
        Ok(number) => Ok(number),
        Err(_) => match User::from_name(name) {
            Ok(Some(user)) => Ok(user.uid.as_raw()),
            _ => bail!("--allow-user is {name:?}; allowed is the name or number of a user of this system"),
        },
    }
}

fn group(name: &str) -> Result<u32> {
    match name.parse() {
        Ok(number) => Ok(number),
        Err(_) => match Group::from_name(name).ok().flatten().map(|group: Group| group.gid) {
            Some(gid) => Ok(Gid::as_raw(gid)),
            None => bail!("--allow-group is {name:?}; allowed is the name or number of a group of this system"),
        },
    }
}

fn budgets(texts: &[String]) -> Result<Budgets> {
    let mut budgets = Budgets { all: Budget::Percent(100), one: BTreeMap::new() };
    for text in texts {
        let (gpu, value) = match text.split_once('=') {
            Some((gpu, value)) => (Some(uuid(gpu).with_context(|| format!("--budget is {text:?}"))?), value),
            None => (None, text.as_str()),
        };
        let budget = Budget::parse(value).with_context(|| format!("--budget is {text:?}"))?;
        match gpu {
            Some(gpu) => drop(budgets.one.insert(gpu, budget)),
            None => budgets.all = budget,
        }
    }
    Ok(budgets)
}

/// `GPU-01234567-89ab-…`, as nvidia-smi writes it; the prefix and the dashes may be left out.
fn uuid(text: &str) -> Result<[u8; 16]> {
    let digits: String = text.trim_start_matches("GPU-").chars().filter(|c| *c != '-').collect();
    let allowed = || format!("the GPU is {text:?}; allowed is a UUID of 32 hexadecimal digits");
    ensure!(digits.len() == 32 && digits.is_ascii(), allowed());
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[i * 2..i * 2 + 2], 16).with_context(allowed)?;
    }
    Ok(uuid)
}

fn default_socket(uid: Uid) -> Result<PathBuf> {
    if uid.is_root() {
        return Ok(PathBuf::from(SYSTEM_SOCKET));
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => Ok(runtime.join("deepum/deepumd.sock")),
        None => bail!("XDG_RUNTIME_DIR is not set, so there is no usual place for the socket; say where with --socket"),
    }
}

fn tables(asked: Option<PathBuf>, uid: Uid) -> Result<PathBuf> {
    if let Some(path) = asked {
        ensure!(path.is_absolute(), "--tables is {}; allowed is an absolute path", path.display());
        return Ok(path);
    }
    if uid.is_root() {
        return Ok(PathBuf::from("/var/lib/deepum/tables"));
    }
    TablesIn::usual(|name| std::env::var_os(name))
        .context("neither XDG_STATE_HOME nor HOME is set; say where tables are kept with --tables, or --no-tables")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn budgets_are_for_all_or_for_one() {
        let device = |n: u8| Device { id: Default::default(), uuid: [n; 16], memory: Bytes(100), budget: Bytes(100) };
        let one = "GPU-01010101-0101-0101-0101-010101010101=30%".to_owned();
        let budgets = budgets(&["80%".to_owned(), one]).unwrap();
        assert_eq!((budgets.of(&device(1)), budgets.of(&device(2))), (Bytes(30), Bytes(80)));
        for bad in ["", "x", "0%", "12=80%", "GPU-zz=1", "01010101010101010101010101010101=0"] {
            let error = super::budgets(&[bad.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(&format!("--budget is {bad:?}")), "{error}");
        }
    }

    #[test]
    fn who_is_served_is_judged_by_user_and_group() {
        let asked = |allowed: &Allowed, uid, gid, groups: &[u32]| allowed.may(uid, gid, || groups.to_vec());
        let some = Allowed::Some { users: vec![5], groups: vec![70] };
        assert!(
            asked(&some, 5, 1, &[])
                && asked(&some, 6, 70, &[])
                && asked(&some, 6, 1, &[3, 70])
                && asked(&some, 0, 0, &[])
        );
        assert!(!asked(&some, 6, 1, &[3, 71]));
        assert!(asked(&Allowed::Own(5), 5, 1, &[]) && !asked(&Allowed::Own(5), 0, 0, &[5]));
        assert!(asked(&Allowed::Everybody, 12, 1, &[]));
    }
}
