//! What the nodes of a CUDA graph use: their managed pointers, and what makes them the same nodes as others.
//!
//! Problem: a graph's launch names a handle and nothing else; which kernels it runs, on which memory, is in its nodes (facts 21.3).
//!
//! Idea: ask the driver for them, once, when the graph becomes executable, and read a kernel node's arguments as a launch's are read ([`crate::arguments`]), a
//! copy's and a memset's as a copy's ([`crate::extent`]).
//!
//! A pointer's tensor may be gone by then: what a capture allocates from its pool, and gives back to it, each launch of its graph uses again, whatever the
//! pool holds in between. So while a kernel is captured it is kept how far its pointers reach ([`Reach`]), and such memory is named block by block.
//!
//! Invariants: nothing but graphs is asked about, so that no capture is disturbed; contents that nodes use are never thrown away from then on.

use crate::abi::{DriverCopy3d, KernelNode, KernelNode2, MemsetNode, NodeParams, Ptr, SUCCESS, Status};
use crate::arguments::{Arguments, Pointers};
use crate::extent::Area;
use crate::names::{self, Kind};
use crate::real::genuine;
use crate::{copy, opt, pt, registry};
use deepum_core::exec_id::{Shape, pointer_key};
use deepum_core::mix::Mix;
use deepum_core::units::{AddrRange, Bytes, DevAddr};
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_int;

/// How far pointers reached when kernels with them were captured: over all PT blocks that they fell into.
pub type Reach = BTreeMap<DevAddr, AddrRange>;

/// A pointer of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Where.
    pub at: DevAddr,
    /// What it may reach.
    pub range: AddrRange,
    /// Whether that is a PT block that holds a tensor now, so that the pointer says it all.
    pub live: bool,
}

/// What one node uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// What it is, the same in every run.
    pub key: u64,
    /// Its managed pointers.
    pub uses: Vec<Used>,
}

/// A node, the child node whose graph it is of, and what it uses.
pub struct Entry {
    pub node: Ptr,
    pub inside: Ptr,
    pub part: Part,
}
// SAFETY: handles are only compared, and never followed.
unsafe impl Send for Entry {}

/// Every node of a graph, with those of the graphs inside it in their places.
pub fn of_graph(graph: Ptr, reach: &Reach) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut left = vec![(list(graph).into_iter(), std::ptr::null_mut())];
    while let Some((nodes, inside)) = left.last_mut() {
        let (Some(node), inside) = (nodes.next(), *inside) else {
            left.pop();
            continue;
        };
        match kind(node) {
            Some(CHILD) => left.extend(child(node).map(|graph| (list(graph).into_iter(), node))),
            Some(kind) => entries.push(Entry { node, inside, part: of_node(node, kind, reach) }),
            None => {}
        }
    }
    entries
}

/// `CUgraphNodeType`.
const KERNEL: c_int = 0;
/// A copy.
pub const MEMCPY: c_int = 1;
/// A memset.
pub const MEMSET: c_int = 2;
const CHILD: c_int = 4;

fn list(graph: Ptr) -> Vec<Ptr> {
    let Some(get) = genuine!(Cuda, "cuGraphGetNodes", fn(Ptr, *mut Ptr, *mut usize) -> Status) else {
        return Vec::new();
    };
    let mut count = 0;
    // SAFETY: the graph is the program's argument to a call that has just taken it; without a list the number is stored, in ours.
    if unsafe { get(graph, std::ptr::null_mut(), &raw mut count) } != SUCCESS {
        return Vec::new();
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: as above; the list has so many places.
    if count == 0 || unsafe { get(graph, nodes.as_mut_ptr(), &raw mut count) } != SUCCESS {
        return Vec::new();
    }
    nodes.truncate(count);
    nodes
}

fn kind(node: Ptr) -> Option<c_int> {
    let mut kind = 0;
    let get = genuine!(Cuda, "cuGraphNodeGetType", fn(Ptr, *mut c_int) -> Status)?;
    // SAFETY: the node is one that the driver has just listed; the result is ours.
    (unsafe { get(node, &raw mut kind) } == SUCCESS).then_some(kind)
}

fn child(node: Ptr) -> Option<Ptr> {
    let mut graph = std::ptr::null_mut();
    let get = genuine!(Cuda, "cuGraphChildGraphNodeGetGraph", fn(Ptr, *mut Ptr) -> Status)?;
    // SAFETY: as in `kind`.
    (unsafe { get(node, &raw mut graph) } == SUCCESS).then_some(graph)
}

fn of_node(node: Ptr, kind: c_int, reach: &Reach) -> Part {
    let found = match kind {
        // SAFETY: what the driver says of a kernel node are its own arguments, readable until the node is changed (facts 21.3).
        KERNEL => kernel_params(node).map(|params| unsafe { of_kernel(Kind::DriverHandle, &params, reach) }),
        MEMCPY => copy_params(node).map(|params| of_areas(MEMCPY, &params.areas(), reach)),
        MEMSET => memset_params(node).map(|params| of_areas(MEMSET, &[params.area()], reach)),
        _ => None,
    };
    found.unwrap_or_else(|| of_areas(kind, &[], reach))
}

/// A function that stores a node's parameters.
macro_rules! params {
    ($(fn $name:ident by $symbol:literal -> $t:ty;)*) => {$(
        fn $name(node: Ptr) -> Option<$t> {
            let mut params = std::mem::MaybeUninit::<$t>::zeroed();
            let get = genuine!(Cuda, $symbol, fn(Ptr, *mut $t) -> Status)?;
            // SAFETY: the node is the driver's own, and the place has the size of what this function stores (facts 21.3).
            let stored = unsafe { get(node, params.as_mut_ptr()) } == SUCCESS;
            // SAFETY: numbers and bare pointers, for which zeros are values, too.
            stored.then(|| unsafe { params.assume_init() })
        }
    )*};
}
params! {
    fn kernel_params_2 by "cuGraphKernelNodeGetParams_v2" -> KernelNode2;
    fn kernel_params_1 by "cuGraphKernelNodeGetParams" -> KernelNode;
    fn copy_params by "cuGraphMemcpyNodeGetParams" -> DriverCopy3d;
    fn memset_params by "cuGraphMemsetNodeGetParams" -> MemsetNode;
}

/// Since CUDA 12.0 a kernel may be given as one, and not as a function.
fn kernel_params(node: Ptr) -> Option<KernelNode> {
    kernel_params_2(node).map(KernelNode2::plain).or_else(|| kernel_params_1(node))
}

/// A kernel node's part.
///
/// # Safety
/// The parameters are those of a node, as the driver or the program has them.
pub unsafe fn of_kernel(kind: Kind, node: &KernelNode, reach: &Reach) -> Part {
    let kernel = names::kernel(kind, node.function);
    let shape = Shape { grid: node.grid, block: node.block };
    let Some(layout) = &kernel.params else {
        return Part { key: pointer_key(kernel.identity, shape, []).0, uses: Vec::new() };
    };
    let mut pointers = Pointers::new();
    // SAFETY: handed on from the caller; the layout is the kernel's own.
    let key = unsafe {
        let arguments = Arguments::of_driver(node.params, node.extra);
        arguments.key(layout, kernel.identity, shape, opt::config().exec_id, registry::map(), &mut pointers)
    };
    Part { key: key.0, uses: pointers.list().iter().map(|&at| used(at, reach)).collect() }
}

/// The part of a node that is described in the general form.
///
/// # Safety
/// As for [`of_kernel`].
pub unsafe fn of_params(params: &NodeParams, reach: &Reach) -> Part {
    let at = params.of.as_ptr();
    // SAFETY: the structure holds what its kind says, at its start, of a copy behind two words (facts 21.3); each is smaller than the whole.
    unsafe {
        match params.kind {
            KERNEL => of_kernel(Kind::DriverHandle, &(*at.cast::<KernelNode2>()).plain(), reach),
            MEMCPY => of_areas(MEMCPY, &(*at.add(2).cast::<DriverCopy3d>()).areas(), reach),
            MEMSET => of_areas(MEMSET, &[(*at.cast::<MemsetNode>()).area()], reach),
            kind => of_areas(kind, &[], reach),
        }
    }
}

/// The part of a node that copies or sets these areas.
pub fn of_areas(kind: c_int, areas: &[Area], reach: &Reach) -> Part {
    let map = registry::map();
    let ranges: Vec<AddrRange> = areas.iter().filter(|a| a.len > 0).filter_map(|&a| copy::within(map, a)).collect();
    let key = ranges
        .iter()
        .filter_map(|range| map.find(range.start))
        .fold(Mix::new().word(u64::from(kind.unsigned_abs())), |mix, placed| {
            mix.word(u64::from(placed.ordinal) << 32 | u64::from(placed.block))
        });
    let uses = ranges.into_iter().map(|range| {
        let whole = used(range.start, reach);
        pt::pin_all(range);
        if whole.range.contains(DevAddr(range.end().0 - 1)) {
            whole
        } else {
            Used { at: range.start, range, live: false }
        }
    });
    Part { key: key.end(), uses: uses.collect() }
}

/// What a pointer reaches, which is not thrown away from now on.
fn used(at: DevAddr, reach: &Reach) -> Used {
    let now = pt::pin(at);
    match (reach.get(&at).copied(), now) {
        (Some(then), now) if now != Some(then) => Used { at, range: then, live: false },
        (_, Some(range)) => Used { at, range, live: true },
        (_, None) => Used { at, range: AddrRange::new(at, Bytes::ZERO), live: true },
    }
}

/// Pointers for a record of all these, in their order: one for a PT block that holds a tensor, else one for each UM block.
pub fn pointers<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Box<[DevAddr]> {
    let (mut list, mut ranges, mut blocks, mut seen) = (Vec::new(), HashSet::new(), HashSet::new(), HashSet::new());
    for used in parts.into_iter().flat_map(|part| &part.uses) {
        if used.live {
            list.extend(ranges.insert(used.range.start).then_some(used.at).filter(|&at| seen.insert(at)));
            continue;
        }
        let new = used.range.blocks().filter(|&block| blocks.insert(block));
        list.extend(new.map(|block| block.start().max(used.range.start)).filter(|&at| seen.insert(at)));
    }
    list.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::UmBlock;

    const SIZE: u64 = UmBlock::SIZE.0;

    #[test]
    fn live_tensors_are_named_once_and_pool_memory_block_by_block() {
        let range = |start: u64, len: u64| AddrRange::new(DevAddr(start), Bytes(len));
        let live = |at: u64, range| Used { at: DevAddr(at), range, live: true };
        let dead = |at: u64, range| Used { at: DevAddr(at), range, live: false };
        let part = |uses: &[Used]| Part { key: 0, uses: uses.to_vec() };
        let parts = [
            part(&[live(100, range(64, 3 * SIZE)), dead(10 * SIZE + 8, range(10 * SIZE + 8, 2 * SIZE))]),
            part(&[live(200, range(64, 3 * SIZE)), dead(11 * SIZE, range(11 * SIZE, 2 * SIZE))]),
        ];
        let named: Vec<u64> = pointers(&parts).iter().map(|at| at.0).collect();
        assert_eq!(named, [100, 10 * SIZE + 8, 11 * SIZE, 12 * SIZE]);
    }
}
