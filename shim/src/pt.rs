//! Which blocks of PyTorch's caching allocator hold a tensor.
//!
//! The allocator reports every block it hands out (+size) and takes back (-size) to its profiler, running or not, through
//! an ordinary exported function. So we learn it without a change to PyTorch, without Python, and without its lock (facts 20.4).

use crate::link;
use crate::{abi::Ptr, abi::TorchDevice, registry};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};
use deepum_protocol::ring::Record;
use deepum_protocol::shared::{Mode, ShimCounter};

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// A block was handed out or taken back.
pub struct Report;

impl Report {
    /// Recorded before PyTorch goes on: no launch on a new block comes earlier.
    pub unsafe fn before(ptr: Ptr, size: i64, _: usize, _: usize, device: TorchDevice) -> Option<()> {
        let addr = DevAddr(ptr as u64);
        let index = u8::try_from(device.index).ok()?;
        if device.kind == CUDA && size != 0 && registry::map().find(addr).is_some() {
            let shared = link::ring()?.shared();
            shared.add(ShimCounter::PtBlockNotices, 1);
            if shared.mode() != Mode::Off {
                let range = AddrRange::new(addr, Bytes(size.unsigned_abs()));
                link::ring()?.push(DeviceId(index), &Record::PtBlock { range, active: size > 0 });
            }
        }
        None
    }
    /// Nothing more.
    pub fn after((): (), (): ()) {}
}
