//! What nvcc's start-up and exit code calls. None of these calls the driver, but to give back images
//! that were used.

use crate::driver::ask;
use crate::error::entry;
use crate::layout::Handle;
use crate::registry::{self, FatBinaryWrapper};
use std::ffi::{c_char, c_int, c_void};

/// Registers a fat binary by its wrapper, which stays where it is until it is unregistered.
///
/// # Safety
/// `wrapper` must be what nvcc emits: a wrapper and the image it points to, unchanged until unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const FatBinaryWrapper) -> *mut Handle {
    // SAFETY: the caller's promise; null is refused.
    let image = unsafe { wrapper.as_ref() }.and_then(FatBinaryWrapper::image);
    match image {
        Some(image) => registry::add_image(image),
        None => {
            crate::error::say("__cudaRegisterFatBinary was given something that is no fat binary wrapper");
            std::ptr::null_mut()
        }
    }
}

/// Ends the registration of an image. Nothing waits for it: images load when they are used.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_image: *mut Handle) {}

/// Forgets an image and what was registered for it; the driver's library goes too, if it was ever loaded.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(image: *mut Handle) {
    entry(|| registry::remove_image(image).map_or(Ok(()), |library| ask!(cuLibraryUnload(library))));
}

/// Registers a kernel: `host` is its address in the program, `name` its mangled name in the image. The thread limit and the
/// launch shapes after it have been null since CUDA 4.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFunction(
    image: *mut Handle,
    host: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _shapes: *mut c_void,
) {
    registry::add_function(image, host, name);
}

/// Registers a `__device__` or `__constant__` variable. Nothing is remembered of it: the functions that ask for the address of a
/// variable are refused by name.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterVar(
    _image: *mut Handle,
    _host: *const c_void,
    _device_address: *mut c_char,
    _name: *const c_char,
) {
}

/// Makes the `__managed__` variables of an image reachable from the host; not 0 if they are. There are none: a program that has
/// some does not load, as `__cudaRegisterManagedVar` is missing.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_image: *mut Handle) -> c_char {
    1
}
