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

use crate::block_index::BlockIndex;
use crate::event::{Migration, MigrationCause};
use crate::units::{AddrRange, Bytes, DeviceId, LaunchSeq, Place, UmBlock};

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
    /// An eviction is on its way, because the budget asks for it.
    Evict,
    /// An eviction is on its way, before its room is needed.
    PreEvict,
    /// A discard is on its way.
    Discard,
    /// A copy to the host is on its way; it stays.
    Save,
    /// Its copy here is being given up.
    Drop,
    /// It is fetched, or is there, and is to have its only copy here.
    Own,
}

impl Ask {
    /// Whether the block is asked to leave with a copy.
    pub const fn evicts(self) -> bool {
        matches!(self, Self::Evict | Self::PreEvict)
    }
    /// Whether the block is asked to leave.
    pub const fn leaves(self) -> bool {
        self.evicts() || matches!(self, Self::Discard | Self::Drop)
    }
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
    /// Whether it has no contents anywhere: new, or given up, and not used since. Bringing it in copies nothing.
    pub empty: bool,
    /// Whether a launch that names it was found not to use it, since the GPU last faulted on it.
    pub unused: bool,
    /// Whether the driver may keep two copies of it ([`crate::copies`]).
    pub duplicated: bool,
    /// Whether the host has all of its contents, wherever else they are.
    pub saved: bool,
    /// Whether a call of ours has ever brought it: whoever makes them says where it is, and a notice of one may be told after the block has left again.
    pub ours: bool,
    /// Whether [`crate::invalidate`] holds it for dead.
    pub listed: bool,
    /// The first launch that could be issued since memory in it was handed out, until one is that names it: that one writes it. 0: none.
    pub fresh: LaunchSeq,
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
        self.on_device && !self.ask.leaves()
    }
    /// Whether the way out is to take it: it is asked to leave, and its contents are not given up.
    fn goes(&self) -> bool {
        self.on_device && self.ask.leaves() && self.ask != Ask::Discard
    }
    /// Whether it will take a chunk.
    fn comes(&self) -> bool {
        !self.on_device && matches!(self.ask, Ask::Populate | Ask::Urgent | Ask::Predicted | Ask::Own)
    }
}

const NIL: u32 = u32::MAX;

/// What a record is of that is of no block any more.
const NOBODY: UmBlock = UmBlock(u64::MAX);

/// See the module.
#[derive(Debug)]
pub struct Residency {
    device: DeviceId,
    index: BlockIndex,
    blocks: Vec<Block>,
    vacant: Vec<u32>,
    oldest: u32,
    newest: u32,
    clock: u64,
    on_device: usize,
    staying: usize,
    going: usize,
    coming: usize,
    discarding: usize,
    evicting: usize,
    managed: Bytes,
    /// Blocks whose place, contents or ask have changed, for whoever keeps lists by those.
    changed: Option<Vec<Handle>>,
}

/// A handle on a block's record; good until the block's memory is freed, and then another block's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Handle(u32);

impl Handle {
    /// Its number: small, and used again.
    pub const fn id(self) -> u32 {
        self.0
    }
    /// Its number, to look things up by.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// That of this number.
    pub const fn of(id: u32) -> Self {
        Self(id)
    }
}

impl Residency {
    /// Nothing is managed yet. `device` is the GPU looked after.
    pub fn new(device: DeviceId) -> Self {
        Self {
            device,
            index: BlockIndex::default(),
            blocks: Vec::new(),
            vacant: Vec::new(),
            oldest: NIL,
            newest: NIL,
            clock: 0,
            on_device: 0,
            staying: 0,
            going: 0,
            coming: 0,
            discarding: 0,
            evicting: 0,
            managed: Bytes::ZERO,
            changed: None,
        }
    }

    /// From now on remembers which blocks change, until [`Self::changed`] is asked.
    pub fn watch(&mut self) {
        self.changed.get_or_insert_default();
    }
    /// Notes that something about a block is not as it was.
    pub fn note(&mut self, at: Handle) {
        if let Some(changed) = self.changed.as_mut().filter(|changed| changed.last() != Some(&at)) {
            changed.push(at);
        }
    }
    /// One of the blocks that changed, each once or more; one that was freed since is passed over.
    pub fn changed(&mut self) -> Option<Handle> {
        while let Some(at) = self.changed.as_mut()?.pop() {
            if self.get(at).block != NOBODY {
                return Some(at);
            }
        }
        None
    }

    /// The program was given `range`: its blocks exist, and are nowhere.
    pub fn alloc(&mut self, range: AddrRange) {
        for block in range.blocks() {
            if self.index.get(block).is_some() {
                continue;
            }
            let fresh = Block {
                block,
                on_device: false,
                empty: true,
                unused: false,
                duplicated: false,
                saved: false,
                ours: false,
                listed: false,
                fresh: LaunchSeq(0),
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
            self.note(Handle(at));
            self.managed += UmBlock::SIZE;
        }
    }

    /// The program gave `range` back. `gone` hears of each block, as it was.
    pub fn free(&mut self, range: AddrRange, mut gone: impl FnMut(Handle, &Block)) {
        for block in range.blocks() {
            let Some(at) = self.index.remove(block) else { continue };
            gone(Handle(at), &self.blocks[at as usize]);
            self.set_ask(Handle(at), Ask::None);
            self.leave(Handle(at));
            self.blocks[at as usize].block = NOBODY;
            self.vacant.push(at);
            self.managed -= UmBlock::SIZE;
        }
    }

    /// The record of `block`, if it is managed.
    pub fn find(&self, block: UmBlock) -> Option<Handle> {
        self.index.get(block).map(Handle)
    }
    /// [`Self::find`], which is quick where this block's record is beside that of the one found before, as in memory that was handed out at once.
    pub fn find_next(&self, before: Option<Handle>, block: UmBlock) -> Option<Handle> {
        let beside = before.map(|before| Handle(before.0 + 1));
        beside
            .filter(|at| self.blocks.get(at.index()).is_some_and(|other| other.block == block))
            .or_else(|| self.find(block))
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
        let (stayed, came, discarded) = (block.stays(), block.comes(), block.ask == Ask::Discard);
        let (went, evicted) = (block.goes(), block.ask.evicts());
        change(block);
        self.staying = self.staying + usize::from(block.stays()) - usize::from(stayed);
        self.going = self.going + usize::from(block.goes()) - usize::from(went);
        self.coming = self.coming + usize::from(block.comes()) - usize::from(came);
        self.evicting = self.evicting + usize::from(block.ask.evicts()) - usize::from(evicted);
        self.discarding = self.discarding + usize::from(block.ask == Ask::Discard) - usize::from(discarded);
        self.note(at);
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
        self.get_mut(at).ours = true;
    }

    /// The GPU faulted on the block: some of it is being made resident, and it was not all there, whatever
    /// we believed.
    pub fn faulted(&mut self, at: Handle) {
        if self.get(at).whole() {
            self.leave(at);
        }
        self.get_mut(at).unused = false;
        self.arrive(at);
    }

    /// Whether the block has contents, and the GPU nothing of it.
    pub fn lacks(&self, at: Handle) -> bool {
        !self.get(at).on_device && !self.get(at).empty
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

    /// The contents of the block were given up: it is nowhere.
    pub fn discarded(&mut self, at: Handle) {
        self.leave(at);
        let block = self.get_mut(at);
        (block.empty, block.saved) = (true, false);
        self.note(at);
    }

    /// A piece of a block moved. Returns whether the block left the GPU by this.
    pub fn migrated(&mut self, piece: &Migration) -> bool {
        let Some(at) = self.find(piece.block) else { return false };
        if piece.to == Place::Device(self.device) {
            if piece.cause == MigrationCause::User && self.get(at).ours {
                return false;
            }
            self.arrive(at);
            let bytes = self.get(at).bytes + piece.bytes;
            self.set_bytes(at, bytes);
            return false;
        }
        if piece.from != Place::Device(self.device) || !self.get(at).on_device {
            return false;
        }
        // What a call copies to the host may be here still; if not, whoever made the call tells.
        if self.get(at).duplicated && piece.cause == MigrationCause::User {
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
            (block.on_device, block.empty) = (true, false);
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
    /// Blocks on the GPU that are asked to leave.
    pub fn blocks_leaving(&self) -> usize {
        self.on_device - self.staying
    }
    /// Those of them that the way out is to take: not those whose contents are given up.
    pub fn blocks_going(&self) -> usize {
        self.going
    }
    /// Blocks asked to leave with a copy.
    pub fn blocks_evicting(&self) -> usize {
        self.evicting
    }
    /// Blocks whose contents are asked to be given up.
    pub fn blocks_discarding(&self) -> usize {
        self.discarding
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
mod tests;
