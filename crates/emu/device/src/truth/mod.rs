//! What a launch really touches: the device's own knowledge of kernels.
//!
//! The shim sees pointer-looking words among the arguments of a launch and guesses that whole
//! allocator blocks behind them are needed. A GPU touches what the kernel's code makes it touch.
//! This module plays that code: it knows, per family of kernels, how the parameter structs of
//! PyTorch (and of our stand-in vendor libraries) are laid out, and reads sizes, strides, chunk
//! lists and pointer arrays out of them. The result is the truth that the shim's guess is measured
//! against, so nothing here may use what the shim knows (blocks of the caching allocator, records).
//!
//! Two sources, never mixed up in the count:
//! - *exact*: the family is known, and the sizes of its parameters in the fatbin agree with the struct
//!   we decode; touches are the byte ranges the kernel's own arithmetic reaches;
//! - *guessed*: a stated rule for everything else (`kernels=FILE` writes down which launches these are).
//!
//! Invariants: the same call, view and seed give the same [`Work`]; no panic and no unbounded work on
//! any parameter bytes; every touch lies inside one allocation of the view.

mod args;
mod attention;
mod cat;
mod elementwise;
mod embedding;
mod functor;
mod guess;
mod index;
mod kernel;
mod multi_tensor;
mod name;
mod offsets;
mod pointers;
mod reduce;
mod rows;
mod sort;
mod touches;
mod trace;
mod vendor;

use std::collections::HashMap;

use deepum_core::units::{AddrRange, Bytes, DevAddr};

use self::args::Launch;
use self::kernel::Kernel;
use self::rows::Rows;
use self::touches::Touches;
use crate::fatbin::Param;

pub use self::touches::{Access, Touch};
pub use deepum_model::Precision;

/// One kernel launch as it arrives at the device.
#[derive(Clone, Copy, Debug)]
pub struct KernelCall<'a> {
    /// Mangled name.
    pub name: &'a str,
    /// Offset and size of each parameter inside `params`, in order.
    pub layout: &'a [Param],
    /// The packed parameter buffer.
    pub params: &'a [u8],
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block.
    pub shared: Bytes,
}

/// What a kernel can see of the device it runs on.
pub trait DeviceView {
    /// The allocation (not the allocator block inside it) that `addr` lies in.
    fn allocation(&self, addr: DevAddr) -> Option<AddrRange>;
    /// Fills `out` with the bytes at `addr`; false if they are not in one allocation.
    /// Used for pointer arrays in device memory only.
    fn read(&self, addr: DevAddr, out: &mut [u8]) -> bool;
}

/// How a launch's touches were found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// Decoded from the kernel's own parameter structs.
    Exact,
    /// The stated rule for unknown kernels.
    Guessed,
}

/// What one launch does.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// Ranges, in operand order; ranges of one operand are sorted and do not overlap. Gaps under 64 KiB are closed, since the driver
    /// serves no less at a time; see [`Work::traffic`] for what is really read and written.
    pub touches: Vec<Touch>,
    /// Bytes between memory and cores: each operand's elements once per pass, sectors of 32 bytes.
    pub traffic: Bytes,
    /// Floating-point operations, or 0 where bytes bound the time.
    pub flops: f64,
    /// Which peak rate `flops` is measured against.
    pub class: Precision,
    /// Where the touches come from.
    pub source: Source,
}

/// The device's knowledge of kernels, with what it has learned about each name so far.
#[derive(Debug)]
pub struct Truth {
    seed: u64,
    rows: Rows,
    kernels: HashMap<Box<str>, Kernel, ahash::RandomState>,
    trace: Option<trace::Trace>,
}

impl Truth {
    /// Knowledge whose data-picked rows and guesses follow `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        Self { seed, rows: Rows::new(seed), kernels: HashMap::with_hasher(hasher), trace: None }
    }

    /// Writes a line for every launch from now on, to `path` with the process number appended.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn trace_to(&mut self, path: &std::path::Path) -> std::io::Result<()> {
        self.trace = Some(trace::Trace::create(path)?);
        Ok(())
    }

    /// What `call` touches and computes.
    pub fn work(&mut self, call: &KernelCall<'_>, view: &dyn DeviceView) -> Work {
        if self.kernels.get(call.name).is_none_or(|k| k.layout != call.layout) {
            self.kernels.insert(call.name.into(), Kernel::new(call.name, call.layout));
        }
        let kernel = &self.kernels[call.name];
        let launch = Launch { call, signature: &kernel.signature };
        let mut out = Touches::new(view, &mut self.rows);
        let understood = kernel.decode.and_then(|decode| decode(&launch, &mut out)).is_some() && !out.refuted;
        if !understood {
            out = Touches::new(view, &mut self.rows);
            guess::guess(&launch, &mut out, self.seed);
        }
        let source = if understood { Source::Exact } else { Source::Guessed };
        if !understood {
            // Nobody knows whether what was there is needed.
            let written = out.list.iter_mut().filter(|touch| touch.access == Access::Write);
            written.for_each(|touch| touch.access = Access::Update);
        }
        let traffic = Bytes(out.traffic);
        let work = Work { touches: out.list, traffic, flops: out.flops, class: out.class, source };
        if let Some(trace) = &mut self.trace {
            trace.line(call, &work, &kernel.signature.text, kernel.decode.is_some());
        }
        work
    }
}

#[cfg(test)]
mod tests;
