//! Launching kernels.

use std::sync::Arc;

use deepum_core::units::Bytes;

use crate::error::{CuError, CuResult};
use crate::kernel::{Kernel, SHARED_PER_BLOCK};
use crate::log::Entry;
use crate::machine::Call;
use crate::run::Until;
use crate::stream::StreamId;
use crate::work::{Launch, Work};

/// Shape of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared: Bytes,
}

impl Shape {
    /// Limits of compute capability 8.0 (CUDA programming guide, "Technical Specifications per Compute Capability").
    fn check(&self) -> CuResult {
        let [gx, gy, gz] = self.grid;
        let [bx, by, bz] = self.block;
        if self.grid.contains(&0) || self.block.contains(&0) || gx > 0x7fff_ffff || gy > 65_535 || gz > 65_535 {
            return Err(CuError::InvalidValue);
        }
        let threads = u64::from(bx) * u64::from(by) * u64::from(bz);
        if bx > 1024 || by > 1024 || bz > 64 || threads > 1024 || self.shared > SHARED_PER_BLOCK {
            return Err(CuError::InvalidValue);
        }
        Ok(())
    }
}

impl Call<'_> {
    /// Queues a launch. `params` is the packed parameter buffer, at least as long as the kernel's.
    ///
    /// # Errors
    /// `InvalidValue` for a shape or a buffer that does not fit; `InvalidHandle` for a stream that is gone.
    pub fn launch(&mut self, stream: StreamId, kernel: Arc<Kernel>, shape: Shape, params: Vec<u8>) -> CuResult {
        shape.check()?;
        if params.len() < kernel.params_len() {
            return Err(CuError::InvalidValue);
        }
        let device = self.state.streams.get(stream).ok_or(CuError::InvalidHandle)?.device;
        self.run(Until::Room(device, self.machine.profile.launch_queue))?;
        let issued = self.state.host;
        let gpu = self.state.gpus.get_mut(usize::from(device.0)).ok_or(CuError::InvalidDevice)?;
        gpu.launches += 1;
        gpu.queued_launches += 1;
        let seq = gpu.launches;
        self.state.totals.launches += 1;
        let identity = kernel.identity(shape.grid, shape.block);
        let place = u64::from(device.0) | u64::from(stream.0) << 32;
        let entry = Entry { identity, issued: issued.0, place, ..Entry::default() };
        let index = self.state.log().map(|log| log.push(&entry));
        if index == Some(None) {
            self.state.totals.entries_dropped += 1;
        }
        let launch = Launch {
            kernel,
            params,
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            seq,
            entry: index.flatten(),
            issued: issued.0,
        };
        self.queue(stream, &[], Work::Launch(Box::new(launch))).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_beyond_the_device_are_refused() {
        let ok = Shape { grid: [1 << 20, 65_535, 1], block: [1024, 1, 1], shared: Bytes::ZERO };
        assert_eq!(ok.check(), Ok(()));
        assert!(Shape { grid: [0, 1, 1], ..ok }.check().is_err());
        assert!(Shape { grid: [1, 65_536, 1], ..ok }.check().is_err());
        assert!(Shape { block: [1024, 2, 1], ..ok }.check().is_err());
        assert!(Shape { shared: Bytes::kib(200), ..ok }.check().is_err());
    }
}
