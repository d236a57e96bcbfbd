//! What a kernel handle is: a name that is the same in every run, and where its parameters lie.
//!
//! Problem: a launch names its kernel by host function, `cudaKernel_t`, `CUfunction` or `CUkernel`, addresses that differ from
//! run to run, and hands in parameters without their sizes.
//!
//! Idea: at the first launch of a handle ask the driver for name and layout, and keep the answer in a table that
//! readers probe without a lock. The identity is a hash of the (mangled) name. Where the driver cannot say the name
//! (before CUDA 12.3) a host function is known by its file and its place in it, and anything else by its handle, which is
//! good for this run only. Where it cannot say the layout (before CUDA 12.4) parameters are not read at all.
//!
//! Invariants: an entry once published stays valid for good (kernels are leaked, one per handle); unloading a module forgets
//! all handles, because a handle may come back as another kernel's.

use crate::abi::{Ptr, SUCCESS, Status};
use crate::real::genuine;
use deepum_core::mix::Mix;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Where one parameter lies in the parameter block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Param {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// What we know of a kernel.
#[derive(PartialEq, Eq, Debug)]
pub struct Kernel {
    /// A hash of its name.
    pub identity: u64,
    /// Its parameters in order, if the driver says.
    pub params: Option<Box<[Param]>>,
}

/// How a door names kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A host function of the runtime API; a `cudaKernel_t` is allowed in its place.
    Symbol,
    /// A `cudaKernel_t`, which is a `CUkernel`.
    RuntimeHandle,
    /// A `CUfunction`; a `CUkernel` is allowed in its place.
    DriverHandle,
}

const PLACES: usize = 1 << 16;

struct Place {
    handle: AtomicU64,
    kernel: AtomicPtr<Kernel>,
}

static TABLE: [Place; PLACES] =
    [const { Place { handle: AtomicU64::new(0), kernel: AtomicPtr::new(std::ptr::null_mut()) } }; PLACES];
static WRITER: Mutex<()> = Mutex::new(());
static USED: AtomicBool = AtomicBool::new(false);

/// The kernel behind a handle.
#[inline]
pub fn kernel(kind: Kind, handle: Ptr) -> &'static Kernel {
    find(handle as u64).unwrap_or_else(|| learn(kind, handle))
}

#[inline]
fn places(handle: u64) -> impl Iterator<Item = &'static Place> {
    let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    // Past 64 steps the table counts as full: such a kernel is asked for at each launch.
    (0..64).map(move |i| &TABLE[(first + i) % PLACES])
}

#[inline]
fn find(handle: u64) -> Option<&'static Kernel> {
    for place in places(handle) {
        match place.handle.load(Ordering::Acquire) {
            0 => return None,
            h if h == handle => {
                // SAFETY: the pointer is written before the handle is published, and what it points to was leaked.
                return unsafe { place.kernel.load(Ordering::Relaxed).as_ref() };
            }
            _ => {}
        }
    }
    None
}

#[cold]
fn learn(kind: Kind, handle: Ptr) -> &'static Kernel {
    // Asked outside the lock: the driver may take its own.
    let kernel: &'static Kernel = Box::leak(Box::new(ask(kind, handle)));
    let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = find(handle as u64) {
        return known;
    }
    USED.store(true, Ordering::Relaxed);
    if let Some(place) = places(handle as u64).find(|p| p.handle.load(Ordering::Relaxed) == 0) {
        place.kernel.store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Relaxed);
        place.handle.store(handle as u64, Ordering::Release);
    }
    kernel
}

/// Forgets every handle.
fn forget() {
    if USED.swap(false, Ordering::Relaxed) {
        let _writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for place in &TABLE {
            place.handle.store(0, Ordering::Relaxed);
        }
    }
}

fn ask(kind: Kind, handle: Ptr) -> Kernel {
    let (name, params) = match kind {
        Kind::DriverHandle => (
            function_name(handle).or_else(|| kernel_name(handle)),
            function_params(handle).or_else(|| kernel_params(handle)),
        ),
        Kind::RuntimeHandle => (kernel_name(handle), kernel_params(handle)),
        Kind::Symbol => match kernel_of(handle) {
            Some(kernel) => (kernel_name(kernel), kernel_params(kernel)),
            None => match function_of(handle) {
                Some(function) => (function_name(function), function_params(function)),
                None => (None, None),
            },
        },
    };
    let identity = name.or_else(|| place_in_file(handle)).unwrap_or_else(|| Mix::new().word(handle as u64).end());
    Kernel { identity, params }
}

fn kernel_of(symbol: Ptr) -> Option<Ptr> {
    let mut kernel: Ptr = std::ptr::null_mut();
    let get = genuine!(Cudart, "cudaGetKernel", fn(*mut Ptr, Ptr) -> Status)?;
    // SAFETY: the symbol is the program's argument to a launch, which takes the same.
    succeeded(|| unsafe { get(&raw mut kernel, symbol) }).filter(|()| !kernel.is_null()).map(|()| kernel)
}

fn function_of(symbol: Ptr) -> Option<Ptr> {
    let mut function: Ptr = std::ptr::null_mut();
    let get = genuine!(Cudart, "cudaGetFuncBySymbol", fn(*mut Ptr, Ptr) -> Status)?;
    // SAFETY: the symbol is the program's argument to a launch, which takes the same.
    succeeded(|| unsafe { get(&raw mut function, symbol) }).filter(|()| !function.is_null()).map(|()| function)
}

/// Makes a call of the runtime, and leaves the program's last error as it was.
fn succeeded(call: impl FnOnce() -> Status) -> Option<()> {
    let peek = genuine!(Cudart, "cudaPeekAtLastError", fn() -> Status);
    // SAFETY: takes nothing, changes nothing.
    let before = peek.map(|peek| unsafe { peek() });
    if call() == SUCCESS {
        return Some(());
    }
    if before == Some(SUCCESS)
        && let Some(clear) = genuine!(Cudart, "cudaGetLastError", fn() -> Status)
    {
        // SAFETY: takes nothing; clears the error that our own call left.
        unsafe { clear() };
    }
    None
}

fn function_name(function: Ptr) -> Option<u64> {
    named(genuine!(Cuda, "cuFuncGetName", fn(*mut *const c_char, Ptr) -> Status)?, function)
}

fn kernel_name(kernel: Ptr) -> Option<u64> {
    named(genuine!(Cuda, "cuKernelGetName", fn(*mut *const c_char, Ptr) -> Status)?, kernel)
}

fn named(get: unsafe extern "C" fn(*mut *const c_char, Ptr) -> Status, handle: Ptr) -> Option<u64> {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the handle is one the program is launching; a handle of the other kind is refused by the driver.
    if unsafe { get(&raw mut name, handle) } != SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: on success the driver hands out a C string that lives as long as the module.
    Some(Mix::new().bytes(unsafe { CStr::from_ptr(name) }.to_bytes()).end())
}

type GetParam = unsafe extern "C" fn(Ptr, usize, *mut usize, *mut usize) -> Status;

fn function_params(function: Ptr) -> Option<Box<[Param]>> {
    params(genuine!(Cuda, "cuFuncGetParamInfo", fn(Ptr, usize, *mut usize, *mut usize) -> Status)?, function)
}

fn kernel_params(kernel: Ptr) -> Option<Box<[Param]>> {
    params(genuine!(Cuda, "cuKernelGetParamInfo", fn(Ptr, usize, *mut usize, *mut usize) -> Status)?, kernel)
}

fn params(get: GetParam, handle: Ptr) -> Option<Box<[Param]>> {
    /// `CUDA_ERROR_INVALID_VALUE`: no such parameter.
    const PAST_THE_LAST: Status = 1;
    /// Parameter block of a kernel (CUDA programming guide: 32,764 bytes since 12.1); so not more parameters either.
    const MOST: usize = 32_764;
    let mut list = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: as in `named`; both results are ours.
        match unsafe { get(handle, list.len(), &raw mut offset, &raw mut size) } {
            SUCCESS if list.len() < MOST && offset <= MOST && size <= MOST => list.push(Param { offset, size }),
            PAST_THE_LAST => return Some(list.into()),
            _ => return None,
        }
    }
}

/// A host function by its file and its place in it.
fn place_in_file(symbol: Ptr) -> Option<u64> {
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the result is ours.
    if unsafe { libc::dladdr(symbol, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: on success the name is a C string of a loaded library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let file = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    Some(Mix::new().bytes(file).word((symbol as u64).wrapping_sub(info.dli_fbase as u64)).end())
}

/// A module goes away.
pub struct Unload;

impl Unload {
    /// Nothing is known before.
    pub unsafe fn before(_: Ptr) -> Option<()> {
        Some(())
    }
    /// Handles may be given out again from here on.
    pub fn after((): (), _: Status) {
        forget();
    }
}
