//! Handles: what C holds in place of our numbers.
//!
//! A handle is a tag, our number, and four zero bits (some programs keep flags there). A handle of another kind, or
//! made up, is recognised and refused, never followed.

use deepum_core::units::DeviceId;
use deepum_emu_device::context::ContextId;
use deepum_emu_device::error::{CuError, CuResult};
use deepum_emu_device::graph::{ExecId, GraphId, NodeId};
use deepum_emu_device::kernel::{KernelId, ModuleId};
use deepum_emu_device::pool::PoolId;
use deepum_emu_device::stream::StreamId;
use deepum_emu_device::vmm::PhysicalId;

const TAG_SHIFT: u32 = 40;

macro_rules! handles {
    ($($(#[doc = $doc:literal])+ $name:ident = $tag:literal: $of:ty, $make:expr, $number:expr;)*) => {$(
        $(#[doc = $doc])+
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name(pub usize);

        impl $name {
            /// The handle of `it`.
            pub fn of(it: $of) -> Self {
                let number: fn($of) -> u32 = $number;
                Self(($tag << TAG_SHIFT) | (number(it) as usize) << 4)
            }

            /// What it is a handle of; the right tag, nothing more.
            pub fn get(self) -> CuResult<$of> {
                let make: fn(u32) -> $of = $make;
                let number = u32::try_from((self.0 & ((1 << TAG_SHIFT) - 1)) >> 4);
                match number {
                    Ok(n) if self.0 >> TAG_SHIFT == $tag && self.0 & 15 == 0 => Ok(make(n)),
                    _ => Err(CuError::InvalidHandle),
                }
            }
        }
    )*};
}

handles! {
    /// `CUcontext`.
    Context = 0xC1: ContextId, ContextId, |c| c.0;
    /// `CUstream`, other than the special ones.
    Stream = 0xC2: StreamId, StreamId, |s| s.0;
    /// `CUevent`.
    Event = 0xC3: u32, |n| n, |e| e;
    /// `CUmodule` and `CUlibrary`: the same here, as a library's module.
    Module = 0xC4: ModuleId, ModuleId, |m| m.0;
    /// `CUfunction` and `CUkernel`: the same here, and the driver API accepts either for the other at launches.
    Function = 0xC5: KernelId, KernelId, |k| k.0;
    /// `CUmemoryPool`.
    MemoryPool = 0xC6: PoolId, PoolId, |p| p.0;
    /// `CUmemGenericAllocationHandle`.
    Physical = 0xC7: PhysicalId, PhysicalId, |p| p.0;
    /// `CUgraph`.
    Graph = 0xC8: GraphId, GraphId, |g| g.0;
    /// `CUgraphNode`.
    Node = 0xC9: NodeId, NodeId, |n| n.0;
    /// `CUgraphExec`.
    Exec = 0xCA: ExecId, ExecId, |e| e.0;
    /// `CUuserObject`.
    Object = 0xCB: u32, |n| n, |o| o;
}

impl Context {
    /// No context, or the thread's own.
    pub const NULL: Self = Self(0);

    /// The context of a device.
    pub fn of_device(device: DeviceId) -> Self {
        Self::of(ContextId(u32::from(device.0)))
    }
}

impl Function {
    /// No function.
    pub const NULL: Self = Self(0);
}

impl Graph {
    /// No graph.
    pub const NULL: Self = Self(0);
}

impl Node {
    /// No node.
    pub const NULL: Self = Self(0);
}

impl Stream {
    /// The default stream.
    pub const NULL: Self = Self(0);
    /// `CU_STREAM_LEGACY`.
    pub const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: Self = Self(2);

    /// What the handle means in the API with per-thread default streams.
    pub fn per_thread(self) -> Self {
        if self == Self::NULL { Self::PER_THREAD } else { self }
    }
}
