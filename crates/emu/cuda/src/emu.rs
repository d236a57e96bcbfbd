//! What the emulated device offers beside the driver API: the doors for the engine, the preloaded node, the other
//! stand-ins, and tests. Names begin with `deepumEmu`; a real `libcuda.so.1` has none of them.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepum_core::units::{Bytes, Nanos};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::memory::known_next;
use deepum_emu_device::pace::DeepumHooks;
use deepum_emu_device::uvm::{Mapping, door, remote};
use deepum_emu_device::watch::{self, DeepumWatch};

use crate::edge::{int, put_text};

/// A call of ours from C: whatever goes wrong inside is `otherwise`.
fn guarded<R>(otherwise: R, f: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// The engine takes over the pace (null: it gives it back, and what another process has asked for is over when this
/// returns; so no lock may be held that a call of the program waits for). 0, or -1 if the hooks are not acceptable or there is no
/// device yet. See ARCHITECTURE section 5.
///
/// # Safety
/// `hooks` is null, or stays valid and unchanged for the rest of the process.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuDrive(hooks: *const DeepumHooks) -> c_int {
    guarded(-1, || match machine() {
        // SAFETY: the caller's promise.
        Ok(machine) if unsafe { machine.drive(hooks) } => {
            if hooks.is_null() {
                door::quiesce();
            }
            0
        }
        _ => -1,
    })
}

/// From now on `watch` is told what each launch, copy and memset does as it starts (null: nobody is). 0, or -1 if it is of another version or there is
/// no device yet. See ARCHITECTURE section 7.
///
/// # Safety
/// `watch` is null, or stays valid and unchanged for the rest of the process.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuWatch(watch: *const DeepumWatch) -> c_int {
    guarded(-1, || match machine() {
        // SAFETY: the caller's promise.
        Ok(machine) if unsafe { machine.watch.set(watch) } => 0,
        _ => -1,
    })
}

/// The position, among all that was issued, of what the calling thread issued last; 0 if there is nothing.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuIssued() -> u64 {
    watch::issued()
}

/// 1 if the calling thread stands in for one of another process that makes a request on a file of the driver, 0 if not. For
/// an engine in another process to know its threads by.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuServes() -> c_int {
    guarded(0, || c_int::from(remote::serves()))
}

/// Takes a descriptor as an open file of `/dev/nvidia-uvm` (`node` 0) or `/dev/nvidia-uvm-tools` (1), with the far end of its
/// socket pair. 0, or an error number.
///
/// # Safety
/// `peer` is -1, or a descriptor that nothing else uses or closes.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuUvmOpen(node: c_int, fd: c_int, peer: c_int) -> c_int {
    // SAFETY: the caller's promise.
    guarded(libc::ENODEV, || unsafe { door::open(node, fd, peer) })
}

/// A request on such a file: 0, or an error number below 0; `-ENOTTY` if it is no file of this device.
///
/// # Safety
/// `argument` is what the request asks for, as for the driver.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuUvmIoctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    guarded(-libc::EIO, || unsafe { door::ioctl(fd, request, argument) })
}

/// `mmap` of such a file, shared, which replaces what is at `address`: 0, or an error number below 0; `-ENOTTY` if it is no file of this device.
///
/// # Safety
/// As for `mmap` with `MAP_FIXED`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuUvmMap(
    fd: c_int,
    address: u64,
    len: u64,
    protection: c_int,
    flags: c_int,
    offset: i64,
) -> c_int {
    let has = |bits: c_int, asked: c_int| asked & bits == bits;
    let how = Mapping {
        may_write: has(libc::PROT_READ | libc::PROT_WRITE, protection),
        is_shared: has(libc::MAP_SHARED, flags),
        is_fixed: has(libc::MAP_FIXED, flags),
        offset,
    };
    // SAFETY: the caller's promise.
    guarded(-libc::EIO, || unsafe { door::map(fd, address, len, how) })
}

/// The calling thread does nothing until the word at this address of a pool of semaphores was written for the last migration that was asked for with it.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuAwait(address: u64) {
    guarded((), || {
        if let Ok(machine) = machine() {
            machine.await_word(address);
        }
    });
}

/// The calling thread, of an engine, stays until all is over that it gave up: to it a discard returns sooner.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuRest() {
    guarded((), || {
        if let Ok(machine) = machine() {
            machine.rest();
        }
    });
}

/// 1 if a poll of the tools file finds it readable, 0 if not, below 0 if it is no file of this device.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuUvmPoll(fd: c_int) -> c_int {
    guarded(0, || door::poll(fd))
}

/// The driver release as `/sys/module/nvidia/version` has it, into `text` with room for `room` bytes. Its length, or -1
/// without a device or without room.
///
/// # Safety
/// `text` may be written for `room` bytes.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub unsafe extern "C" fn deepumEmuDriverRelease(text: *mut u8, room: usize) -> c_int {
    guarded(-1, || match door::driver_release() {
        Some(release) if release.len() < room && put_text(text, room, release).is_ok() => int(release.len()),
        _ => -1,
    })
}

/// Host memory of the machine that is played, in bytes; 0 without a device.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuHostMemory() -> u64 {
    guarded(0, || machine().map_or(0, |m| m.config.host.unwrap_or(m.profile.host_memory).0))
}

/// Another stand-in refused a call by name; counted in the flight log.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuRefused(_name: *const c_char) {
    guarded((), count_refusal);
}

/// Counts a refused call, if there is a device to count it on.
pub fn count_refusal() {
    if let Ok(machine) = machine() {
        let _ = machine.look(|state| {
            state.totals.refused += 1;
            state.publish(&machine.pace);
            Ok(())
        });
    }
}

/// The calling thread does nothing for so many virtual nanoseconds.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuSleep(ns: u64) {
    guarded((), || {
        if let Ok(machine) = machine() {
            // A device that was lost meanwhile says so in the program's own calls.
            let _ = machine.call(Cost::Nap(Nanos(ns)), |_| Ok(()));
        }
    });
}

/// Of the managed memory that the calling thread asks for next the program knows the first so many bytes alone.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuKnown(bytes: u64) {
    guarded((), || known_next(Bytes(bytes)));
}

/// The device's clock in virtual nanoseconds, which is not the host's; 0 without a device.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuNow() -> u64 {
    guarded(0, || machine().and_then(|m| m.now()).map_or(0, |now| now.0))
}

/// The host clock in virtual nanoseconds; 0 without a device.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "exported name")]
pub extern "C" fn deepumEmuTime() -> u64 {
    guarded(0, || machine().and_then(|m| m.look(|state| Ok(state.host.0))).unwrap_or(0))
}
