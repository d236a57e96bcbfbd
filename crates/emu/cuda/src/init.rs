//! Initialisation, versions, devices.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::Once;

use deepum_core::units::DeviceId;
use deepum_emu_device::config::{self, Config, ConfigError};
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::log::{self, LogWriter};
use deepum_emu_device::machine::{Cost, Machine, install, machine};
use deepum_emu_device::say;
use deepum_emu_device::uvm::gpu_uuid;
use deepum_model::Profile;

use crate::attribute;
use crate::edge::{Out, Text, api, put_bytes, put_text, size, twins};

/// The configuration in the environment.
fn configured(given: Option<&str>) -> Result<Config, ConfigError> {
    given.map_or_else(|| Ok(Config::of_profile(config::DEFAULT_PROFILE)), |text| Config::parse(text, &Profile::NAMES))
}

/// The machine that the environment describes.
fn build() -> CuResult<Machine> {
    let given = std::env::var(config::VARIABLE).ok();
    if given.is_none() {
        say(&format!("{} is not set: playing {}", config::VARIABLE, config::DEFAULT_PROFILE));
    }
    let config = configured(given.as_deref()).map_err(|e| {
        say(&e.to_string());
        CuError::NoDevice
    })?;
    let log = std::env::var_os(log::VARIABLE).filter(|path| !path.is_empty()).and_then(|path| {
        let line = given.as_deref().unwrap_or(config::DEFAULT_PROFILE);
        let made = LogWriter::create(Path::new(&path), line);
        made.inspect_err(|e| say(&format!("{}: no flight log at {}: {e}", log::VARIABLE, path.display()))).ok()
    });
    Machine::new(config, log).map_err(|e| {
        say(&e.to_string());
        CuError::NoDevice
    })
}

/// The first library of NVIDIA's Python packages that this process has loaded.
fn vendor_library() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    maps.lines().filter_map(path).find(|path| path.contains("/nvidia/") && path.contains(".so"))
}

/// `nvidia-uvm` as a driver opens it: a file with a VA space, and from 535 on one that pins the process's memory map
/// (facts 1.1 and 2.6). Through the C library's `open` and `ioctl`, so that whoever plays the character device sees it;
/// without one there is nothing to open, and nothing is lost but the tools' view of this process.
fn open_uvm(driver: u16, mm_first: bool) {
    const INITIALIZE: libc::c_ulong = 0x3000_0001;
    const MM_INITIALIZE: libc::c_ulong = 75;
    let open = || {
        // SAFETY: a constant path.
        unsafe { libc::open(c"/dev/nvidia-uvm".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
    };
    let pins = driver >= 535;
    // Whoever looks through the process's descriptors in order meets the lower one first.
    let early = if pins && mm_first { open() } else { -1 };
    let space = open();
    if space < 0 {
        return;
    }
    // { flags u64 @0, rmStatus u32 @8 }, with room (facts 1.1).
    let mut params = [0u64; 12];
    // SAFETY: an open descriptor and a buffer larger than the parameters.
    unsafe { libc::ioctl(space, INITIALIZE, params.as_mut_ptr()) };
    let second = if pins && !mm_first { open() } else { early };
    if second >= 0 {
        // { uvmFd i32 @0, rmStatus u32 @4 }.
        let mut params = [0u32; 24];
        params[0] = space.cast_unsigned();
        // SAFETY: an open descriptor and a buffer larger than the parameters.
        unsafe { libc::ioctl(second, MM_INITIALIZE, params.as_mut_ptr()) };
    }
}

/// The device of an ordinal.
pub fn device(ordinal: c_int) -> CuResult<DeviceId> {
    let count = machine()?.config.devices;
    u8::try_from(ordinal).ok().filter(|n| *n < count).map(DeviceId).ok_or(CuError::InvalidDevice)
}

api! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        if machine().is_ok() {
            return Ok(());
        }
        let installed = install(build)?;
        static OPENED: std::sync::Once = std::sync::Once::new();
        OPENED.call_once(|| open_uvm(installed.config.driver, installed.config.mm_first));
        Ok(())
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        // May be asked before cuInit, and in a forked child. cuInit says what is wrong with a configuration.
        let config = configured(std::env::var(config::VARIABLE).ok().as_deref());
        // CUDA toolkit release notes, table of driver branches.
        version.put(match config.map(|config| config.driver) {
            Ok(535) => 12_020,
            Ok(550) => 12_040,
            Ok(560) => 12_060,
            Ok(595) => 13_020,
            _ => 13_000,
        })
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.put(c_int::from(machine()?.config.devices))
    }

    fn cuDeviceGet(out: Out<c_int>, ordinal: c_int) {
        device(ordinal)?;
        out.put(ordinal)
    }

    fn cuDeviceGetName(name: *mut u8, len: c_int, ordinal: c_int) {
        device(ordinal)?;
        put_text(name, usize::try_from(len).map_err(|_| CuError::InvalidValue)?, &machine()?.profile.device_name)
    }

    fn cuDeviceGetUuid_v2(out: *mut u8, ordinal: c_int) {
        put_bytes(out, 16, &gpu_uuid(device(ordinal)?))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: c_int) {
        let device = device(ordinal)?;
        bytes.put(size(machine()?.call(Cost::Free, |call| Ok(call.memory_info(device).1))?))
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, number: c_int, ordinal: c_int) {
        let device = device(ordinal)?;
        let known = attribute::value(machine()?, device, number).ok_or(CuError::InvalidValue)?;
        value.put(known)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, ordinal: c_int) {
        let device = device(ordinal)?;
        major.put(attribute::value(machine()?, device, 75).unwrap_or_default())?;
        minor.put(attribute::value(machine()?, device, 76).unwrap_or_default())
    }

    fn cuDeviceGetPCIBusId(id: *mut u8, len: c_int, ordinal: c_int) {
        let device = device(ordinal)?;
        let len = usize::try_from(len).map_err(|_| CuError::InvalidValue)?;
        put_text(id, len, &format!("0000:{:02X}:00.0", attribute::pci_bus(device)))
    }

    fn cuDeviceGetByPCIBusId(out: Out<c_int>, id: Text) {
        let id = id.get()?.to_ascii_uppercase();
        let short = id.strip_prefix("0000:").unwrap_or(&id);
        let count = machine()?.config.devices;
        let found = (0..count).find(|n| short.trim_end_matches(".0") == format!("{:02X}:00", attribute::pci_bus(DeviceId(*n))));
        out.put(c_int::from(found.ok_or(CuError::InvalidDevice)?))
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, from: c_int, to: c_int) {
        device(from)?;
        device(to)?;
        // Peers would need a link of their own, which no profile describes.
        can.put(0)
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, number: c_int, from: c_int, to: c_int) {
        device(from)?;
        device(to)?;
        if !(1..=5).contains(&number) || from == to {
            return Err(CuError::InvalidValue);
        }
        value.put(0)
    }

    /// The emulated device has no private tables. Only NVIDIA's own libraries want them: a PyTorch that was installed with them
    /// finds them before our stand-ins, through its run path.
    fn cuGetExportTable(table: Out<*const c_void>, _id: *const c_void) {
        table.offer(std::ptr::null());
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let library = vendor_library().unwrap_or_else(|| "a library of NVIDIA's".to_owned());
            say(&format!(
                "this program uses {library}, which needs a real GPU; use a Python whose PyTorch has none of NVIDIA's packages \
                 beside it, such as DeepUM's .venv (pip install --no-deps torch)"
            ));
        });
        Err(CuError::NotSupported)
    }

    fn cuProfilerStart() {
        machine().map(drop)
    }

    fn cuProfilerStop() {
        machine().map(drop)
    }
}

twins! {
    fn cuDeviceGetUuid(out: *mut u8, ordinal: c_int) = cuDeviceGetUuid_v2(out, ordinal);
}
