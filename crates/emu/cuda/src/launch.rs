//! Launches: every kernel of every library passes here.

use std::ffi::{c_uint, c_void};

use deepum_core::units::Bytes;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::kernel::Kernel;
use deepum_emu_device::launch::Shape;
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::work::Launch;

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
/// are not modelled is refused; hints are taken as such. Whether it is cooperative.
fn check(attributes: In<Attribute>, count: c_uint) -> CuResult<bool> {
    let mut cooperative = false;
    for n in 0..count as usize {
        let attribute = attributes.nth(n)?;
        match attribute.id {
            2 => cooperative = attribute.value[0] != 0, // COOPERATIVE
            // IGNORE, ACCESS_POLICY_WINDOW, SYNCHRONIZATION_POLICY, CLUSTER_SCHEDULING, PROGRAMMATIC_STREAM_SERIALIZATION
            // (permits an overlap, asks for none), PRIORITY, MEM_SYNC_DOMAIN(_MAP), CARVEOUT and newer hints.
            0 | 1 | 3 | 5 | 6 | 8..=11 | 14 | 16..=18 => {}
            // CLUSTER_DIMENSION: one block per cluster is no cluster.
            4 if attribute.value[..3].iter().all(|n| *n <= 1) => {}
            _ => return Err(CuError::NotSupported),
        }
    }
    Ok(cooperative)
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

pub fn shape(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> Shape {
    Shape { grid, block, shared: Bytes(u64::from(shared)) }
}

/// Whether all blocks of a launch can be on the device at once.
fn fits_at_once(kernel: &Kernel, shape: Shape) -> CuResult<bool> {
    let product = |sizes: [c_uint; 3]| sizes.into_iter().fold(1, c_uint::saturating_mul);
    let room = module::resident(kernel, product(shape.block), shape.shared)?.saturating_mul(machine()?.profile.sms);
    Ok(product(shape.grid) <= room)
}

/// A kernel and its arguments. More dynamic shared memory than the kernel was allowed is refused, as by a driver.
pub fn kernel(function: Function, shape: Shape, params: In<In<u8>>, extra: In<In<c_void>>) -> CuResult<Launch> {
    if !params.is_null() && !extra.is_null() {
        return Err(CuError::InvalidValue);
    }
    let kernel = module::kernel(function)?;
    if !module::allows_shared(&kernel, shape.shared) {
        return Err(CuError::InvalidValue);
    }
    let packed = pack(&kernel, params, extra)?;
    Launch::new(kernel, shape, packed)
}

fn launch(
    function: Function,
    shape: Shape,
    cooperative: bool,
    stream: Stream,
    params: In<In<u8>>,
    extra: In<In<c_void>>,
) -> CuResult {
    let launch = kernel(function, shape, params, extra)?;
    if cooperative && !fits_at_once(&launch.kernel, shape)? {
        return Err(CuError::CooperativeLaunchTooLarge);
    }
    machine()?.call(Cost::Launch, |call| {
        let stream = current::stream(call, stream)?;
        call.launch(stream, launch)
    })
}

fn configured(
    config: Config,
    stream: Stream,
    function: Function,
    params: In<In<u8>>,
    extra: In<In<c_void>>,
) -> CuResult {
    let cooperative = check(config.attributes, config.count)?;
    let shape = shape(config.grid, config.block, config.shared);
    launch(function, shape, cooperative, stream, params, extra)
}

api! {
    fn cuLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: In<In<u8>>, extra: In<In<c_void>>,
    ) {
        launch(function, shape([gx, gy, gz], [bx, by, bz], shared), false, stream, params, extra)
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
        launch(function, shape([gx, gy, gz], [bx, by, bz], shared), true, stream, params, In::none())
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
