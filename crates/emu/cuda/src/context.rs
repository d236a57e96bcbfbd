//! Contexts: the primary one of each device, the thread's stack, limits. Others (`cuCtxCreate`) are refused.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use deepum_core::units::DeviceId;
use deepum_emu_device::context::ContextId;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Call, Cost, machine};
use parking_lot::Mutex;

use crate::current;
use crate::edge::{Out, api, twins};
use crate::handle::Context;
use crate::init::device;

/// The context a handle means, which must be active; the thread's for null.
fn meant(handle: Context) -> CuResult<ContextId> {
    let id = if handle == Context::NULL {
        current::context()?
    } else {
        handle.get().map_err(|_| CuError::InvalidContext)?
    };
    machine()?.look(|state| state.contexts.get(id).map(|_| id))
}

fn synchronize(id: ContextId) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let device = call.state.contexts.get(id)?.device;
        call.may_wait_for_all(device)?;
        call.synchronize(device)
    })
}

fn with_device(ordinal: c_int, f: impl FnOnce(&mut Call<'_>, DeviceId) -> CuResult) -> CuResult {
    let device = device(ordinal)?;
    machine()?.call(Cost::Call, |call| f(call, device))
}

/// Context flags (`CUctx_flags`): how to wait for the device, host mapping, and local memory need nothing done here. Core
/// dumps and synchronous memory operations would.
fn checked(flags: c_uint) -> CuResult<c_uint> {
    match flags {
        _ if flags & !0xff != 0 => Err(CuError::InvalidValue),
        _ if flags & 0xe0 != 0 => Err(CuError::NotSupported),
        _ => Ok(flags),
    }
}

/// Stack, printf queue, heap, depth of device-side synchronisation, pending launches, L2 granularity, persisting L2. The first
/// five are CUDA's documented defaults (programming guide, device-side runtime and `printf`; driver API, `cuCtxSetLimit`), the
/// last two an assumption.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// Limits that were set, by context and `CUlimit`.
static SET: Mutex<BTreeMap<(u32, c_int), usize>> = Mutex::new(BTreeMap::new());

fn ordinal_of(handle: Context) -> CuResult<c_int> {
    let id = meant(handle)?;
    machine()?.look(|state| Ok(c_int::from(state.contexts.get(id)?.device.0)))
}

api! {
    fn cuDevicePrimaryCtxRetain(out: Out<Context>, ordinal: c_int) {
        let device = device(ordinal)?;
        out.put(Context::of(machine()?.call(Cost::Call, |call| call.state.contexts.retain(device))?))
    }

    /// The last release ends what lives in the context.
    fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) {
        with_device(ordinal, |call, device| {
            let context = call.state.contexts.primary(device)?;
            match context.users {
                0 => return Err(CuError::InvalidContext),
                1 => {
                    call.may_wait_for_all(device)?;
                    call.reset(device)?;
                }
                _ => {}
            }
            call.state.contexts.primary(device)?.users -= 1;
            Ok(())
        })
    }

    /// Memory and streams end; the count of retains stays. Events and modules live on: they hold nothing here.
    fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) {
        with_device(ordinal, |call, device| {
            call.may_wait_for_all(device)?;
            call.reset(device)
        })
    }

    fn cuDevicePrimaryCtxSetFlags_v2(ordinal: c_int, flags: c_uint) {
        let flags = checked(flags)?;
        with_device(ordinal, |call, device| {
            call.state.contexts.primary(device)?.flags = flags;
            Ok(())
        })
    }

    fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let device = device(ordinal)?;
        let (set, users) = machine()?.look(|state| state.contexts.primary(device).map(|c| (c.flags, c.users)))?;
        flags.put(set)?;
        active.put(c_int::from(users > 0))
    }

    fn cuCtxGetCurrent(out: Out<Context>) {
        machine()?;
        out.put(current::top().map_or(Context::NULL, Context::of))
    }

    fn cuCtxSetCurrent(handle: Context) {
        if handle == Context::NULL {
            machine()?;
            current::set(None);
            return Ok(());
        }
        current::set(Some(meant(handle)?));
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: Context) {
        if handle == Context::NULL {
            return Err(CuError::InvalidContext);
        }
        current::push(meant(handle)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<Context>) {
        machine()?;
        let id = current::pop()?;
        out.offer(Context::of(id));
        Ok(())
    }

    fn cuCtxGetDevice(out: Out<c_int>) {
        out.put(ordinal_of(Context::NULL)?)
    }

    fn cuCtxGetDevice_v2(out: Out<c_int>, handle: Context) {
        out.put(ordinal_of(handle)?)
    }

    fn cuCtxGetFlags(out: Out<c_uint>) {
        let id = current::context()?;
        out.put(machine()?.look(|state| Ok(state.contexts.get(id)?.flags))?)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let id = current::context()?;
        let flags = checked(flags)?;
        machine()?.look(|state| {
            state.contexts.get(id)?.flags = flags;
            Ok(())
        })
    }

    fn cuCtxGetId(handle: Context, out: Out<u64>) {
        out.put(u64::from(meant(handle)?.0) + 1)
    }

    fn cuCtxGetApiVersion(handle: Context, out: Out<c_uint>) {
        meant(handle)?;
        out.put(3020)
    }

    fn cuCtxSynchronize() {
        synchronize(current::context()?)
    }

    fn cuCtxSynchronize_v2(handle: Context) {
        synchronize(meant(handle)?)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current::context()?;
        // CUDA driver API reference: numerically lower is more urgent. Work is not reordered by it here.
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    }

    /// Limits of device-side stacks, heaps and queues. There are none of these here; what is set is what is read back.
    fn cuCtxGetLimit(value: Out<usize>, limit: c_int) {
        let context = current::context()?;
        let default = *usize::try_from(limit).ok().and_then(|n| LIMITS.get(n)).ok_or(CuError::UnsupportedLimit)?;
        value.put(SET.lock().get(&(context.0, limit)).copied().unwrap_or(default))
    }

    fn cuCtxSetLimit(limit: c_int, value: usize) {
        let context = current::context()?;
        usize::try_from(limit).ok().filter(|n| *n < LIMITS.len()).ok_or(CuError::UnsupportedLimit)?;
        SET.lock().insert((context.0, limit), value);
        Ok(())
    }

    /// A hint that no profile gives a meaning to.
    fn cuCtxGetCacheConfig(config: Out<c_int>) {
        current::context()?;
        config.put(0)
    }

    fn cuCtxSetCacheConfig(config: c_int) {
        current::context()?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuCtxGetSharedMemConfig(config: Out<c_int>) {
        current::context()?;
        config.put(1)
    }

    fn cuCtxSetSharedMemConfig(config: c_int) {
        current::context()?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuCtxResetPersistingL2Cache() {
        current::context().map(drop)
    }

    fn cuCtxEnablePeerAccess(peer: Context, flags: c_uint) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        if meant(peer)? == current::context()? {
            return Err(CuError::InvalidContext);
        }
        // cuDeviceCanAccessPeer says so beforehand.
        Err(CuError::PeerAccessUnsupported)
    }

    fn cuCtxDisablePeerAccess(peer: Context) {
        meant(peer)?;
        Err(CuError::PeerAccessNotEnabled)
    }
}

twins! {
    fn cuDevicePrimaryCtxRelease(ordinal: c_int) = cuDevicePrimaryCtxRelease_v2(ordinal);
    fn cuDevicePrimaryCtxReset(ordinal: c_int) = cuDevicePrimaryCtxReset_v2(ordinal);
    fn cuDevicePrimaryCtxSetFlags(ordinal: c_int, flags: c_uint) = cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}
