//! The driver, tried: a process of our own starts CUDA, looks at the GPUs, and attaches to the driver as the engine would.
//!
//! In a process of its own because the driver may hang, and because an emulated device comes by way of preloaded libraries. It is run under the shim, which
//! is off in it (`DEEPUM=0`), so that it is known whether that loads. It prints one line of JSON, [`Seen`].

use crate::cuda::{Cuda, Failed, call};
use anyhow::{Context, Result};
use deepum_core::units::{Bytes, DeviceId};
use deepum_kmod_bridge::{Bridge, Gpu, Linux, NOTICES, Uuid};
use serde::{Deserialize, Serialize};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// What the process saw.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Seen {
    /// Whether the shim is in it.
    pub preloaded: bool,
    /// The version of CUDA that the driver has, as 1000 * major + 10 * minor.
    pub cuda: i32,
    pub gpus: Vec<SeenGpu>,
    /// Why it came no further.
    pub failed: Option<Failed>,
    pub driver: Option<SeenDriver>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SeenGpu {
    pub name: String,
    pub memory_bytes: u64,
    pub uuid: [u8; 16],
    /// Attributes 89, 122, 100 and 18 (facts 4.4; `CUdevice_attribute`).
    pub concurrent_managed_access: bool,
    pub stream_mem_ops: bool,
    pub host_page_tables: bool,
    pub integrated: bool,
}

/// What the driver's memory part answered; of each, why not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct SeenDriver {
    pub queue: Result<(), String>,
    pub va_space: Result<(), String>,
    pub discard: Result<(), String>,
    pub duplicate: Result<(), String>,
}

/// Looks, and prints.
pub fn probe() -> Result<()> {
    let mut seen = Seen { preloaded: is_preloaded(), ..Seen::default() };
    if let Err(failed) = look(&mut seen) {
        seen.failed = Some(failed);
    }
    crate::say::say(&format!("{}\n", serde_json::to_string(&seen).context("what was seen")?))
}

fn is_preloaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/libdeepum.so"))
}

fn look(seen: &mut Seen) -> Result<(), Failed> {
    let cuda = Cuda::find()?;
    call!(cuda, cuInit(0 => c_uint))?;
    call!(cuda, cuDriverGetVersion(&raw mut seen.cuda => *mut c_int))?;
    let mut count = 0;
    call!(cuda, cuDeviceGetCount(&raw mut count => *mut c_int))?;
    for device in 0..count {
        let (mut name, mut memory, mut uuid) = ([0 as c_char; 128], 0usize, [0u8; 16]);
        call!(cuda, cuDeviceGetName(name.as_mut_ptr() => *mut c_char, 127 => c_int, device => c_int))?;
        call!(cuda, cuDeviceTotalMem_v2(&raw mut memory => *mut usize, device => c_int))?;
        call!(cuda, cuDeviceGetUuid_v2(&raw mut uuid => *mut [u8; 16], device => c_int))?;
        let attribute = |number| {
            let mut value = 0;
            call!(cuda, cuDeviceGetAttribute(&raw mut value => *mut c_int, number => c_int, device => c_int))?;
            Ok(value != 0)
        };
        seen.gpus.push(SeenGpu {
            // The last byte was never written.
            name: name.iter().take_while(|&&c| c != 0).map(|c| char::from(c.cast_unsigned())).collect(),
            memory_bytes: memory as u64,
            uuid,
            concurrent_managed_access: attribute(89)?,
            stream_mem_ops: attribute(122)?,
            host_page_tables: attribute(100)?,
            integrated: attribute(18)?,
        });
    }
    if count == 0 {
        return Ok(());
    }
    // A context makes the address space that is attached to.
    let mut context: *mut c_void = std::ptr::null_mut();
    call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context => *mut *mut c_void, 0 => c_int))?;
    call!(cuda, cuCtxSetCurrent(context => *mut c_void))?;
    seen.driver = Some(attach(&seen.gpus));
    call!(cuda, cuDevicePrimaryCtxRelease_v2(0 => c_int))
}

fn attach(gpus: &[SeenGpu]) -> SeenDriver {
    let gpus: Vec<Gpu> =
        (0..).zip(gpus).map(|(number, gpu)| Gpu { id: DeviceId(number), uuid: Uuid(gpu.uuid) }).collect();
    let Bridge { support, queue, va_space } = Bridge::open(Arc::new(Linux), &gpus, NOTICES);
    let (discard, duplicate) = (support.can_discard(), support.can_duplicate());
    SeenDriver {
        queue: queue.map(drop).map_err(|why| why.to_string()),
        va_space: va_space.map(drop).map_err(|why| why.to_string()),
        discard,
        duplicate,
    }
}

impl SeenGpu {
    pub fn memory(&self) -> Bytes {
        Bytes(self.memory_bytes)
    }
}
