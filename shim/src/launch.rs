//! Stage 1 of 7: launch. Every kernel launch, whichever door it came through, becomes one record.
//!
//! Problem: a launch may pass several doors (`cudaLaunchKernel` goes down to `cuLaunchKernel`), each of which we watch,
//! because each is somebody's first.
//!
//! Idea: the outermost door on the thread records, and remembers its place on the stack; a door further down the stack
//! while it is in progress is the same launch. A place left behind (by a `longjmp` out of a launch) is passed over as soon
//! as a launch comes from no deeper than it. Kernels inside a library call are launches of their own.
//!
//! Every accepted launch has a place in its device's sequence, counted also while dormant. While awake it becomes a record
//! *before* the driver gets it, so that nobody ever sees the GPU run a launch that is not known: kernel, shape and the
//! managed pointers among its arguments. A launch that the driver refuses gives its place back.
//!
//! Launches into a stream that is being captured do not run and are not counted; the graph's launch is. What they name may be used
//! whenever the graph is launched, so its contents are never thrown away from then on. A graph's launch is recorded as a kernel's is, with what its
//! nodes use.
//!
//! Not here: reading the arguments ([`crate::arguments`]); what a graph's nodes use ([`crate::graph`]).

use crate::abi::{Dim3, DriverLaunchConfig, Ptr, RuntimeLaunchConfig, SUCCESS, Status};
use crate::arguments::{Arguments, Pointers};
use crate::fence::here;
use crate::issue::Issue;
use crate::names::Kind;
use crate::real::genuine;
use crate::record::{self, Launched};
use crate::{graph, idle, lead, link, names, ops, opt, progress, registry};
use deepum_core::event::Launch;
use deepum_core::exec_id::{Shape, pointer_key};
use deepum_core::mix::Mix;
use deepum_core::units::{KernelId, LaunchKey, StreamSlot};
use deepum_protocol::ring::Record;
use deepum_protocol::shared::{Shared, ShimCounter};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A launch in progress, between the two halves of its hook.
pub enum Note {
    /// In its device's sequence.
    Counted(Issue, Option<Launched>),
    /// Into a graph being captured.
    Captured,
    /// On a device past those we count.
    Uncounted,
}

/// What stream 0 is at this door.
pub trait Default {
    /// Whether it is the thread's own stream.
    const PER_THREAD: bool;
}
/// The device's one default stream.
pub enum Own {}
/// The thread's own default stream.
pub enum PerThread {}
impl Default for Own {
    const PER_THREAD: bool = false;
}
impl Default for PerThread {
    const PER_THREAD: bool = true;
}

/// What is launched.
#[derive(Clone, Copy)]
enum What {
    Kernel(Kind, Ptr, Shape, Arguments),
    Graph(Ptr),
}

fn shape(grid: Dim3, block: Dim3) -> Shape {
    Shape { grid: [grid.x, grid.y, grid.z], block: [block.x, block.y, block.z] }
}

/// Captures in progress. Runtime and driver door both count, at the beginning and at the end.
static CAPTURING: AtomicU32 = AtomicU32::new(0);

/// The first half, the same for every door.
///
/// # Safety
/// What is launched is as the program handed it to CUDA.
unsafe fn before(what: What, stream: Ptr, per_thread: bool) -> Option<Note> {
    let frame = std::ptr::from_ref(&what) as usize;
    let outer = here(|h| h.launch_frame.get());
    if outer != 0 && frame < outer {
        return None;
    }
    here(|h| h.launch_frame.set(frame));
    let Some(ring) = link::ring() else { return Some(Note::Uncounted) };
    let shared = ring.shared();
    if capturing() && captures(stream, per_thread) {
        shared.add(ShimCounter::LaunchesCaptured, 1);
        let mut pointers = Pointers::new();
        // SAFETY: handed on from the caller.
        unsafe { key(&shared, &what, &mut pointers) };
        match what {
            What::Kernel(..) => graph::captured(pointers.list()),
            What::Graph(exec) => graph::captured_launch(exec),
        }
        return Some(Note::Captured);
    }
    link::start();
    let device = link::current_device();
    lead::wait(&shared, device, stream, per_thread);
    let begun = record::begin();
    let Some(issue) = Issue::begin(&shared, device, stream, per_thread, || shared.take_seq(device)) else {
        return Some(Note::Uncounted);
    };
    if !issue.awake && begun.is_none() {
        return Some(Note::Counted(issue, None));
    }
    let mut pointers = Pointers::new();
    // SAFETY: handed on from the caller.
    let (kernel, key, of_graph) = unsafe { key(&shared, &what, &mut pointers) };
    let list = of_graph.as_ref().map_or_else(|| pointers.list(), |uses| &*uses.pointers);
    if issue.awake {
        if issue.stream() == StreamSlot::NONE {
            shared.add(ShimCounter::LaunchesWithoutProgress, 1);
        }
        let launch = Launch { seq: issue.seq, stream: issue.stream(), key, kernel, pointers: list };
        ring.push(device, &Record::Launch(launch));
        // Behind the record, so that the engine never has to move the gate for a launch it cannot know.
        progress::wait(&shared, stream, per_thread, device, issue.seq);
    }
    let launched = begun.map(|begun| Launched::new(begun, key, name(&what), list));
    Some(Note::Counted(issue, launched))
}

/// The second half.
fn after(note: Note, status: Status) {
    here(|h| h.launch_frame.set(0));
    let (Note::Counted(issue, launched), Some(ring)) = (note, link::ring()) else { return };
    let shared = ring.shared();
    if let Some(launched) = launched.as_ref().filter(|_| status == SUCCESS) {
        launched.taken(&issue);
    }
    issue.end(&shared, status != SUCCESS);
    if let Some(launched) = launched {
        launched.over();
    }
    if status == SUCCESS {
        shared.add(ShimCounter::Launches, 1);
    } else {
        shared.give_back_seq(issue.device, issue.seq);
        shared.add(ShimCounter::LaunchesRefused, 1);
    }
}

/// Which kernel it is, and what the launch is, as a key; a kernel's managed pointers are gathered on the way, a graph's were when it was made.
///
/// # Safety
/// As [`before`].
unsafe fn key(
    shared: &Shared<'_>,
    what: &What,
    pointers: &mut Pointers,
) -> (KernelId, LaunchKey, Option<Arc<graph::Uses>>) {
    match *what {
        What::Graph(exec) => match graph::of(exec) {
            Some(uses) => (uses.kernel, uses.key, Some(uses)),
            // Made where we did not see it. Its handle is good for this run only.
            None => (KernelId(exec as u64), LaunchKey(Mix::new().word(exec as u64).end()), None),
        },
        What::Kernel(kind, handle, shape, arguments) => {
            let kernel = names::kernel(kind, handle);
            let identity = kernel.identity ^ ops::current();
            let Some(layout) = &kernel.params else {
                shared.add(ShimCounter::LaunchesWithoutLayout, 1);
                return (KernelId(identity), pointer_key(identity, shape, []), None);
            };
            // SAFETY: the arguments are the program's, and the layout is the kernel's own.
            let key =
                unsafe { arguments.key(layout, identity, shape, opt::config().exec_id, registry::map(), pointers) };
            if pointers.left_out() > 0 {
                shared.add(ShimCounter::PointersLeftOut, pointers.left_out());
            }
            (KernelId(identity), key, None)
        }
    }
}

/// What people call it.
fn name(what: &What) -> &'static str {
    match *what {
        What::Graph(_) => "graph",
        What::Kernel(kind, handle, ..) => &names::kernel(kind, handle).name,
    }
}

/// Whether a stream is being captured.
pub fn captures(stream: Ptr, per_thread: bool) -> bool {
    let ask = if per_thread {
        genuine!(Cuda, "cuStreamIsCapturing_ptsz", fn(Ptr, *mut c_int) -> Status)
    } else {
        genuine!(Cuda, "cuStreamIsCapturing", fn(Ptr, *mut c_int) -> Status)
    };
    let mut state = 0;
    // SAFETY: the stream is the program's own argument; the result is ours. An error (the default stream while another
    // captures) means that the call is refused, too.
    ask.is_some_and(|ask| unsafe { ask(stream, &raw mut state) } == SUCCESS && state != 0)
}

macro_rules! doors {
    ($($(#[doc = $doc:literal])+ $door:ident ( $($a:ident : $t:ty),* ) => $what:expr, $stream:expr;)*) => {$(
        $(#[doc = $doc])+
        pub struct $door<D>(std::marker::PhantomData<D>);

        impl<D: Default> $door<D> {
            /// The launch begins.
            #[allow(clippy::too_many_arguments, reason = "CUDA's own")]
            pub unsafe fn before($($a: $t),*) -> Option<Note> {
                // SAFETY: the arguments are the program's own to this door.
                unsafe { before($what, $stream, D::PER_THREAD) }
            }
            /// It was given to the driver.
            pub fn after(note: Note, status: Status) {
                after(note, status);
            }
        }
    )*};
}
doors! {
    /// The runtime, by host function.
    Symbol(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, _shared: usize, stream: Ptr) =>
        What::Kernel(Kind::Symbol, f, shape(grid, block), Arguments::Each(args)), stream;
    /// The runtime, by kernel handle.
    Handle(f: Ptr, grid: Dim3, block: Dim3, args: *mut Ptr, _shared: usize, stream: Ptr) =>
        What::Kernel(Kind::RuntimeHandle, f, shape(grid, block), Arguments::Each(args)), stream;
    /// The runtime, by host function, with attributes. A null configuration is the driver's to refuse.
    SymbolEx(config: *const RuntimeLaunchConfig, f: Ptr, args: *mut Ptr) =>
        What::Kernel(Kind::Symbol, f, config.as_ref().map(|c| shape(c.grid, c.block))?, Arguments::Each(args)),
        config.as_ref()?.stream;
    /// The driver.
    Driver(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, _shared: c_uint, stream: Ptr, params: *mut Ptr, extra: *mut Ptr) =>
        What::Kernel(Kind::DriverHandle, f, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, Arguments::of_driver(params, extra)), stream;
    /// The driver, cooperative.
    DriverCooperative(f: Ptr, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, _shared: c_uint, stream: Ptr, params: *mut Ptr) =>
        What::Kernel(Kind::DriverHandle, f, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, Arguments::Each(params)), stream;
    /// The driver, with attributes. A null configuration is the driver's to refuse.
    DriverEx(config: *const DriverLaunchConfig, f: Ptr, params: *mut Ptr, extra: *mut Ptr) =>
        What::Kernel(Kind::DriverHandle, f, config.as_ref().map(|c| shape(c.grid, c.block))?, Arguments::of_driver(params, extra)),
        config.as_ref()?.stream;
    /// A captured graph.
    Graph(exec: Ptr, stream: Ptr) => What::Graph(exec), stream;
}

/// A capture begins: hooks for each form of the call.
macro_rules! captures {
    ($($(#[doc = $doc:literal])+ $hook:ident($($t:ty),*);)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Counted from before it begins, so that nobody asks about the stream behind its back.
            pub unsafe fn before($(_: $t),*) -> Option<()> {
                CAPTURING.fetch_add(1, Ordering::SeqCst);
                idle::wait();
                Some(())
            }
            /// Unless it did not begin.
            pub fn after((): (), status: Status) {
                if status != SUCCESS {
                    uncount();
                }
            }
        }
    )*};
}
captures! {
    /// A stream begins to be captured.
    Capture(Ptr, c_int);
    /// In the way of CUDA 10.0.
    CaptureAlone(Ptr);
    /// Into a graph that exists.
    CaptureToGraph(Ptr, Ptr, Ptr, Ptr, usize, c_int);
}

/// A capture has ended, or failed to, unless there was none.
pub fn capture_ended(status: Status) {
    /// `cudaErrorIllegalState`, the same number in the driver API.
    const NO_CAPTURE: Status = 401;
    if status != NO_CAPTURE {
        uncount();
    }
}

fn uncount() {
    let _ = CAPTURING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
}

/// Whether any stream is being captured now.
pub fn capturing() -> bool {
    CAPTURING.load(Ordering::Relaxed) > 0
}
