//! Recording: what the program does becomes a trace while it runs (`docs/trace.md`, `DEEPUM_RECORD`).
//!
//! Problem: the hooks know what the program does, and a file is slow; the program must not wait for it, and may be killed at any moment.
//! Idea: hooks put what they saw into a bounded queue ([`Recorder::tell`]), and one thread, `deepum-record`, makes records of it ([`scribe`]), a chunk
//! each second at the latest. It makes no difference where the engine is, whether it is awake, or whether there is one: the recorder
//! listens to the hooks, and tells the engine nothing. So a recorded run is the run that it would have been.
//!
//! What a launch does is known in one of two ways, and a trace never mixes them:
//!
//! - *truth*: the emulated device says of each launch and copy what it touches and how long it takes if nothing is missing ([`watch`]);
//! - *progress*: on a GPU nobody says what a kernel touches, and a replay goes by its pointers; how long it takes is told by the progress words, as finely as
//!   they are looked at ([`progress`]).
//!
//! Invariants: nobody waits for the queue: what finds no room is counted, said, and stands in the trace as lost. A file that cannot be written
//! costs one line. A forked child writes nothing into its parent's file.
//!
//! The clock of a trace stands still inside the calls that are recorded ([`Clock`]): what they cost is the driver's and ours, not the program's.

mod file;
mod progress;
mod scribe;
mod trace;
mod watch;

use crate::{DeviceFacts, ours, pace};
use deepum_core::units::{AddrRange, DevAddr, DeviceId, LaunchKey, LaunchSeq, Nanos, StreamSlot};
use deepum_protocol::page::Page;
use deepum_trace::event::{MOST_STRING, Touch};
use scribe::Scribe;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What may wait for the thread. A choice: some thousand launches with all that belongs to them, 6 MiB.
const QUEUE: usize = 1 << 16;
/// Longest time that the end of a program waits for its trace to be written down.
const PARTING: Duration = Duration::from_secs(5);

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// What the shim hands over, once.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the trace goes: of the first GPU here, of others in `PATH.gpu1`, ….
    pub path: PathBuf,
    /// Every visible GPU, by CUDA ordinal.
    pub devices: Vec<DeviceFacts>,
    /// What they are called.
    pub device: String,
    /// Whose progress words tell times.
    pub page: Page,
    /// Prints one line for the person.
    pub say: fn(&str),
    /// Prints one line for a curious person.
    pub info: fn(&str),
}

/// Something the program did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// It was given managed memory.
    Alloc(AddrRange),
    /// It gives it back.
    Free(AddrRange),
    /// PyTorch's caching allocator handed out or took back.
    PtBlock {
        /// The PT block.
        range: AddrRange,
        /// Whether it now holds a tensor.
        active: bool,
    },
    /// The driver took a launch.
    Launch {
        /// What it is.
        key: LaunchKey,
        /// The kernel's name.
        name: &'static str,
        /// Its managed pointers.
        pointers: Box<[DevAddr]>,
        /// Where it was issued.
        issued: Issued,
    },
    /// The driver took a copy.
    Copy {
        /// The managed bytes it reads.
        from: Option<AddrRange>,
        /// The managed bytes it writes.
        to: Option<AddrRange>,
        /// Where it was issued.
        issued: Issued,
    },
    /// The host waited for the GPU.
    Wait {
        /// For which stream; none: for all.
        stream: Option<StreamSlot>,
        /// How long.
        waited: Nanos,
    },
    /// An iteration ends, and the next begins.
    Iteration,
}

/// Where the GPU was given something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issued {
    /// The stream's number.
    pub stream: StreamSlot,
    /// Whose progress word tells when it is over, and from which place on.
    pub progress: Option<(StreamSlot, LaunchSeq)>,
    /// By what the emulated device calls it; 0 elsewhere.
    order: u64,
    /// When, by the clock that does not stand still.
    at: Nanos,
}

#[derive(Debug)]
enum Said {
    Call { device: DeviceId, at: Nanos, what: What },
    Work { order: u64, time: Nanos, touches: Vec<Touch> },
    End,
}

/// See the module.
#[derive(Debug)]
pub struct Recorder {
    queue: SyncSender<Said>,
    /// What found no room since the thread last looked.
    lost: Arc<AtomicU64>,
    clock: Clock,
    /// Whether the emulated device says what launches do.
    truth: AtomicBool,
    ended: Arc<(Mutex<bool>, Condvar)>,
    pid: AtomicU32,
}

/// Begins to record. At most once in a process.
///
/// # Errors
/// Why not, in words for the person.
pub fn start(setup: Setup) -> Result<(), String> {
    let (file, path) = file::create(&setup.path).map_err(|(path, why)| format!("{}: {why}", path.display()))?;
    let (queue, heard) = sync_channel(QUEUE);
    let (lost, ended) = (Arc::default(), Arc::<(Mutex<bool>, Condvar)>::default());
    let (clock, say) = (Clock::new(), setup.say);
    let scribe = Scribe::new(setup, file, path, Arc::clone(&lost), clock.twin());
    let over = Arc::clone(&ended);
    let body = move || {
        scribe.write(&heard);
        *over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        over.1.notify_all();
    };
    let failed = move |why: String| say(&format!("{why}; the trace ends here, all else goes on"));
    ours::spawn("deepum-record", body, failed)?;
    let recorder =
        Recorder { queue, lost, clock, truth: AtomicBool::new(false), ended, pid: AtomicU32::new(std::process::id()) };
    if RECORDER.set(recorder).is_err() {
        return Err("recording was begun before".to_owned());
    }
    if let Some(recorder) = RECORDER.get() {
        recorder.truth.store(watch::offer(), Ordering::Relaxed);
    }
    // SAFETY: the handler is a plain function that lives as long as the process.
    unsafe { libc::atexit(at_exit) };
    Ok(())
}

/// The recorder, if this process records.
#[inline]
pub fn get() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// This process's command line.
fn program() -> String {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let text = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    text[..text.floor_char_boundary(MOST_STRING)].to_owned()
}

extern "C" fn at_exit() {
    // A panic must not reach the C library; then the trace has no end.
    let _ = std::panic::catch_unwind(|| get().map(Recorder::finish));
}

impl Recorder {
    /// A recorded call begins.
    pub fn begin(&self) -> Begun {
        Begun(self.clock.raw())
    }

    /// It is over.
    pub fn over(&self, begun: Begun) {
        self.clock.held.fetch_add(self.since(&begun).0, Ordering::Relaxed);
    }

    /// When a call that begins now would come, by the trace's clock.
    pub fn now(&self) -> Nanos {
        self.clock.at(self.clock.raw())
    }

    /// When this call began, by the trace's clock.
    pub fn at(&self, begun: &Begun) -> Nanos {
        self.clock.at(begun.0)
    }

    /// How long ago this call began.
    pub fn since(&self, begun: &Begun) -> Nanos {
        // At the end of a program virtual time is gone.
        self.clock.raw().saturating_sub(begun.0)
    }

    /// Whether a launch's time is known by its progress word alone.
    pub fn needs_progress(&self) -> bool {
        !self.truth.load(Ordering::Relaxed)
    }

    /// Where the calling thread gave the GPU something a moment ago, in a call that began then.
    pub fn issued(&self, begun: &Begun, stream: StreamSlot, progress: Option<(StreamSlot, LaunchSeq)>) -> Issued {
        let order = if self.needs_progress() { 0 } else { watch::issued() };
        Issued { stream, progress: progress.filter(|_| order == 0), order, at: begun.0 }
    }

    /// Takes down what the program did. Waits for nobody.
    pub fn tell(&self, device: DeviceId, at: Nanos, what: What) {
        self.put(Said::Call { device, at, what });
    }

    fn put(&self, said: Said) {
        // A thread that has ended said why.
        if let Err(TrySendError::Full(_)) = self.queue.try_send(said) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the trace, at the end of the program; waits for that, but for no longer than [`PARTING`]. In a forked child it does nothing.
    fn finish(&self) {
        if self.pid.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let deadline = Instant::now() + PARTING;
        loop {
            match self.queue.try_send(Said::End) {
                Ok(()) => break,
                Err(TrySendError::Full(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return,
            }
        }
        let mut ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            ended = self.ended.1.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A recorded call under way: when it began.
#[derive(Debug)]
pub struct Begun(Nanos);

/// The host's clock: virtual time where that decides, else the system's.
#[derive(Debug)]
struct Clock {
    virtual_time: Option<unsafe extern "C" fn() -> u64>,
    start: Instant,
    /// Time inside recorded calls.
    held: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        Self { virtual_time: pace::time(), start: Instant::now(), held: AtomicU64::new(0) }
    }
    /// One that does not stand still.
    const fn twin(&self) -> Self {
        Self { virtual_time: self.virtual_time, start: self.start, held: AtomicU64::new(0) }
    }
    fn raw(&self) -> Nanos {
        match self.virtual_time {
            // SAFETY: takes nothing, and may be called from any thread outside the device.
            Some(time) => Nanos(unsafe { time() }),
            None => Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        }
    }
    fn at(&self, raw: Nanos) -> Nanos {
        raw.saturating_sub(Nanos(self.held.load(Ordering::Relaxed)))
    }
}
