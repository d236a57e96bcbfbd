//! Memory and events of other processes. Handles come and go by value, so what of them is read is known to be there.

use std::ffi::c_uint;

use deepum_core::units::DevAddr;
use deepum_emu_device::error::CuError;
use deepum_emu_device::ipc::HANDLE;
use deepum_emu_device::machine::{Cost, machine};

use crate::current;
use crate::edge::{Out, api, twins};
use crate::handle::Event;

/// `CUipcMemHandle`, `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle([u8; HANDLE]);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, without which nothing is opened (driver API reference).
const LAZY_PEER_ACCESS: c_uint = 1;

api! {
    fn cuIpcGetMemHandle(out: Out<Handle>, pointer: u64) {
        out.put(Handle(machine()?.call(Cost::Call, |call| {
            call.permitted()?;
            call.ipc_memory(DevAddr(pointer))
        })?))
    }

    fn cuIpcOpenMemHandle_v2(out: Out<u64>, handle: Handle, flags: c_uint) {
        if flags != LAZY_PEER_ACCESS || out.is_none() {
            return Err(CuError::InvalidValue);
        }
        out.put(machine()?.call(Cost::Call, |call| {
            current::device(call)?;
            call.permitted()?;
            call.open_memory(&handle.0)
        })?.0)
    }

    fn cuIpcCloseMemHandle(pointer: u64) {
        machine()?.call(Cost::Call, |call| {
            call.permitted()?;
            call.close_memory(DevAddr(pointer))
        })
    }

    fn cuIpcGetEventHandle(out: Out<Handle>, event: Event) {
        let id = event.get()?;
        out.put(Handle(machine()?.call(Cost::Call, |call| call.ipc_event(id))?))
    }

    fn cuIpcOpenEventHandle(out: Out<Event>, handle: Handle) {
        let id = machine()?.call(Cost::Call, |call| {
            current::device(call)?;
            call.open_event(&handle.0)
        })?;
        out.put(Event::of(id))
    }
}

twins! {
    fn cuIpcOpenMemHandle(out: Out<u64>, handle: Handle, flags: c_uint) = cuIpcOpenMemHandle_v2(out, handle, flags);
}
