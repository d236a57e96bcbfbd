//! Which device a thread works on, and the primary context that makes it so.
//!
//! The runtime has no contexts of its own: it uses whatever is current on the thread, and if nothing is, retains the primary
//! context of the thread's device and makes it current (CUDA Runtime API, "Interactions with the Driver API"). A device number
//! costs nothing until then; `cudaSetDevice` initialises at once, as it does since CUDA 12.

use crate::driver::ask;
use crate::error::{Error, Result};
use crate::layout::Handle;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// The device of a thread with no current context.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// Primary contexts retained so far, by device, as addresses.
static PRIMARY: Mutex<BTreeMap<i32, usize>> = Mutex::new(BTreeMap::new());

/// The number of devices, at least one.
pub fn device_count() -> Result<i32> {
    let mut count = 0;
    ask!(cuDeviceGetCount(&raw mut count))?;
    if count > 0 { Ok(count) } else { Err(Error::NO_DEVICE) }
}

/// Refuses a device that does not exist.
pub fn check_device(device: i32) -> Result {
    if (0..device_count()?).contains(&device) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// The device this thread works on. Makes no context.
pub fn device() -> Result<i32> {
    let mut device = 0;
    match ask!(cuCtxGetDevice(&raw mut device)) {
        Ok(()) => Ok(device),
        Err(Error::DEVICE_UNINITIALIZED) => Ok(DEVICE.get()),
        Err(error) => Err(error),
    }
}

/// Makes `device` this thread's, with its primary context current.
pub fn set_device(device: i32) -> Result {
    check_device(device)?;
    DEVICE.set(device);
    let context = primary(device)?;
    ask!(cuCtxSetCurrent(context))
}

/// Makes sure that a context is current on this thread.
pub fn ensure() -> Result {
    let mut current = null_mut();
    ask!(cuCtxGetCurrent(&raw mut current))?;
    if current.is_null() { set_device(DEVICE.get()) } else { Ok(()) }
}

/// The primary context of `device`, retained for the life of the process or until [`reset`].
///
/// The driver is never called under our lock, since whoever watches it may call us. Of two threads that come first together, one
/// gives its share back.
pub fn primary(device: i32) -> Result<Handle> {
    if let Some(context) = retained().get(&device) {
        return Ok(*context as Handle);
    }
    let mut context = null_mut();
    ask!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    let second = retained().insert(device, context as usize).is_some();
    if second {
        ask!(cuDevicePrimaryCtxRelease(device))?;
    }
    Ok(context)
}

fn retained() -> MutexGuard<'static, BTreeMap<i32, usize>> {
    PRIMARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `cudaDeviceReset`: ends all that lives in the primary context of this thread's device, and gives up our share in it.
pub fn reset() -> Result {
    let device = device()?;
    DEVICE.set(device);
    ask!(cuCtxSetCurrent(null_mut()))?;
    ask!(cuDevicePrimaryCtxReset(device))?;
    let held = retained().remove(&device).is_some();
    if held { ask!(cuDevicePrimaryCtxRelease(device)) } else { Ok(()) }
}
