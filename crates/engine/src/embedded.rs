//! The engine inside the program: started once, never stopped, gone in a forked child.
//!
//! Order: attach to the driver, ask who drives, start the threads, open the status socket. What cannot be had is said in
//! one line and done without. Without a way to move pages the engine is off from the start, and only the status is served.
//!
//! At exit nothing is joined and no lock is waited for: the threads may stand in a call of the driver, and the process does not
//! wait for them, but for [`PARTING`](crate::tables::thread::PARTING) to save what was learned between two turns. The socket's file goes. In a forked child there are no threads of ours, so
//! the hooks do nothing there.

use crate::looks::Looks;
use crate::ours;
use crate::pace::{DeepumHooks, offer};
use crate::pending::Pending;
use crate::socket::Socket;
use crate::sources::Notices;
use crate::tables::Keeper;
use crate::tables::workload::{self, Program};
use crate::threads::{Abilities, Drivers, Running};
use crate::uvm_mover::{How, UvmMover};
use crate::{Inputs, StartError, status};
use deepum_kmod_bridge::{Bridge, Gpu, Linux, NOTICES, Uuid};
use deepum_protocol::status::{Pace, folders};
use nix::unistd::getuid;
use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

static RUNNING: OnceLock<Arc<Running>> = OnceLock::new();
static HOOKS: OnceLock<DeepumHooks> = OnceLock::new();
static SOCKET: OnceLock<CString> = OnceLock::new();
static STARTED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static PID: AtomicU32 = AtomicU32::new(0);

/// See [`crate::start`].
pub fn start(inputs: &Inputs) -> Result<(), StartError> {
    if STARTED.swap(true, Ordering::AcqRel) {
        return Err(StartError("it was started before".to_owned()));
    }
    let say = inputs.say;
    ours::quiet_panics();
    PID.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: both handlers are plain functions that live as long as the process, take no lock and allocate nothing.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_forked_child));
        libc::atexit(at_exit);
    }

    let reader = inputs.ring.consumer().map_err(|e| StartError(e.to_string()))?;
    let gpus: Vec<Gpu> = inputs.devices.iter().map(|facts| Gpu { id: facts.id, uuid: Uuid(facts.uuid) }).collect();
    let Bridge { support, queue, va_space } = Bridge::open(Arc::new(Linux), &gpus, NOTICES);
    let driver = support.version().map(ToString::to_string);
    let space = match va_space {
        Ok(space) => space,
        Err(why) => {
            let off = Running::new(
                inputs,
                reader,
                Arc::default(),
                Pace::Polling,
                driver,
                Some(why.to_string()),
                Abilities::none(&why.to_string()),
            );
            off.turn_off(why.to_string());
            serve(&off, say);
            return Ok(());
        }
    };
    if let Some(warning) = support.warning() {
        say(&warning);
    }
    let notices = queue.map(|queue| Box::new(queue) as Box<dyn Notices>).map_err(|why| {
        say(&why.to_string());
        why.to_string()
    });

    let pending = Arc::new(Pending::default());
    let hooks = HOOKS.get_or_init(|| DeepumHooks {
        abi: 3,
        reserved: 0,
        // Never freed, since this reference to it is never given up.
        pending: Box::leak(Box::new(Arc::clone(&pending))).word(),
        nudge,
        is_engine_thread,
        may_touch: Some(may_touch),
        given_up: Some(given_up),
    });
    let pace = if offer(hooks, say) { Pace::Driven } else { Pace::Polling };
    let looks = if pace == Pace::Driven { Looks::Nudgers } else { Looks::Own };
    let number = workload::number(&inputs.config, Program::this);
    let tables = Keeper::open(&inputs.config, number, pace == Pace::Driven).unwrap_or_else(|why| {
        say(&why);
        None
    });
    let can = Abilities::of(&space, notices.is_ok());
    let how = How::of(&inputs.config, inputs.config.await_by, &can, notices.is_ok());
    let (mover, hand_outs) =
        (Arc::new(UvmMover::new(space, inputs.ring, how, pace, say)), Arc::new(inputs.page.hand_outs()));
    let drivers = Drivers { notices, mover, hand_outs, can, pace, looks, driver, pending, tables };
    let running = Running::start(inputs, reader, drivers)?;
    let running = RUNNING.get_or_init(|| running);
    // The device may have nudged before there was anybody to hear it.
    running.nudge();
    serve(running, say);
    Ok(())
}

/// Opens the status socket and its thread. Without them everything else works.
fn serve(running: &Arc<Running>, say: fn(&str)) {
    let socket = match Socket::bind(&folders(getuid().as_raw()), std::process::id()) {
        Ok(socket) => socket,
        Err(why) => return say(&format!("no status can be asked for: {why}")),
    };
    if let Ok(path) = CString::new(socket.path().as_os_str().as_bytes()) {
        let _ = SOCKET.set(path);
    }
    let running = Arc::clone(running);
    let body = move || socket.serve(|| status::of(&running));
    let lost = move |why: String| say(&format!("{why}; the status can no longer be asked for, all else goes on"));
    if let Err(why) = ours::spawn("deepum-status", body, lost) {
        say(&format!("no status can be asked for: {why}"));
    }
}

fn running() -> Option<&'static Arc<Running>> {
    RUNNING.get().filter(|_| !FORKED.load(Ordering::Relaxed))
}

extern "C" fn nudge() {
    // A panic must not reach the device; the look is lost, and so is nothing else.
    let _ = catch_unwind(|| running().map(|running| running.nudge()));
}

extern "C" fn is_engine_thread() -> c_int {
    ours::is_ours().into()
}

extern "C" fn may_touch(number: u64, blocks: *mut u64, cap: usize) -> usize {
    catch_unwind(|| {
        let named = running().map_or_else(Vec::new, |running| running.may_touch(number));
        for (i, block) in named.iter().take(cap).enumerate() {
            // SAFETY: the caller's buffer has room for `cap` words, and `i` is below it.
            unsafe { blocks.add(i).write(block.0) };
        }
        named.len()
    })
    .unwrap_or(0)
}

extern "C" fn given_up() {
    if let Some(running) = running() {
        running.given_up();
    }
}

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Relaxed);
    if let Some(running) = RUNNING.get() {
        running.forget_pending();
    }
}

extern "C" fn at_exit() {
    if FORKED.load(Ordering::Relaxed) || PID.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    if let Some(running) = RUNNING.get() {
        running.program_ends();
        // A panic must not reach the C library; then nothing is saved.
        let _ = catch_unwind(AssertUnwindSafe(|| running.save_tables_at_end()));
    }
    if let Some(path) = SOCKET.get() {
        // SAFETY: a C string that lives for ever.
        unsafe { libc::unlink(path.as_ptr()) };
    }
}
