//! Where records go: the ring, the engine that reads it, and what both know of the GPUs.
//!
//! The ring is made at the first CUDA call (2 MiB of shared memory, backed as it is used); the engine is started at the
//! first use of a CUDA context, on the program's own thread. Before that, and if it cannot be started, the ring is
//! written all the same and drops what it cannot hold: nobody waits.

use crate::abi::{Dev, Ptr, SUCCESS, Status};
use crate::progress;
use crate::real::genuine;
use crate::{log, opt, page, record, remote, stage, symbols};
use deepum_config::EngineIn;
use deepum_core::units::{Bytes, DeviceId};
use deepum_engine::mapping::Mapping;
use deepum_engine::{DeviceFacts, Inputs};
use deepum_protocol::ring::{HEADER_WORDS, Ring};
use deepum_protocol::shared::{MAX_DEVICES, Mode};
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Words for records: 2 MiB. An iteration of GPT-2 XL is 5,000 launches of about eight words.
const CAPACITY: usize = 1 << 18;

static RING: OnceLock<Option<(Ring<'static>, Mapping)>> = OnceLock::new();
static GPUS: OnceLock<Gpus> = OnceLock::new();
static STARTED: AtomicBool = AtomicBool::new(false);

/// What there is, by the genuine driver.
#[derive(Debug)]
pub struct Gpus {
    /// By CUDA ordinal.
    pub list: Vec<Gpu>,
    /// Host memory that the driver's world has, where that is not this machine's (the emulated device).
    pub host: Option<Bytes>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// As the driver knows it.
    pub uuid: [u8; 16],
    /// Physical memory.
    pub memory: Bytes,
    /// Bytes we may fill.
    pub budget: Bytes,
}

/// Makes the ring. Says whether there is one.
pub fn prepare() -> bool {
    RING.get_or_init(|| {
        let memory = Mapping::new(c"deepum-ring", HEADER_WORDS + CAPACITY)?;
        let ring = Ring::format(memory.words()).inspect_err(|e| log::error(&format!("{e}; DeepUM is off"))).ok()?;
        Some((ring, memory))
    })
    .is_some()
}

/// In a forked child that begins a life of its own: a ring of its own. False if there is no memory for it. Takes no lock and
/// allocates nothing.
pub fn renew_in_child() -> bool {
    let Some((_, memory)) = RING.get().and_then(Option::as_ref) else { return true };
    memory.renew() && Ring::format(memory.words()).is_ok()
}

/// The ring, once there is one.
#[inline]
pub fn ring() -> Option<Ring<'static>> {
    RING.get().and_then(Option::as_ref).map(|(ring, _)| *ring)
}

/// The ring and its memory, once there is one, if that can be passed on.
pub fn shared_ring() -> Option<(Ring<'static>, BorrowedFd<'static>)> {
    let (ring, memory) = RING.get().and_then(Option::as_ref)?;
    Some((*ring, memory.descriptor()?))
}

/// Whether the program has used CUDA, and so whether its forked children must not.
pub fn started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Tells the engine's readers that nothing more comes, and ourselves to send nothing.
pub fn engine_off() {
    if let Some(ring) = ring() {
        ring.shared().set_mode(Mode::Off);
        progress::open_gates();
    }
}

/// What the GPUs are, from when the driver was set up; asked once.
#[inline]
pub fn gpus() -> Option<&'static Gpus> {
    GPUS.get().or_else(|| look_once())
}

#[cold]
fn look_once() -> Option<&'static Gpus> {
    match look() {
        Ok(gpus) => Some(GPUS.get_or_init(|| gpus)),
        Err(NoGpus::NotYet) => None,
        Err(NoGpus::Never(why)) => {
            stage::turn_off(&why);
            None
        }
    }
}

/// Starts the engine, the first time that the thread has a CUDA context.
#[inline]
pub fn start() {
    if !STARTED.load(Ordering::Relaxed) {
        start_now();
    }
}

#[cold]
fn start_now() {
    if !has_context() {
        return;
    }
    let (Some(ring), Some(gpus)) = (ring(), gpus()) else { return };
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    let Some(page) = page::make() else { return engine_off() };
    progress::show(&page);
    let facts = |(id, gpu): (u8, &Gpu)| DeviceFacts {
        id: DeviceId(id),
        uuid: gpu.uuid,
        memory: gpu.memory,
        budget: gpu.budget,
    };
    let devices: Vec<_> = (0u8..).zip(&gpus.list).map(facts).collect();
    record::start(&devices, page);
    let config = opt::config();
    let started = match &config.engine {
        EngineIn::Program => {
            deepum_engine::start(Inputs { ring, page, devices, config: config.clone(), say: log::error })
        }
        EngineIn::Daemon(socket) => remote::start(socket.as_deref(), devices),
    };
    match started {
        // It was turned off while the engine started, which may have set another mode since.
        Ok(()) if stage::is_off() => engine_off(),
        Ok(()) => log::info(&format!("engine started for {} GPU(s)", gpus.list.len())),
        Err(error) => {
            engine_off();
            log::error(&format!("the engine cannot start: {error}; managed memory works as the driver manages it"));
        }
    }
}

/// The program is about to have managed memory of its own, which it may look at. Waits until nothing is under way that it must not look at.
pub fn host_looks() {
    let Some(ring) = ring() else { return };
    // A move of 32 MiB takes two milliseconds at most; an engine that hangs or was killed in one is not waited for.
    for _ in 0..1000 {
        if !ring.shared().host_looks() {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Whether the calling thread has a CUDA context.
fn has_context() -> bool {
    let mut context: Ptr = std::ptr::null_mut();
    let get = genuine!(Cuda, "cuCtxGetCurrent", fn(*mut Ptr) -> Status);
    // SAFETY: the result is ours.
    get.is_some_and(|get| unsafe { get(&raw mut context) } == SUCCESS) && !context.is_null()
}

/// Gives the calling thread the context that the runtime API would give it.
pub fn make_runtime_context() {
    if !has_context()
        && let Some(free) = symbols::genuine::cudaFree.get()
    {
        // SAFETY: freeing nothing is the documented way to make the runtime set itself up.
        unsafe { free(0) };
    }
}

/// Why nothing is known of the GPUs.
enum NoGpus {
    /// The driver is not loaded, or not set up.
    NotYet,
    /// They are not for us: why DeepUM must be off.
    Never(String),
}

/// Asks the driver what there is.
fn look() -> Result<Gpus, NoGpus> {
    let gone = || NoGpus::Never("the CUDA driver lacks a basic function; DeepUM is off".to_owned());
    // The runtime opens the driver late, and where it cannot, the program is told so by the runtime.
    let count = genuine!(Cuda, "cuDeviceGetCount", fn(*mut c_int) -> Status).ok_or(NoGpus::NotYet)?;
    let attribute = genuine!(Cuda, "cuDeviceGetAttribute", fn(*mut c_int, c_int, Dev) -> Status).ok_or_else(gone)?;
    let uuid = genuine!(Cuda, "cuDeviceGetUuid_v2", fn(*mut [u8; 16], Dev) -> Status)
        .or_else(|| genuine!(Cuda, "cuDeviceGetUuid", fn(*mut [u8; 16], Dev) -> Status))
        .ok_or_else(gone)?;
    let memory = symbols::genuine::cuDeviceTotalMem_v2.get().ok_or_else(gone)?;
    let mut n = 0;
    // SAFETY: the result is ours.
    if unsafe { count(&raw mut n) } != SUCCESS {
        return Err(NoGpus::NotYet);
    }
    let mut list = Vec::new();
    for device in 0..n.min(c_int::try_from(MAX_DEVICES).unwrap_or(c_int::MAX)) {
        /// `CU_DEVICE_ATTRIBUTE_INTEGRATED` and `_CONCURRENT_MANAGED_ACCESS` (facts 4.4).
        const INTEGRATED: c_int = 18;
        const CONCURRENT_MANAGED_ACCESS: c_int = 89;
        let is = |which| {
            let mut value = 0;
            // SAFETY: the result is ours; the ordinal is below the count.
            unsafe { attribute(&raw mut value, which, device) == SUCCESS && value != 0 }
        };
        if !is(CONCURRENT_MANAGED_ACCESS) {
            return Err(NoGpus::Never(format!(
                "GPU {device} cannot fault on managed memory (concurrentManagedAccess is 0); DeepUM is off"
            )));
        }
        if is(INTEGRATED) {
            return Err(NoGpus::Never(format!(
                "GPU {device} shares the host's memory, so there is nowhere to move to; DeepUM is off"
            )));
        }
        let (mut id, mut bytes) = ([0u8; 16], 0usize);
        // SAFETY: the results are ours; a CUuuid is 16 bytes.
        if unsafe { uuid(&raw mut id, device) } != SUCCESS || unsafe { memory(&raw mut bytes, device) } != SUCCESS {
            return Err(gone());
        }
        let memory = Bytes(bytes as u64);
        list.push(Gpu { uuid: id, memory, budget: opt::config().budget_of(memory) });
    }
    // Part of the emulated device's contract (ARCHITECTURE.md, section 7): its world has a host memory of its own.
    let host = genuine!(Cuda, "deepumEmuHostMemory", fn() -> u64).map(|host| {
        // SAFETY: takes nothing, changes nothing.
        Bytes(unsafe { host() })
    });
    Ok(Gpus { list, host })
}

/// The device that a launch or allocation of this thread goes to.
#[inline]
pub fn current_device() -> DeviceId {
    match gpus() {
        Some(gpus) if gpus.list.len() > 1 => device_of_thread(),
        _ => DeviceId(0),
    }
}

/// By the thread's context; without one, by the device that the runtime will give it one of.
fn device_of_thread() -> DeviceId {
    let mut device = 0;
    let by_context = genuine!(Cuda, "cuCtxGetDevice", fn(*mut Dev) -> Status);
    // SAFETY: the result is ours.
    let mut known = by_context.is_some_and(|get| unsafe { get(&raw mut device) } == SUCCESS);
    if !known {
        let by_runtime = genuine!(Cudart, "cudaGetDevice", fn(*mut c_int) -> Status);
        // SAFETY: the result is ours.
        known = by_runtime.is_some_and(|get| unsafe { get(&raw mut device) } == SUCCESS);
    }
    DeviceId(if known { u8::try_from(device).unwrap_or(0) } else { 0 })
}
