//! Memory that goes to other processes (CUDA IPC), which managed memory cannot do.
//!
//! Problem: what a program exports (`torch.multiprocessing` shares tensors so) is memory of `cudaMalloc`, which we made managed, and the driver
//! exports no managed memory (facts 4.6).
//! Idea: at its export such memory becomes memory of its device at the same address ([`change`]), of the kind that a descriptor can be had for
//! ([`physical`]), as far as its addresses are its own ([`crate::apart`]). That is rare, and waits for the GPU; it cannot leave the GPU from then on. To the engine it is freed; how much
//! less fits beside it, the engine finds out as with any memory of the device that is not managed.
//! The handle that the program gets is ours: magic, process, number, size, secret. Whoever opens such a handle asks the
//! exporter for the descriptor ([`deepum_engine::exports`]) and maps the memory; all other handles are CUDA's.
//!
//! As CUDA has it: a handle is of a whole allocation, whatever pointer into it was named, and opens as its beginning; opened again, it is where it is, until
//! it was closed as often; the exporter itself cannot open it; and what is freed by the exporter lives on where it is open, which CUDA does not even promise.
//!
//! Only the driver's functions are interposed: the runtime's go through them (facts 20.3). Once the shim is off, what is freed or
//! closed stays where it is, and nobody gets it again.
//!
//! Not here: events of other processes, which are CUDA's; memory of pools, which CUDA exports by other functions.

mod change;
mod exported;
mod opened;
mod physical;

use crate::abi::{DevPtr, IpcHandle, OUT_OF_MEMORY, SUCCESS, Status};
use crate::{log, pools, registry};
use change::Stays;
use deepum_core::units::{Bytes, DevAddr, DeviceId};
use deepum_engine::exports::Ticket;
use std::ffi::c_uint;

/// How a handle of ours begins. CUDA's begin with other bytes (those of real drivers hold a process number and kernel handles).
const MAGIC: [u8; 8] = *b"DeepUM\x001";

/// What a handle of ours says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Handle {
    pid: u32,
    /// As the exporter's program asked for it.
    len: Bytes,
    ticket: Ticket,
}

impl Handle {
    fn to_cuda(self) -> IpcHandle {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.ticket.number.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.ticket.secret);
        IpcHandle(bytes)
    }

    /// Nothing for a handle that is not ours.
    fn of_cuda(handle: &IpcHandle) -> Option<Self> {
        let bytes = &handle.0;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let secret = *bytes[32..].first_chunk()?;
        let found = Self {
            pid: bytes[8..].first_chunk().map(|pid| u32::from_le_bytes(*pid))?,
            len: Bytes(word(16)?),
            ticket: Ticket { number: word(24)?, secret },
        };
        // Every byte is as we write it, or it is none of ours.
        (found.to_cuda() == *handle).then_some(found)
    }
}

/// Bytes of a device that are exported: they are on it for good.
pub fn exported_bytes(device: DeviceId) -> Bytes {
    exported::bytes(device)
}

/// Of all devices.
pub fn all_exported_bytes() -> Bytes {
    exported::all_bytes()
}

/// What was asked for of the exported or opened memory around `at`.
pub fn asked(at: DevAddr) -> Option<Bytes> {
    exported::asked(at).or_else(|| opened::asked(at))
}

/// For the free of an address: whether it was exported memory, which is free now.
pub fn free(at: DevPtr) -> Option<Status> {
    exported::free(DevAddr(at))
}

/// `cuIpcGetMemHandle`.
pub struct GetMemHandle;

impl GetMemHandle {
    /// Of managed memory that we made: ours. Where that cannot be, CUDA says that it cannot.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut IpcHandle, DevPtr) -> Status,
        out: *mut IpcHandle,
        at: DevPtr,
    ) -> Status {
        // SAFETY: the program's own call.
        let cudas = || unsafe { real(out, at) };
        let addr = DevAddr(at);
        if out.is_null() || pools::owns(at) || !exported::holds(addr) && registry::made_by_us(addr).is_none() {
            return cudas();
        }
        match exported::export(addr) {
            Ok(handle) => {
                // SAFETY: not null, and the program's own place for the result.
                unsafe { out.write_unaligned(handle.to_cuda()) };
                SUCCESS
            }
            Err(Stays::Full) => {
                log::once!(
                    "memory cannot be shared between processes by CUDA IPC where it does not fit on the GPU together with all that is shared \
                     already: the program gets CUDA's out-of-memory"
                );
                OUT_OF_MEMORY
            }
            Err(Stays::Because(why)) => {
                let status = cudas();
                log::once!(
                    "managed memory cannot be shared between processes by CUDA IPC here: {why} (error {status}); DEEPUM=0 runs this \
                     program without DeepUM"
                );
                status
            }
        }
    }
}

/// `cuIpcOpenMemHandle`, in both its forms.
pub struct OpenMemHandle;

impl OpenMemHandle {
    /// Ours, or CUDA's.
    pub unsafe fn instead(
        real: unsafe extern "C-unwind" fn(*mut DevPtr, IpcHandle, c_uint) -> Status,
        out: *mut DevPtr,
        handle: IpcHandle,
        flags: c_uint,
    ) -> Status {
        /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, which must be given.
        const LAZY_PEER_ACCESS: c_uint = 1;
        const INVALID_VALUE: Status = 1;
        match Handle::of_cuda(&handle) {
            // SAFETY: the program's own call.
            None => unsafe { real(out, handle, flags) },
            Some(_) if out.is_null() || flags != LAZY_PEER_ACCESS => INVALID_VALUE,
            Some(handle) => match opened::open(handle) {
                Ok(at) => {
                    // SAFETY: not null, and the program's own place for the result.
                    unsafe { *out = at.0 };
                    SUCCESS
                }
                Err(status) => status,
            },
        }
    }
}

/// `cuIpcCloseMemHandle`.
pub struct CloseMemHandle;

impl CloseMemHandle {
    /// What we opened.
    pub unsafe fn ours(_: unsafe extern "C-unwind" fn(DevPtr) -> Status, at: DevPtr) -> Option<Status> {
        opened::close(DevAddr(at))
    }
    /// The rest is CUDA's.
    pub unsafe fn before(_: DevPtr) -> Option<()> {
        None
    }
    /// As above.
    pub fn after((): (), _: Status) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written_and_no_other_is_ours() {
        let handle = Handle { pid: 77, len: Bytes::mib(4), ticket: Ticket { number: 3, secret: *b"secret secret se" } };
        let written = handle.to_cuda();
        assert_eq!(Handle::of_cuda(&written), Some(handle));
        for at in (0..8).chain(12..16).chain(48..64) {
            let mut other = written;
            other.0[at] ^= 1;
            assert_eq!(Handle::of_cuda(&other), None, "byte {at}");
        }
        assert_eq!(Handle::of_cuda(&IpcHandle([0; 64])), None);
    }
}
