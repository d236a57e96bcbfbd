//! The driver's own log: there is nothing in it, so callbacks are taken and never called.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use deepum_emu_device::error::CuError;
use parking_lot::Mutex;

use crate::edge::{Out, api};

static CALLBACKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

api! {
    fn cuLogsRegisterCallback(function: *const c_void, _argument: *mut c_void, out: Out<usize>) {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if function.is_null() {
            return Err(CuError::InvalidValue);
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed) << 4;
        CALLBACKS.lock().push(handle);
        out.offer(handle);
        Ok(())
    }

    fn cuLogsUnregisterCallback(handle: usize) {
        let mut callbacks = CALLBACKS.lock();
        let found = callbacks.iter().position(|h| *h == handle).ok_or(CuError::InvalidHandle)?;
        callbacks.swap_remove(found);
        Ok(())
    }

    fn cuLogsCurrent(iterator: Out<c_uint>, flags: c_uint) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        iterator.put(0)
    }

    fn cuLogsDumpToMemory(iterator: Out<c_uint>, buffer: *mut u8, len: Out<usize>, flags: c_uint) {
        if flags != 0 {
            return Err(CuError::InvalidValue);
        }
        iterator.offer(0);
        if !buffer.is_null() {
            crate::edge::put_bytes(buffer, 1, &[0])?;
        }
        len.put(0)
    }
}
