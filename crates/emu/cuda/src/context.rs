//! Contexts: primary and own, the thread's stack, limits.

use std::ffi::{c_int, c_uint, c_void};

use deepum_emu_device::context::ContextId;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::machine::{Cost, machine};

use crate::current;
use crate::edge::{Out, api, twins};
use crate::handle::Context;
use crate::init::device;

/// The context a handle means; the thread's for null.
fn meant(handle: Context) -> CuResult<ContextId> {
    if handle == Context::NULL { current::context() } else { handle.get().map_err(|_| CuError::InvalidContext) }
}

fn synchronize(id: ContextId) -> CuResult {
    machine()?.call(Cost::Call, |call| {
        let device = call.state.contexts.get(id)?.device;
        call.synchronize(device)
    })
}

fn create(out: Out<Context>, flags: c_uint, ordinal: c_int) -> CuResult {
    let device = device(ordinal)?;
    let id = machine()?.call(Cost::Call, |call| {
        let state = &mut *call.state;
        state.contexts.create(device, flags, &mut state.streams)
    })?;
    out.put(Context::of(id))?;
    current::push(id);
    Ok(())
}

api! {
    fn cuDevicePrimaryCtxRetain(out: Out<Context>, ordinal: c_int) {
        let device = device(ordinal)?;
        let id = machine()?.call(Cost::Call, |call| {
            let id = call.state.contexts.primary(device)?;
            call.state.contexts.get_mut(id)?.users += 1;
            Ok(id)
        })?;
        out.put(Context::of(id))
    }

    fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) {
        let device = device(ordinal)?;
        machine()?.call(Cost::Call, |call| {
            let id = call.state.contexts.primary(device)?;
            let context = call.state.contexts.get_mut(id)?;
            context.users = context.users.checked_sub(1).ok_or(CuError::InvalidContext)?;
            Ok(())
        })
    }

    /// Waits for the device's work. Allocations live on: they belong to the process here.
    fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) {
        let device = device(ordinal)?;
        machine()?.call(Cost::Call, |call| call.synchronize(device))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(ordinal: c_int, flags: c_uint) {
        let device = device(ordinal)?;
        machine()?.call(Cost::Call, |call| {
            let id = call.state.contexts.primary(device)?;
            call.state.contexts.get_mut(id)?.flags = flags;
            Ok(())
        })
    }

    fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let device = device(ordinal)?;
        let (set, users) = machine()?.look(|state| {
            let context = state.contexts.get(state.contexts.primary(device)?)?;
            Ok((context.flags, context.users))
        })?;
        flags.put(set)?;
        active.put(c_int::from(users > 0))
    }

    fn cuCtxCreate_v2(out: Out<Context>, flags: c_uint, ordinal: c_int) {
        create(out, flags, ordinal)
    }

    /// With execution affinity, of which there is none.
    fn cuCtxCreate_v3(out: Out<Context>, _affinity: *const c_void, count: c_int, flags: c_uint, ordinal: c_int) {
        if count != 0 {
            return Err(CuError::NotSupported);
        }
        create(out, flags, ordinal)
    }

    fn cuCtxCreate_v4(out: Out<Context>, params: *const c_void, flags: c_uint, ordinal: c_int) {
        if !params.is_null() {
            return Err(CuError::NotSupported);
        }
        create(out, flags, ordinal)
    }

    fn cuCtxDestroy_v2(handle: Context) {
        let id = handle.get()?;
        synchronize(id)?;
        machine()?.call(Cost::Call, |call| {
            let state = &mut *call.state;
            state.contexts.destroy(id, &mut state.streams)
        })?;
        if current::top() == Some(id) {
            current::set(None);
        }
        Ok(())
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
        let id = meant(handle)?;
        machine()?.look(|state| state.contexts.get(id).map(drop))?;
        current::set(Some(id));
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: Context) {
        let id = handle.get().map_err(|_| CuError::InvalidContext)?;
        machine()?.look(|state| state.contexts.get(id).map(drop))?;
        current::push(id);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<Context>) {
        machine()?;
        let id = current::pop()?;
        out.offer(Context::of(id));
        Ok(())
    }

    fn cuCtxGetDevice(out: Out<c_int>) {
        let id = current::context()?;
        out.put(c_int::from(machine()?.look(|state| Ok(state.contexts.get(id)?.device.0))?))
    }

    fn cuCtxGetDevice_v2(out: Out<c_int>, handle: Context) {
        let id = meant(handle)?;
        out.put(c_int::from(machine()?.look(|state| Ok(state.contexts.get(id)?.device.0))?))
    }

    fn cuCtxGetFlags(out: Out<c_uint>) {
        let id = current::context()?;
        out.put(machine()?.look(|state| Ok(state.contexts.get(id)?.flags))?)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let id = current::context()?;
        machine()?.look(|state| {
            state.contexts.get_mut(id)?.flags = flags;
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
        current::context()?;
        value.put(limits::get(limit)?)
    }

    fn cuCtxSetLimit(limit: c_int, value: usize) {
        current::context()?;
        limits::set(limit, value)
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
        meant(peer)?;
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        // cuDeviceCanAccessPeer says so beforehand.
        Err(CuError::InvalidDevice)
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

mod limits {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use deepum_emu_device::error::{CuError, CuResult};

    /// Stack, printf queue, heap, sync depth, pending launches, L2 granularity, persisting L2: CUDA's defaults
    /// (driver API reference, cuCtxSetLimit; values a driver reports on compute capability 8.0).
    static LIMITS: [AtomicUsize; 7] = [
        AtomicUsize::new(1024),
        AtomicUsize::new(1 << 20),
        AtomicUsize::new(8 << 20),
        AtomicUsize::new(2),
        AtomicUsize::new(2048),
        AtomicUsize::new(64),
        AtomicUsize::new(0),
    ];

    fn at(limit: i32) -> CuResult<&'static AtomicUsize> {
        usize::try_from(limit).ok().and_then(|n| LIMITS.get(n)).ok_or(CuError::UnsupportedLimit)
    }

    pub fn get(limit: i32) -> CuResult<usize> {
        at(limit).map(|l| l.load(Ordering::Relaxed))
    }

    pub fn set(limit: i32, value: usize) -> CuResult {
        at(limit).map(|l| l.store(value, Ordering::Relaxed))
    }
}
