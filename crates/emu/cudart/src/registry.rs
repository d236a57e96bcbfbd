//! What nvcc's start-up code registers: fat binaries, and the host addresses that stand for their kernels.
//!
//! A PyTorch wheel registers hundreds of images and some 24,000 kernels at import (facts 20.5), so registering is one insertion
//! into a table. The driver hears of an image when something inside is first used: then it becomes a library
//! (`cuLibraryLoadData`), whose kernels are good for every device.
//!
//! No lock is held across a driver call, because whoever watches the driver may call the runtime. Two threads that first use
//! an image together may load it twice; the second library is given back.

use crate::driver::ask;
use crate::error::{Error, Result};
use crate::layout::Handle;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Address of something of the program's, or a handle of the driver's: a number until it is used.
type Address = usize;

/// The wrapper nvcc emits around each fat binary.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FatBinaryWrapper {
    magic: i32,
    version: i32,
    image: *const c_void,
    /// A file name or, for separately linked device code, the images it was linked from; not needed here.
    _origin: *const c_void,
}

impl FatBinaryWrapper {
    /// Public in the assembler that nvcc emits for host objects.
    const MAGIC: i32 = 0x4662_43b1;

    /// The image inside, if this is a wrapper.
    pub fn image(&self) -> Option<*const c_void> {
        (self.magic == Self::MAGIC && !self.image.is_null()).then_some(self.image)
    }
}

/// One registered fat binary.
#[derive(Debug)]
struct Image {
    address: Address,
    library: Option<Address>,
    /// Host addresses registered for it, so that it can be forgotten.
    functions: Vec<Address>,
}

/// A kernel: which image it is in, and the address of its C name there.
#[derive(Clone, Copy, Debug)]
struct Named {
    image: Address,
    name: Address,
    /// The driver's kernel, once asked for.
    kernel: Option<Address>,
}

#[derive(Default, Debug)]
struct Registry {
    images: HashMap<Address, Image>,
    functions: HashMap<Address, Named>,
    /// Kernels and functions handed out, which programs may pass where a host address is expected; each with its kernel.
    handles: HashMap<Address, Address>,
    next: Address,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers an image; returns the handle that names it from now on.
pub fn add_image(image: *const c_void) -> *mut Handle {
    let mut registry = write();
    registry.next += 16;
    let handle = registry.next;
    let image = Image { address: image as Address, library: None, functions: Vec::new() };
    registry.images.insert(handle, image);
    handle as *mut Handle
}

/// Remembers that `host` stands for the kernel `name` of an image.
pub fn add_function(image: *mut Handle, host: *const c_void, name: *const c_char) {
    let (image, host) = (image as Address, host as Address);
    let mut registry = write();
    if let Some(known) = registry.images.get_mut(&image) {
        known.functions.push(host);
        registry.functions.insert(host, Named { image, name: name as Address, kernel: None });
    }
}

/// Forgets an image and all that was registered for it; returns its library if it was ever loaded.
pub fn remove_image(image: *mut Handle) -> Option<Handle> {
    let mut registry = write();
    let image = registry.images.remove(&(image as Address))?;
    let kernels: HashSet<Address> =
        image.functions.iter().filter_map(|host| registry.functions.remove(host)?.kernel).collect();
    if !kernels.is_empty() {
        registry.handles.retain(|_, kernel| !kernels.contains(kernel));
    }
    image.library.map(|library| library as Handle)
}

/// Remembers a kernel, or a function of it, handed out, so that [`kernel`] takes it too.
pub fn add_handle(handle: Handle, kernel: Handle) {
    write().handles.insert(handle as Address, kernel as Address);
}

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: a registered image stays where it is until it is unregistered, so that the driver need not copy.
const BINARY_IS_PRESERVED: i32 = 1;

/// The library of an image, loaded on first use.
fn library(image: Address) -> Result<Handle> {
    let address = match read().images.get(&image) {
        Some(Image { library: Some(library), .. }) => return Ok(*library as Handle),
        Some(known) => known.address,
        None => return Err(Error::INVALID_RESOURCE_HANDLE),
    };
    let mut loaded = null_mut();
    let (mut option, mut value) = (BINARY_IS_PRESERVED, 1 as Handle);
    ask!(cuLibraryLoadData(
        &raw mut loaded,
        address as *const c_void,
        null_mut(),
        null_mut(),
        0,
        &raw mut option,
        &raw mut value,
        1
    ))?;
    let kept = {
        let mut registry = write();
        let known = registry.images.get_mut(&image).ok_or(Error::INVALID_RESOURCE_HANDLE)?;
        *known.library.get_or_insert(loaded as Address) as Handle
    };
    if kept != loaded {
        ask!(cuLibraryUnload(loaded))?;
    }
    Ok(kept)
}

/// The kernel that `function` stands for: a registered host address, or a kernel or function handed out before.
///
/// # Errors
/// `cudaErrorInvalidDeviceFunction` if it is neither, or if its image has no such kernel for the device.
pub fn kernel(function: *const c_void) -> Result<Handle> {
    let host = function as Address;
    let named = {
        let registry = read();
        match registry.functions.get(&host) {
            Some(Named { kernel: Some(kernel), .. }) => return Ok(*kernel as Handle),
            Some(named) => *named,
            None => {
                let kernel = registry.handles.get(&host).ok_or(Error::INVALID_DEVICE_FUNCTION)?;
                return Ok(*kernel as Handle);
            }
        }
    };
    let library = library(named.image)?;
    let mut kernel = null_mut();
    ask!(cuLibraryGetKernel(&raw mut kernel, library, named.name as *const c_char))
        .map_err(|error| if error == Error::SYMBOL_NOT_FOUND { Error::INVALID_DEVICE_FUNCTION } else { error })?;
    let mut registry = write();
    if let Some(entry) = registry.functions.get_mut(&host) {
        entry.kernel = Some(kernel as Address);
    }
    registry.handles.insert(kernel as Address, kernel as Address);
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    #[test]
    fn an_image_is_forgotten_with_all_that_was_registered_for_it() {
        let (host, other) = (0x1000 as *const c_void, 0x2000 as *const c_void);
        let image = add_image(0x10 as *const c_void);
        let kept = add_image(0x20 as *const c_void);
        assert_ne!(image, kept);
        add_function(image, host, null());
        add_function(kept, other, null());
        assert_eq!(remove_image(image), None, "never loaded: there is nothing to give back");
        assert_eq!(kernel(host), Err(Error::INVALID_DEVICE_FUNCTION));
        assert!(read().functions.contains_key(&(other as Address)));
        assert_eq!(remove_image(image), None, "and twice is harmless");
    }

    #[test]
    fn only_a_wrapper_has_an_image() {
        let image = 0x30 as *const c_void;
        let wrapper = FatBinaryWrapper { magic: FatBinaryWrapper::MAGIC, version: 1, image, _origin: null() };
        assert_eq!(wrapper.image(), Some(image));
        assert_eq!(FatBinaryWrapper { magic: 0, ..wrapper }.image(), None);
    }
}
