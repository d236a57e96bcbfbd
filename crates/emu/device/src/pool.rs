//! Stream-ordered pools: `cuMemAllocAsync` and what belongs to it.
//!
//! A pool takes device memory in slabs, which count as any other device memory does, and hands out blocks of them
//! ([`deepum_core::pool`] keeps the books). A free is an operation in its stream: the same stream has the memory back at once, others when
//! the device has got there, or when they wait for it. Where memory runs out, slabs that nobody uses go back to the device first, of every
//! pool.
//!
//! Of the three permissions to reuse, *opportunistic* decides whether a free that has been reached counts before somebody waits for
//! it, *internal dependencies* whether an allocation may be made to wait for another stream's free. *Follow event dependencies* permits what is
//! not done here: no dependencies are followed.
//!
//! How large the driver's own slabs are is not documented: assumption. Pools of memory that is not a device's, and those that can be exported, are
//! refused.

use std::collections::BTreeMap;

use deepum_core::pool::{Gauge, Pool, StreamKey};
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId};

use crate::error::{CuError, CuResult};
use crate::machine::Call;
use crate::space::{Allocation, Kind};
use crate::state::State;
use crate::stream::{Mark, StreamId};
use crate::work::Work;

/// A pool of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PoolId(pub u32);

/// What a program may set of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `REUSE_FOLLOW_EVENT_DEPENDENCIES`.
    pub follow_events: bool,
    /// `REUSE_ALLOW_OPPORTUNISTIC`.
    pub opportunistic: bool,
    /// `REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
    pub internal: bool,
    /// `RELEASE_THRESHOLD`.
    pub threshold: Bytes,
}

/// One pool.
#[derive(Debug)]
pub struct MemPool {
    /// Whose memory.
    pub device: DeviceId,
    /// The most it may take; 0 is no limit.
    pub max: Bytes,
    /// What the program set.
    pub rules: Rules,
    books: Pool<Mark>,
    /// Numbers of the blocks.
    ids: BTreeMap<DevAddr, u64>,
    /// Destroyed, with memory that is still in use.
    leaving: bool,
}

impl MemPool {
    fn new(device: DeviceId, max: Bytes) -> Self {
        // The defaults of CUDA (driver API reference, `cuMemPoolSetAttribute`).
        let rules = Rules { follow_events: true, opportunistic: true, internal: true, threshold: Bytes::ZERO };
        Self { device, max, rules, books: Pool::default(), ids: BTreeMap::new(), leaving: false }
    }

    /// Memory it took, and memory in use.
    pub fn gauges(&mut self) -> [&mut Gauge; 2] {
        [&mut self.books.reserved, &mut self.books.used]
    }
}

/// Every pool of the process.
#[derive(Debug)]
pub struct Pools {
    all: BTreeMap<PoolId, MemPool>,
    /// Of each device, where `cuMemAllocAsync` takes from. Its default pool has its own number.
    current: Vec<PoolId>,
    next: PoolId,
}

impl Pools {
    /// The default pool of each device.
    #[must_use]
    pub fn new(devices: u8) -> Self {
        let default = |n: u8| (PoolId(u32::from(n)), MemPool::new(DeviceId(n), Bytes::ZERO));
        let current = (0..devices).map(|n| PoolId(u32::from(n))).collect();
        Self { all: (0..devices).map(default).collect(), current, next: PoolId(u32::from(devices)) }
    }

    /// A new pool of `device`.
    pub fn create(&mut self, device: DeviceId, max: Bytes) -> PoolId {
        let id = self.next;
        self.next = PoolId(id.0 + 1);
        self.all.insert(id, MemPool::new(device, max));
        id
    }

    /// The pool, unless it was destroyed.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn get(&mut self, id: PoolId) -> CuResult<&mut MemPool> {
        self.all.get_mut(&id).filter(|pool| !pool.leaving).ok_or(CuError::InvalidValue)
    }

    /// The default pool of `device`.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn default_of(&self, device: DeviceId) -> CuResult<PoolId> {
        let known = usize::from(device.0) < self.current.len();
        if known { Ok(PoolId(u32::from(device.0))) } else { Err(CuError::InvalidDevice) }
    }

    /// Where `cuMemAllocAsync` takes from on `device`.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn current_of(&self, device: DeviceId) -> CuResult<PoolId> {
        self.current.get(usize::from(device.0)).copied().ok_or(CuError::InvalidDevice)
    }

    /// From now on `cuMemAllocAsync` takes from `pool` on `device`.
    ///
    /// # Errors
    /// `InvalidValue` if it is no pool of that device.
    pub fn set_current(&mut self, device: DeviceId, pool: PoolId) -> CuResult {
        if self.get(pool)?.device != device {
            return Err(CuError::InvalidValue);
        }
        let current = self.current.get_mut(usize::from(device.0)).ok_or(CuError::InvalidDevice)?;
        *current = pool;
        Ok(())
    }

    /// The pool that handed out a block at `start`.
    fn of_block(&mut self, start: DevAddr) -> Option<&mut MemPool> {
        self.all.values_mut().find(|pool| pool.books.block(start).is_some_and(|block| block.start == start))
    }
}

impl State {
    /// The allocation that `addr` lies in: of a pool's memory, the block; and which pool that is.
    #[must_use]
    pub fn allocation(&self, addr: DevAddr) -> Option<(Allocation, Option<PoolId>)> {
        let mut found = *self.space.find(addr)?;
        if found.kind != Kind::Pool {
            return Some((found, None));
        }
        let block = |(&id, pool): (&PoolId, &MemPool)| {
            let range = pool.books.block(addr)?;
            Some((id, range, pool.ids.get(&range.start).copied()?))
        };
        let (pool, range, id) = self.pools.all.iter().find_map(block)?;
        (found.range, found.id) = (range, id);
        Some((found, Some(pool)))
    }
}

impl Call<'_> {
    /// Hands out a block of `len` bytes, for work that is queued to `stream` from now on.
    ///
    /// # Errors
    /// `InvalidValue` for no bytes or no such pool, `InvalidHandle`, `OutOfMemory`.
    pub fn allocate_from(&mut self, pool: PoolId, stream: StreamId, len: Bytes) -> CuResult<DevAddr> {
        if len == Bytes::ZERO {
            return Err(CuError::InvalidValue);
        }
        self.state.streams.get(stream).ok_or(CuError::InvalidHandle)?;
        let block = match self.block(pool, stream, len)? {
            Some(block) => block,
            None => {
                // What nobody uses goes back to the device before it says that it has no more.
                let device = self.state.pools.get(pool)?.device;
                self.pass_all();
                self.shrink(|pool| (pool.device == device).then_some(Bytes::ZERO))?;
                match self.block(pool, stream, len)? {
                    Some(block) => block,
                    None => self.block_of_others(pool, stream, len)?,
                }
            }
        };
        let id = self.state.space.name();
        self.state.pools.get(pool)?.ids.insert(block.start, id);
        Ok(block.start)
    }

    /// A block of what is there, or of a new slab; nothing if the device has no more.
    fn block(&mut self, id: PoolId, stream: StreamId, len: Bytes) -> CuResult<Option<AddrRange>> {
        let key = key(stream);
        let state = &mut *self.state;
        let pool = state.pools.get(id)?;
        if let Some(block) = pool.books.take(len, key) {
            return Ok(Some(block));
        }
        if pool.rules.opportunistic {
            pool.books.pass(|_, mark| state.streams.reached(mark));
            if let Some(block) = pool.books.take(len, key) {
                return Ok(Some(block));
            }
        }
        let slab = Pool::<Mark>::slab_for(len);
        if pool.max != Bytes::ZERO && pool.books.reserved.now + slab > pool.max {
            return Ok(None);
        }
        let device = pool.device;
        let slab = match self.allocate(Kind::Pool, device, slab, 0) {
            Ok(made) => made.range,
            Err(CuError::OutOfMemory) => return Ok(None),
            Err(other) => return Err(other),
        };
        let books = &mut self.state.pools.get(id)?.books;
        books.grow(slab, len);
        Ok(books.take(len, key))
    }

    /// A block that other streams freed: `stream` waits until they have got there.
    fn block_of_others(&mut self, id: PoolId, stream: StreamId, len: Bytes) -> CuResult<AddrRange> {
        let pool = self.state.pools.get(id)?;
        if !pool.rules.internal {
            return Err(CuError::OutOfMemory);
        }
        let taken = pool.books.take_of_others(len, key(stream)).ok_or(CuError::OutOfMemory)?;
        let marks: Vec<Mark> = taken.behind.into_iter().map(|(_, mark)| mark).collect();
        self.queue(stream, &marks, Work::Nothing)?;
        Ok(taken.block)
    }

    /// The block at `start` is free once `stream` has got here; without a stream at once, which the program vouches for. Nothing if no pool
    /// handed it out.
    ///
    /// # Errors
    /// `InvalidHandle`.
    pub fn free_to_pool(&mut self, start: DevAddr, stream: Option<StreamId>) -> CuResult<Option<()>> {
        if self.state.pools.of_block(start).is_none() {
            return Ok(None);
        }
        let mark = stream.map(|stream| self.queue(stream, &[], Work::Nothing)).transpose()?;
        let freed = stream.map(key).zip(mark);
        let Some(pool) = self.state.pools.of_block(start) else { return Ok(None) };
        pool.ids.remove(&start);
        pool.books.give(start, freed);
        Ok(Some(()))
    }

    /// Gives slabs of a pool back to its device, while it keeps `keep`.
    ///
    /// # Errors
    /// `InvalidValue` if there is no such pool.
    pub fn trim_pool(&mut self, id: PoolId, keep: Bytes) -> CuResult {
        self.state.pools.get(id)?;
        self.pass_all();
        let state = &mut *self.state;
        let gone = state.pools.get(id)?.books.shrink(keep);
        gone.into_iter().try_for_each(|slab| self.give_back(slab.start, &[Kind::Pool]))
    }

    /// A pool is not to be used any more. What it handed out stays until it is freed.
    ///
    /// # Errors
    /// `InvalidValue` if there is no such pool, or it is a device's default.
    pub fn destroy_pool(&mut self, id: PoolId) -> CuResult {
        let pools = &mut self.state.pools;
        if id.0 as usize >= pools.current.len() {
            pools.get(id)?.leaving = true;
            for (n, current) in (0u32..).zip(&mut pools.current).filter(|(_, current)| **current == id) {
                *current = PoolId(n);
            }
            return self.trim_pools();
        }
        Err(CuError::InvalidValue)
    }

    /// The host has waited: pools that hold more than they are to keep give back what they can.
    ///
    /// # Errors
    /// None that a program makes.
    pub fn trim_pools(&mut self) -> CuResult {
        self.pass_all();
        self.shrink(|pool| Some(if pool.leaving { Bytes::ZERO } else { pool.rules.threshold }))?;
        self.state.pools.all.retain(|_, pool| !pool.leaving || pool.books.reserved.now > Bytes::ZERO);
        Ok(())
    }

    /// What streams have got to is everybody's.
    fn pass_all(&mut self) {
        let state = &mut *self.state;
        for pool in state.pools.all.values_mut() {
            pool.books.pass(|_, mark| state.streams.reached(mark));
        }
    }

    /// Slabs that nobody uses go back to the device, of each pool while it holds more than `keep` says.
    fn shrink(&mut self, keep: impl Fn(&MemPool) -> Option<Bytes>) -> CuResult {
        let pools = self.state.pools.all.values_mut();
        let gone: Vec<AddrRange> =
            pools.filter_map(|pool| keep(pool).map(|keep| pool.books.shrink(keep))).flatten().collect();
        gone.into_iter().try_for_each(|slab| self.give_back(slab.start, &[Kind::Pool]))
    }
}

fn key(stream: StreamId) -> StreamKey {
    StreamKey(u64::from(stream.0))
}
