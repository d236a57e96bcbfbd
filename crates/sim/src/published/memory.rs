//! Where bytes are: on the GPU by when they came, away, or on their way.
//!
//! Bytes of one tensor that are in one place are all alike, so they are only counted. On the GPU they are in *stays*, one for all that came in a row; the oldest
//! stay leaves first, and nothing that happens to it there makes it younger. A stay that was told to leave is still there, but cannot be chosen to leave again.
//!
//! Invariants: what is away, on its way in, and in stays is the tensor's size, for each tensor; stays and what is free are the GPU.

use super::World;
use deepum_core::units::Bytes;
use deepum_trace::program::{Life, Program, TensorId};
use std::collections::{BTreeMap, VecDeque};

/// Where bytes are that are not on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Away {
    /// They have no contents.
    Nowhere,
    /// In host memory.
    Host,
    /// On the SSD.
    Ssd,
}

impl Away {
    pub(super) const ALL: [Self; 3] = [Self::Nowhere, Self::Host, Self::Ssd];
}

/// When a stay began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Stamp(pub(super) u64);

/// Bytes on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stay {
    pub(super) id: TensorId,
    pub(super) bytes: Bytes,
    leaving: bool,
}

#[derive(Clone, Default, Debug)]
struct Tensor {
    size: Bytes,
    /// Where nobody has asked for it yet.
    away: [Bytes; 3],
    /// Those that leave first.
    stays: VecDeque<Stamp>,
    /// In stays that do not leave.
    stands: Bytes,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    tensors: Vec<Tensor>,
    stays: BTreeMap<Stamp, Stay>,
    next: Stamp,
    gpu: Bytes,
    free: Bytes,
    host_free: Bytes,
    needed: Vec<TensorId>,
    /// How many of those are not all there to stay.
    lacking: usize,
}

impl Memory {
    /// At first globals are on the SSD, and intermediates have no contents.
    pub(super) fn new(program: &Program, world: &World) -> Self {
        let tensor = |id| {
            let of = program.tensor(id);
            let mut tensor = Tensor { size: of.size, ..Tensor::default() };
            let at = if of.life == Life::Global { Away::Ssd } else { Away::Nowhere };
            tensor.away[at as usize] = of.size;
            tensor
        };
        Self {
            tensors: program.ids().map(tensor).collect(),
            stays: BTreeMap::new(),
            next: Stamp(0),
            gpu: world.gpu,
            free: world.gpu,
            host_free: world.host,
            needed: Vec::new(),
            lacking: 0,
        }
    }

    pub(super) fn held(&self) -> Bytes {
        self.gpu - self.free
    }
    pub(super) const fn free(&self) -> Bytes {
        self.free
    }
    pub(super) const fn host_free(&self) -> Bytes {
        self.host_free
    }

    /// What the kernel touches that begins now.
    pub(super) fn needed(&mut self, touches: Vec<TensorId>) {
        self.lacking = touches.iter().filter(|id| !self.is_whole(**id)).count();
        self.needed = touches;
    }
    pub(super) fn is_needed(&self, id: TensorId) -> bool {
        self.needed.binary_search(&id).is_ok()
    }
    /// Whether all of that is there to stay.
    pub(super) const fn all_here(&self) -> bool {
        self.lacking == 0
    }
    /// Whether all of a tensor is there to stay.
    pub(super) fn is_whole(&self, id: TensorId) -> bool {
        self.tensors[id.index()].stands == self.tensors[id.index()].size
    }
    /// Whether some of it was told to leave, and is there.
    pub(super) fn is_leaving(&self, id: TensorId) -> bool {
        let leaves = |stamp: &Stamp| self.stays.get(stamp).is_some_and(|stay| stay.leaving);
        self.tensors[id.index()].stays.iter().any(leaves)
    }
    /// So much of a tensor is there to stay from now on.
    fn set_stands(&mut self, id: TensorId, stands: Bytes) {
        let was_whole = self.is_whole(id);
        self.tensors[id.index()].stands = stands;
        if was_whole != self.is_whole(id) && self.is_needed(id) {
            self.lacking = if was_whole { self.lacking + 1 } else { self.lacking - 1 };
        }
    }

    /// All of a tensor that is away is on its way from now on: how much from where.
    pub(super) fn asked_for(&mut self, id: TensorId) -> [Bytes; 3] {
        std::mem::take(&mut self.tensors[id.index()].away)
    }
    /// So much of it that was on its way is away again.
    pub(super) fn unasked(&mut self, id: TensorId, from: Away, bytes: Bytes) {
        self.tensors[id.index()].away[from as usize] += bytes;
    }
    /// What was on its way is there.
    pub(super) fn arrives(&mut self, id: TensorId, bytes: Bytes) {
        self.free -= bytes;
        self.set_stands(id, self.tensors[id.index()].stands + bytes);
        let tensor = &mut self.tensors[id.index()];
        match self.stays.last_entry() {
            Some(mut last) if last.get().id == id && !last.get().leaving => last.get_mut().bytes += bytes,
            _ => {
                tensor.stays.push_back(self.next);
                self.stays.insert(self.next, Stay { id, bytes, leaving: false });
                self.next.0 += 1;
            }
        }
    }
    /// It has left host memory.
    pub(super) fn leaves_host(&mut self, bytes: Bytes) {
        self.host_free += bytes;
    }

    /// All of a tensor that is there is told to leave: how much.
    pub(super) fn told_to_leave(&mut self, id: TensorId) -> Bytes {
        let told = self.tensors[id.index()].stands;
        for stamp in &self.tensors[id.index()].stays {
            if let Some(stay) = self.stays.get_mut(stamp) {
                stay.leaving = true;
            }
        }
        self.set_stands(id, Bytes::ZERO);
        told
    }
    /// What of it was told to leave, and is there, stays. Whether there was any.
    pub(super) fn told_to_stay(&mut self, id: TensorId) -> bool {
        let before = self.tensors[id.index()].stands;
        let mut stands = before;
        for stamp in &self.tensors[id.index()].stays {
            if let Some(stay) = self.stays.get_mut(stamp)
                && std::mem::take(&mut stay.leaving)
            {
                stands += stay.bytes;
            }
        }
        self.set_stands(id, stands);
        stands > before
    }
    /// What was told to leave does.
    pub(super) fn left(&mut self, id: TensorId, bytes: Bytes, to: Away) {
        let mut rest = bytes;
        while rest > Bytes::ZERO
            && let Some(&stamp) = self.tensors[id.index()].stays.front()
        {
            rest -= self.shrink(stamp, rest);
        }
        self.is_away(id, bytes, to);
    }
    /// The oldest stay from this one on that does not leave already, and that may.
    pub(super) fn oldest(&self, from: Stamp, may: impl Fn(TensorId) -> bool) -> Option<(Stamp, Stay)> {
        let mut stays = self.stays.range(from..).map(|(stamp, stay)| (*stamp, *stay));
        stays.find(|(_, stay)| !stay.leaving && may(stay.id))
    }
    /// How much of a stay is left.
    pub(super) fn rest(&self, stamp: Stamp) -> Bytes {
        self.stays.get(&stamp).map_or(Bytes::ZERO, |stay| stay.bytes)
    }
    /// So much of a stay leaves at once.
    pub(super) fn evicted(&mut self, stamp: Stamp, bytes: Bytes, to: Away) {
        let Some(&Stay { id, .. }) = self.stays.get(&stamp) else { return };
        self.shrink(stamp, bytes);
        self.set_stands(id, self.tensors[id.index()].stands - bytes);
        self.is_away(id, bytes, to);
    }
    /// Nobody wants its contents any more: all is gone that is not on its way.
    pub(super) fn forgotten(&mut self, id: TensorId) {
        let mut stays = self.tensors[id.index()].stays.clone();
        stays.retain(|stamp| self.stays.get(stamp).is_some_and(|stay| !stay.leaving));
        for stamp in stays {
            self.evicted(stamp, self.rest(stamp), Away::Nowhere);
        }
        let [nowhere, host, ssd] = &mut self.tensors[id.index()].away;
        self.host_free += *host;
        *nowhere += std::mem::take(host) + std::mem::take(ssd);
    }

    fn is_away(&mut self, id: TensorId, bytes: Bytes, to: Away) {
        if to == Away::Host {
            self.host_free -= bytes;
        }
        self.tensors[id.index()].away[to as usize] += bytes;
    }
    /// Takes at most so much off a stay: how much.
    fn shrink(&mut self, stamp: Stamp, most: Bytes) -> Bytes {
        let Some(stay) = self.stays.get_mut(&stamp) else { return most };
        let bytes = stay.bytes.min(most);
        stay.bytes -= bytes;
        self.free += bytes;
        if stay.bytes == Bytes::ZERO {
            let stays = &mut self.tensors[stay.id.index()].stays;
            stays.retain(|known| *known != stamp);
            self.stays.remove(&stamp);
        }
        bytes
    }
}
