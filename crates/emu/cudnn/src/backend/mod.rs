//! The graph interface: everything is a descriptor with numbered attributes.
//!
//! ```text
//! tensors ─► operations ─► operation graph ─► heuristic ─► engine configuration ─► execution plan ─┐
//!                                                        (device pointers by tensor) variant pack ─┴► execute
//! ```
//!
//! [`descriptor`] holds and checks attributes and knows what finalising derives; [`graph`] reads a finished operation graph: what it
//! reads, writes and computes, and which engines can run it. Here are the C functions.
//!
//! A program holds a descriptor by pointer and may destroy it once it has been set in another; so what is set is shared, not pointed to.

mod descriptor;
mod graph;
mod names;

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepum_emu_abi::edge::Failure;

use self::descriptor::{Descriptor, Value};
use self::names::{attr, kind, ty};
use crate::handle::Handle;
use crate::status::Status;

/// What `cudnnBackendDescriptor_t` points to.
#[derive(Debug)]
pub struct Slot(Mutex<std::sync::Arc<Descriptor>>);

impl Slot {
    fn get(&self) -> MutexGuard<'_, std::sync::Arc<Descriptor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a descriptor of a kind.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(kind: c_int, out: *mut *mut Slot) -> c_int {
    let slot = || Ok(Slot(Mutex::new(Descriptor::new(kind)?.into())));
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe { Status::create(out, slot) })
}

/// Destroys a descriptor; others that it was set in keep what they need.
///
/// # Safety
/// `slot` is null or live, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendDestroyDescriptor(slot: *mut Slot) -> c_int {
    // SAFETY: the caller's promise.
    Status::edge(|| unsafe { Status::destroy(slot) })
}

/// Sets an attribute of a descriptor that is not finalised.
///
/// # Safety
/// `slot` is null or live; `elements` is valid for reading `count` elements of the type named, descriptors among them live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    slot: *mut Slot,
    name: c_int,
    kind: c_int,
    count: i64,
    elements: *const c_void,
) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { Status::get(slot) }?;
        let count = usize::try_from(count).map_err(|_| Status::BadParam)?;
        if elements.is_null() && count > 0 {
            return Err(Status::NullPointer);
        }
        let value = if kind == ty::DESCRIPTOR {
            // SAFETY: the caller's promise.
            let pointers = unsafe { Status::array(elements.cast::<*const Slot>(), count) }?;
            let mut nodes = Vec::with_capacity(count);
            for pointer in pointers {
                // SAFETY: the caller's promise.
                nodes.push(unsafe { Status::get(pointer) }?.get().clone());
            }
            Value::Descriptors(nodes)
        } else {
            let bytes = ty::size(kind)?.checked_mul(count).ok_or(Status::BadParam)?;
            // SAFETY: the caller's promise.
            Value::Plain(kind, unsafe { Status::array(elements.cast::<u8>(), bytes) }?)
        };
        std::sync::Arc::make_mut(&mut slot.get()).set(name, value)
    })
}

/// Reads an attribute of a finalised descriptor. Without room for elements: how many there are. With room: as many as fit, and
/// how many that was. For descriptors the program brings created ones, which are filled.
///
/// # Safety
/// `slot` is null or live; `available` is null or valid; `elements` has room for `requested` elements, descriptors in it live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    slot: *const Slot,
    name: c_int,
    kind: c_int,
    requested: i64,
    available: *mut i64,
    elements: *mut c_void,
) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        let descriptor = unsafe { Status::get(slot) }?.get().clone();
        let value = descriptor.get(name, kind)?;
        let room = usize::try_from(requested).unwrap_or(0);
        let asks = elements.is_null() || room == 0;
        if !available.is_null() {
            // Programs that bring room take this for the number filled, and use that many.
            let count = if asks { value.count() } else { value.count().min(room) };
            // SAFETY: not null, so valid by the caller's promise.
            unsafe { Status::put(available, count as i64) }?;
        }
        if asks {
            return Ok(());
        }
        match value {
            Value::Plain(kind, bytes) => {
                let n = bytes.len().min(room.saturating_mul(ty::size(*kind)?));
                // SAFETY: `n` bytes are in `bytes`, and in the room the caller promises.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), elements.cast(), n) };
            }
            Value::Descriptors(nodes) => {
                // SAFETY: the caller's promise.
                let slots = unsafe { Status::array(elements.cast::<*const Slot>(), room.min(nodes.len())) }?;
                for (slot, node) in slots.into_iter().zip(nodes) {
                    // SAFETY: the caller's promise.
                    *unsafe { Status::get(slot) }?.get() = node.clone();
                }
            }
        }
        Ok(())
    })
}

/// Finalises a descriptor: checks it, and derives what can be asked of it.
///
/// # Safety
/// `slot` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendFinalize(slot: *mut Slot) -> c_int {
    // SAFETY: the caller's promise; handles inside attributes are live by the same contract.
    Status::edge(|| unsafe {
        let slot = Status::get(slot)?;
        std::sync::Arc::make_mut(&mut slot.get()).finalize()
    })
}

/// Runs an execution plan on the device pointers of a variant pack.
///
/// # Safety
/// Pointers are null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendExecute(handle: *mut Handle, plan: *const Slot, pack: *const Slot) -> c_int {
    Status::edge(|| {
        // SAFETY: the caller's promise.
        let (handle, plan, pack) =
            unsafe { (Status::get(handle)?, Status::get(plan)?.get().clone(), Status::get(pack)?.get().clone()) };
        pack.expect_kind(kind::VARIANT_PACK)?;
        let ids = pack.longs(attr::VARIANT_PACK_UNIQUE_IDS)?;
        let pointers = pack.longs(attr::VARIANT_PACK_DATA_POINTERS)?;
        if ids.len() != pointers.len() {
            return Err(Status::BadParam);
        }
        plan.plan()?.run(handle, |uid| {
            let at = ids.iter().position(|id| *id == uid)?;
            Some(std::ptr::without_provenance(usize::try_from(pointers[at].cast_unsigned()).ok()?))
        })
    })
}
