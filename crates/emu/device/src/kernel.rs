//! Kernels, and the modules they come in.
//!
//! An image is read when its first kernel is asked for, not when it is loaded: PyTorch registers hundreds of images
//! and uses few. That needs the image to stay where it is, which the caller says ([`Image::Kept`]); any other image is
//! read at once.

use std::collections::HashMap;
use std::sync::Arc;

use deepum_core::units::{Bytes, DeviceId};

use crate::error::{CuError, CuResult};
use crate::fatbin::{self, FatbinError, KernelInfo};

/// A kernel of the process; never forgotten, so that a handle can be checked and a queued launch outlives its module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KernelId(pub u32);

/// A module or library of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub u32);

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its handle.
    pub id: KernelId,
    /// Where it came from.
    pub module: ModuleId,
    /// What its image says.
    pub info: KernelInfo,
}

impl Kernel {
    /// Bytes of a packed parameter buffer.
    #[must_use]
    pub fn params_len(&self) -> usize {
        self.info.params.iter().map(|p| p.offset as usize + p.size as usize).max().unwrap_or(0)
    }

    /// Hash of name, grid and block (FNV-1a, 64 bits): the same in every run.
    #[must_use]
    pub fn identity(&self, grid: [u32; 3], block: [u32; 3]) -> u64 {
        let shape = grid.into_iter().chain(block).flat_map(u32::to_le_bytes);
        let bytes = self.info.name.bytes().chain(shape);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

/// An image of kernels, as the program gave it.
#[derive(Debug)]
pub enum Image {
    /// Stays valid and unchanged until the module is unloaded; read when needed.
    Kept(&'static [u8]),
    /// Already read.
    Read(Vec<KernelInfo>),
}

#[derive(Debug)]
struct Module {
    image: Option<&'static [u8]>,
    device: Option<DeviceId>,
    names: HashMap<String, KernelId>,
}

/// Every module and kernel of the process.
#[derive(Debug, Default)]
pub struct Modules {
    capability: (u32, u32),
    next: u32,
    live: HashMap<ModuleId, Module>,
    kernels: Vec<Arc<Kernel>>,
}

fn refusal(error: &FatbinError) -> CuError {
    match error {
        FatbinError::NoBinary { .. } => CuError::NoBinaryForGpu,
        _ => CuError::InvalidImage,
    }
}

/// Reads an image for a device of `capability`.
///
/// # Errors
/// `InvalidImage`, `NoBinaryForGpu`.
pub fn read(image: &[u8], capability: (u32, u32)) -> CuResult<Vec<KernelInfo>> {
    fatbin::parse(image, capability).map_err(|e| refusal(&e))
}

impl Modules {
    /// No modules, on devices that report `capability`.
    #[must_use]
    pub fn new(capability: (u32, u32)) -> Self {
        Self { capability, next: 1, ..Self::default() }
    }

    /// The compute capability that images are read for.
    #[must_use]
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// A new module; `device` is where it belongs, none for a library (which has no context).
    pub fn load(&mut self, image: Image, device: Option<DeviceId>) -> ModuleId {
        let id = ModuleId(self.next);
        self.next += 1;
        let (image, kernels) = match image {
            Image::Kept(bytes) => (Some(bytes), Vec::new()),
            Image::Read(kernels) => (None, kernels),
        };
        self.live.insert(id, Module { image, device, names: HashMap::new() });
        self.add(id, kernels);
        id
    }

    fn add(&mut self, module: ModuleId, kernels: Vec<KernelInfo>) {
        let Some(into) = self.live.get_mut(&module) else { return };
        for info in kernels {
            let Ok(id) = u32::try_from(self.kernels.len()).map(KernelId) else { return };
            into.names.insert(info.name.clone(), id);
            self.kernels.push(Arc::new(Kernel { id, module, info }));
        }
    }

    fn ready(&mut self, module: ModuleId) -> CuResult<&Module> {
        let found = self.live.get_mut(&module).ok_or(CuError::InvalidHandle)?;
        if let Some(image) = found.image.take() {
            let kernels = read(image, self.capability)?;
            self.add(module, kernels);
        }
        self.live.get(&module).ok_or(CuError::InvalidHandle)
    }

    /// Forgets a module. Its kernels keep their handles.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn unload(&mut self, module: ModuleId) -> CuResult {
        self.live.remove(&module).map(drop).ok_or(CuError::InvalidHandle)
    }

    /// The kernel `name` of `module`.
    ///
    /// # Errors
    /// `InvalidHandle`, `NotFound`, or what is wrong with the image.
    pub fn kernel_named(&mut self, module: ModuleId, name: &str) -> CuResult<KernelId> {
        self.ready(module)?.names.get(name).copied().ok_or(CuError::NotFound)
    }

    /// The kernels of `module`, in the order of their handles.
    ///
    /// # Errors
    /// As for [`Self::kernel_named`].
    pub fn kernels_of(&mut self, module: ModuleId) -> CuResult<Vec<KernelId>> {
        let mut ids: Vec<_> = self.ready(module)?.names.values().copied().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The device a module belongs to.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn device_of(&self, module: ModuleId) -> CuResult<Option<DeviceId>> {
        self.live.get(&module).map(|m| m.device).ok_or(CuError::InvalidHandle)
    }

    /// A kernel by handle.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn kernel(&self, id: KernelId) -> CuResult<Arc<Kernel>> {
        self.kernels.get(id.0 as usize).cloned().ok_or(CuError::InvalidHandle)
    }
}

/// Blocks of `threads` threads and `shared` bytes that fit on one multiprocessor of `threads_per_sm` threads. Registers
/// are left out: their number is not in every image.
#[must_use]
pub fn occupancy(threads_per_sm: u32, threads: u32, shared: Bytes) -> u32 {
    const BLOCKS: u32 = 32;
    let by_threads = threads_per_sm / threads.next_multiple_of(32).max(32);
    let by_shared = SHARED_PER_SM.0.checked_div(shared.0).map_or(BLOCKS, |n| u32::try_from(n).unwrap_or(BLOCKS));
    BLOCKS.min(by_threads).min(by_shared)
}

/// Shared memory of a multiprocessor of compute capability 8.0, less what the system takes of each block (CUDA
/// programming guide, "Technical Specifications per Compute Capability": 164 KiB, at most 163 KiB a block).
pub const SHARED_PER_SM: Bytes = Bytes::kib(164);
/// Most shared memory one block may ask for.
pub const SHARED_PER_BLOCK: Bytes = Bytes::kib(163);

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str) -> KernelInfo {
        KernelInfo { name: name.into(), params: Vec::new(), static_shared: Bytes::ZERO, registers: 0, max_threads: 0 }
    }

    #[test]
    fn a_kernel_outlives_its_module_and_a_handle_is_checked() {
        let mut modules = Modules::new((8, 0));
        let m = modules.load(Image::Read(vec![info("a"), info("b")]), Some(DeviceId(0)));
        let b = modules.kernel_named(m, "b").unwrap();
        assert_eq!(modules.kernel_named(m, "c"), Err(CuError::NotFound));
        assert_eq!(modules.kernels_of(m).unwrap().len(), 2);
        modules.unload(m).unwrap();
        assert_eq!(modules.unload(m), Err(CuError::InvalidHandle));
        assert_eq!(modules.kernel_named(m, "b"), Err(CuError::InvalidHandle));
        assert_eq!(modules.kernel(b).unwrap().info.name, "b");
        assert!(modules.kernel(KernelId(99)).is_err());
    }

    #[test]
    fn a_kept_image_is_read_when_its_first_kernel_is_asked_for() {
        let mut modules = Modules::new((8, 0));
        let m = modules.load(Image::Kept(b"no image"), None);
        assert_eq!(modules.kernel_named(m, "k"), Err(CuError::InvalidImage));
    }

    #[test]
    fn identity_tells_name_and_shape_apart() {
        let kernel = |name| Kernel { id: KernelId(0), module: ModuleId(0), info: info(name) };
        let one = kernel("a").identity([1, 1, 1], [32, 1, 1]);
        assert_eq!(one, kernel("a").identity([1, 1, 1], [32, 1, 1]));
        assert_ne!(one, kernel("b").identity([1, 1, 1], [32, 1, 1]));
        assert_ne!(one, kernel("a").identity([2, 1, 1], [32, 1, 1]));
    }

    #[test]
    fn occupancy_is_bound_by_threads_blocks_and_shared_memory() {
        assert_eq!(occupancy(2048, 1024, Bytes::ZERO), 2);
        assert_eq!(occupancy(2048, 33, Bytes::ZERO), 32);
        assert_eq!(occupancy(2048, 256, Bytes::kib(100)), 1);
    }
}
