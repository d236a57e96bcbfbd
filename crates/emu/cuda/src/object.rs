//! User objects: what of the program lives as long as graphs do.

use std::ffi::{c_uint, c_void};

use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::graph::objects::Objects;
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::state::State;
use deepum_emu_device::work::HostFn;

use crate::edge::{Out, api};
use crate::handle::{Graph, Object};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which must be given; `CU_GRAPH_USER_OBJECT_MOVE`.
const NO_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

/// A change after which objects may be held by nobody: their functions are called when the call is over.
pub fn ending(f: impl FnOnce(&mut State) -> CuResult) -> CuResult {
    let (done, dead) = machine()?.call(Cost::Call, |call| {
        let done = f(&mut call.state);
        Ok((done, call.state.graphs.objects.take_dead()))
    })?;
    for HostFn { function, argument } in dead {
        // SAFETY: the program handed function and argument over for one call when nobody holds the object any more
        // (cuUserObjectCreate); it was taken off the list above, and no lock of ours is held.
        unsafe { function(argument) };
    }
    done
}

fn count_of(count: c_uint) -> CuResult<u64> {
    if count == 0 || count > c_uint::MAX / 2 { Err(CuError::InvalidValue) } else { Ok(u64::from(count)) }
}

fn object_id(object: Object) -> CuResult<u32> {
    object.get().map_err(|_| CuError::InvalidValue)
}

fn objects(f: impl FnOnce(&mut Objects) -> CuResult) -> CuResult {
    ending(|state| f(&mut state.graphs.objects))
}

api! {
    fn cuUserObjectCreate(
        out: Out<Object>, argument: *mut c_void, function: Option<unsafe extern "C" fn(*mut c_void)>, count: c_uint,
        flags: c_uint,
    ) {
        let (users, function) = (count_of(count)?, function.ok_or(CuError::InvalidValue)?);
        if flags != NO_SYNC {
            return Err(CuError::InvalidValue);
        }
        let end = HostFn { function, argument };
        out.put(Object::of(machine()?.call(Cost::Call, |call| Ok(call.state.graphs.objects.create(end, users)))?))
    }

    fn cuUserObjectRetain(object: Object, count: c_uint) {
        let (id, count) = (object_id(object)?, count_of(count)?);
        objects(|objects| objects.retain(id, count))
    }

    fn cuUserObjectRelease(object: Object, count: c_uint) {
        let (id, count) = (object_id(object)?, count_of(count)?);
        objects(|objects| objects.release(id, count))
    }

    /// The graph's references are new ones, or the caller's.
    fn cuGraphRetainUserObject(graph: Graph, object: Object, count: c_uint, flags: c_uint) {
        let (id, count) = (object_id(object)?, count_of(count)?);
        let graph = graph.get().map_err(|_| CuError::InvalidValue)?;
        if flags & !MOVE != 0 {
            return Err(CuError::InvalidValue);
        }
        ending(|state| {
            state.graphs.graph(graph)?;
            // Retained in any case: the object must exist.
            state.graphs.objects.retain(id, count)?;
            if flags == MOVE {
                state.graphs.objects.release(id, count)?;
            }
            *state.graphs.graph_mut(graph)?.held.entry(id).or_default() += count;
            Ok(())
        })
    }

    fn cuGraphReleaseUserObject(graph: Graph, object: Object, count: c_uint) {
        let (id, count) = (object_id(object)?, count_of(count)?);
        let graph = graph.get().map_err(|_| CuError::InvalidValue)?;
        ending(|state| {
            let held = &mut state.graphs.graph_mut(graph)?.held;
            let have = held.get_mut(&id).filter(|have| **have >= count).ok_or(CuError::InvalidValue)?;
            *have -= count;
            state.graphs.objects.release(id, count)
        })
    }
}
