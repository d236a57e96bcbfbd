//! `deepum status`: asks running programs how they are, over their status sockets.

use crate::libraries::user_dir;
use anyhow::{Context, Result, bail};
use deepum_core::units::Bytes;
use deepum_protocol::status::{Pace, State, Status};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest answer taken: far above any real one, so that a broken peer cannot fill memory.
const LONGEST: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// One JSON object: `schema` and `rows[]`, each row a status as in docs/status.md
    #[arg(long)]
    json: bool,
    /// Only this process [default: every program of yours under DeepUM]
    pid: Option<u32>,
}

pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let dir = user_dir()?;
    let sockets = match args.pid {
        Some(pid) => vec![dir.join(format!("{pid}.sock"))],
        None => sockets(&dir)?,
    };
    let mut rows = Vec::new();
    let mut failed = false;
    for socket in &sockets {
        match ask(socket) {
            Ok(status) => rows.push(status),
            Err(error) if args.pid.is_some() => {
                return Err(error.context(format!("no program under DeepUM answers at {}", socket.display())));
            }
            Err(error) => {
                failed = true;
                eprintln!("deepum: {}: {error:#}", socket.display());
            }
        }
    }
    if args.json {
        println!("{}", json!({ "schema": "deepum-status-rows/1", "rows": rows }));
    } else if rows.is_empty() && !failed {
        println!("no program of yours runs under DeepUM (looked in {})", dir.display());
    } else {
        for status in &rows {
            print!("{}", page(status));
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The sockets of living processes, by process ID.
fn sockets(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Path::new("/proc").join(format!("{pid}")).exists().then_some((pid, path))
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn ask(socket: &Path) -> Result<Status> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"{\"get\":\"status\"}\n")?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).context("it does not answer")?;
    if line.is_empty() {
        bail!("it hung up without an answer");
    }
    Ok(Status::parse(&line)?)
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
        line("faults", format!("{} (per UM block and batch)", d.faults));
        line("moved", format!("{} in, {} out", Bytes(d.bytes_h2d), Bytes(d.bytes_d2h)));
    }
    let p = &s.prefetch;
    line(
        "prefetch",
        format!(
            "{} asked, {} issued, {} useful, {} late, {} useless, {} dropped (UM blocks)",
            p.asked, p.issued, p.useful, p.late, p.useless, p.dropped
        ),
    );
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
