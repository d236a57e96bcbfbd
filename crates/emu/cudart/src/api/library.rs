//! Libraries: kernel images a program loads by hand.

use super::{export, put};
use crate::driver::{ask, drive};
use crate::layout::Handle;
use crate::registry;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

export! {
    fn cudaLibraryLoadData(
        out: *mut Handle, code: *const c_void,
        jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_int, option_values: *mut *mut c_void, option_count: c_uint
    ) {
        drive!(cuLibraryLoadData(out, code, jit, jit_values, jit_count, options, option_values, option_count))
    }

    fn cudaLibraryLoadFromFile(
        out: *mut Handle, file: *const c_char,
        jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint,
        options: *mut c_int, option_values: *mut *mut c_void, option_count: c_uint
    ) {
        drive!(cuLibraryLoadFromFile(out, file, jit, jit_values, jit_count, options, option_values, option_count))
    }

    fn cudaLibraryUnload(library: Handle) {
        drive!(cuLibraryUnload(library))
    }

    fn cudaLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char) {
        let mut kernel = null_mut();
        drive!(cuLibraryGetKernel(&raw mut kernel, library, name))?;
        registry::add_handle(kernel, kernel);
        // SAFETY: the program's own result address.
        unsafe { put(out, kernel) }
    }

    fn cudaLibraryGetKernelCount(out: *mut c_uint, library: Handle) {
        drive!(cuLibraryGetKernelCount(out, library))
    }

    fn cudaLibraryEnumerateKernels(kernels: *mut Handle, count: c_uint, library: Handle) {
        let mut there = 0;
        drive!(cuLibraryGetKernelCount(&raw mut there, library))?;
        let count = count.min(there);
        if count == 0 {
            return Ok(());
        }
        ask!(cuLibraryEnumerateKernels(kernels, count, library))?;
        for n in 0..count as usize {
            // SAFETY: the program's own array, of which the driver has just filled the first `count`.
            let kernel = unsafe { kernels.add(n).read() };
            registry::add_handle(kernel, kernel);
        }
        Ok(())
    }
}
