//! Launching kernels.

use std::sync::Arc;

use deepum_core::units::Bytes;

use crate::error::{CuError, CuResult};
use crate::kernel::{Kernel, SHARED_PER_BLOCK};
use crate::log::Entry;
use crate::machine::Call;
use crate::run::Until;
use crate::stream::StreamId;
use crate::work::{Counted, Launch, Work};

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

impl Launch {
    /// A kernel and its packed parameter buffer, at least as long as the kernel's.
    ///
    /// # Errors
    /// `InvalidValue` for a shape or a buffer that does not fit.
    pub fn new(kernel: Arc<Kernel>, shape: Shape, params: Vec<u8>) -> CuResult<Self> {
        shape.check()?;
        if params.len() < kernel.params_len() {
            return Err(CuError::InvalidValue);
        }
        let Shape { grid, block, shared } = shape;
        Ok(Self { kernel, params: params.into(), grid, block, shared, counted: None })
    }

    /// Which kernel of which shape it is: the same in every run.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.kernel.identity(self.grid, self.block)
    }
}

impl Call<'_> {
    /// Launches a kernel; where the stream is captured it becomes a node.
    ///
    /// # Errors
    /// As for [`Self::give`].
    pub fn launch(&mut self, stream: StreamId, mut launch: Launch) -> CuResult {
        if self.captures(stream)? {
            return self.give(stream, Work::Launch(Box::new(launch)));
        }
        launch.counted = Some(self.count_launch(stream, launch.identity())?);
        self.queue(stream, &[], Work::Launch(Box::new(launch))).map(drop)
    }

    /// Counts a launch of a kernel or a graph, once there is room for it in the queue.
    ///
    /// # Errors
    /// `InvalidHandle` for a stream that is gone.
    pub(crate) fn count_launch(&mut self, stream: StreamId, identity: u64) -> CuResult<Counted> {
        let device = self.state.streams.get(stream).ok_or(CuError::InvalidHandle)?.device;
        self.run(Until::Room(device, self.machine.profile.launch_queue))?;
        let issued = self.state.host.0;
        let gpu = self.state.gpus.get_mut(usize::from(device.0)).ok_or(CuError::InvalidDevice)?;
        gpu.launches += 1;
        gpu.queued_launches += 1;
        let seq = gpu.launches;
        self.state.totals.launches += 1;
        let place = u64::from(device.0) | u64::from(stream.0) << 32;
        let entry = Entry { identity, issued, place, ..Entry::default() };
        let index = self.state.log().map(|log| log.push(&entry));
        if index == Some(None) {
            self.state.totals.entries_dropped += 1;
        }
        Ok(Counted { identity, seq, entry: index.flatten(), issued })
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
