//! A machine for tests, and programs for it.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deepum_core::units::{Bytes, DevAddr, DeviceId, Nanos};
use deepum_emu_device::config::Config;
use deepum_emu_device::error::CuResult;
use deepum_emu_device::fatbin::{KernelInfo, Param};
use deepum_emu_device::kernel::{Image, Kernel};
use deepum_emu_device::launch::Shape;
use deepum_emu_device::machine::{Call, Cost, Machine};
use deepum_emu_device::memory::Return;
use deepum_emu_device::space::Kind;
use deepum_emu_device::stream::{Flavour, StreamId};
use deepum_emu_device::work::{Copy, Direction, Launch};

pub const GPU: DeviceId = DeviceId(0);
pub const MIB: u64 = 1 << 20;

/// A machine whose addresses do not collide with those of the 200 machines made before it.
pub fn machine(line: &str) -> Machine {
    static USED: AtomicU64 = AtomicU64::new(0);
    let config = Config::parse(line, &deepum_model::Profile::NAMES).unwrap();
    let skip = Bytes::gib(4 * (USED.fetch_add(1, Ordering::Relaxed) % 200));
    Machine::with_space_from(config, None, skip).unwrap()
}

pub fn call<R>(machine: &Machine, f: impl FnOnce(&mut Call<'_>) -> CuResult<R>) -> R {
    machine.call(Cost::Call, f).unwrap()
}

pub fn host(machine: &Machine) -> Nanos {
    machine.look(|state| Ok(state.host)).unwrap()
}

pub fn null_stream(machine: &Machine) -> StreamId {
    machine.look(|state| Ok(state.contexts.primary(GPU)?.legacy)).unwrap()
}

pub fn stream(machine: &Machine) -> StreamId {
    machine.look(|state| Ok(state.streams.create(GPU, Flavour::NonBlocking, 0))).unwrap()
}

pub fn allocate(machine: &Machine, kind: Kind, bytes: u64) -> CuResult<u64> {
    machine.call(Cost::Call, |c| c.allocate(kind, GPU, Bytes(bytes), 0)).map(|a| a.range.start.0)
}

/// A kernel of the device's own test kernels.
pub fn kernel(machine: &Machine, name: &str) -> Arc<Kernel> {
    let params = (0..6).map(|n| Param { offset: n * 8, size: 8 }).collect();
    let info = KernelInfo { name: name.into(), params, static_shared: Bytes::ZERO, registers: 0, max_threads: 0 };
    machine
        .look(|state| {
            let module = state.modules.load(Image::Read(vec![info]), None);
            let id = state.modules.kernel_named(module, name)?;
            state.modules.kernel(id)
        })
        .unwrap()
}

/// Launches a test kernel.
pub fn launch(machine: &Machine, stream: StreamId, kernel: &Arc<Kernel>, words: &[u64]) {
    let mut params: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    params.resize(48, 0);
    let shape = Shape { grid: [64, 1, 1], block: [256, 1, 1], shared: Bytes::ZERO };
    let launch = Launch::new(kernel.clone(), shape, params).unwrap();
    machine.call(Cost::Launch, |c| c.launch(stream, launch)).unwrap();
}

/// A copy that is done when the call returns.
pub fn copy(machine: &Machine, stream: StreamId, dst: u64, src: u64, bytes: u64) {
    queue_copy(machine, stream, dst, src, bytes, Return::Late);
}

pub fn queue_copy(machine: &Machine, stream: StreamId, dst: u64, src: u64, bytes: u64, when: Return) {
    let copy = Copy {
        dst: DevAddr(dst),
        dst_pitch: bytes,
        src: DevAddr(src),
        src_pitch: bytes,
        width: bytes,
        height: 1,
        direction: Direction::OnHost,
        staged: None,
    };
    call(machine, |c| c.copy(stream, copy, when));
}

/// A float as a kernel parameter.
pub fn number(value: f32) -> u64 {
    u64::from(value.to_bits())
}

/// The floats of a buffer of this test.
pub fn address<T>(values: &[T]) -> u64 {
    values.as_ptr().expose_provenance() as u64
}

/// Small deterministic random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
