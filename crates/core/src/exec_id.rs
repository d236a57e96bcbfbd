//! Stage 2 of 7: exec_id. A launch becomes a small integer: the same one for the same kernel on the same data.
//!
//! Problem: everything later is learned per "the same work as in the last iteration", so two
//! launches must get one ID exactly when they will touch the same memory.
//! Idea: a 64-bit *key*, computed in the program's thread, and a dense ID given out here.
//! Two keys are on offer, and to either it is added how far its pointers reach, as far as that is known ([`reaching`]), but not under `deepum_paper`:
//! - [`pointer_key`] (default): kernel, launch shape, and the managed pointers as (allocation, UM block in it).
//!   Scalars are left out: dropout's Philox offset and Adam's step change in every iteration, and
//!   with them in the key no launch would ever be seen twice. So are pointers into
//!   allocations of a single block: PyTorch keeps small tensors there, and its optimizers' small temporaries
//!   land in another place every other iteration, beside the same large ones.
//! - [`raw_key`]: the paper's, kernel and raw argument bytes (DeepUM, ASPLOS'23, section 3.1).
//!
//! Invariants: keys are equal in every run and on every machine; IDs are dense, from 0, in order of
//! first sight; a key keeps its ID for the life of the table.
//! Not here: reading arguments (the shim), what follows what (`correlate`).

use crate::mix::{Map, Mix};
use crate::units::{AddrRange, Bytes, ExecId, LaunchKey, UmBlock};

/// Grid and block of a launch, in CUDA's order x, y, z.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Thread blocks.
    pub grid: [u32; 3],
    /// Threads of each.
    pub block: [u32; 3],
}

/// A managed pointer that means the same in every run: which allocation, counted in the order the
/// program made them, and which UM block of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StablePointer {
    /// Ordinal of the allocation.
    pub allocation: u32,
    /// Number of the block within it.
    pub block: u32,
}

/// The key of a launch by kernel, shape and managed pointers, in argument order.
///
/// `kernel` identifies the kernel across runs: a hash of its name, not its handle.
#[inline]
pub fn pointer_key(kernel: u64, shape: Shape, pointers: impl IntoIterator<Item = StablePointer>) -> LaunchKey {
    let [gx, gy, gz] = shape.grid.map(u64::from);
    let [bx, by, bz] = shape.block.map(u64::from);
    // CUDA's limits are 2^31-1, 65535, 65535 for the grid and 1024 threads in a block, so nothing overlaps.
    let mix = Mix::new().word(kernel).word(gx | gy << 32 | gz << 48).word(bx | by << 16 | bz << 32);
    let mix = pointers.into_iter().fold(mix, |mix, p| mix.word(u64::from(p.allocation) << 32 | u64::from(p.block)));
    LaunchKey(mix.end())
}

/// The key of a launch by kernel and raw argument bytes, one slice an argument, in argument order.
#[inline]
pub fn raw_key<'a>(kernel: u64, arguments: impl IntoIterator<Item = &'a [u8]>) -> LaunchKey {
    let mix = arguments.into_iter().fold(Mix::new().word(kernel), Mix::bytes);
    LaunchKey(mix.end())
}

/// The key of a launch of this key whose managed pointers reach so far.
///
/// A batch of another size puts its tensors where those of the last one were, and a kernel whose grid does not follow the batch has the same key then. What
/// such a launch uses would be taken for what the other one does. How much is reached counts in whole blocks: where in its first one
/// a tensor begins does not.
#[inline]
pub fn reaching(key: LaunchKey, reach: &[AddrRange]) -> LaunchKey {
    let blocks = reach.iter().map(|range| range.len.get() / UmBlock::SIZE.get());
    LaunchKey(blocks.filter(|&blocks| blocks > 0).fold(Mix::new().word(key.0), Mix::word).end())
}

/// Gives out execution IDs.
#[derive(Debug)]
pub struct Interner {
    /// By ID.
    keys: Vec<LaunchKey>,
    ids: Map<LaunchKey, ExecId>,
    /// What was asked for last.
    last: usize,
    limit: usize,
}

impl Interner {
    /// Gives out at most `limit` IDs.
    pub fn new(limit: u32) -> Self {
        Self::of(&[], limit)
    }

    /// The ID of `key`, new if it was never seen.
    ///
    /// Nothing when it is new and all IDs are given out: such a launch is never learned from or
    /// predicted, and those known before go on as they were. Nothing is forgotten to make room: a
    /// program that floods the table (new pointers in every iteration) would evict what repeats.
    pub fn intern(&mut self, key: LaunchKey) -> Option<ExecId> {
        // IDs are in order of first sight, and what comes after this launch is mostly what came after it the first time: beside it, not anywhere in a large table.
        let next = self.last + 1;
        if self.keys.get(next) == Some(&key) {
            self.last = next;
            return Some(id(next));
        }
        if let Some(&known) = self.ids.get(&key) {
            self.last = known.0 as usize;
            return Some(known);
        }
        let new = self.keys.len();
        if new >= self.limit {
            return None;
        }
        self.keys.push(key);
        self.ids.insert(key, id(new));
        self.last = new;
        Some(id(new))
    }

    /// Has given out the IDs of `keys`, from 0, which are all different and at most `limit`.
    pub fn of(keys: &[LaunchKey], limit: u32) -> Self {
        let ids = keys.iter().copied().zip((0..).map(ExecId)).collect();
        Self { keys: keys.to_vec(), ids, last: 0, limit: limit as usize }
    }

    /// The key of every ID, from 0.
    pub fn keys(&self) -> &[LaunchKey] {
        &self.keys
    }

    /// How many IDs are given out.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    /// Whether no ID is given out.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    /// Memory of the table.
    pub fn bytes(&self) -> Bytes {
        // One control byte a bucket beside the pair, in the standard library's table.
        let table = self.ids.capacity() * (size_of::<(LaunchKey, ExecId)>() + 1);
        Bytes((table + self.keys.capacity() * size_of::<LaunchKey>()) as u64)
    }
}

fn id(index: usize) -> ExecId {
    ExecId(u32::try_from(index).expect("below the limit, which is a u32"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DevAddr;

    const SHAPE: Shape = Shape { grid: [80, 1, 1], block: [256, 1, 1] };

    fn at(allocation: u32, block: u32) -> StablePointer {
        StablePointer { allocation, block }
    }

    #[test]
    fn how_much_is_reached_counts_and_not_where_it_begins_or_what_is_less_than_a_block() {
        let mib = |start: u64, len: u64| AddrRange::new(DevAddr(start << 20), Bytes(len << 20));
        let key = |reach: &[AddrRange]| reaching(LaunchKey(7), reach);
        let base = key(&[mib(100, 74), mib(200, 58)]);
        assert_eq!(base, key(&[mib(101, 74), mib(200, 59)]), "37 and 29 blocks");
        assert_eq!(base, key(&[mib(100, 74), mib(300, 1), mib(200, 58)]));
        for other in [[mib(100, 58), mib(200, 58)], [mib(100, 58), mib(200, 74)]] {
            assert_ne!(base, key(&other));
        }
        assert_ne!(base, reaching(LaunchKey(8), &[mib(100, 74), mib(200, 58)]));
    }

    #[test]
    fn kernel_shape_and_each_pointer_decide_the_key() {
        let base = pointer_key(1, SHAPE, [at(0, 0), at(3, 512)]);
        assert_eq!(base, pointer_key(1, SHAPE, vec![at(0, 0), at(3, 512)]));
        let others = [
            pointer_key(2, SHAPE, [at(0, 0), at(3, 512)]),
            pointer_key(1, Shape { grid: [80, 2, 1], ..SHAPE }, [at(0, 0), at(3, 512)]),
            pointer_key(1, Shape { block: [128, 1, 1], ..SHAPE }, [at(0, 0), at(3, 512)]),
            pointer_key(1, SHAPE, [at(3, 512), at(0, 0)]),
            pointer_key(1, SHAPE, [at(0, 0), at(3, 513)]),
            pointer_key(1, SHAPE, [at(0, 0)]),
        ];
        assert!(others.iter().all(|&other| other != base));
    }

    #[test]
    fn the_raw_key_sees_a_changed_scalar_and_a_moved_boundary() {
        let key = |args: &[&[u8]]| raw_key(9, args.iter().copied());
        assert_eq!(key(&[&[1, 2], &[3]]), key(&[&[1, 2], &[3]]));
        assert_ne!(key(&[&[1, 2], &[3]]), key(&[&[1, 2], &[4]]));
        assert_ne!(key(&[&[1, 2], &[3]]), key(&[&[1], &[2, 3]]));
    }

    #[test]
    fn ids_are_dense_and_kept_and_end_at_the_limit() {
        let mut ids = Interner::new(2);
        assert_eq!(ids.intern(LaunchKey(50)), Some(ExecId(0)));
        assert_eq!(ids.intern(LaunchKey(40)), Some(ExecId(1)));
        assert_eq!(ids.intern(LaunchKey(50)), Some(ExecId(0)));
        assert_eq!(ids.intern(LaunchKey(60)), None, "full");
        assert_eq!(ids.intern(LaunchKey(40)), Some(ExecId(1)), "those known stay");
        assert_eq!(ids.len(), 2);
    }
}
