//! `deepum status`: asks running programs how they are, over their status sockets, and `deepumd` how its programs share.

use crate::say::say;
use anyhow::{Context, Result, bail};
use deepum_core::units::Bytes;
use deepum_protocol::control;
use deepum_protocol::programs::{self, Programs};
use deepum_protocol::status::{Pace, Refusal, State, Status, folders};
use nix::unistd::getuid;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest answer taken: far above any real one, so that a broken peer cannot fill memory.
const LONGEST: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// One JSON object: `schema`, `rows[]`, each row a status as in docs/status.md, and `daemons[]` as in docs/daemon.md
    #[arg(long)]
    json: bool,
    /// Only this process [default: every program of yours under DeepUM]
    pid: Option<u32>,
}

pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let asked = match args.pid {
        Some(pid) => BTreeMap::from([(pid, socket_of(pid)?)]),
        None => sockets(getuid().as_raw()),
    };
    // With a process named, only that one is wanted.
    let daemons = if args.pid.is_none() { daemons() } else { Vec::new() };
    let mut rows = Vec::new();
    for (pid, socket) in &asked {
        match ask(socket) {
            Ok(status) => rows.push(status),
            Err(error) => eprintln!("deepum: process {pid}: {error:#}{}", without_engine(*pid)),
        }
    }
    if args.json {
        say(&format!("{}\n", json!({ "schema": "deepum-status-rows/1", "rows": rows, "daemons": daemons })))?;
    } else {
        let mut pages: Vec<String> = daemons.iter().map(daemon_page).collect();
        pages.extend(rows.iter().map(page));
        if asked.is_empty() {
            pages.push("no program of yours uses a GPU under DeepUM\n".to_owned());
        }
        say(&pages.join("\n"))?;
    }
    Ok(if rows.len() == asked.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The socket of one process, whoever it belongs to; its owner and root are answered.
fn socket_of(pid: u32) -> Result<PathBuf> {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { bail!("there is no process {pid}") };
    let owner = process.uid();
    match sockets(owner).into_iter().find(|(of, _)| *of == pid) {
        Some((_, socket)) => Ok(socket),
        None if !getuid().is_root() && owner != getuid().as_raw() => {
            bail!("process {pid} belongs to user {owner}: ask as that user or as root")
        }
        None => match without_engine(pid).as_str() {
            "" => bail!("process {pid} does not run under DeepUM, or has not used a GPU yet"),
            looks => bail!("process {pid} has not used a GPU yet, or has no engine{looks}"),
        },
    }
}

/// What is to be said of a program that nobody answers for: where it looks for a daemon, if its engine is to be in one. Nothing else answers for
/// it while it has none.
fn without_engine(pid: u32) -> String {
    let places = fs::read(format!("/proc/{pid}/environ")).map_or_else(|_| Vec::new(), |environ| looks_for(&environ));
    let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    if places.is_empty() {
        return String::new();
    }
    format!("; it looks for deepumd at {} and runs as plain unified memory until one answers", places.join(" and "))
}

/// Where a program that was started with these variables looks for a daemon.
fn looks_for(environ: &[u8]) -> Vec<PathBuf> {
    let value = |name: &[u8]| {
        let of = |variable: &[u8]| Some(variable.strip_prefix(name)?.strip_prefix(b"=")?.to_vec());
        environ.split(|byte| *byte == 0).find_map(of).and_then(|value| String::from_utf8(value).ok())
    };
    match value(b"DEEPUM_ENGINE").as_deref() {
        Some("daemon") => control::sockets_of(value(b"XDG_RUNTIME_DIR").map(PathBuf::from)),
        Some(named) => named.strip_prefix("daemon:").into_iter().map(PathBuf::from).collect(),
        None => Vec::new(),
    }
}

/// The sockets of a user's living processes, by process ID.
fn sockets(uid: u32) -> BTreeMap<u32, PathBuf> {
    let of_user = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.uid() == uid);
    folders(uid)
        .into_iter()
        .filter(|folder| of_user(folder))
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            of_user(Path::new(&format!("/proc/{pid}"))).then_some((pid, path))
        })
        .collect()
}

fn ask(socket: &Path) -> Result<Status> {
    Ok(Status::parse(&line(UnixStream::connect(socket)?, "status")?)?)
}

/// What the daemons tell that programs of this user look for. One that is not there is no news.
fn daemons() -> Vec<Programs> {
    let mut daemons = Vec::new();
    for socket in control::sockets() {
        let Ok(stream) = UnixStream::connect(programs::socket_beside(&socket)) else { continue };
        match line(stream, "programs").and_then(|line| Programs::parse(&line).map_err(anyhow::Error::msg)) {
            Ok(programs) => daemons.push(programs),
            Err(error) => eprintln!("deepum: deepumd at {}: {error:#}", socket.display()),
        }
    }
    daemons
}

/// The answer to one request.
fn line(mut stream: UnixStream, wanted: &str) -> Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{{\"get\":\"{wanted}\"}}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).context("it does not answer")?;
    if line.is_empty() {
        bail!("it hung up without an answer");
    }
    match serde_json::from_str(&line) {
        Ok(Refusal { error, .. }) => bail!("it refuses: {error}"),
        Err(_) => Ok(line),
    }
}

/// A daemon and how its programs share, for people.
fn daemon_page(daemon: &Programs) -> String {
    let mut lines = vec![format!(
        "deepumd {} (process {}) at {}: {} program(s)",
        daemon.release,
        daemon.pid,
        daemon.socket,
        daemon.programs.len()
    )];
    for program in &daemon.programs {
        let state = if program.active { "active" } else { "idle" };
        lines.push(format!("  process {} ({}), weight {}, {state}", program.pid, program.command, program.weight));
        for d in &program.devices {
            lines.push(format!(
                "    GPU {}: may fill {} of {} wanted, holds {}, {} of it on the GPU",
                d.uuid.get(..8).unwrap_or(&d.uuid),
                Bytes(d.share_bytes),
                Bytes(d.wanted_bytes),
                Bytes(d.managed_bytes),
                Bytes(d.resident_bytes)
            ));
        }
    }
    lines.join("\n") + "\n"
}

/// One program, for people.
fn page(s: &Status) -> String {
    let state = match s.state {
        State::Dormant => "dormant: everything fits",
        State::Awake => "awake: learning and prefetching",
        State::Off => "off: plain unified memory",
    };
    let mut lines = vec![format!("process {}  policy {}  {state}", s.pid, s.policy)];
    let mut line = |label: &str, text: String| lines.push(format!("  {label:<12}{text}"));
    if let Some(reason) = &s.reason {
        line("because", reason.clone());
    }
    for d in &s.devices {
        line(
            &format!("GPU {}", d.ordinal),
            format!(
                "budget {} of {}, allocated {}, resident {}",
                Bytes(d.budget_bytes),
                Bytes(d.memory_bytes),
                Bytes(d.allocated_bytes),
                Bytes(d.resident_bytes)
            ),
        );
        line("launches", format!("{} ({} execution IDs)", d.launches, d.exec_ids));
        if s.sources.tools_queue.attached {
            line("faults", format!("{} (per UM block and batch)", d.faults));
            line("moved", format!("{} in, {} out", Bytes(d.bytes_h2d), Bytes(d.bytes_d2h)));
        } else {
            line("faults", "unknown, as is what moved: the driver's notices cannot be seen".to_owned());
        }
    }
    let p = &s.prefetch;
    line(
        "prefetch",
        format!(
            "{} asked, {} issued, {} useful, {} late, {} useless, {} dropped (UM blocks)",
            p.asked, p.issued, p.useful, p.late, p.useless, p.dropped
        ),
    );
    if let Some(less) = &s.invalidation.less {
        line("invalidate", format!("{}: {less}", s.invalidation.mode));
    }
    let t = &s.tables;
    line(
        "tables",
        format!(
            "{}: {} execution IDs, {} records of what follows, {} block tables",
            Bytes(t.bytes),
            t.exec_ids,
            t.exec_records,
            t.block_tables
        ),
    );
    for stream in &s.progress {
        line(&format!("stream {}", stream.slot), format!("finished up to launch {}", stream.done));
    }
    for (name, source) in [("faults from", &s.sources.tools_queue), ("progress from", &s.sources.progress)] {
        let text = match (&source.reason, source.attached) {
            (Some(reason), _) => reason.clone(),
            (None, true) => "attached".to_owned(),
            (None, false) => "not attached".to_owned(),
        };
        line(name, text);
    }
    let lost = [("notices lost by the driver", s.sources.notices_lost), ("records dropped", s.ring.dropped)];
    for (what, n) in lost.into_iter().filter(|(_, n)| *n > 0) {
        line("lost", format!("{n} {what}"));
    }
    if s.pace == Pace::Driven {
        line("device", "emulated: virtual time".to_owned());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_programs_variables_say_where_it_looks_for_a_daemon() {
        let looks = |environ: &str| looks_for(environ.replace(' ', "\0").as_bytes());
        let system = PathBuf::from(control::SYSTEM_SOCKET);
        assert_eq!(looks("A=1 DEEPUM_ENGINE=daemon:/x/y.sock B=2"), [PathBuf::from("/x/y.sock")]);
        let own = PathBuf::from("/run/user/7/deepum/deepumd.sock");
        assert_eq!(looks("DEEPUM_ENGINE=daemon XDG_RUNTIME_DIR=/run/user/7"), [own, system.clone()]);
        assert_eq!(looks("XDG_RUNTIME_DIR=here DEEPUM_ENGINE=daemon"), [system]);
        for none in ["", "A=1", "DEEPUM_ENGINE=embedded", "XDEEPUM_ENGINE=daemon DEEPUM_ENGINES=daemon"] {
            assert_eq!(looks(none), Vec::<PathBuf>::new(), "{none}");
        }
    }

    #[test]
    fn a_program_that_nobody_serves_is_said_to_wait_for_a_daemon() {
        // `cat` answers when it runs: before that its variables may not be there to read.
        let mut program = std::process::Command::new("cat")
            .env("DEEPUM_ENGINE", "daemon:/nowhere/deepumd.sock")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("cat starts");
        program.stdin.as_mut().expect("it is piped").write_all(b"x").expect("it reads");
        program.stdout.as_mut().expect("it is piped").read_exact(&mut [0]).expect("it answers");
        let said = socket_of(program.id()).unwrap_err().to_string();
        let other = socket_of(std::process::id()).unwrap_err().to_string();
        program.kill().and_then(|()| program.wait()).expect("it ends");
        assert!(
            said.contains("has no engine; it looks for deepumd at /nowhere/deepumd.sock and runs as plain"),
            "{said}"
        );
        assert!(other.contains("does not run under DeepUM"), "{other}");
    }
}
