//! The doors that hand out addresses, answered from the same table as the link symbols.
//!
//! `dlsym`: the real one looks at its return address to know what "next" means, so the exported one is a stub that asks
//! [`answer`] and then either returns ours or *jumps* to the real one with everything as it was. What is asked with
//! `RTLD_NEXT` always goes on: a caller behind us in the chain of interposers wants what is behind it, and would call itself
//! through us for ever.
//!
//! `cuGetProcAddress` and the runtime's entry-point getters: the driver answers first, so a function it lacks stays
//! missing; then its answer is exchanged for ours if the table has that very variant.
//!
//! Invariant: a name is answered with ours only if the genuine function is there, and only in its place: another library's
//! own function of the same name is left alone.
//!
//! Not here: `dlvsym`, which nobody reaches CUDA by.

use crate::abi::{Ptr, SUCCESS, Status};
use crate::fence::anywhere;
use crate::interpose::Entry;
use crate::real::{Lib, genuine, real_dlsym, real_dlsym_address};
use crate::{stage, symbols};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// What the stub does next: returned in two registers.
#[repr(C)]
pub struct Answer {
    /// What to return, if there is nowhere to jump.
    found: *mut c_void,
    /// Where to jump; 0 is "return".
    jump: usize,
}

/// The exported `dlsym`.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // Both arguments are kept over the call; with the return address that is 24 bytes, and 8 more align the stack.
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {answer}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "ret",
        "2: jmp rdx",
        answer = sym answer,
    )
}

unsafe extern "C" fn answer(handle: *mut c_void, name: *const c_char) -> Answer {
    let go_on = Answer { found: std::ptr::null_mut(), jump: real_dlsym_address() };
    if handle == libc::RTLD_NEXT || name.is_null() {
        return go_on;
    }
    // SAFETY: dlsym's contract: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(entry) = entry(name) else { return go_on };
    match anywhere(|| look(handle, name, entry)) {
        Some(found) => Answer { found, jump: 0 },
        // Off: the C library answers, but where it would find us and nobody else.
        None if stage::is_off() && (entry.genuine)() == 0 => Answer { found: look(handle, name, entry), jump: 0 },
        None => go_on,
    }
}

fn look(handle: *mut c_void, name: &CStr, entry: &Entry) -> *mut c_void {
    let (ours, genuine) = ((entry.ours)() as *mut c_void, (entry.genuine)());
    // Behind our own look-ups, so that dlerror speaks of the program's.
    let found = real_dlsym(handle, name);
    if found == ours && genuine == 0 {
        // The global scope begins with us; behind us there is nobody, which is the program's to hear.
        real_dlsym(libc::RTLD_NEXT, name)
    } else if found == ours
        || genuine != 0 && entry.lib.has(found) && (!entry.lib.forwards() || found as usize == genuine)
    {
        ours
    } else {
        // Nothing, or some other library's own function of that name.
        found
    }
}

/// The row of an exported name.
fn entry(name: &CStr) -> Option<&'static Entry> {
    let bytes = name.to_bytes();
    // Nearly every look-up of a program is for something else.
    if !(bytes.starts_with(b"cu") || bytes.starts_with(b"__cu") || bytes.starts_with(b"_ZN3c10")) {
        return None;
    }
    symbols::rows().find(|e| e.name == name)
}

/// The newest CUDA version whose variants of our rows were checked (as libcudart 13.2 requests them, facts 20.3).
const CHECKED: u32 = 13_020;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// Ours for a driver function that was asked for by its base name and answered with `real`.
fn driver_entry(name: &CStr, version: u32, per_thread: bool, real: Ptr) -> Option<&'static Entry> {
    let base = name.to_bytes();
    let rows = || symbols::rows().filter(|e| e.lib == Lib::Cuda && variant_of(e.name.to_bytes(), base));
    if let Some(same) = rows().find(|e| (e.genuine)() == real as usize) {
        return Some(same);
    }
    // The driver may hand out other addresses than its exports; then the version says which variant was meant.
    if version > CHECKED {
        return None;
    }
    let twin = |e: &&Entry| without_twin(e.name.to_bytes()).is_some();
    let newest = |twins: bool| rows().filter(move |e| twin(e) == twins && e.since <= version).max_by_key(|e| e.since);
    per_thread.then(|| newest(true)).flatten().or_else(|| newest(false))
}

/// The name of a function for per-thread default streams without what makes it one.
fn without_twin(symbol: &[u8]) -> Option<&[u8]> {
    symbol.strip_suffix(b"_ptsz").or_else(|| symbol.strip_suffix(b"_ptds"))
}

/// Whether `symbol` is `base`, or `base` with a version, a `_ptsz` or a `_ptds` behind it.
fn variant_of(symbol: &[u8], base: &[u8]) -> bool {
    symbol.strip_prefix(base).is_some_and(|rest| {
        let rest = without_twin(rest).unwrap_or(rest);
        matches!(rest, b"" | b"_v2" | b"_v3" | b"_v4")
    })
}

/// Exchanges the driver's answer for ours.
///
/// # Safety
/// `name` is a C string or null, `out` the place of the answer or null.
unsafe fn exchange(status: Status, name: *const c_char, out: *mut Ptr, version: u32, per_thread: bool) -> Status {
    if status != SUCCESS || name.is_null() || out.is_null() {
        return status;
    }
    // SAFETY: the driver has just written there.
    let real = unsafe { *out };
    // SAFETY: not null, so a C string.
    let name = unsafe { CStr::from_ptr(name) };
    if !real.is_null()
        && !symbols::rows().any(|e| (e.ours)() == real as usize)
        && let Some(entry) = driver_entry(name, version, per_thread, real)
        && (entry.genuine)() != 0
    {
        // SAFETY: as above.
        unsafe { *out = (entry.ours)() as Ptr };
    }
    status
}

/// `cuGetProcAddress` before CUDA 12.
pub struct GetProcAddress;

impl GetProcAddress {
    /// The driver's answer, exchanged.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*const c_char, *mut Ptr, c_int, u64) -> Status,
        name: *const c_char,
        out: *mut Ptr,
        version: c_int,
        flags: u64,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(name, out, version, flags) };
        // SAFETY: the program's own arguments.
        unsafe { exchange(status, name, out, version.unsigned_abs(), flags & PER_THREAD != 0) }
    }
}

/// `cuGetProcAddress` since CUDA 12.
pub struct GetProcAddressV2;

impl GetProcAddressV2 {
    /// The driver's answer, exchanged.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*const c_char, *mut Ptr, c_int, u64, *mut c_int) -> Status,
        name: *const c_char,
        out: *mut Ptr,
        version: c_int,
        flags: u64,
        found: *mut c_int,
    ) -> Status {
        // SAFETY: the program's own call.
        let status = unsafe { real(name, out, version, flags, found) };
        // SAFETY: the program's own arguments.
        unsafe { exchange(status, name, out, version.unsigned_abs(), flags & PER_THREAD != 0) }
    }
}

/// What the runtime makes of its flags: those of 0 mean what its caller was compiled for.
const fn per_thread(flags: u64, default: bool) -> bool {
    if flags == 0 { default } else { flags & PER_THREAD != 0 }
}

/// The version that the runtime itself asks for.
pub fn runtime_version() -> u32 {
    let mut version = 0;
    let get = genuine!(Cudart, "cudaRuntimeGetVersion", fn(*mut c_int) -> Status);
    // SAFETY: the result is ours.
    let known = get.is_some_and(|get| unsafe { get(&raw mut version) } == SUCCESS);
    if known { version.unsigned_abs() } else { CHECKED }
}

macro_rules! entry_points {
    ($($(#[doc = $doc:literal])+ $plain:ident, $by_version:ident: $default:literal;)*) => {$(
        $(#[doc = $doc])+
        pub struct $plain;

        impl $plain {
            /// The runtime's answer, exchanged. Before CUDA 12 there is no `found`; a register more does no harm.
            pub unsafe fn instead(
                real: unsafe extern "C-unwind" fn(*const c_char, *mut Ptr, u64, *mut c_int) -> Status,
                name: *const c_char,
                out: *mut Ptr,
                flags: u64,
                found: *mut c_int,
            ) -> Status {
                // SAFETY: the program's own call.
                let status = unsafe { real(name, out, flags, found) };
                // SAFETY: the program's own arguments.
                unsafe { exchange(status, name, out, runtime_version(), per_thread(flags, $default)) }
            }
        }

        $(#[doc = $doc])+
        pub struct $by_version;

        impl $by_version {
            /// The runtime's answer, exchanged.
            pub unsafe fn instead(
                real: unsafe extern "C-unwind" fn(*const c_char, *mut Ptr, c_uint, u64, *mut c_int) -> Status,
                name: *const c_char,
                out: *mut Ptr,
                version: c_uint,
                flags: u64,
                found: *mut c_int,
            ) -> Status {
                // SAFETY: the program's own call.
                let status = unsafe { real(name, out, version, flags, found) };
                // SAFETY: the program's own arguments.
                unsafe { exchange(status, name, out, version, per_thread(flags, $default)) }
            }
        }
    )*};
}
entry_points! {
    /// `cudaGetDriverEntryPoint(ByVersion)`.
    EntryPoint, EntryPointByVersion: false;
    /// The same from code compiled for per-thread default streams.
    EntryPointPerThread, EntryPointByVersionPerThread: true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_told_from_other_functions() {
        for (symbol, base, is) in [
            ("cuMemAlloc_v2", "cuMemAlloc", true),
            ("cuLaunchKernel_ptsz", "cuLaunchKernel", true),
            ("cuStreamBeginCapture_v2_ptsz", "cuStreamBeginCapture", true),
            ("cuLaunchKernelEx", "cuLaunchKernel", false),
            ("cuMemAllocAsync", "cuMemAlloc", false),
            ("cuGetProcAddress_v2", "cuGetProcAddress", true),
            ("cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoH", true),
            ("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoH", false),
        ] {
            assert_eq!(variant_of(symbol.as_bytes(), base.as_bytes()), is, "{symbol} of {base}");
        }
    }

    #[test]
    fn the_variant_follows_version_and_default_stream() {
        let unknown = 1 as Ptr;
        let found = |name: &CStr, version, per_thread| {
            driver_entry(name, version, per_thread, unknown).map(|e| e.name.to_str().unwrap())
        };
        assert_eq!(found(c"cuMemAlloc", 3020, false), Some("cuMemAlloc_v2"));
        assert_eq!(found(c"cuMemAlloc", 2000, false), None);
        assert_eq!(found(c"cuLaunchKernel", 4000, false), Some("cuLaunchKernel"));
        assert_eq!(found(c"cuLaunchKernel", 7000, true), Some("cuLaunchKernel_ptsz"));
        assert_eq!(found(c"cuLaunchKernel", 4000, true), Some("cuLaunchKernel"));
        assert_eq!(found(c"cuGetProcAddress", 12000, false), Some("cuGetProcAddress_v2"));
        assert_eq!(found(c"cuGetProcAddress", 11030, false), Some("cuGetProcAddress"));
        assert_eq!(found(c"cuLaunchKernel", CHECKED + 10, false), None);
        assert_eq!(found(c"cuMemcpyDtoH", 7000, true), Some("cuMemcpyDtoH_v2_ptds"));
        assert_eq!(found(c"cuMemcpyDtoH", 6050, true), Some("cuMemcpyDtoH_v2"));
        assert_eq!(found(c"cuMemcpyBatchAsync", 12_080, true), Some("cuMemcpyBatchAsync_ptsz"));
        assert_eq!(found(c"cuMemcpyBatchAsync", 13_000, false), Some("cuMemcpyBatchAsync_v2"));
        assert_eq!(found(c"cuCtxCreate", 11_040, false), Some("cuCtxCreate_v3"));
        assert_eq!(found(c"cuCtxCreate", 13_000, false), Some("cuCtxCreate_v4"));
    }

    #[test]
    fn rows_are_there_once() {
        let mut names: Vec<_> = symbols::rows().map(|e| e.name).collect();
        names.sort();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
        assert!(symbols::rows().all(|e| (e.lib == Lib::Cuda) == (e.since > 0)), "a driver row says since when");
    }
}
