//! Modules, libraries, functions, kernels.
//!
//! A library is a module without a context, and a kernel is a function without one; here both pairs are one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use deepum_core::units::Bytes;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::fatbin;
use deepum_emu_device::kernel::{self, Image, Kernel, KernelId, ModuleId, SHARED_PER_BLOCK};
use deepum_emu_device::machine::{Cost, machine};
use deepum_emu_device::say;
use parking_lot::Mutex;

use crate::current;
use crate::edge::{In, Out, Text, api, int, size, twins};
use crate::handle::{Function, Module};
use crate::init::device;

/// `CU_LIBRARY_BINARY_IS_PRESERVED`: the caller keeps the image as it is until the library is unloaded.
const BINARY_IS_PRESERVED: c_int = 1;

/// Loads the image at `start`; at once, unless the caller keeps it.
fn load(start: *const c_void, kept: bool, in_context: bool) -> CuResult<Module> {
    if start.is_null() {
        return Err(CuError::InvalidValue);
    }
    // SAFETY: the caller promises a kernel image of one of the known kinds (CUDA driver API, cuModuleLoadData), valid
    // during this call, and until the library is unloaded if it says that the binary is preserved; only then is the
    // slice kept.
    let image: &'static [u8] = unsafe { fatbin::image_at(start.cast()) }.map_err(|e| {
        say(&e.to_string());
        CuError::InvalidImage
    })?;
    add(if kept { Image::Kept(image) } else { read(image)? }, in_context)
}

fn load_file(path: &str, in_context: bool) -> CuResult<Module> {
    let bytes = std::fs::read(path).map_err(|_| CuError::FileNotFound)?;
    add(read(&bytes)?, in_context)
}

fn read(image: &[u8]) -> CuResult<Image> {
    let capability = machine()?.look(|state| Ok(state.modules.capability()))?;
    Ok(Image::Read(kernel::read(image, capability)?))
}

/// A new module in the thread's context, or a library, which has none.
fn add(image: Image, in_context: bool) -> CuResult<Module> {
    let id = machine()?.call(Cost::Call, |call| {
        let device = if in_context { Some(current::device(call)?) } else { None };
        Ok(call.state.modules.load(image, device))
    })?;
    Ok(Module::of(id))
}

fn unload(module: Module) -> CuResult {
    let id = module.get()?;
    machine()?.call(Cost::Call, |call| call.state.modules.unload(id))
}

fn named(module: ModuleId, name: &str) -> CuResult<Function> {
    machine()?.look(|state| state.modules.kernel_named(module, name)).map(Function::of)
}

/// The kernel behind a function handle.
pub fn kernel(function: Function) -> CuResult<Arc<Kernel>> {
    let id = function.get()?;
    machine()?.look(|state| state.modules.kernel(id))
}

/// A kernel's name as a C string that lives as long as the process; the driver API promises the module's life.
fn name_of(kernel: &Kernel) -> CuResult<*const c_char> {
    static NAMES: Mutex<BTreeSet<CString>> = Mutex::new(BTreeSet::new());
    let text = CString::new(kernel.info.name.as_str()).map_err(|_| CuError::Unknown)?;
    let mut names = NAMES.lock();
    names.insert(text.clone());
    // The text is on the heap and stays there when the set grows.
    names.get(&text).map(|text| text.as_ptr()).ok_or(CuError::Unknown)
}

/// Attributes that a program has set, by kernel and `CUfunction_attribute`.
static SET: Mutex<BTreeMap<(KernelId, c_int), c_int>> = Mutex::new(BTreeMap::new());

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;

/// Whether a launch may ask for so much dynamic shared memory: what fits into 48 KiB beside the kernel's own, or what was set.
pub fn allows_shared(kernel: &Kernel, shared: Bytes) -> bool {
    shared == Bytes::ZERO || i32::try_from(shared.0).is_ok_and(|bytes| bytes <= max_dynamic_shared(kernel))
}

fn max_dynamic_shared(kernel: &Kernel) -> c_int {
    let default = int(Bytes::kib(48).saturating_sub(kernel.info.static_shared).0);
    SET.lock().get(&(kernel.id, MAX_DYNAMIC_SHARED)).copied().unwrap_or(default)
}

fn attribute(function: Function, number: c_int) -> CuResult<c_int> {
    let kernel = kernel(function)?;
    if let Some(value) = SET.lock().get(&(kernel.id, number)) {
        return Ok(*value);
    }
    let info = &kernel.info;
    let (major, minor) = machine()?.profile.reported_compute_capability;
    Ok(match number {
        0 if info.max_threads > 0 => int(info.max_threads.min(1024)),
        0 => 1024,                        // MAX_THREADS_PER_BLOCK
        1 => int(info.static_shared.0),   // SHARED_SIZE_BYTES
        2 | 3 => 0,                       // CONST_SIZE_BYTES, LOCAL_SIZE_BYTES: not in the image's summary
        4 => int(info.registers),         // NUM_REGS, 0 where the image does not say
        5 | 6 => int(major * 10 + minor), // PTX_VERSION, BINARY_VERSION
        7 => 0,                           // CACHE_MODE_CA
        MAX_DYNAMIC_SHARED => max_dynamic_shared(&kernel),
        9 => -1,      // PREFERRED_SHARED_MEMORY_CARVEOUT
        10..=15 => 0, // clusters: none
        _ => return Err(CuError::InvalidValue),
    })
}

fn set_attribute(function: Function, number: c_int, value: c_int) -> CuResult {
    let kernel = kernel(function)?;
    let room = SHARED_PER_BLOCK.saturating_sub(kernel.info.static_shared);
    match number {
        MAX_DYNAMIC_SHARED if u64::try_from(value).is_ok_and(|n| n <= room.0) => {}
        9 if (-1..=100).contains(&value) => {}
        14 | 15 => {}
        _ => return Err(CuError::InvalidValue),
    }
    SET.lock().insert((kernel.id, number), value);
    Ok(())
}

/// Blocks of a kernel that can be on one multiprocessor at once.
pub fn resident(kernel: &Kernel, threads: c_uint, shared: Bytes) -> CuResult<c_uint> {
    Ok(kernel::occupancy(machine()?.profile.threads_per_sm, threads, shared + kernel.info.static_shared))
}

api! {
    fn cuModuleLoadData(out: Out<Module>, image: *const c_void) {
        out.put(load(image, false, true)?)
    }

    /// JIT options have nothing to act on: there is no compiler here.
    fn cuModuleLoadDataEx(
        out: Out<Module>, image: *const c_void, _count: c_uint, _options: *const c_int, _values: *const *const c_void,
    ) {
        out.put(load(image, false, true)?)
    }

    fn cuModuleLoad(out: Out<Module>, path: Text) {
        out.put(load_file(path.get()?, true)?)
    }

    fn cuModuleUnload(module: Module) {
        unload(module)
    }

    fn cuModuleGetLoadingMode(mode: Out<c_int>) {
        mode.put(2) // CU_MODULE_LAZY_LOADING
    }

    fn cuModuleGetFunction(out: Out<Function>, module: Module, name: Text) {
        out.put(named(module.get()?, name.get()?)?)
    }

    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: Module) {
        let id = module.get()?;
        let kernels = machine()?.look(|state| state.modules.kernels_of(id))?;
        count.put(u32::try_from(kernels.len()).unwrap_or(u32::MAX))
    }

    fn cuModuleEnumerateFunctions(out: Out<Function>, room: c_uint, module: Module) {
        let id = module.get()?;
        let kernels = machine()?.look(|state| state.modules.kernels_of(id))?;
        kernels.into_iter().take(room as usize).enumerate().try_for_each(|(n, id)| out.at(n).put(Function::of(id)))
    }

    fn cuLibraryLoadData(
        out: Out<Module>, image: *const c_void, _jit: *const c_int, _jit_values: *const *const c_void, _jit_count: c_uint,
        options: In<c_int>, values: In<usize>, count: c_uint,
    ) {
        let mut kept = false;
        for n in 0..count as usize {
            kept |= options.nth(n)? == BINARY_IS_PRESERVED && (values.is_null() || values.nth(n)? & 0xffff_ffff != 0);
        }
        out.put(load(image, kept, false)?)
    }

    fn cuLibraryLoadFromFile(
        out: Out<Module>, path: Text, _jit: *const c_int, _jit_values: *const *const c_void, _jit_count: c_uint,
        _options: In<c_int>, _values: In<usize>, _count: c_uint,
    ) {
        out.put(load_file(path.get()?, false)?)
    }

    fn cuLibraryGetModule(out: Out<Module>, library: Module) {
        let id = library.get()?;
        machine()?.look(|state| state.modules.device_of(id))?;
        out.put(library)
    }

    fn cuKernelGetFunction(out: Out<Function>, kernel_handle: Function) {
        kernel(kernel_handle)?;
        current::context()?;
        out.put(kernel_handle)
    }

    fn cuKernelGetAttribute(value: Out<c_int>, number: c_int, kernel_handle: Function, ordinal: c_int) {
        device(ordinal)?;
        value.put(attribute(kernel_handle, number)?)
    }

    fn cuKernelSetAttribute(number: c_int, value: c_int, kernel_handle: Function, ordinal: c_int) {
        device(ordinal)?;
        set_attribute(kernel_handle, number, value)
    }

    fn cuKernelSetCacheConfig(kernel_handle: Function, config: c_int, ordinal: c_int) {
        device(ordinal)?;
        kernel(kernel_handle)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuFuncGetModule(out: Out<Module>, function: Function) {
        out.put(Module::of(kernel(function)?.module))
    }

    fn cuFuncGetName(out: Out<*const c_char>, function: Function) {
        out.put(name_of(&*kernel(function)?)?)
    }

    fn cuFuncGetParamInfo(function: Function, index: usize, offset: Out<usize>, len: Out<usize>) {
        let kernel = kernel(function)?;
        let param = kernel.info.params.get(index).ok_or(CuError::InvalidValue)?;
        offset.put(param.offset as usize)?;
        len.offer(param.size as usize);
        Ok(())
    }

    fn cuFuncGetParamCount(function: Function, count: Out<usize>) {
        count.put(kernel(function)?.info.params.len())
    }

    fn cuFuncGetAttribute(value: Out<c_int>, number: c_int, function: Function) {
        value.put(attribute(function, number)?)
    }

    fn cuFuncSetAttribute(function: Function, number: c_int, value: c_int) {
        set_attribute(function, number, value)
    }

    fn cuFuncSetCacheConfig(function: Function, config: c_int) {
        kernel(function)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuFuncSetSharedMemConfig(function: Function, config: c_int) {
        kernel(function)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(CuError::InvalidValue) }
    }

    fn cuFuncIsLoaded(state: Out<c_int>, function: Function) {
        kernel(function)?;
        state.put(1)
    }

    fn cuFuncLoad(function: Function) {
        kernel(function).map(drop)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: Function, threads: c_int, shared: usize, flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CuError::InvalidValue);
        }
        let threads = c_uint::try_from(threads).ok().filter(|n| *n > 0).ok_or(CuError::InvalidValue)?;
        out.put(int(resident(&*kernel(function)?, threads, Bytes(shared as u64))?))
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, function: Function, count: c_int, threads: c_int) {
        let kernel = kernel(function)?;
        let count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(CuError::InvalidValue)?;
        if threads <= 0 {
            return Err(CuError::InvalidValue);
        }
        let share = Bytes(deepum_emu_device::kernel::SHARED_PER_SM.0 / count).min(SHARED_PER_BLOCK);
        out.put(size(share.saturating_sub(kernel.info.static_shared)))
    }
}

twins! {
    fn cuModuleLoadFatBinary(out: Out<Module>, image: *const c_void) = cuModuleLoadData(out, image);
    fn cuLibraryUnload(library: Module) = cuModuleUnload(library);
    fn cuLibraryGetKernel(out: Out<Function>, library: Module, name: Text) = cuModuleGetFunction(out, library, name);
    fn cuLibraryGetKernelCount(count: Out<c_uint>, library: Module) = cuModuleGetFunctionCount(count, library);
    fn cuLibraryEnumerateKernels(out: Out<Function>, room: c_uint, library: Module)
        = cuModuleEnumerateFunctions(out, room, library);
    fn cuKernelGetLibrary(out: Out<Module>, kernel: Function) = cuFuncGetModule(out, kernel);
    fn cuKernelGetName(out: Out<*const c_char>, kernel: Function) = cuFuncGetName(out, kernel);
    fn cuKernelGetParamInfo(kernel: Function, index: usize, offset: Out<usize>, len: Out<usize>)
        = cuFuncGetParamInfo(kernel, index, offset, len);
    fn cuKernelGetParamCount(kernel: Function, count: Out<usize>) = cuFuncGetParamCount(kernel, count);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<c_int>, function: Function, threads: c_int, shared: usize)
        = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads, shared, 0);
}
