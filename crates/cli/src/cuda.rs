//! The CUDA driver as a program of ours calls it: found as every program finds it, function by function, failures by the driver's own name.
//!
//! Statuses stay numbers: a driver newer than this has some that are in no list of ours.

use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;

/// A call of the driver that failed, or the library that was not found.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Failed {
    pub call: String,
    pub status: i32,
    /// The driver's name for it.
    pub name: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.name)
    }
}

impl std::error::Error for Failed {}

/// The driver library.
#[derive(Debug)]
pub struct Cuda(Library);

impl Cuda {
    /// Opens it.
    pub fn find() -> Result<Self, Failed> {
        // SAFETY: its constructors are what every CUDA program runs.
        let library = unsafe { Library::new("libcuda.so.1") };
        library.map(Self).map_err(|error| Failed { call: "dlopen".to_owned(), status: 0, name: error.to_string() })
    }

    /// A function.
    ///
    /// # Safety
    /// It is of this type.
    pub unsafe fn get<F>(&self, name: &str) -> Result<Symbol<'_, F>, Failed> {
        // SAFETY: by contract.
        unsafe { self.0.get(name) }.map_err(|_| Failed {
            call: name.to_owned(),
            status: 0,
            name: "no such function".to_owned(),
        })
    }

    /// Whether a call succeeded.
    pub fn done(&self, call: &str, status: c_int) -> Result<(), Failed> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: of this type in every release of CUDA; the result is ours, and what it points to is the driver's own and lasts.
        let name = unsafe {
            match self.get::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>("cuGetErrorName") {
                Ok(name) if name(status, &raw mut text) == 0 && !text.is_null() => {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
                _ => format!("error {status}"),
            }
        };
        Err(Failed { call: call.to_owned(), status, name })
    }
}

/// Calls a function of the driver: its name, the types of its arguments, and the arguments.
macro_rules! call {
    ($cuda:expr, $name:ident($($value:expr => $type:ty),*)) => {{
        const NAME: &str = stringify!($name);
        // SAFETY: of this type in every release of CUDA since 11.4 (`cuda.h`); results are places of ours, as long as the driver is told.
        let status = unsafe { $cuda.get::<unsafe extern "C" fn($($type),*) -> ::std::ffi::c_int>(NAME)?($($value),*) };
        $cuda.done(NAME, status)
    }};
}

pub(crate) use call;
