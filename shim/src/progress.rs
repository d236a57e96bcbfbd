//! What passes between the GPU and the engine without the program: progress words and the launch gate.
//!
//! *How far the GPU is*: after each launch the stream itself writes the launch's sequence number into the stream's word of a
//! page that the engine reads with plain loads (facts 4.5).
//!
//! *How far it may go*: before each launch the stream waits for its device's gate word to reach the launch's number
//! ([`deepum_protocol::gate`]). Where the driver cannot do that, which it says at the first try, there is no gate.
//!
//! The words are the first of [`crate::page`], ordinary memory registered with the driver, because a stream cannot write managed
//! memory. Both operations are used only while the engine is awake, and never in a stream being captured, where they would
//! become part of the graph.

use crate::abi::{DevPtr, Ptr, SUCCESS, Status};
use crate::real::genuine;
use crate::{log, opt, page};
use deepum_core::units::{DeviceId, LaunchSeq, StreamSlot};
use deepum_protocol::AtomicU64;
use deepum_protocol::page::Page;
use deepum_protocol::shared::{MAX_DEVICES, Shared, ShimCounter};
use std::ffi::c_uint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: Status = 801;

/// Where the GPU sees its words of the page.
static ON_GPU: OnceLock<Option<DevPtr>> = OnceLock::new();

/// Set when the driver refused a wait.
static NO_WAITS: AtomicBool = AtomicBool::new(false);

/// Set when it refused a write.
static NO_WRITES: AtomicBool = AtomicBool::new(false);

/// Shows the GPU its words of the page. If the driver cannot, which is said once, there are no progress words and no gates.
pub fn show(page: &Page) {
    ON_GPU.get_or_init(|| {
        let on_gpu = register(page.gpu_words());
        match on_gpu {
            Some(_) => page.set_reached(),
            None => no_progress(),
        }
        on_gpu
    });
}

fn no_progress() {
    log::once!(
        "the driver cannot write progress words: how far the GPU is stays unknown, and prefetches may come late"
    );
}

/// Lets every launch start; for good, once the mode is off.
pub fn open_gates() {
    if let Some(page) = page::get() {
        page.gates().open();
    }
}

/// Puts a wait for the gate into a stream, before the launch `seq`, unless it lacks nothing as far as the engine foresees.
pub fn wait(shared: &Shared<'_>, stream: Ptr, per_thread: bool, device: DeviceId, seq: LaunchSeq) {
    /// `CU_STREAM_WAIT_VALUE_GEQ`.
    const GREATER_OR_EQUAL: c_uint = 0;
    let ordinal = usize::from(device.0);
    if !opt::config().gate || ordinal >= MAX_DEVICES || NO_WAITS.load(Ordering::Relaxed) {
        return;
    }
    if page::get().is_none_or(|page| seq < page.clear_until(ordinal)) {
        return;
    }
    let Some(on_gpu) = on_gpu() else { return };
    let wait = if per_thread {
        genuine!(Cuda, "cuStreamWaitValue64_v2_ptsz", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    } else {
        genuine!(Cuda, "cuStreamWaitValue64_v2", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    };
    let at = on_gpu + Page::gate_at(ordinal) as u64 * 8;
    // SAFETY: the stream is the one the program is launching into; the word is inside the page, by the ordinal.
    match wait.map(|wait| unsafe { wait(stream, at, seq.0, GREATER_OR_EQUAL) }) {
        Some(SUCCESS) => shared.add(ShimCounter::GateWaits, 1),
        Some(NOT_SUPPORTED) | None => {
            NO_WAITS.store(true, Ordering::Relaxed);
            log::once!("the driver has no 64-bit waits in streams: launches cannot wait for what is fetched for them");
        }
        // A stream handle that is none: the launch is refused, too.
        Some(_) => {}
    }
}

/// Whether the GPU says how far it is.
pub fn is_written() -> bool {
    on_gpu().is_some() && !NO_WRITES.load(Ordering::Relaxed)
}

/// Where the GPU sees its words, if it does.
fn on_gpu() -> Option<DevPtr> {
    ON_GPU.get().copied().flatten()
}

fn register(words: &'static [AtomicU64]) -> Option<DevPtr> {
    /// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`: all contexts, and for the GPU to write.
    const PORTABLE_DEVICEMAP: c_uint = 3;
    let register = genuine!(Cuda, "cuMemHostRegister_v2", fn(Ptr, usize, c_uint) -> Status)?;
    let address = genuine!(Cuda, "cuMemHostGetDevicePointer_v2", fn(*mut DevPtr, Ptr, c_uint) -> Status)?;
    let page = words.as_ptr().cast_mut().cast();
    // SAFETY: the page is a mapping of our own that is never unmapped, and made of atomics.
    if unsafe { register(page, size_of_val(words), PORTABLE_DEVICEMAP) } != SUCCESS {
        return None;
    }
    let mut on_gpu = 0;
    // SAFETY: the page is registered for the GPU to see; the result is ours.
    (unsafe { address(&raw mut on_gpu, page, 0) } == SUCCESS).then_some(on_gpu)
}

/// Puts a write of `seq` into a stream, behind the launch it follows. Says whether the driver took it.
pub fn write(shared: &Shared<'_>, stream: Ptr, per_thread: bool, slot: StreamSlot, seq: LaunchSeq) -> bool {
    let Some(on_gpu) = on_gpu() else { return false };
    let write = if per_thread {
        genuine!(Cuda, "cuStreamWriteValue64_v2_ptsz", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    } else {
        genuine!(Cuda, "cuStreamWriteValue64_v2", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    };
    let at = on_gpu + Page::progress_at(usize::from(slot.0)) as u64 * 8;
    // SAFETY: the stream is the one the program launched into a moment ago; the word is inside the page, by the slot.
    match write.map(|write| unsafe { write(stream, at, seq.0, 0) }) {
        Some(SUCCESS) => {
            shared.add(ShimCounter::ProgressWrites, 1);
            return true;
        }
        Some(NOT_SUPPORTED) | None => {
            NO_WRITES.store(true, Ordering::Relaxed);
            no_progress();
        }
        // The GPU has failed, which the program will hear from its own calls.
        Some(_) => {}
    }
    false
}
