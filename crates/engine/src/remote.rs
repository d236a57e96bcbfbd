//! The program's side of an engine in a daemon: one thread, `deepum-link`.
//!
//! ```text
//!           ┌──────────────── hang-up, refusal, silence ◄─────────────┐
//!           ▼                                                         │
//!     without engine ── knock: 50 ms … 1 s ──► Hello ──► Welcome ──► served
//! ```
//!
//! There is one state without an engine, and one way into it, whether the daemon was never there, died, or is not to be used: the
//! mode is off, the gates are open, the pace is the device's own, no discard is claimed, nothing is counted as work; the
//! driver manages the program's memory as it would without us ([`Link::let_go`]). And there is one way out of it: a daemon answers.
//!
//! The order of letting go: first what the program may be waiting for (mode, gates), then the pace, so that the device waits no more and
//! what the dead engine had asked for is over; then the words that the engine claimed. The kernel closes a process's files, and so
//! hangs up, after its threads have left every call of the driver (`docs/daemon.md`); so then nothing of it is under way.
//!
//! **Who waits for whom where virtual time decides.** The device waits for the engine while the page's count of work differs from the number of
//! the engine's threads that it holds; the engine waits for the device inside its calls. Neither waits in vain, because both begin
//! and end as follows, and each step comes before the next whatever the threads do:
//!
//! 1. The last engine is gone: hung up, so its process has left every call ([`Link::let_go`] comes after the hang-up, also
//!    where we hung up). The hooks are taken back: whom the device held it lets go, once; what lies unread on the lines is carried
//!    out as a call of nobody's. Only then is the count 0.
//! 2. Ring and records are made ready. Nothing is nudged: the hooks know of no engine.
//! 3. The hooks are offered. The device now waits at every point, and finds 0 = 0.
//! 4. Hello, with a new file of the driver. So every request of this engine finds the device waiting for it; none can be taken for a call
//!    of the program, which would wait for its turn behind the thread that waits for the engine.
//! 5. The engine starts, does nothing before the first nudge ([`crate::adopted`]), and says Welcome.
//! 6. The first nudge, counted before it is heard. From here on all work has a token, by [`crate::nudges`] and [`crate::pending`].
//!
//! The program may end, fork, or be in any of its calls at each step. If the engine dies between two steps, or does not answer, it is step 1.
//!
//! Where virtual time decides, it stands still until the first attempt is over, so that runs repeat. Elsewhere nobody waits.
//!
//! The tools queue is attached for each engine anew, and closed with it: no driver writes notices that nobody reads.
//!
//! Not here: what is said on the connection (`deepum-protocol`, `control`), the other end (`daemon/`). In a forked child there is no
//! link; it closes its copy of the connection, so that the daemon sees the end of the program.

mod attach;
mod connection;
mod hooks;

use crate::nudges::Nudges;
use crate::{DeviceFacts, StartError, ours, pace, packet};
use attach::{Attached, Failure};
use deepum_kmod_bridge::adopt::LentQueue;
use deepum_kmod_bridge::{Kernel, Linux};
use deepum_protocol::control::{PACKET_BYTES, Packet};
use deepum_protocol::page::Page;
use deepum_protocol::ring::Ring;
use deepum_protocol::shared::{MAX_DEVICES, Mode};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the program waits for the first attempt, where virtual time stands still for it.
const FIRST: Duration = Duration::from_secs(10);
/// First and longest pause between two knocks.
const KNOCK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// An engine that lived so long has not failed at its start.
const STEADY: Duration = Duration::from_secs(5);
/// How often gates are looked at while an engine serves.
const CHECK: Duration = Duration::from_millis(250);
/// How long a gate may stay closed at one place: longer than the engine's own patience ([`crate::launch_gate::PATIENCE`]).
const PATIENCE: Duration = Duration::from_secs(4);

/// What the shim hands over, once.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The record ring, and its memory.
    pub ring: (Ring<'static>, BorrowedFd<'static>),
    /// The page, and its memory.
    pub page: (Page, BorrowedFd<'static>),
    /// Every visible GPU, by CUDA ordinal.
    pub devices: Vec<DeviceFacts>,
    /// Where a daemon may listen, in the order in which to look.
    pub sockets: Vec<PathBuf>,
    /// The `DEEPUM_*` variables, `NAME=value`, one a line.
    pub variables: String,
    /// The program's share among those of its user.
    pub weight: u32,
    /// What it works on; 0 where that is not known.
    pub workload: u64,
    /// Calls its argument, then puts a record of every allocation that lives, and every PT block that holds a tensor, into the ring,
    /// while none comes or goes.
    pub replay: fn(&dyn Fn()),
    /// Whether the shim is off for good.
    pub is_off: fn() -> bool,
    /// Prints one line for the person.
    pub say: fn(&str),
    /// Prints one line for a curious person.
    pub info: fn(&str),
}

static FORKED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Starts the link. At most once in a process.
///
/// # Errors
/// [`StartError`], in words for the person. That no daemon is there is no error: one may come.
pub fn start(remote: Remote) -> Result<(), StartError> {
    start_over(remote, Arc::new(Linux))
}

/// As [`start`], with a driver of another kind.
///
/// # Errors
/// As [`start`].
pub fn start_over(remote: Remote, kernel: Arc<dyn Kernel>) -> Result<(), StartError> {
    let nudges = Nudges::new(remote.page.0).map_err(|e| StartError(format!("no descriptor for nudges: {e}")))?;
    let (nudges, driven) = (Arc::new(nudges), pace::is_there());
    let link = Link { remote, kernel, nudges, driven, attachments: 0, free: false, said: None };
    let shared = link.remote.ring.0.shared();
    ours::quiet_panics();
    // SAFETY: both handlers are plain functions that live as long as the process, take no lock and allocate nothing.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_forked_child));
        libc::atexit(at_exit);
    }
    let (driven, page, say) = (link.driven, link.remote.page.0, link.remote.say);
    let first = Arc::new((Mutex::new(false), Condvar::new()));
    let told = Arc::clone(&first);
    let over = move || {
        *told.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.1.notify_all();
    };
    let failed = {
        let over = over.clone();
        move |why: String| {
            shared.set_mode(Mode::Off);
            page.gates().open();
            say(&format!("{why}; DeepUM is off, the program goes on as plain unified memory"));
            over();
        }
    };
    ours::spawn("deepum-link", move || link.run(over), failed).map_err(StartError)?;
    if driven {
        let (lock, bell) = &*first;
        let waits = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = bell.wait_timeout_while(waits, FIRST, |over| !*over);
    }
    Ok(())
}

#[derive(Debug)]
struct Link {
    remote: Remote,
    kernel: Arc<dyn Kernel>,
    nudges: Arc<Nudges>,
    /// Whether virtual time decides when to look.
    driven: bool,
    attachments: u32,
    /// Whether all that an engine may have claimed was taken back since there was one.
    free: bool,
    /// The last line about having no daemon, so that each is said once.
    said: Option<String>,
}

impl Link {
    /// The thread. `over` is called after the first attempt.
    fn run(mut self, over: impl Fn()) {
        let mut pause = KNOCK.0;
        let mut lost = false;
        while !self.enough() {
            let failure = match self.attach() {
                Ok(attached) => {
                    let say = if lost { self.remote.say } else { self.remote.info };
                    say(&attached.who);
                    (lost, self.said) = (true, None);
                    over();
                    let since = Instant::now();
                    let why = self.serve(&attached);
                    self.leave();
                    connection::part(attached.connection.as_fd());
                    self.let_go();
                    if since.elapsed() >= STEADY {
                        pause = KNOCK.0;
                    }
                    why
                }
                Err(failure) => {
                    self.let_go();
                    failure
                }
            };
            self.tell(&failure);
            over();
            match failure {
                Failure::Unable(_) => return,
                // What this daemon refuses for good another one may take.
                Failure::Refused { socket, for_good: true, .. } => {
                    socket.wait_until_changed(self.remote.is_off, KNOCK.1);
                }
                _ => thread::sleep(pause),
            }
            pause = (pause * 2).min(KNOCK.1);
        }
        self.let_go();
    }

    /// Whether no engine is wanted any more.
    fn enough(&self) -> bool {
        (self.remote.is_off)() || ENDING.load(Ordering::Relaxed)
    }

    /// One attempt.
    fn attach(&mut self) -> Result<Attached, Failure> {
        let ready = attach::Ready::new(&self.remote, &self.kernel)?;
        self.free = false;
        let (ring, _) = self.remote.ring;
        // What an engine that is gone, or never was, has left in the ring is of another time. Before the first attempt was over nothing
        // is missing in it.
        if ring.shared().mode() == Mode::Off {
            (self.remote.replay)(&|| {
                attach::empty(ring);
                // From here on what comes and goes has records, so that what is told now stays true.
                ring.shared().set_mode(Mode::Dormant);
            });
        }
        self.attachments += 1;
        if self.driven {
            // Before there is an engine: what it asks for must find the device waiting for it, or the device would wait for a program that
            // waits for the engine. Nothing is nudged yet.
            let hooks = hooks::prepare(self.remote.page.0, ring, &self.nudges);
            if !pace::offer(hooks, self.remote.say) {
                self.driven = false;
            }
        }
        let attached = ready.say_hello(&self.remote, &self.nudges, self.driven, self.attachments)?;
        connection::set(Some(Arc::clone(&attached.connection)));
        if self.driven {
            hooks::attach(attached.queue.as_ref().map(LentQueue::watch));
            // There may be something to look at already.
            self.nudges.give();
        }
        Ok(attached)
    }

    /// Listens until the daemon hangs up. Why it is over.
    fn serve(&self, attached: &Attached) -> Failure {
        let gone = || Failure::Lost(attached.path.clone());
        let mut buffer = vec![0; PACKET_BYTES];
        let mut gates = Watch::new(self.remote.page.0);
        loop {
            let mut poll = libc::pollfd { fd: attached.connection.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            let ready = unsafe { libc::poll(&raw mut poll, 1, i32::try_from(CHECK.as_millis()).unwrap_or(i32::MAX)) };
            if (self.remote.is_off)() {
                return gone();
            }
            if !self.driven && gates.stand() {
                (self.remote.say)(
                    "deepumd has not let a launch go for too long: those that wait start now, and may fault where they would have waited",
                );
            }
            if ready < 1 {
                continue;
            }
            match packet::receive(attached.connection.as_fd(), &mut buffer) {
                Ok(got) if got.len > 0 => match Packet::parse(&buffer[..got.len]) {
                    Ok(Packet::Say(line)) => {
                        if !ENDING.load(Ordering::Relaxed) {
                            (self.remote.say)(&line);
                        }
                    }
                    Ok(Packet::Budget(shares)) => {
                        let shares: Vec<_> =
                            shares.iter().map(|(id, bytes)| format!("GPU {}: {bytes}", id.0)).collect();
                        (self.remote.info)(&format!("deepumd gives this program {}", shares.join(", ")));
                    }
                    Ok(_) => return Failure::Nonsense(attached.path.clone(), "an answer out of turn".to_owned()),
                    Err(why) => return Failure::Nonsense(attached.path.clone(), why.to_string()),
                },
                Err(e) if matches!(e.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock) => {}
                _ => return gone(),
            }
        }
    }

    /// From here on the program waits for no engine, whether it is gone or not.
    fn leave(&self) {
        self.remote.ring.0.shared().set_mode(Mode::Off);
        self.remote.page.0.gates().open();
        if self.driven {
            hooks::detach();
            pace::give_back();
        }
    }

    /// From here on there is no engine: it has hung up. See the module for the order.
    fn let_go(&mut self) {
        connection::set(None);
        if std::mem::replace(&mut self.free, true) {
            return;
        }
        // Once more, for one that went on for a while.
        self.leave();
        self.remote.page.0.hand_outs().clear_discards();
        self.nudges.forget();
    }

    /// Says why there is no daemon, each reason once.
    fn tell(&mut self, failure: &Failure) {
        if self.enough() {
            return;
        }
        let line = failure.to_string();
        if self.said.as_ref() != Some(&line) {
            (self.remote.say)(&line);
            self.said = Some(line);
        }
    }
}

/// Watches over gates that an engine moves which may have been stopped.
#[derive(Debug)]
struct Watch {
    page: Page,
    last: [u64; MAX_DEVICES],
    since: Instant,
}

impl Watch {
    fn new(page: Page) -> Self {
        Self { page, last: [0; MAX_DEVICES], since: Instant::now() }
    }

    /// To be called often. Whether a gate stood still, closed, for too long; then all were opened.
    fn stand(&mut self) -> bool {
        let gates = self.page.gates();
        let now: [u64; MAX_DEVICES] =
            std::array::from_fn(|ordinal| gates.word(ordinal).map_or(0, |word| word.load(Ordering::Relaxed)));
        if now != self.last || !gates.is_closed() {
            (self.last, self.since) = (now, Instant::now());
            return false;
        }
        let stood = self.since.elapsed() >= PATIENCE;
        if stood {
            gates.open();
            self.since = Instant::now();
        }
        stood
    }
}

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Relaxed);
    connection::close_in_child();
}

extern "C" fn at_exit() {
    if !FORKED.load(Ordering::Relaxed) {
        ENDING.store(true, Ordering::Relaxed);
        connection::say_bye();
    }
}
