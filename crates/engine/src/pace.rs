//! Who says when to look: the emulated device, where there is one, else we.
//!
//! The contract is in ARCHITECTURE.md, section 5. A driver library that exports
//! `int deepumEmuDrive(const DeepumHooks *)` and answers 0 keeps virtual time still until the engine has *settled*:
//! [`DeepumHooks::pending`] equals the number of our threads it holds in its own calls. Nudges that come while one
//! waits are one nudge; a nudge that would show nothing new is none.

use crate::sync::atomic::AtomicU32;
use deepum_core::units::Nanos;
use deepum_kmod_bridge::Word;
use deepum_protocol::status::Pace;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What the device is handed. Valid until the process ends; every function may be called from any thread.
#[derive(Debug)]
#[repr(C)]
pub struct DeepumHooks {
    /// Version of this struct and of the contract: 3.
    pub abi: u32,
    /// 0.
    pub reserved: u32,
    /// Work inside the engine.
    pub pending: *const AtomicU32,
    /// Look at everything now. What there is to do is in `pending` before this returns.
    pub nudge: extern "C" fn(),
    /// Whether the calling thread is the engine's: 1 or 0.
    pub is_engine_thread: extern "C" fn() -> c_int,
    /// May be null. For reports only: the UM blocks (address divided by 2 MiB) that the arguments of a launch of the first
    /// device name, ascending; launches are numbered from 1. Writes at most `cap` of them, answers how many there are; 0 also for a launch that is over,
    /// or was never recorded.
    pub may_touch: Option<extern "C" fn(number: u64, blocks: *mut u64, cap: usize) -> usize>,
    /// May be null. The device has waited for the engine in vain and goes on without it.
    pub given_up: Option<extern "C" fn()>,
}

// SAFETY: `pending` points to an atomic that is never freed; the rest is plain data.
unsafe impl Send for DeepumHooks {}
// SAFETY: as above; nothing is written after the device has it.
unsafe impl Sync for DeepumHooks {}

type Drive = unsafe extern "C" fn(*const DeepumHooks) -> c_int;
type Sleep = unsafe extern "C" fn(u64);
type Serves = unsafe extern "C" fn() -> c_int;

/// What the driver library that is loaded exports under this name; where there is none, what stands for it in a process that was handed its files.
pub(crate) fn export(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a constant C string; RTLD_NOLOAD runs no code of the library.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let driver = if driver.is_null() { libc::RTLD_DEFAULT } else { driver };
    // SAFETY: a live handle, kept for ever, or that of all libraries, and a constant C string.
    let found: *mut c_void = unsafe { libc::dlsym(driver, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn drive() -> Option<Drive> {
    // SAFETY: by the contract, what is exported under this name has this type.
    export(c"deepumEmuDrive").map(|found| unsafe { std::mem::transmute::<*mut c_void, Drive>(found) })
}

/// Offers the hooks to the driver library that is loaded, and answers whether it drives. `say` hears of one that would, but
/// was built for other hooks.
pub fn offer(hooks: &'static DeepumHooks, say: fn(&str)) -> bool {
    let Some(drive) = drive() else { return false };
    // SAFETY: the hooks live for ever and keep what their fields promise.
    let drives = unsafe { drive(std::ptr::from_ref(hooks)) == 0 };
    if !drives {
        say(
            "the emulated device is of another build than libdeepum.so and does not wait for it; runs will not repeat exactly, and \
             their times mean nothing. Use the two that were built together",
        );
    }
    drives
}

/// Whether the driver library that is loaded would drive an engine in another process.
pub fn is_there() -> bool {
    drive().is_some() && export(c"deepumEmuServes").is_some()
}

/// Gives the pace back. When this returns, nothing is under way that the engine had asked for. Call with no lock held that a
/// call of the program may wait for.
pub fn give_back() {
    if let Some(drive) = drive() {
        // SAFETY: null is allowed, and means this.
        unsafe { drive(std::ptr::null()) };
    }
}

/// What tells virtual time, in ns, where the driver library that is loaded plays a device in it.
pub(crate) fn time() -> Option<unsafe extern "C" fn() -> u64> {
    // SAFETY: by the contract, what is exported under this name has this type.
    export(c"deepumEmuTime")
        .map(|found| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(found) })
}

/// What moves are timed by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// This machine's, since then.
    Machine(Instant),
    /// That of the device, where time is virtual.
    Device(Option<unsafe extern "C" fn() -> u64>),
}

impl Clock {
    pub(crate) fn of(pace: Pace) -> Self {
        match pace {
            Pace::Polling => Self::Machine(Instant::now()),
            // SAFETY: by the contract, what is exported under this name has this type.
            Pace::Driven => Self::Device(
                export(c"deepumEmuNow")
                    .map(|found| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(found) }),
            ),
        }
    }
}

impl Clock {
    /// Nothing if nobody tells the time.
    pub(crate) fn now(&self) -> Option<Nanos> {
        match self {
            Self::Machine(since) => Some(Nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX))),
            // SAFETY: takes nothing, and may be called from any thread.
            Self::Device(now) => now.map(|now| Nanos(unsafe { now() })).filter(|now| *now > Nanos::ZERO),
        }
    }

    /// Keeps the calling thread until the driver has written a word, and answers whether it has.
    pub(crate) fn until(&self, word: Word<'_>) -> bool {
        match self {
            Self::Machine(_) => word.wait(),
            Self::Device(_) => {
                static AWAIT: OnceLock<Option<Sleep>> = OnceLock::new();
                let wait = AWAIT.get_or_init(|| {
                    // SAFETY: by the contract, what is exported under this name has this type.
                    export(c"deepumEmuAwait").map(|found| unsafe { std::mem::transmute::<*mut c_void, Sleep>(found) })
                });
                if let Some(wait) = wait {
                    // SAFETY: takes an address that it does not touch.
                    unsafe { wait(word.address()) };
                }
                word.is_written()
            }
        }
    }
}

/// A device in virtual time keeps the calling thread here until all is over that it gave up: its calls return sooner there, since who waits for their end may make no time pass.
pub(crate) fn rest() {
    static REST: OnceLock<Option<unsafe extern "C" fn()>> = OnceLock::new();
    let rest = REST.get_or_init(|| {
        // SAFETY: by the contract, what is exported under this name has this type.
        export(c"deepumEmuRest")
            .map(|found| unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(found) })
    });
    if let Some(rest) = rest {
        // SAFETY: takes nothing, and may be called from any thread.
        unsafe { rest() };
    }
}

/// The calling thread does nothing for so long: in virtual time, where the driver library that is loaded plays a device in it. `awake`: it keeps its processor,
/// since a sleep lasts 50 us longer than it was asked for (Linux's timer slack, timerslack_ns in proc(5)).
pub fn nap(time: Duration, awake: bool) {
    static SLEEP: OnceLock<Option<Sleep>> = OnceLock::new();
    let sleep = SLEEP.get_or_init(|| {
        // SAFETY: by the contract, what is exported under this name has this type.
        export(c"deepumEmuSleep").map(|found| unsafe { std::mem::transmute::<*mut c_void, Sleep>(found) })
    });
    match sleep {
        // SAFETY: takes a number, and may be called from any thread of the program's.
        Some(sleep) => unsafe { sleep(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) },
        None if awake => {
            let since = Instant::now();
            while since.elapsed() < time {
                std::hint::spin_loop();
            }
        }
        None => std::thread::sleep(time),
    }
}

/// Whether the calling thread stands, inside the driver library, for one of another process.
pub fn serves() -> bool {
    static SERVES: OnceLock<Option<Serves>> = OnceLock::new();
    let serves = SERVES.get_or_init(|| {
        // SAFETY: by the contract, what is exported under this name has this type.
        export(c"deepumEmuServes").map(|found| unsafe { std::mem::transmute::<*mut c_void, Serves>(found) })
    });
    // SAFETY: takes nothing, and may be called from any thread.
    serves.is_some_and(|serves| unsafe { serves() } == 1)
}
