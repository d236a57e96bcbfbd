//! Range groups: blocks that may not migrate, and the way off a GPU that enters nothing into the host's page tables.
//!
//! Problem: `UVM_MIGRATE` to the host enters every page into the host's page tables, which takes longer than the copy ([`crate::commands`]).
//! Idea, the driver's (facts 4.9): a *group* can be told not to migrate. What is in such a group, or joins it, goes where it is preferred, and the host
//! maps nothing of it; `UVM_MIGRATE` passes it by. What is preferred nowhere any more leaves such a group.
//!
//! Whoever is in a group that does not migrate is preferred somewhere: who is not cannot join, and a group that has such a member answers an error when it is told
//! to stay. A GPU may be that place only for who joins; the driver refuses it everywhere else, since the GPUs played here can fault.
//!
//! Not modelled: parts of blocks; the nodes of the host, of which -1 and 0 are different preferences to the driver; and an access of the host's to a member, which is a SIGBUS there.

use crate::commands::Migrated;
use crate::memory::{ModelError, UnifiedMemory};
use crate::pages::{PAGES, PageMask};
use deepum_core::event::MigrationCause;
use deepum_core::units::{AddrRange, Nanos, Place};
use std::collections::BTreeMap;

/// A range group of the address space.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub u64);

impl Group {
    /// In no group.
    pub const NONE: Self = Self(0);
}

/// The groups there are, and whether they may migrate.
#[derive(Default, Debug)]
pub(crate) struct Groups {
    made: u64,
    migratable: BTreeMap<Group, bool>,
}

impl UnifiedMemory {
    /// `UVM_CREATE_RANGE_GROUP`: an empty group that may migrate. Numbers start at 1, and none comes twice.
    pub fn make_group(&mut self) -> Group {
        self.groups.made += 1;
        let group = Group(self.groups.made);
        self.groups.migratable.insert(group, true);
        group
    }

    /// `UVM_DESTROY_RANGE_GROUP`: its blocks are in no group from now on.
    ///
    /// # Errors
    /// [`ModelError::NoGroup`].
    pub fn end_group(&mut self, group: Group) -> Result<(), ModelError> {
        self.groups.migratable.remove(&group).ok_or(ModelError::NoGroup { group })?;
        self.blocks.iter_mut().filter(|block| block.group == group).for_each(|block| block.group = Group::NONE);
        Ok(())
    }

    /// Whether a group may migrate from now on; nothing moves. [`Self::gather`] is the second half of forbidding it.
    ///
    /// # Errors
    /// [`ModelError::NoGroup`].
    pub fn set_migratable(&mut self, group: Group, migratable: bool) -> Result<(), ModelError> {
        let now = self.groups.migratable.get_mut(&group).ok_or(ModelError::NoGroup { group })?;
        *now = migratable;
        Ok(())
    }

    /// The second half of `UVM_PREVENT_MIGRATION_RANGE_GROUPS`: what is in the group goes where it is preferred.
    ///
    /// # Errors
    /// [`ModelError::Unpreferred`], [`ModelError::Stays`], [`ModelError::OutOfMemory`]: blocks before have moved.
    pub fn gather(&mut self, group: Group, now: Nanos) -> Result<Migrated, ModelError> {
        let members = self.blocks.iter().enumerate().filter(|(_, block)| block.group == group);
        let mut members: Vec<_> = members.map(|(slot, block)| (block.id, slot)).collect();
        members.sort_unstable();
        let begun = self.lock.writes(now) + self.profile.ioctl_cost;
        let refused = members.iter().find_map(|&(id, slot)| match self.blocks[slot].preferred {
            Some(Place::Host) => None,
            Some(Place::Device(_)) => Some((id, ModelError::Stays { range: id.range() })),
            None => Some((id, ModelError::Unpreferred { range: id.range() })),
        });
        let fine = members.iter().take_while(|(id, _)| refused.is_none_or(|(first, _)| *id < first));
        let moved = self.go_home(fine.map(|&(_, slot)| slot).collect(), begun)?;
        refused.map_or(Ok(moved), |(_, error)| Err(error))
    }

    /// `UVM_SET_RANGE_GROUP`: the blocks of `range` are in this group, or in none, and in no other. If it does not migrate they go where they are preferred,
    /// which is waited for.
    ///
    /// # Errors
    /// [`ModelError::NoGroup`], [`ModelError::NotManaged`], [`ModelError::PartOfBlock`], [`ModelError::Unpreferred`]: nothing has changed then.
    /// [`ModelError::OutOfMemory`]: they are in the group, and blocks before the one that failed have moved.
    pub fn join(&mut self, range: AddrRange, group: Group, now: Nanos) -> Result<Migrated, ModelError> {
        let stays = match self.groups.migratable.get(&group) {
            Some(migratable) => !migratable,
            None if group == Group::NONE => false,
            None => return Err(ModelError::NoGroup { group }),
        };
        let slots = self.whole_blocks(range)?;
        if stays && slots.iter().any(|&slot| self.blocks[slot].preferred.is_none()) {
            return Err(ModelError::Unpreferred { range });
        }
        let begun = self.lock.writes(now) + self.profile.ioctl_cost;
        slots.iter().for_each(|&slot| self.blocks[slot].group = group);
        self.go_home(if stays { slots } else { Vec::new() }, begun)
    }

    /// Moves blocks where they are preferred, with the lock held for reading from `begun` on, and for writing until then.
    pub(crate) fn go_home(&mut self, slots: Vec<usize>, begun: Nanos) -> Result<Migrated, ModelError> {
        self.lock.write_until(begun);
        let (mut cpu, mut done) = (begun, begun);
        for slot in slots {
            cpu += self.profile.block_cost;
            let all = PageMask::span(0, PAGES);
            let block = &mut self.blocks[slot];
            if std::mem::take(&mut block.host_mapped) && !block.mapped.is_empty() {
                cpu += self.profile.host_unmap_cost;
            }
            block.mapped = PageMask::EMPTY;
            let cause = MigrationCause::Coherence;
            done = done.max(match block.preferred {
                Some(Place::Device(device)) => {
                    let d = self.device_index(device)?;
                    self.migrate_in(d, slot, all, cause, &mut cpu)?
                }
                _ => self.bring_home(slot, all, cause, cpu)?,
            });
        }
        let done = self.awaited(cpu, done);
        self.lock.read_until(done);
        Ok(Migrated { ordered: done, done, skipped: false })
    }

    /// Whether the block is in a group that does not migrate.
    pub(crate) fn stays(&self, slot: usize) -> bool {
        let group = self.blocks[slot].group;
        group != Group::NONE && self.groups.migratable.get(&group) == Some(&false)
    }
}
