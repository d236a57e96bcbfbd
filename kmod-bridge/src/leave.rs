//! Out of the GPU without entries in the host's page tables.
//!
//! `UVM_MIGRATE` to the host maps every page there for the program, one by one, which takes several times as long as the copy (facts 4.9), although no program looks at
//! its device memory by itself. A *range group* that may not migrate is different: a range put into it goes to its preferred location, and is mapped nowhere.
//! So, for each range: the host is preferred, it joins the group, which moves it, and leaves the group again. There are two ways to the last, which differ in what becomes of the preference:
//!
//! - it ends ([`VaSpace::leave`]), and the driver marks what the host has page by page, with the lock held for writing: 30 us a block beside 44 for its copy (H200, driver 580.159.04);
//! - it stays ([`VaSpace::leave_preferred`]), also when the range is back on the GPU. Then a GPU that faults on what the host has, or on what has no contents, is given the host's memory from afar until the next
//!   migration, so whoever leaves so brings by a call what faults, and takes the preferences back when nobody is there to do so ([`VaSpace::forget_preferences`]).
//!
//! While it is in the group the program cannot read the range on the host's side (SIGBUS). If whoever asks ends in between, the range stays in there: [`VaSpace::migrate`] takes it out.

use crate::migrate::{MigrateError, VaSpace};
use crate::raw::{self, Params, RequestError};
use crate::sys::{self, Uuid, request};
use deepum_core::units::{AddrRange, Bytes, Place, UmBlock};
use std::collections::BTreeSet;
use std::mem::offset_of;

/// A group of this address space whose ranges stay where they are preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay(u64);

/// `UVM_RANGE_GROUP_ID_NONE`.
const NO_GROUP: u64 = 0;

fn fail(range: AddrRange, e: RequestError) -> MigrateError {
    MigrateError { range, to: Place::Host, why: e.into() }
}

impl VaSpace {
    /// Makes such a group.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn stay(&self) -> Result<Stay, RequestError> {
        let mut params = Params::default();
        // SAFETY: no address among the parameters.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::CREATE_RANGE_GROUP, &mut params, |p| {
                p.u32(offset_of!(sys::CreateRangeGroup, rm_status))
            })?;
        }
        let id = params.u64(offset_of!(sys::CreateRangeGroup, id));
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::PreventMigration, ids), id);
        params.put_u64(offset_of!(sys::PreventMigration, count), 1);
        // SAFETY: no address among the parameters.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::PREVENT_MIGRATION_RANGE_GROUPS, &mut params, |p| {
                p.u32(offset_of!(sys::PreventMigration, rm_status))
            })?;
        }
        Ok(Stay(id))
    }

    /// Moves all of `range`, whole blocks of managed memory that nobody looks at on the host's side, to the host, and waits until it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn leave(&self, range: AddrRange, stay: Stay) -> Result<(), MigrateError> {
        let moved = self.prefer_host(range).and_then(|()| self.join(range, stay));
        // Whatever became of that: a range of the group is never on a GPU again, and part of one that was not moved may be preferred on the host.
        let free = self.tell(request::UNSET_PREFERRED_LOCATION, range, None);
        moved.and(free).map_err(|e| fail(range, e))
    }

    /// The same, but that the host stays preferred. See the module.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub fn leave_preferred(&self, range: AddrRange, stay: Stay) -> Result<(), MigrateError> {
        let moved = self.prefer_host(range).and_then(|()| self.join(range, stay));
        let free = self.join(range, Stay(NO_GROUP));
        moved.and(free).map_err(|e| fail(range, e))
    }

    /// The same for a range that left so before, by a call less: the host is preferred still, or part of the range was freed since, and then the driver refuses it and is told anew.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub fn leave_again(&self, range: AddrRange, stay: Stay) -> Result<(), MigrateError> {
        match self.join(range, stay) {
            Ok(()) => self.join(range, Stay(NO_GROUP)).map_err(|e| fail(range, e)),
            Err(_) => self.leave_preferred(range, stay),
        }
    }

    /// Prefers no place for `range` any more.
    ///
    /// # Errors
    /// As [`Self::leave`].
    pub fn forget_preference(&self, range: AddrRange) -> Result<(), MigrateError> {
        self.tell(request::UNSET_PREFERRED_LOCATION, range, None).map_err(|e| fail(range, e))
    }

    /// The same for all of these that are still there.
    pub fn forget_preferences(&self, blocks: &BTreeSet<UmBlock>) {
        let mut left = blocks.iter().copied().peekable();
        while let Some(first) = left.next() {
            let mut end = first.0 + 1;
            while left.next_if_eq(&UmBlock(end)).is_some() {
                end += 1;
            }
            let run = AddrRange::new(first.start(), Bytes(UmBlock::SIZE.get() * (end - first.0)));
            if self.forget_preference(run).is_err() {
                // Some of it was freed, and with it what was preferred.
                (first.0..end).for_each(|block| _ = self.forget_preference(UmBlock(block).range()));
            }
        }
    }

    fn join(&self, range: AddrRange, group: Stay) -> Result<(), RequestError> {
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::SetRangeGroup, id), group.0);
        params.put_u64(offset_of!(sys::SetRangeGroup, base), range.start.get());
        params.put_u64(offset_of!(sys::SetRangeGroup, length), range.len.get());
        // SAFETY: the only addresses are of the program's managed memory, which the driver checks: it moves pages between places and changes no byte of them.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::SET_RANGE_GROUP, &mut params, |p| {
                p.u32(offset_of!(sys::SetRangeGroup, rm_status))
            })
        }
    }

    fn prefer_host(&self, range: AddrRange) -> Result<(), RequestError> {
        let mut params = Params::default();
        params.put_u64(offset_of!(sys::Prefer550, base), range.start.get());
        params.put_u64(offset_of!(sys::Prefer550, length), range.len.get());
        params.put_uuid(offset_of!(sys::Prefer550, uuid), Uuid::CPU);
        let (node, status) = (offset_of!(sys::Prefer550, cpu_numa_node), offset_of!(sys::Prefer550, rm_status));
        // Any node, from 550 on; before that the status is there, which is never this.
        params.put_u32(node, u32::MAX);
        params.put_u32(status, 1);
        // SAFETY: as in `leave`; nothing moves.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::SET_PREFERRED_LOCATION, &mut params, |p| {
                match p.u32(node) {
                    u32::MAX => p.u32(status),
                    old => old,
                }
            })
        }
    }

    /// Has the driver tell of all moves that are over (facts 2.5).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush(&self) -> Result<(), RequestError> {
        let mut params = Params::default();
        // SAFETY: no address among the parameters.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::TOOLS_FLUSH_EVENTS, &mut params, |p| {
                p.u32(offset_of!(sys::FlushEvents, rm_status))
            })
        }
    }
}
