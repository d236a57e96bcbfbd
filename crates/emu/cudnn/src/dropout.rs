//! Dropout descriptors: a rate, and where the random number generators are. Recurrent networks take one.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::kernels::DROPOUT_INIT;
use deepum_emu_abi::params::{Class, Operand};

use crate::descriptors::{change, lifetimes};
use crate::handle::Handle;
use crate::status::{Outcome, Status};

/// Bytes of generator state. An assumption, the library does not document its own: 16 Ki generators of 64 bytes
/// (`curandStatePhilox4_32_10_t`).
const STATES: usize = 1 << 20;

/// `cudnnDropoutDescriptor_t`.
#[derive(Debug, Default)]
pub struct DropoutDescriptor {
    rate: f32,
}

lifetimes! {
    DropoutDescriptor: fn cudnnCreateDropoutDescriptor, fn cudnnDestroyDropoutDescriptor;
}

impl DropoutDescriptor {
    /// Whether anything is dropped.
    pub fn drops(&self) -> bool {
        self.rate > 0.0
    }

    fn set(&mut self, rate: f32, states: *const c_void, bytes: usize) -> Outcome {
        if !(0.0..=1.0).contains(&rate) || (!states.is_null() && bytes < STATES) {
            return Err(Status::BadParam);
        }
        self.rate = rate;
        Ok(())
    }
}

/// Size of the generators' memory.
///
/// # Safety
/// `size` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnDropoutGetStatesSize(_handle: *mut Handle, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe { Status::put(size, STATES) })
}

/// Sets the rate and starts the generators in `states`; null for no dropout.
///
/// # Safety
/// `dropout` and `handle` are null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetDropoutDescriptor(
    dropout: *mut DropoutDescriptor,
    handle: *mut Handle,
    rate: f32,
    states: *mut c_void,
    bytes: usize,
    _seed: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        change(dropout, |dropout| {
            dropout.set(rate, states, bytes)?;
            let room = Operand::write(states.addr() as u64, 1, &[(STATES as u64, 1)]);
            if states.is_null() {
                return Ok(());
            }
            Status::get(handle)?.launch::<{ DROPOUT_INIT.operands }>(
                DROPOUT_INIT,
                STATES as u64,
                0.0,
                Class::Fp32,
                &[room],
            )
        })
    }
}

/// Sets the rate, with generators that an earlier [`cudnnSetDropoutDescriptor`] started.
///
/// # Safety
/// `dropout` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnRestoreDropoutDescriptor(
    dropout: *mut DropoutDescriptor,
    _handle: *mut Handle,
    rate: f32,
    states: *mut c_void,
    bytes: usize,
    _seed: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { change(dropout, |dropout| dropout.set(rate, states, bytes)) }
}
