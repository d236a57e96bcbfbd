//! A worker: the engine for one program, in a process of its own with the program's rights ([`rights`]).
//!
//! It takes its orders from three descriptors, one `poll`: the program's connection (hang-up, Bye), the program's process (its end), the
//! parent's socket (shares, end, hang-up). Every [`REPORTING`] it looks at what its program uses and reports where that has changed.
//! The engine's own threads do the rest.
//!
//! It ends by ending the process: the kernel then closes, unmaps and frees all that it had of the program, and the program sees the
//! connection hang up. Not here: taking over what was passed on ([`inherited`]).

mod inherited;
mod rights;

use crate::report::{self, Figures, Order, Report, Start};
use anyhow::{Context, Result};
use deepum_core::units::{Bytes, DeviceId};
use deepum_engine::ours;
use deepum_engine::packet;
use deepum_engine::socket::Socket;
use deepum_engine::threads::Running;
use deepum_engine::{adopted, status};
use deepum_protocol::control::{Hello, Packet, Reason, Refused, Welcome};
use deepum_protocol::status::folders;
use inherited::Inherited;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::getuid;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// How often usage is looked at.
pub const REPORTING: Duration = Duration::from_millis(100);

/// Where lines for the person at the program go.
static CONNECTION: OnceLock<OwnedFd> = OnceLock::new();
/// Lines said before the Welcome, which is to come first; nothing once it is out.
static EARLY: Mutex<Option<Vec<String>>> = Mutex::new(Some(Vec::new()));

/// What a program may fill, by GPU.
type Shares = Vec<(DeviceId, Bytes)>;

/// Why it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The program says so, has hung up, or has ended.
    Program,
    /// The parent says so.
    Order,
}

/// Serves one program, with the rights and descriptors that the command line names.
///
/// # Errors
/// What is wrong with the command line, or what the parent sent; a program that cannot be served is no error, but refused.
pub fn main(errand: &str) -> Result<()> {
    let inherited = Inherited::take(rights::take_on(errand)?)?;
    // The parent says when, and of which program.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
    let (hello, start) = inherited.instructions()?;
    let Inherited { orders, reports, connection, program, passed } = inherited;
    // They hang up when the process ends and not before: so whoever hears it may take the process for gone.
    let parent = ManuallyDrop::new((orders, reports));
    let _ = CONNECTION.set(connection);
    let connection = CONNECTION.get().context("set twice")?;
    let running = match run(&hello, &start, passed) {
        Ok(running) => running,
        Err((reason, text)) => {
            info!(program = start.pid, reason = reason.name(), "refused: {text}");
            let refused = Packet::Refused(Refused { reason, text });
            let _ = report::send_now(connection.as_fd(), &refused.to_bytes());
            return Ok(());
        }
    };
    let socket = serve_status(&running, start.pid);
    let release = env!("CARGO_PKG_VERSION").to_owned();
    let welcome = Packet::Welcome(Welcome { worker: std::process::id(), release });
    let welcomed = report::send_now(connection.as_fd(), &welcome.to_bytes());
    let early = EARLY.lock().unwrap_or_else(PoisonError::into_inner).take();
    for line in early.unwrap_or_default() {
        let _ = report::send_now(connection.as_fd(), &Packet::Say(line).to_bytes());
    }
    let end = match welcomed {
        Ok(()) => serve(&running, &parent, connection, &program),
        Err(_) => End::Program,
    };
    debug!(program = start.pid, ?end, "ending");
    running.program_ends();
    running.save_tables_at_end();
    if let Some(path) = socket {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Prints at the program, and in the log.
fn say(line: &str) {
    warn!("{line}");
    if let Some(early) = EARLY.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        return early.push(line.to_owned());
    }
    if let Some(connection) = CONNECTION.get() {
        // A program that does not listen misses it.
        let _ = report::send_now(connection.as_fd(), &Packet::Say(line.to_owned()).to_bytes());
    }
}

/// The engine over what was passed on.
fn run(hello: &Hello, start: &Start, passed: Vec<OwnedFd>) -> Result<Arc<Running>, (Reason, String)> {
    let (inputs, passed) = inherited::adopt(hello, start, passed, say)?;
    adopted::start(&inputs, passed).map_err(|e| (Reason::Internal, e.to_string()))
}

/// Answers for the program as it would itself, under its number. Gives the socket's file.
fn serve_status(running: &Arc<Running>, pid: u32) -> Option<std::path::PathBuf> {
    // A program in another process name space has no number here.
    let pid = if pid == 0 { std::process::id() } else { pid };
    let socket = Socket::bind(&folders(getuid().as_raw()), pid)
        .map_err(|why| say(&format!("no status can be asked for: {why}")))
        .ok()?;
    let path = socket.path().to_owned();
    let running = Arc::clone(running);
    let body = move || {
        socket.serve(|| {
            let mut status = status::of(&running);
            status.pid = pid;
            status
        });
    };
    let lost = |why: String| say(&format!("{why}; the status can no longer be asked for, all else goes on"));
    ours::spawn("deepum-status", body, lost).map_err(|why| say(&format!("no status can be asked for: {why}"))).ok()?;
    Some(path)
}

fn serve(running: &Running, parent: &(OwnedFd, OwnedFd), connection: &OwnedFd, program: &OwnedFd) -> End {
    let (orders, reports) = parent;
    let mut reported = Report::default();
    let mut shares: Option<Shares> = None;
    let mut look = Instant::now();
    loop {
        let left = look.saturating_duration_since(Instant::now()).as_millis() + 1;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [orders, connection, program].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
        let [mut ordered, mut spoken, mut ended] = [false; 3];
        // EINTR: nothing is ready; the rest of the turn does no harm.
        if poll(&mut fds, timeout).is_ok() {
            [ordered, spoken, ended] = fds.map(|fd| fd.any().unwrap_or(true));
        }
        // What the parent wants waits until the engine may look; that is within moments of the Welcome.
        if ordered && let Some(end) = obey(running, orders, connection, &mut shares) {
            return end;
        }
        if adopted::may_look()
            && let Some(shares) = shares.take()
        {
            for (device, share) in &shares {
                running.set_budget(*device, *share);
            }
        }
        // The descriptor of the process, or the connection again where the system has none.
        if (spoken || ended) && hears_end(connection, ended) {
            return End::Program;
        }
        if Instant::now() >= look {
            look = Instant::now() + REPORTING;
            let now = report_of(running);
            if now != reported {
                match report::give(reports.as_fd(), &now) {
                    Ok(()) => reported = now,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return End::Order,
                }
            }
        }
    }
}

/// What the parent wants. The end, if that.
fn obey(running: &Running, orders: &OwnedFd, connection: &OwnedFd, shares: &mut Option<Shares>) -> Option<End> {
    match report::hear::<Order>(orders.as_fd()) {
        Ok(None) => None,
        Ok(Some(Order::Budgets(budgets))) => {
            let new: Shares =
                running.usage().iter().map(|usage| usage.device).zip(budgets.into_iter().map(Bytes)).collect();
            // For information, so it may get lost.
            let _ = report::send_now(connection.as_fd(), &Packet::Budget(new.clone()).to_bytes());
            *shares = Some(new);
            None
        }
        Ok(Some(Order::End)) | Err(_) => Some(End::Order),
    }
}

/// Whether the program is over, where its connection or its process is ready.
fn hears_end(connection: &OwnedFd, ended: bool) -> bool {
    let mut buffer = [0; 64];
    match packet::receive(connection.as_fd(), &mut buffer) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => ended,
        Ok(got) if got.len > 0 => {
            // Bye is all that may come, and what else comes ends it as well.
            if Packet::parse(&buffer[..got.len]) != Ok(Packet::Bye) {
                say("deepumd got a packet that is no Bye after the Hello, and hangs up");
            }
            true
        }
        _ => true,
    }
}

fn report_of(running: &Running) -> Report {
    let figures = |usage: &adopted::Usage| Figures {
        managed: usage.managed.get(),
        resident: usage.resident.get(),
        launches: usage.launches,
    };
    Report { gpus: running.usage().iter().map(figures).collect() }
}
