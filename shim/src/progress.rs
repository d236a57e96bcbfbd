//! How far the GPU is: after each launch the stream itself writes the launch's sequence number into the stream's word of a
//! page that the engine reads with plain loads (facts 4.5).
//!
//! The page is ordinary memory registered with the driver, because a stream cannot write managed memory. It is written
//! only while the engine is awake, and never by a stream being captured, where the write would become part of the graph.

use crate::abi::{DevPtr, Ptr, SUCCESS, Status};
use crate::real::genuine;
use crate::streams::SLOTS;
use crate::{link, log};
use deepum_core::units::{LaunchSeq, StreamSlot};
use deepum_protocol::AtomicU64;
use deepum_protocol::shared::{Shared, ShimCounter};
use std::ffi::c_uint;
use std::sync::OnceLock;

struct Page {
    words: &'static [AtomicU64],
    /// The same page for the GPU; 0 if it could not be registered.
    on_gpu: DevPtr,
}

static PAGE: OnceLock<Option<Page>> = OnceLock::new();

/// The progress words, one per stream slot. They stay 0 if the driver cannot write them, which is said once.
pub fn page() -> &'static [AtomicU64] {
    let page = PAGE.get_or_init(|| {
        let words = link::zeroed_words(SLOTS)?;
        let on_gpu = register(words).unwrap_or_else(|| {
            log::once!(
                "the driver cannot write progress words: how far the GPU is stays unknown, and prefetches may come late"
            );
            0
        });
        Some(Page { words, on_gpu })
    });
    page.as_ref().map_or(&[], |page| page.words)
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

/// Puts a write of `seq` into a stream, behind the launch it follows.
pub fn write(shared: &Shared<'_>, stream: Ptr, per_thread: bool, slot: StreamSlot, seq: LaunchSeq) {
    let Some(on_gpu) = PAGE.get().and_then(Option::as_ref).map(|page| page.on_gpu).filter(|&at| at != 0) else {
        return;
    };
    let write = if per_thread {
        genuine!(Cuda, "cuStreamWriteValue64_v2_ptsz", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    } else {
        genuine!(Cuda, "cuStreamWriteValue64_v2", fn(Ptr, DevPtr, u64, c_uint) -> Status)
    };
    let at = on_gpu + u64::from(slot.0) * 8;
    // SAFETY: the stream is the one the program launched into a moment ago; the word is inside the page, by the slot.
    if write.is_some_and(|write| unsafe { write(stream, at, seq.0, 0) } == SUCCESS) {
        shared.add(ShimCounter::ProgressWrites, 1);
    }
}
