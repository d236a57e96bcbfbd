//! A kernel that fills memory: what SMs touch, page by page and many at once, is served in another way than what a copy engine or a memset does.

use super::world::World;
use crate::cuda::{Failed, call};
use deepum_core::units::AddrRange;
use std::ffi::{c_char, c_uint, c_void};

/// Any GPU since Volta compiles it. The emulated device computes kernels of this name (`crates/emu/device/src/testing.rs`).
const PTX: &str = concat!(
    ".version 7.0\n.target sm_70\n.address_size 64\n",
    ".visible .entry deepum_test_fill(.param .u64 at, .param .u64 count, .param .u64 value)\n{\n",
    ".reg .pred %p;\n.reg .u32 %w<4>;\n.reg .u64 %i, %n, %step, %x, %base;\n",
    "mov.u32 %w0, %ctaid.x;\nmov.u32 %w1, %ntid.x;\nmov.u32 %w2, %tid.x;\nmov.u32 %w3, %nctaid.x;\n",
    "mul.wide.u32 %i, %w0, %w1;\ncvt.u64.u32 %x, %w2;\nadd.u64 %i, %i, %x;\nmul.wide.u32 %step, %w3, %w1;\n",
    "ld.param.u64 %base, [at];\nld.param.u64 %n, [count];\nld.param.u64 %x, [value];\ncvt.u32.u64 %w0, %x;\n",
    "NEXT:\nsetp.ge.u64 %p, %i, %n;\n@%p bra DONE;\nshl.b64 %x, %i, 2;\nadd.u64 %x, %x, %base;\n",
    "st.u32 [%x], %w0;\nadd.u64 %i, %i, %step;\nbra NEXT;\nDONE:\nret;\n}\n\0"
);
const THREADS: u64 = 256;
/// Enough to have all of a large GPU at work; each thread then fills several places.
const MOST_GROUPS: u64 = 2048;

pub struct Fill(*mut c_void);

impl Fill {
    pub fn load(world: &World) -> Result<Self, Failed> {
        let cuda = &world.cuda;
        let (mut module, mut function) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
        call!(cuda, cuModuleLoadData(&raw mut module => *mut *mut c_void, PTX.as_ptr() => *const u8))?;
        let name = c"deepum_test_fill";
        call!(cuda, cuModuleGetFunction(&raw mut function => *mut *mut c_void, module => *mut c_void, name.as_ptr() => *const c_char))?;
        Ok(Self(function))
    }

    /// Fills the range, and waits.
    pub fn run(&self, world: &World, range: AddrRange) -> Result<(), Failed> {
        let words = range.len.0 / 4;
        let mut values = [range.start.0, words, 0];
        let mut places = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        let groups = c_uint::try_from(words.div_ceil(THREADS).min(MOST_GROUPS)).unwrap_or(c_uint::MAX);
        let none = std::ptr::null_mut::<c_void>();
        call!(world.cuda, cuLaunchKernel(
            self.0 => *mut c_void, groups => c_uint, 1 => c_uint, 1 => c_uint, 256 => c_uint, 1 => c_uint, 1 => c_uint, 0 => c_uint,
            none => *mut c_void, places.as_mut_ptr() => *mut *mut c_void, none => *mut c_void
        ))?;
        call!(world.cuda, cuCtxSynchronize())
    }
}
