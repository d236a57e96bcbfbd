//! The way to the device: five functions that a stand-in `libcuda.so.1` exports (ARCHITECTURE section 7).

use deepum_emu_abi::forward::Node;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::mem::transmute;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a program asks `mmap` for, beside the file.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) address: *mut c_void,
    pub(crate) len: usize,
    pub(crate) protection: c_int,
    pub(crate) flags: c_int,
    pub(crate) offset: i64,
}

/// Which `libcuda.so.1` this process has.
pub(crate) enum Door {
    /// None.
    Absent,
    /// One that is not ours.
    Genuine,
    Emulated(Device),
}

/// The stand-in's functions. It is never unloaded once seen: a handle on it is kept.
pub(crate) struct Device {
    open: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int,
    ioctl: unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int,
    poll: unsafe extern "C" fn(c_int) -> c_int,
    map: unsafe extern "C" fn(c_int, u64, u64, c_int, c_int, i64) -> c_int,
    release: unsafe extern "C" fn(*mut c_char, usize) -> c_int,
}

impl Device {
    /// Hands a descriptor over as an open node, with `peer`, the far end of its socket pair, which is the device's if this succeeds.
    pub(crate) fn open(&self, node: Node, fd: RawFd, peer: RawFd) -> Result<(), c_int> {
        // SAFETY: `peer` is -1 or a descriptor of ours that the caller forgets when this succeeds.
        match unsafe { (self.open)(node as c_int, fd, peer) } {
            0 => Ok(()),
            errno => Err(errno),
        }
    }

    /// Whether there is such a node.
    pub(crate) fn exists(&self, node: Node) -> bool {
        self.open(node, -1, -1) == Err(libc::EBADF)
    }

    /// # Safety
    /// As for the caller's `ioctl` on a file of the driver.
    pub(crate) unsafe fn ioctl(&self, fd: RawFd, request: c_ulong, arg: *mut c_void) -> c_int {
        // SAFETY: by our own contract.
        unsafe { (self.ioctl)(fd, request, arg) }
    }

    /// Makes a tools file readable if there is reason to; `-ENOTTY` if it is none of this device's.
    pub(crate) fn poll(&self, fd: RawFd) -> c_int {
        // SAFETY: any number is allowed.
        unsafe { (self.poll)(fd) }
    }

    /// `-ENOTTY` if it is no file of this device's.
    ///
    /// # Safety
    /// As for the caller's `mmap`.
    pub(crate) unsafe fn map(&self, fd: RawFd, wish: &Wish) -> c_int {
        let Wish { address, len, protection, flags, offset } = *wish;
        // SAFETY: by our own contract.
        unsafe { (self.map)(fd, address as u64, len as u64, protection, flags, offset) }
    }

    /// The driver's release.
    pub(crate) fn release<'t>(&self, text: &'t mut [u8; 64]) -> Option<&'t [u8]> {
        // SAFETY: a buffer of this length.
        let len = unsafe { (self.release)(text.as_mut_ptr().cast(), text.len()) };
        text.get(..usize::try_from(len).ok()?)
    }
}

/// What `libcuda.so.1` there is now. Asked for at every use of a node until it is ours: programs load it late.
pub(crate) fn door() -> Door {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut handle = HANDLE.load(Ordering::Acquire);
    if handle.is_null() {
        // SAFETY: only finds a library that is loaded already; nothing of it runs.
        handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return Door::Absent;
        }
        HANDLE.store(handle, Ordering::Release);
    }
    let symbol = |name: &CStr| {
        // SAFETY: a handle that is never closed, and a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (Some(open), Some(ioctl), Some(poll), Some(map), Some(release)) = (
        symbol(c"deepumEmuUvmOpen"),
        symbol(c"deepumEmuUvmIoctl"),
        symbol(c"deepumEmuUvmPoll"),
        symbol(c"deepumEmuUvmMap"),
        symbol(c"deepumEmuDriverRelease"),
    ) else {
        return Door::Genuine;
    };
    // SAFETY: the types under which the stand-in exports them.
    unsafe {
        Door::Emulated(Device {
            open: transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int, c_int) -> c_int>(open),
            ioctl: transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int>(ioctl),
            poll: transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(poll),
            map: transmute::<*mut c_void, unsafe extern "C" fn(c_int, u64, u64, c_int, c_int, i64) -> c_int>(map),
            release: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, usize) -> c_int>(release),
        })
    }
}
