//! The residency map: our shadow of which managed block is where.
//!
//! Problem: no query tells where a page is (facts 0); only notices of what moved do.
//! Idea: a record for every managed block, changed by each notice. Beside its place it holds when it was
//! last *made resident*, because the driver evicts in that order and not by access (facts 4.2), and what we
//! have asked for, so that nothing is asked twice.
//!
//! **Age.** `clock` counts blocks made resident. A block's age is how many were since: once it reaches the
//! number of blocks that fit, the driver has evicted the block, whatever the notices say. This is also how
//! lost notices heal.
//!
//! Invariants: `on_device` blocks are exactly those in the order list; the order list is by last
//! make-resident, oldest first; a block is at most [`UmBlock::SIZE`] on the GPU.
//! Without any notices the engine tells what it must assume: what a launch used arrived, the oldest left for it.
//! A block counts as wholly there only on evidence (a fetch that succeeded, or 2 MiB of notices): first
//! touches populate without a migration notice, so bytes alone may say too little.

use crate::event::{Migration, MigrationCause};
use crate::mix::Map;
use crate::units::{AddrRange, Bytes, DeviceId, Place, UmBlock};

/// What is asked for a block, and, for a predicted fetch that arrived, that it has yet to prove useful.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Ask {
    /// Nothing.
    #[default]
    None,
    /// New memory is being populated.
    Populate,
    /// A fault fetch is on its way.
    Urgent,
    /// A predicted fetch is on its way.
    Predicted,
    /// A predicted fetch arrived, and no launch has used it yet.
    Unproven,
    /// A touch is on its way: it is there, and is to stay.
    Keep,
    /// An eviction is on its way.
    Evict,
}

/// Position of a launch in the plan: counts planned launches, predicted ones included (`predict`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Ticket(pub u64);

/// What is known about one block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Which.
    pub block: UmBlock,
    /// Whether the GPU holds a chunk for it: 2 MiB of its memory, however few pages are there.
    pub on_device: bool,
    /// First planned launch it is expected by; past ones mean none.
    pub next_use: Ticket,
    /// Last planned launch it is expected by; past ones mean none.
    pub last_use: Ticket,
    ask: Ask,
    bytes: Bytes,
    stamp: u64,
    older: u32,
    newer: u32,
}

impl Block {
    /// Whether all of its pages are there.
    pub fn whole(&self) -> bool {
        self.bytes == UmBlock::SIZE
    }
    /// What is asked for it.
    pub const fn ask(&self) -> Ask {
        self.ask
    }
    /// Whether it holds a chunk and is not asked to give it up.
    fn stays(&self) -> bool {
        self.on_device && self.ask != Ask::Evict
    }
    /// Whether it will take a chunk.
    fn comes(&self) -> bool {
        !self.on_device && matches!(self.ask, Ask::Populate | Ask::Urgent | Ask::Predicted)
    }
}

const NIL: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Residency {
    device: DeviceId,
    index: Map<UmBlock, u32>,
    blocks: Vec<Block>,
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
    clock: u64,
    on_device: usize,
    staying: usize,
    coming: usize,
    managed: Bytes,
}

/// A handle on a block's record; good until the block's memory is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(u32);

impl Residency {
    /// Nothing is managed yet. `device` is the GPU looked after.
    pub fn new(device: DeviceId) -> Self {
        Self {
            device,
            index: Map::default(),
            blocks: Vec::new(),
            vacant: Vec::new(),
            oldest: NIL,
            newest: NIL,
            clock: 0,
            on_device: 0,
            staying: 0,
            coming: 0,
            managed: Bytes::ZERO,
        }
    }

    /// The program was given `range`: its blocks exist, and are nowhere.
    pub fn alloc(&mut self, range: AddrRange) {
        for block in range.blocks() {
            if self.index.contains_key(&block) {
                continue;
            }
            let fresh = Block {
                block,
                on_device: false,
                ask: Ask::None,
                next_use: Ticket(0),
                last_use: Ticket(0),
                bytes: Bytes::ZERO,
                stamp: 0,
                older: NIL,
                newer: NIL,
            };
            let at = if let Some(at) = self.vacant.pop() {
                self.blocks[at as usize] = fresh;
                at
            } else {
                self.blocks.push(fresh);
                u32::try_from(self.blocks.len() - 1).expect("2^32 blocks are 8 EiB")
            };
            self.index.insert(block, at);
            self.managed += UmBlock::SIZE;
        }
    }

    /// The program gave `range` back. `gone` hears of each block, as it was.
    pub fn free(&mut self, range: AddrRange, mut gone: impl FnMut(&Block)) {
        for block in range.blocks() {
            let Some(at) = self.index.remove(&block) else { continue };
            gone(&self.blocks[at as usize]);
            self.set_ask(Handle(at), Ask::None);
            self.leave(Handle(at));
            self.vacant.push(at);
            self.managed -= UmBlock::SIZE;
        }
    }

    /// The record of `block`, if it is managed.
    pub fn find(&self, block: UmBlock) -> Option<Handle> {
        self.index.get(&block).map(|&at| Handle(at))
    }
    /// The record behind a handle.
    pub fn get(&self, at: Handle) -> &Block {
        &self.blocks[at.0 as usize]
    }
    /// The record behind a handle, to note when it is expected.
    pub fn get_mut(&mut self, at: Handle) -> &mut Block {
        &mut self.blocks[at.0 as usize]
    }
    /// Changes a record and keeps the numbers of those that stay and come.
    fn change(&mut self, at: Handle, change: impl FnOnce(&mut Block)) {
        let block = &mut self.blocks[at.0 as usize];
        let (stayed, came) = (block.stays(), block.comes());
        change(block);
        self.staying = self.staying + usize::from(block.stays()) - usize::from(stayed);
        self.coming = self.coming + usize::from(block.comes()) - usize::from(came);
    }
    /// Notes what is asked for a block.
    pub fn set_ask(&mut self, at: Handle, ask: Ask) {
        self.change(at, |block| block.ask = ask);
    }

    /// The driver made the block resident by itself, or is about to: it becomes the youngest.
    pub fn arrive(&mut self, at: Handle) {
        if !self.get(at).on_device {
            self.asked(at);
            self.place_newest(at);
        }
    }

    /// A fetch was asked for: the driver will make the block resident, which is what age counts.
    pub fn asked(&mut self, at: Handle) {
        self.clock += 1;
        let clock = self.clock;
        self.get_mut(at).stamp = clock;
        if self.get(at).on_device {
            self.place_newest(at);
        }
    }

    /// A fetch ended well: all of the block is there, and it is the youngest.
    pub fn fetched(&mut self, at: Handle) {
        self.place_newest(at);
        self.set_bytes(at, UmBlock::SIZE);
    }

    /// The GPU faulted on the block: some of it is being made resident, and it was not all there, whatever
    /// we believed.
    pub fn faulted(&mut self, at: Handle) {
        if self.get(at).whole() {
            self.leave(at);
        }
        self.arrive(at);
    }

    /// No page of the block is on the GPU any more.
    pub fn leave(&mut self, at: Handle) {
        self.set_bytes(at, Bytes::ZERO);
        if self.get(at).on_device {
            self.unlink(at);
            self.change(at, |block| block.on_device = false);
            self.on_device -= 1;
        }
    }

    /// A piece of a block moved. Returns whether the block left the GPU by this.
    pub fn migrated(&mut self, piece: &Migration) -> bool {
        let Some(at) = self.find(piece.block) else { return false };
        if piece.to == Place::Device(self.device) {
            self.arrive(at);
            let bytes = self.get(at).bytes + piece.bytes;
            self.set_bytes(at, bytes);
            return false;
        }
        if piece.from != Place::Device(self.device) || !self.get(at).on_device {
            return false;
        }
        let left = self.get(at).bytes.saturating_sub(piece.bytes);
        // The driver evicts whole chunks (facts 4.2); otherwise pages leave one by one.
        let gone = piece.cause == MigrationCause::Eviction || left == Bytes::ZERO;
        if gone {
            self.leave(at);
        } else {
            self.set_bytes(at, left);
        }
        gone
    }

    fn set_bytes(&mut self, at: Handle, bytes: Bytes) {
        self.get_mut(at).bytes = bytes.min(UmBlock::SIZE);
    }

    fn place_newest(&mut self, at: Handle) {
        if self.newest == at.0 {
            return;
        }
        if self.get(at).on_device {
            self.unlink(at);
        } else {
            self.on_device += 1;
        }
        let last = self.newest;
        self.change(at, |block| {
            block.on_device = true;
            (block.older, block.newer) = (last, NIL);
        });
        match last {
            NIL => self.oldest = at.0,
            last => self.blocks[last as usize].newer = at.0,
        }
        self.newest = at.0;
    }

    fn unlink(&mut self, at: Handle) {
        let (older, newer) = (self.get(at).older, self.get(at).newer);
        match older {
            NIL => self.oldest = newer,
            older => self.blocks[older as usize].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.blocks[newer as usize].older = older,
        }
    }

    /// How many blocks were made resident since this one was, itself not counted.
    pub fn age(&self, at: Handle) -> u64 {
        self.clock - self.get(at).stamp
    }
    /// Blocks with a chunk on the GPU, in the order the driver would evict them.
    pub fn oldest_first(&self) -> impl Iterator<Item = Handle> + '_ {
        std::iter::successors((self.oldest != NIL).then_some(Handle(self.oldest)), |&at| {
            let newer = self.get(at).newer;
            (newer != NIL).then_some(Handle(newer))
        })
    }
    /// Blocks with a chunk on the GPU.
    pub fn blocks_on_device(&self) -> usize {
        self.on_device
    }
    /// Blocks with a chunk that are not asked to give it up.
    pub fn blocks_staying(&self) -> usize {
        self.staying
    }
    /// Blocks without a chunk that one is asked for, in no particular order. Looks at every block.
    pub fn coming(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.comes())
    }
    /// How many those are.
    pub fn blocks_coming(&self) -> usize {
        self.coming
    }
    /// Managed bytes the program has.
    pub fn managed(&self) -> Bytes {
        self.managed
    }
    /// The GPU looked after.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{DevAddr, Nanos};
    use proptest::prelude::*;

    fn map(blocks: u64) -> Residency {
        let mut map = Residency::new(DeviceId(0));
        map.alloc(AddrRange::new(DevAddr(0), Bytes(blocks * UmBlock::SIZE.get())));
        map
    }
    fn at(map: &Residency, block: u64) -> Handle {
        map.find(UmBlock(block)).unwrap()
    }
    fn order(map: &Residency) -> Vec<u64> {
        map.oldest_first().map(|at| map.get(at).block.0).collect()
    }
    fn piece(block: u64, kib: u64, to_device: bool, cause: MigrationCause) -> Migration {
        let (host, device) = (Place::Host, Place::Device(DeviceId(0)));
        let (from, to) = if to_device { (host, device) } else { (device, host) };
        Migration { block: UmBlock(block), bytes: Bytes::kib(kib), from, to, cause, at: Nanos::ZERO }
    }

    #[test]
    fn pieces_add_up_to_a_whole_block_and_an_eviction_takes_all_of_it() {
        let mut map = map(4);
        map.migrated(&piece(1, 64, true, MigrationCause::Coherence));
        assert!(map.get(at(&map, 1)).on_device && !map.get(at(&map, 1)).whole());
        map.migrated(&piece(1, 1984, true, MigrationCause::Prefetch));
        assert!(map.get(at(&map, 1)).whole());
        assert_eq!(map.blocks_on_device(), 1);
        assert!(!map.migrated(&piece(1, 4, false, MigrationCause::Coherence)));
        assert!(!map.get(at(&map, 1)).whole());
        assert!(map.migrated(&piece(1, 64, false, MigrationCause::Eviction)));
        assert_eq!(map.blocks_on_device(), 0);
    }

    #[test]
    fn later_pieces_do_not_make_a_block_younger_but_a_touch_does() {
        let mut map = map(4);
        for block in [2, 0, 1] {
            map.migrated(&piece(block, 64, true, MigrationCause::Coherence));
        }
        map.migrated(&piece(2, 64, true, MigrationCause::Prefetch));
        assert_eq!(order(&map), [2, 0, 1]);
        map.asked(at(&map, 2));
        assert_eq!(order(&map), [0, 1, 2]);
        assert_eq!((map.age(at(&map, 2)), map.age(at(&map, 1))), (0, 1));
    }

    #[test]
    fn freed_memory_is_forgotten_and_its_place_is_used_again() {
        let mut map = map(4);
        map.fetched(at(&map, 3));
        let mut heard = Vec::new();
        map.free(AddrRange::new(UmBlock(2).start(), Bytes::mib(4)), |block| heard.push((block.block.0, block.whole())));
        assert_eq!(heard, [(2, false), (3, true)]);
        assert_eq!((map.find(UmBlock(3)), map.managed()), (None, Bytes::mib(4)));
        assert!(!map.migrated(&piece(3, 64, true, MigrationCause::User)), "not managed: not ours");
        map.alloc(AddrRange::new(UmBlock(7).start(), Bytes::mib(2)));
        assert_eq!(map.get(at(&map, 7)).block, UmBlock(7));
        assert_eq!(map.blocks.len(), 4);
    }

    #[test]
    fn what_moves_between_other_places_is_not_ours() {
        let mut map = map(4);
        let elsewhere = Migration { to: Place::Device(DeviceId(1)), ..piece(0, 64, true, MigrationCause::User) };
        assert!(!map.migrated(&elsewhere));
        assert_eq!(map.blocks_on_device(), 0);
    }

    proptest! {
        /// Against a vector in eviction order.
        #[test]
        fn the_order_list_agrees_with_a_vector(steps in prop::collection::vec((0u64..12, 0u8..4), 1..200)) {
            let mut map = map(12);
            let mut oracle: Vec<u64> = Vec::new();
            for (block, step) in steps {
                let handle = at(&map, block);
                match step {
                    0 => map.arrive(handle),
                    1 => map.asked(handle),
                    2 => map.fetched(handle),
                    _ => map.leave(handle),
                }
                let there = oracle.contains(&block);
                let moves = [!there, there, true, false][usize::from(step)];
                if moves || step == 3 {
                    oracle.retain(|&other| other != block);
                }
                if moves {
                    oracle.push(block);
                }
                prop_assert_eq!(order(&map), oracle.clone());
                prop_assert_eq!(map.blocks_on_device(), oracle.len());
            }
        }
    }
}
