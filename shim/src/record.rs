//! What hooks tell the recorder (`deepum_engine::recorder`), where `DEEPUM_RECORD` asks for one.
//!
//! Each hook says it where it also tells the engine, but whether or not the engine is awake. What the driver refuses is not told, so launches and copies are
//! told after the call, with what was seen before it. Where nothing is recorded, all of this is one load.
//!
//! A program may say where its iterations begin and end, by [`deepumIteration`].

use crate::abi::{Ptr, SUCCESS, Status};
use crate::fence::{here, ours};
use crate::issue::Issue;
use crate::real::genuine;
use crate::{link, log, opt, streams};
use deepum_core::units::{AddrRange, DevAddr, DeviceId, LaunchKey, Nanos};
use deepum_engine::DeviceFacts;
use deepum_engine::recorder::{self, Begun, Setup, What};
use deepum_protocol::page::Page;
use std::ffi::{c_char, c_int};

/// Begins, if the person wants it. Why it cannot is one line.
pub fn start(devices: &[DeviceFacts], page: Page) {
    let Some(path) = &opt::config().record else { return };
    let setup = Setup {
        path: path.clone(),
        devices: devices.to_owned(),
        device: device_name(),
        page,
        say: log::error,
        info: log::info,
    };
    if let Err(why) = recorder::start(setup) {
        log::error(&format!("DEEPUM_RECORD: {why}; nothing is recorded"));
    }
}

/// What the first GPU is called; of an emulated one, how it is asked for.
fn device_name() -> String {
    if genuine!(Cuda, "deepumEmuTime", fn() -> u64).is_some() {
        return format!("emu:{}", std::env::var("DEEPUM_EMU").unwrap_or_default());
    }
    let mut text: [c_char; 256] = [0; 256];
    let get = genuine!(Cuda, "cuDeviceGetName", fn(*mut c_char, c_int, c_int) -> Status);
    // SAFETY: the buffer is ours and as long as said, with room for the NUL that is already there.
    let known = get.is_some_and(|get| unsafe { get(text.as_mut_ptr(), 255, 0) } == SUCCESS);
    let bytes: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    if known { String::from_utf8_lossy(&bytes).into_owned() } else { "unknown".to_owned() }
}

/// Whether times come by progress words, so that they are wanted also while the engine sleeps.
#[inline]
pub fn wants_progress() -> bool {
    recorder::get().is_some_and(recorder::Recorder::needs_progress)
}

/// A recorded call begins.
#[inline]
pub fn begin() -> Option<Begun> {
    recorder::get().map(recorder::Recorder::begin)
}

/// Memory came.
pub fn alloc(device: DeviceId, range: AddrRange) {
    if let Some(recorder) = recorder::get() {
        recorder.tell(device, recorder.now(), What::Alloc(range));
    }
}

/// Memory goes. If the driver `waits` until the GPU is idle, how long is not known yet.
pub fn free(device: DeviceId, range: AddrRange, waits: bool) {
    if let Some(recorder) = recorder::get() {
        let at = recorder.now();
        if waits {
            recorder.tell(device, at, What::Wait { stream: None, waited: Nanos::ZERO });
        }
        recorder.tell(device, at, What::Free(range));
    }
}

/// A PT block was handed out or taken back.
pub fn pt_block(device: DeviceId, range: AddrRange, active: bool) {
    if let Some(recorder) = recorder::get() {
        recorder.tell(device, recorder.now(), What::PtBlock { range, active });
    }
}

/// A launch that is being given to the driver.
pub struct Launched {
    begun: Begun,
    key: LaunchKey,
    name: &'static str,
    pointers: Box<[DevAddr]>,
}

impl Launched {
    /// What it is.
    pub fn new(begun: Begun, key: LaunchKey, name: &'static str, pointers: &[DevAddr]) -> Self {
        Self { begun, key, name, pointers: pointers.into() }
    }

    /// The driver took it.
    pub fn taken(&self, issue: &Issue) {
        if let Some(recorder) = recorder::get() {
            let issued = recorder.issued(&self.begun, issue.stream(), issue.progress());
            let (key, name, pointers) = (self.key, self.name, self.pointers.clone());
            recorder.tell(issue.device, recorder.at(&self.begun), What::Launch { key, name, pointers, issued });
        }
    }

    /// The hook is over.
    pub fn over(self) {
        over(Some(self.begun));
    }
}

/// A recorded call is over.
pub fn over(begun: Option<Begun>) {
    if let (Some(recorder), Some(begun)) = (recorder::get(), begun) {
        recorder.over(begun);
    }
}

/// A copy that is being given to the driver: what it reads and writes of managed memory.
///
/// The host waits for one that a function without `Async` in its name makes, unless both its ends are managed memory or it is a memset (CUDA driver API, "API
/// synchronization behavior").
#[derive(Default)]
pub struct Copied {
    begun: Option<Begun>,
    pieces: Vec<(Option<AddrRange>, Option<AddrRange>)>,
}

impl Copied {
    /// It begins.
    pub fn begin(&mut self) {
        self.begun = begin();
    }

    /// A range that it reads or writes.
    pub fn touches(&mut self, range: AddrRange, write: bool) {
        if self.begun.is_none() {
            return;
        }
        match self.pieces.last_mut() {
            Some((_, to @ None)) if write => *to = Some(range),
            Some((from @ None, _)) if !write => *from = Some(range),
            _ => self.pieces.push(if write { (None, Some(range)) } else { (Some(range), None) }),
        }
    }

    /// The driver took it, by a function of this name.
    pub fn taken(&self, issue: &Issue, function: &str, fills: bool) {
        let (Some(recorder), Some(begun)) = (recorder::get(), &self.begun) else { return };
        let inside = |&(from, to): &(Option<AddrRange>, Option<AddrRange>)| from.is_some() && to.is_some();
        let waits = !function.contains("Async") && !fills && !self.pieces.iter().all(inside);
        let at = recorder.at(begun);
        let issued = recorder.issued(begun, issue.stream(), issue.progress());
        for &(from, to) in &self.pieces {
            recorder.tell(issue.device, at, What::Copy { from, to, issued });
        }
        if waits {
            // As in a free: the clock stands still in the call.
            recorder.tell(issue.device, at, What::Wait { stream: Some(issue.stream()), waited: Nanos::ZERO });
        }
    }

    /// The hook is over.
    pub fn over(self) {
        over(self.begun);
    }
}

/// A call that waits for the GPU, between the two halves of its hook.
pub struct Waiting {
    begun: Begun,
    /// For which stream; none: for all.
    stream: Option<(Ptr, bool)>,
}

impl Waiting {
    /// Where programs are recorded. A wait inside a copy is the copy's.
    pub fn begin(stream: Option<(Ptr, bool)>) -> Option<Self> {
        let begun = begin()?;
        here(|h| h.copy_frame.get() == 0).then_some(Self { begun, stream })
    }

    /// It is over.
    pub fn end(self) {
        let Some(recorder) = recorder::get() else { return };
        let device = link::current_device();
        let place = self.stream.and_then(|(stream, per_thread)| streams::place(device, stream, per_thread));
        let waited = recorder.since(&self.begun);
        let stream = place.map(|place| place.stream);
        recorder.tell(device, recorder.now(), What::Wait { stream, waited });
    }
}

macro_rules! waits {
    ($($(#[doc = $doc:literal])+ $hook:ident($($a:ident: $t:ty),*) => $stream:expr;)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// The host begins to wait.
            pub unsafe fn before($($a: $t),*) -> Option<Waiting> {
                $(let _ = $a;)*
                Waiting::begin($stream)
            }
            /// It goes on.
            pub fn after(waiting: Waiting, _: Status) {
                waiting.end();
            }
        }
    )*};
}
waits! {
    /// For a stream.
    Stream(stream: Ptr) => Some((stream, false));
    /// For a stream, where stream 0 is the thread's own.
    StreamPerThread(stream: Ptr) => Some((stream, true));
    /// For an event, of whatever stream.
    Event(event: Ptr) => None;
}

/// For programs that know it: an iteration ends here, if one has begun, and the next begins.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumIteration() {
    ours(|| {
        if let Some(recorder) = recorder::get() {
            recorder.tell(DeviceId(0), recorder.now(), What::Iteration);
        }
    });
}
