//! Finding the genuine functions.
//!
//! Problem: the next definition in the global scope (`RTLD_NEXT`) is only there for libraries opened globally. PyTorch opens
//! cuBLAS and cuDNN locally, the driver comes by `dlopen` in local scope, and nothing of it is loaded when we are (facts 20.2).
//!
//! Idea: look at the first call, first with `RTLD_NEXT`, then in every loaded library whose file name starts as the
//! row's library does (`libcudart-e409450e.so.11.0` is one). A success is kept, a failure is not: the library may come
//! later. The handle stays open, so that an address we keep stays valid.
//!
//! Invariant: every direct look-up of ours goes through [`real_dlsym`], never through the exported `dlsym`, which is our own.

use crate::abi::{SUCCESS, Status};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a genuine function lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lib {
    Cuda,
    Cudart,
    Cublas,
    CublasLt,
    Cudnn,
    C10,
}

impl Lib {
    /// How its file name starts.
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Cuda => b"libcuda.so",
            Self::Cudart => b"libcudart",
            // Both in either: a file that serves as both is listed under the first name it was opened by.
            Self::Cublas | Self::CublasLt => b"libcublas",
            Self::Cudnn => b"libcudnn",
            Self::C10 => b"libc10.so",
        }
    }

    /// Whether it is several files, the first of which looks its functions up in the others under the same names: those look-ups are not the program's, and answered with ours
    /// the first file would call itself through us for ever (cuDNN 9, facts 20.2).
    pub const fn forwards(self) -> bool {
        matches!(self, Self::Cudnn)
    }

    /// Whether a function is this library's own.
    pub fn has(self, function: *const c_void) -> bool {
        file_of(function).is_some_and(|(file, _)| file.starts_with(self.prefix()))
    }
}

/// File name and load address of the library that an address lies in.
pub fn file_of(address: *const c_void) -> Option<(Vec<u8>, usize)> {
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the result is ours.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: on success the name is a C string of a loaded library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((file_name(path).to_owned(), info.dli_fbase as usize))
}

fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|&b| b == b'/').next().unwrap_or_default()
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

static DLSYM: AtomicUsize = AtomicUsize::new(0);

/// Address of the C library's `dlsym`; 0 if it has none, which no glibc is.
pub fn real_dlsym_address() -> usize {
    match DLSYM.load(Ordering::Relaxed) {
        0 => find_dlsym(),
        found => found,
    }
}

#[cold]
fn find_dlsym() -> usize {
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5"] {
        // SAFETY: both strings end in NUL. `dlvsym` is not interposed by us.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            DLSYM.store(found as usize, Ordering::Relaxed);
            return found as usize;
        }
    }
    0
}

/// The C library's `dlsym`, called from here.
pub fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let address = real_dlsym_address();
    if address == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the address is that of glibc's dlsym, which has this type.
    let dlsym: Dlsym = unsafe { std::mem::transmute::<usize, Dlsym>(address) };
    // SAFETY: the name ends in NUL; any handle is answered, an unknown one with NULL.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// The genuine `name`, or null if its library is not loaded (or lacks it).
#[cold]
pub fn find(lib: Lib, name: &CStr) -> *mut c_void {
    let next = real_dlsym(libc::RTLD_NEXT, name);
    if !next.is_null() {
        return next;
    }
    for path in loaded(lib.prefix()) {
        // SAFETY: the path ends in NUL; RTLD_NOLOAD runs no constructor.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if handle.is_null() {
            continue;
        }
        let found = real_dlsym(handle, name);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the handle is the one just opened.
        unsafe { libc::dlclose(handle) };
    }
    std::ptr::null_mut()
}

/// Paths of the loaded libraries whose file name starts with `prefix`.
fn loaded(prefix: &[u8]) -> Vec<CString> {
    struct Search<'a> {
        prefix: &'a [u8],
        found: Vec<CString>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the Search below, used by nobody else while the linker calls us.
        let search = unsafe { &mut *data.cast::<Search<'_>>() };
        // SAFETY: the linker hands in a valid record.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: a name in it is a C string.
            let path = unsafe { CStr::from_ptr(name) };
            if file_name(path).starts_with(search.prefix) {
                search.found.push(path.to_owned());
            }
        }
        0
    }
    let mut search = Search { prefix, found: Vec::new() };
    // SAFETY: the callback has the right type and does not unwind (it only allocates); `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// A slot for one genuine function of type `F`, which must be a function pointer.
pub struct Real<F> {
    lib: Lib,
    name: &'static CStr,
    address: AtomicUsize,
    of: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The genuine `name` of `lib`, not looked up yet.
    pub const fn new(lib: Lib, name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<usize>());
        Self { lib, name, address: AtomicUsize::new(0), of: PhantomData }
    }

    /// The function, if its library is loaded and has it.
    #[inline]
    pub fn get(&self) -> Option<F> {
        let address = self.address();
        // SAFETY: not 0, so it is the address of the named function, whose C type the writer of the slot stated as F;
        // F has the size of an address (checked in `new`).
        (address != 0).then(|| unsafe { std::mem::transmute_copy::<usize, F>(&address) })
    }

    /// Its address, or 0.
    #[inline]
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.look_up(),
            known => known,
        }
    }

    #[cold]
    fn look_up(&self) -> usize {
        let found = find(self.lib, self.name) as usize;
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// A genuine function that is called by us and not interposed: `genuine!(Cuda, "cuCtxGetDevice", fn(*mut Dev) -> Status)`
/// is an `Option` of it.
macro_rules! genuine {
    ($lib:ident, $name:literal, fn($($t:ty),*) -> $ret:ty) => {{
        type F = unsafe extern "C" fn($($t),*) -> $ret;
        static REAL: $crate::real::Real<F> = $crate::real::Real::new(
            $crate::real::Lib::$lib,
            // A name without an inner NUL; checked when this is compiled.
            match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol name holds a NUL"),
            },
        );
        REAL.get()
    }};
}
pub(crate) use genuine;

/// The runtime's last error on this thread, to be left as it was by calls of ours that may fail.
pub struct LastError(Option<Status>);

impl LastError {
    /// As it is now.
    pub fn now() -> Self {
        let peek = genuine!(Cudart, "cudaPeekAtLastError", fn() -> Status);
        // SAFETY: takes nothing, changes nothing.
        Self(peek.map(|peek| unsafe { peek() }))
    }

    /// Takes away what was added since. An error that was there before stays, if only by another number.
    pub fn restore(&self) {
        if self.0 == Some(SUCCESS)
            && let Some(clear) = genuine!(Cudart, "cudaGetLastError", fn() -> Status)
        {
            // SAFETY: takes nothing; clears the error that our own call left.
            unsafe { clear() };
        }
    }
}
