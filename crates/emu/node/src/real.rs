//! The genuine functions: the next ones in the process's search order.

use std::ffi::CStr;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A slot for one function, looked up at its first use. A function that is not there is looked for again: libraries come.
#[derive(Debug)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Its address, if there is one.
    pub(crate) fn get(&self, name: &CStr) -> Option<*mut c_void> {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        // SAFETY: a C string; RTLD_NEXT is resolved for this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// `real!(name: type)`: the next function of this name.
macro_rules! real {
    ($name:ident: $type:ty) => {{
        static SLOT: $crate::real::Slot = $crate::real::Slot::new();
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero inside"),
            };
        // SAFETY: the C library's function of this name has this type (its headers).
        SLOT.get(NAME).map(|address| unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(address) })
    }};
}
pub(crate) use real;
