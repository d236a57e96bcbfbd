//! Who wants to know what work does: each launch, copy and memset is told as it starts, with what it touches of managed memory and how long it takes
//! if nothing is missing. The launch of a graph is told when its nodes have run: what they touch is known then.
//!
//! For recording programs (ARCHITECTURE section 7). On a GPU nobody could say this, so nothing that decides may ask here: what is told
//! comes after the launch was issued and planned for, and changes nothing on the device.
//!
//! Work goes by its position in the order in which the host issued it. A thread learns the position of what it issued last from
//! [`issued`], right after its call.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use deepum_core::units::Nanos;

use crate::truth::{Access, Touch};

/// What is handed over with `deepumEmuWatch`; must stay valid until the process ends or null is handed over.
#[derive(Debug)]
#[repr(C)]
pub struct DeepumWatch {
    /// 1.
    pub abi: u32,
    /// 0.
    pub reserved: u32,
    /// Work starts: its position, how long it takes in ns, what it touches. Called inside a call of some thread of the program or the engine, which
    /// waits for it: it must not call the driver.
    pub work: Option<unsafe extern "C" fn(order: u64, ns: u64, touches: *const DeepumTouch, count: usize)>,
}

/// A touch, as it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct DeepumTouch {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// 0 reads; 1 writes all of it and needs nothing of what was there; 2 both, or in part.
    pub access: u32,
    /// As in `deepum_model::Touch`.
    pub phase: u32,
}

impl From<&Touch> for DeepumTouch {
    fn from(touch: &Touch) -> Self {
        let access = match touch.access {
            Access::Read => 0,
            Access::Write => 1,
            Access::Update => 2,
        };
        Self { start: touch.range.start.0, len: touch.range.len.0, access, phase: touch.phase }
    }
}

/// Who watches.
#[derive(Debug, Default)]
pub struct Watch(AtomicPtr<DeepumWatch>);

impl Watch {
    /// `watch` is told from now on (null: nobody is). False if it is of another version.
    ///
    /// # Safety
    /// `watch` is null or stays valid and unchanged for the rest of the process; its function may be called from any thread.
    pub unsafe fn set(&self, watch: *const DeepumWatch) -> bool {
        // SAFETY: valid or null, by our own contract.
        if let Some(given) = unsafe { watch.as_ref() }
            && (given.abi != 1 || given.reserved != 0 || given.work.is_none())
        {
            return false;
        }
        self.0.store(watch.cast_mut(), Ordering::Release);
        true
    }

    pub(crate) fn tell(&self, order: u64, time: Nanos, touches: &[Touch]) {
        // SAFETY: null, or valid for the rest of the process (contract of `set`).
        let watch = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        let Some(work) = watch.and_then(|watch| watch.work) else { return };
        let told: Vec<DeepumTouch> = touches.iter().map(Into::into).collect();
        let list = if told.is_empty() { ptr::null() } else { told.as_ptr() };
        // SAFETY: the list has so many entries for the length of the call; the function may be called from any thread.
        unsafe { work(order, time.0, list, told.len()) };
    }
}

thread_local! {
    static ISSUED: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn issued_now(order: u64) {
    ISSUED.set(order);
}

/// The position of what the calling thread issued last; 0 if it has issued nothing.
#[must_use]
pub fn issued() -> u64 {
    ISSUED.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::{AddrRange, Bytes, DevAddr};
    use std::sync::Mutex;

    static HEARD: Mutex<Vec<(u64, u64, Vec<DeepumTouch>)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn hear(order: u64, ns: u64, touches: *const DeepumTouch, count: usize) {
        // SAFETY: as the contract says.
        let list = if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(touches, count) }.to_vec() };
        HEARD.lock().unwrap().push((order, ns, list));
    }

    #[test]
    fn whoever_watches_is_told_until_it_is_nobody() {
        let watch = Watch::default();
        let hooks = DeepumWatch { abi: 1, reserved: 0, work: Some(hear) };
        let later = DeepumWatch { abi: 2, ..hooks };
        let touch = |start, access| Touch { range: AddrRange::new(DevAddr(start), Bytes(8)), access, phase: 3 };
        // SAFETY: both outlive `watch`.
        unsafe {
            assert!(!watch.set(&raw const later) && watch.set(&raw const hooks));
            watch.tell(7, Nanos(5), &[touch(64, Access::Write), touch(0, Access::Update)]);
            watch.tell(8, Nanos(6), &[]);
            assert!(watch.set(ptr::null()));
            watch.tell(9, Nanos(7), &[]);
        }
        let told = |start, access| DeepumTouch { start, len: 8, access, phase: 3 };
        assert_eq!(*HEARD.lock().unwrap(), [(7, 5, vec![told(64, 1), told(0, 2)]), (8, 6, Vec::new())]);
    }
}
