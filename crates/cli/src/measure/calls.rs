//! What calls cost the host that go with each launch: a progress write (facts 4.5), and a prefetch through CUDA instead of the driver's own request (facts 4.4).

use super::row::Rows;
use super::world::World;
use crate::cuda::{Failed, call};
use anyhow::Result;
use std::ffi::{c_int, c_uint, c_void};

/// Small pieces of work given to a stream for a figure.
const CALLS: usize = 500;
const TRIES: usize = 9;

/// `CUmemLocation` (CUDA 12.2).
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_int,
    id: c_int,
}

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let cuda = &world.cuda;
    let mut stream: *mut c_void = std::ptr::null_mut();
    /// `CU_STREAM_NON_BLOCKING`.
    const NON_BLOCKING: c_uint = 1;
    call!(cuda, cuStreamCreate(&raw mut stream => *mut *mut c_void, NON_BLOCKING => c_uint))?;
    let mut device = 0u64;
    call!(cuda, cuMemAlloc_v2(&raw mut device => *mut u64, 4096 => usize))?;
    let (mut host, mut word) = (std::ptr::null_mut::<c_void>(), 0u64);
    call!(cuda, cuMemHostAlloc(&raw mut host => *mut *mut c_void, 4096 => usize, 0 => c_uint))?;
    call!(cuda, cuMemHostGetDevicePointer_v2(&raw mut word => *mut u64, host => *mut c_void, 0 => c_uint))?;

    let work = || call!(cuda, cuMemsetD8Async(device => u64, 1 => u8, 4096 => usize, stream => *mut c_void));
    let write = || call!(cuda, cuStreamWriteValue64_v2(stream => *mut c_void, word => u64, 1 => u64, 0 => c_uint));
    let synchronize = || call!(cuda, cuStreamSynchronize(stream => *mut c_void));
    let (mut plain, mut added, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let run = |writes: bool| -> Result<(f64, f64), Failed> {
            synchronize()?;
            let (mut host, begun) = (0, world.now());
            host += world
                .time(|| {
                    (0..CALLS).try_for_each(|_| {
                        work()?;
                        if writes { write() } else { Ok(()) }
                    })
                })?
                .0;
            synchronize()?;
            let all = world.now().0.saturating_sub(begun.0);
            Ok((host as f64 / CALLS as f64, all as f64 / CALLS as f64))
        };
        let (without, with) = (run(false)?, run(true)?);
        plain.push(without.0);
        added.push(with.0 - without.0);
        whole.push(with.1 - without.1);
    }
    rows.figure("small_memset_ns", "host time of a small memset, for scale", plain);
    rows.figure("stream_write_host_ns", "host time that a progress write behind each adds", added);
    rows.figure("stream_write_ns", "time that it adds until all of them are over", whole);

    let memory = world.managed(1)?;
    world.fill(memory.range, 1)?;
    let there = Location { kind: 1, id: 0 };
    let len = usize::try_from(memory.range.len.0)?;
    let prefetch = || call!(cuda, cuMemPrefetchAsync_v2(memory.range.start.0 => u64, len => usize, there => Location, 0 => c_uint, stream => *mut c_void));
    match prefetch() {
        Ok(()) => {
            let calls = (0..TRIES * 4).map(|_| Ok(world.time(prefetch)?.0 as f64)).collect::<Result<_, Failed>>()?;
            rows.figure("prefetch_call_ns", "host time of cuMemPrefetchAsync for a block that is there", calls);
        }
        Err(why) => rows.untried("prefetch by CUDA", why.to_string()),
    }
    synchronize()?;
    call!(cuda, cuMemFreeHost(host => *mut c_void))?;
    call!(cuda, cuMemFree_v2(device => u64))?;
    Ok(call!(cuda, cuStreamDestroy_v2(stream => *mut c_void))?)
}
