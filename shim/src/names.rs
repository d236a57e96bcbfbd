//! What a kernel handle is: a name that is the same in every run, and where its parameters lie.
//!
//! Problem: a launch names its kernel by host function, `cudaKernel_t`, `CUfunction` or `CUkernel`, addresses that differ from
//! run to run, and hands in parameters without their sizes.
//!
//! Idea: at the first launch of a handle ask the driver for name and layout, and keep the answer in a table that
//! readers probe without a lock. The identity is a hash of the (mangled) name. Where the driver cannot say the name
//! (before CUDA 12.3) a host function is known by its file and its place in it, and anything else by its handle, which is
//! good for this run only. Where it cannot say the layout (before CUDA 12.4) parameters are not read at all (facts 4.5).
//!
//! Invariants: a kernel once published stays valid for good, and says itself which handle it belongs to, so that a reader never
//! takes one for another; what is leaked is one per handle and layout, however often it is learned. Before a module or a
//! context goes away all handles are forgotten, because a handle may come back as another kernel's.

use crate::abi::{Ptr, SUCCESS, Status};
use crate::real::{LastError, file_of, genuine};
use deepum_core::mix::Mix;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where one parameter lies in the parameter block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Param {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// What we know of a kernel.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kernel {
    /// What it is launched by.
    handle: u64,
    /// A hash of its name.
    pub identity: u64,
    /// Its name, as the driver says it, or what it is known by instead.
    pub name: Box<str>,
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

static TABLE: [AtomicPtr<Kernel>; PLACES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES];
/// All there ever were. The table is written under this lock.
static KNOWN: Mutex<BTreeSet<&'static Kernel>> = Mutex::new(BTreeSet::new());

/// The kernel behind a handle.
#[inline]
pub fn kernel(kind: Kind, handle: Ptr) -> &'static Kernel {
    find(handle as u64).unwrap_or_else(|| learn(kind, handle))
}

#[inline]
fn places(handle: u64) -> impl Iterator<Item = &'static AtomicPtr<Kernel>> {
    let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    // Past 64 steps the table counts as full: such a kernel is asked for at each launch.
    (0..64).map(move |i| &TABLE[(first + i) % PLACES])
}

#[inline]
fn find(handle: u64) -> Option<&'static Kernel> {
    // SAFETY: what a place points to was complete when it was published, and is never freed.
    let kernels = places(handle).map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    kernels.into_iter().find(|kernel| kernel.handle == handle)
}

fn known() -> MutexGuard<'static, BTreeSet<&'static Kernel>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn learn(kind: Kind, handle: Ptr) -> &'static Kernel {
    // Asked outside the lock: the driver may take its own.
    let asked = ask(kind, handle);
    let mut known = known();
    let kernel = known.get(&asked).copied().unwrap_or_else(|| {
        let new: &'static Kernel = Box::leak(Box::new(asked));
        known.insert(new);
        new
    });
    if find(kernel.handle).is_none()
        && let Some(place) = places(kernel.handle).find(|place| place.load(Ordering::Relaxed).is_null())
    {
        place.store(std::ptr::from_ref(kernel).cast_mut(), Ordering::Release);
    }
    kernel
}

/// Forgets every handle.
fn forget() {
    for place in known().iter().flat_map(|kernel| places(kernel.handle)) {
        place.store(std::ptr::null_mut(), Ordering::Relaxed);
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
    let (identity, name) = name.unwrap_or_else(|| {
        let identity = place_in_file(handle).unwrap_or_else(|| Mix::new().word(handle as u64).end());
        (identity, format!("kernel {identity:016x}").into())
    });
    Kernel { handle: handle as u64, identity, name, params }
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
    let last_error = LastError::now();
    let succeeded = call() == SUCCESS;
    if !succeeded {
        last_error.restore();
    }
    succeeded.then_some(())
}

fn function_name(function: Ptr) -> Option<(u64, Box<str>)> {
    named(genuine!(Cuda, "cuFuncGetName", fn(*mut *const c_char, Ptr) -> Status)?, function)
}

fn kernel_name(kernel: Ptr) -> Option<(u64, Box<str>)> {
    named(genuine!(Cuda, "cuKernelGetName", fn(*mut *const c_char, Ptr) -> Status)?, kernel)
}

/// A hash of the name, and the name.
fn named(get: unsafe extern "C" fn(*mut *const c_char, Ptr) -> Status, handle: Ptr) -> Option<(u64, Box<str>)> {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the handle is one the program is launching; a handle of the other kind is refused by the driver.
    if unsafe { get(&raw mut name, handle) } != SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: on success the driver hands out a C string that lives as long as the module.
    let name = unsafe { CStr::from_ptr(name) };
    Some((Mix::new().bytes(name.to_bytes()).end(), name.to_string_lossy().into()))
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
    let (file, base) = file_of(symbol)?;
    Some(Mix::new().bytes(&file).word((symbol as u64).wrapping_sub(base as u64)).end())
}

/// Modules go away.
pub struct Unload;

impl Unload {
    /// Forgotten first: once they are gone, another thread may be given the same handles for other kernels.
    pub unsafe fn before<T>(_: T) -> Option<()> {
        forget();
        None
    }
    /// Nothing more.
    pub fn after((): (), _: Status) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is no driver here: a handle is all that is known of a kernel.
    #[test]
    fn a_kernel_is_found_by_its_handle_and_learned_again_without_a_second_copy() {
        let of = |handle: usize| kernel(Kind::DriverHandle, handle as Ptr);
        let handles: Vec<usize> = (1..200).map(|n| n * 64).collect();
        let first: Vec<_> = handles.iter().map(|&h| of(h)).collect();
        for (&handle, kernel) in handles.iter().zip(&first) {
            assert_eq!(kernel.handle, handle as u64);
            assert!(find(handle as u64).is_some_and(|found| std::ptr::eq(found, *kernel)));
        }
        forget();
        assert!(handles.iter().all(|&h| find(h as u64).is_none()));
        assert!(handles.iter().zip(&first).all(|(&h, kernel)| std::ptr::eq(of(h), *kernel)));
    }
}
