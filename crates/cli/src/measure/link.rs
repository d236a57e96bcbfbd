//! What the link itself carries: copies between the GPU's own memory and pinned memory, which no page of ours slows down.

use super::row::Rows;
use super::world::World;
use crate::cuda::{Failed, call};
use anyhow::Result;
use deepum_core::units::{Bytes, Nanos};
use std::ffi::{c_uint, c_void};

const LEN: usize = 64 << 20;
const TRIES: usize = 5;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

pub fn measure(world: &World, rows: &mut Rows) -> Result<()> {
    let cuda = &world.cuda;
    let mut streams = [std::ptr::null_mut::<c_void>(); 2];
    let (mut there, mut here) = ([0u64; 2], [std::ptr::null_mut::<c_void>(); 2]);
    for stream in &mut streams {
        call!(cuda, cuStreamCreate(stream => *mut *mut c_void, NON_BLOCKING => c_uint))?;
    }
    for (there, here) in there.iter_mut().zip(&mut here) {
        call!(cuda, cuMemAlloc_v2(there => *mut u64, LEN => usize))?;
        call!(cuda, cuMemHostAlloc(here => *mut *mut c_void, LEN => usize, 0 => c_uint))?;
    }
    let out = || call!(cuda, cuMemcpyDtoHAsync_v2(here[0] => *mut c_void, there[0] => u64, LEN => usize, streams[0] => *mut c_void));
    let back = || call!(cuda, cuMemcpyHtoDAsync_v2(there[1] => u64, here[1] => *mut c_void, LEN => usize, streams[1] => *mut c_void));
    let wait = || call!(cuda, cuCtxSynchronize());
    for (name, what, ways) in [
        ("link_out_gb_s", "a copy of 64 MiB to pinned memory: what the link carries", (true, false)),
        ("link_in_gb_s", "and from there", (false, true)),
        ("link_both_ways_gb_s", "both at once, together", (true, true)),
    ] {
        let copy = || -> Result<(), Failed> {
            if ways.0 {
                out()?;
            }
            if ways.1 {
                back()?;
            }
            wait()
        };
        copy()?;
        let bytes = LEN as u64 * (u64::from(ways.0) + u64::from(ways.1));
        let tries = (0..TRIES).map(|_| Ok(gb_s(Bytes(bytes), world.time(copy)?))).collect::<Result<_, Failed>>()?;
        rows.figure(name, what, tries);
    }
    for (there, here) in there.into_iter().zip(here) {
        call!(cuda, cuMemFree_v2(there => u64))?;
        call!(cuda, cuMemFreeHost(here => *mut c_void))?;
    }
    for stream in streams {
        call!(cuda, cuStreamDestroy_v2(stream => *mut c_void))?;
    }
    Ok(())
}

/// So many bytes in such a time, in GB/s.
pub fn gb_s(bytes: Bytes, time: Nanos) -> f64 {
    bytes.0 as f64 / time.0.max(1) as f64
}
