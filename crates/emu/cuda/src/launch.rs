//! Launches: every kernel of every library passes here.

use std::ffi::{c_uint, c_void};

use deepum_core::units::Bytes;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::kernel::Kernel;
use deepum_emu_device::launch::Shape;
use deepum_emu_device::machine::{Cost, machine};

use crate::current;
use crate::edge::{In, api, twins};
use crate::handle::{Function, Stream};
use crate::module;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Stream,
    attributes: In<Attribute>,
    count: c_uint,
}
const _: () = assert!(size_of::<Config>() == 56);

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attribute {
    id: c_uint,
    pad: c_uint,
    value: [c_uint; 16],
}
const _: () = assert!(size_of::<Attribute>() == 72);

/// Checks what a launch is asked to be beyond its shape. What changes when or whether a kernel may start in ways that
/// are not modelled is refused; hints are taken as such.
fn check(attributes: In<Attribute>, count: c_uint) -> CuResult {
    for n in 0..count as usize {
        let attribute = attributes.nth(n)?;
        match attribute.id {
            // IGNORE, ACCESS_POLICY_WINDOW, COOPERATIVE, SYNCHRONIZATION_POLICY, CLUSTER_SCHEDULING, PROGRAMMATIC_STREAM_
            // SERIALIZATION (permits an overlap, asks for none), PRIORITY, MEM_SYNC_DOMAIN(_MAP), CARVEOUT and newer hints.
            0..=3 | 5 | 6 | 8..=11 | 14 | 16..=18 => {}
            // CLUSTER_DIMENSION: one block per cluster is no cluster.
            4 if attribute.value[..3].iter().all(|n| *n <= 1) => {}
            _ => return Err(CuError::NotSupported),
        }
    }
    Ok(())
}

/// The packed parameter buffer, from an array of pointers to parameters or from the caller's own buffer.
fn pack(kernel: &Kernel, params: In<In<u8>>, extra: In<In<c_void>>) -> CuResult<Vec<u8>> {
    let mut packed = vec![0u8; kernel.params_len()];
    if !params.is_null() {
        for (n, param) in kernel.info.params.iter().enumerate() {
            let value = params.nth(n)?.array(param.size as usize)?;
            packed[param.offset as usize..][..value.len()].copy_from_slice(&value);
        }
        return Ok(packed);
    }
    // CU_LAUNCH_PARAM_END 0, BUFFER_POINTER 1, BUFFER_SIZE 2.
    let (mut buffer, mut len) = (None, None);
    let mut n = 0;
    while !extra.is_null() {
        match extra.cast::<usize>().nth(n)? {
            0 => break,
            1 => buffer = Some(extra.nth(n + 1)?.cast::<u8>()),
            2 => len = Some(extra.nth(n + 1)?.cast::<usize>().get()?),
            _ => return Err(CuError::InvalidValue),
        }
        n += 2;
    }
    let Some((buffer, len)) = buffer.zip(len) else {
        return if packed.is_empty() { Ok(packed) } else { Err(CuError::InvalidValue) };
    };
    let given = buffer.array(len)?;
    if given.len() < packed.len() {
        return Err(CuError::InvalidValue);
    }
    Ok(given)
}

/// Queues a launch. More dynamic shared memory than the kernel was allowed is refused, as by a driver.
fn launch(
    function: Function,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Stream,
    params: In<In<u8>>,
    extra: In<In<c_void>>,
) -> CuResult {
    if !params.is_null() && !extra.is_null() {
        return Err(CuError::InvalidValue);
    }
    let kernel = module::kernel(function)?;
    if !module::allows_shared(&kernel, shared) {
        return Err(CuError::InvalidValue);
    }
    let packed = pack(&kernel, params, extra)?;
    let shape = Shape { grid, block, shared: Bytes(u64::from(shared)) };
    machine()?.call(Cost::Launch, |call| {
        let stream = current::stream(call, stream)?;
        call.launch(stream, kernel, shape, packed)
    })
}

fn configured(
    config: Config,
    stream: Stream,
    function: Function,
    params: In<In<u8>>,
    extra: In<In<c_void>>,
) -> CuResult {
    check(config.attributes, config.count)?;
    launch(function, config.grid, config.block, config.shared, stream, params, extra)
}

api! {
    fn cuLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: In<In<u8>>, extra: In<In<c_void>>,
    ) {
        launch(function, [gx, gy, gz], [bx, by, bz], shared, stream, params, extra)
    }

    fn cuLaunchKernelEx(config: In<Config>, function: Function, params: In<In<u8>>, extra: In<In<c_void>>) {
        let config = config.get()?;
        configured(config, config.stream, function, params, extra)
    }

    fn cuLaunchKernelEx_ptsz(config: In<Config>, function: Function, params: In<In<u8>>, extra: In<In<c_void>>) {
        let config = config.get()?;
        configured(config, config.stream.per_thread(), function, params, extra)
    }

    fn cuLaunchCooperativeKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: In<In<u8>>,
    ) {
        let none = In::none();
        launch(function, [gx, gy, gz], [bx, by, bz], shared, stream, params, none)
    }
}

twins! {
    fn cuLaunchKernel_ptsz(
        f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, s: Stream,
        params: In<In<u8>>, extra: In<In<c_void>>,
    ) = cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s.per_thread(), params, extra);
    fn cuLaunchCooperativeKernel_ptsz(
        f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, s: Stream,
        params: In<In<u8>>,
    ) = cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, s.per_thread(), params);
}
