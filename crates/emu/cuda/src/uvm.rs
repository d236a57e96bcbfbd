//! What the preloaded node calls: the character devices of nvidia-uvm (ARCHITECTURE section 7). Not part of the driver API.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepum_emu_device::uvm::door;

/// A panic is an error of the device, and the caller's errno.
fn fenced(broken: c_int, body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(broken)
}

/// Takes `fd` as an open file of `/dev/nvidia-uvm` (`node` 0) or `/dev/nvidia-uvm-tools` (1). `peer` is the far end of
/// the socket pair that a tools file is one end of, and ours if this succeeds; -1 for node 0. 0, or an errno.
///
/// # Safety
/// `peer` is -1, or a descriptor that nothing else uses or closes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepumEmuUvmOpen(node: c_int, fd: c_int, peer: c_int) -> c_int {
    // SAFETY: the same contract.
    fenced(libc::EIO, || unsafe { door::open(node, fd, peer) })
}

/// `ioctl` on such a file: 0, or an errno below 0.
///
/// # Safety
/// `arg` points to the parameters of `request`; queue memory among them outlives the file, unless it is shared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepumEmuUvmIoctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: the same contract.
    fenced(-libc::EIO, || unsafe { door::ioctl(fd, request, arg) })
}

/// Whether a poll of a tools file finds it readable: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn deepumEmuUvmPoll(fd: c_int) -> c_int {
    fenced(0, || door::poll(fd))
}

/// The text of `/sys/module/nvidia/version` into `text`, without a terminating zero; its length, or -1 without a device or if
/// it does not fit `room`.
///
/// # Safety
/// `text` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepumEmuDriverRelease(text: *mut c_char, room: usize) -> c_int {
    fenced(-1, || {
        let Some(release) = door::driver_release().filter(|r| r.len() <= room && !text.is_null()) else { return -1 };
        // SAFETY: it fits the caller's buffer, which cannot overlap a constant.
        unsafe { std::ptr::copy_nonoverlapping(release.as_ptr().cast(), text, release.len()) };
        c_int::try_from(release.len()).unwrap_or(-1)
    })
}
