//! What a launch of an executable graph uses, kept since the graph became executable.
//!
//! Problem: a launch hands in a handle, which is another one in every run, and no arguments.
//! Idea: when a graph is instantiated its nodes are read ([`crate::nodes`]); the executable's handle stands for their managed pointers, in their order, and
//! for a key mixed from theirs, until it is destroyed. An update of the whole is read again; an update of one node replaces that node's part.
//!
//! Invariants: what is kept is what the driver took; a handle is forgotten before the driver can give it out again; of a graph
//! larger than [`MOST_NODES`] the rest is not named, which is said once. A launch looks its graph up under a lock that nobody holds for longer than it takes to store one.
//!
//! Not here: that a graph's launch is one launch ([`crate::launch`]).

use crate::abi::{DriverCopy3d, KernelNode, KernelNode2, MemsetNode, NodeParams, Ptr, RuntimeCopy, SUCCESS, Status};
use crate::names::Kind;
use crate::nodes::{self, Entry, Part, Reach};
use crate::{launch, link, log, pt};
use deepum_core::mix::Mix;
use deepum_core::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nodes of a graph of which it is kept what they use: some 10 MiB. A choice; a training step has a few thousand.
const MOST_NODES: usize = 1 << 16;

/// What a launch of a graph uses.
pub struct Uses {
    /// What the graph is, as a kernel of its own.
    pub kernel: KernelId,
    /// The same, with the memory it uses.
    pub key: LaunchKey,
    /// Its managed pointers.
    pub pointers: Box<[DevAddr]>,
}

/// An executable graph.
struct Exec {
    entries: Vec<Entry>,
    reach: Arc<Reach>,
    uses: Arc<Uses>,
}

impl Exec {
    fn new(mut entries: Vec<Entry>, reach: Arc<Reach>) -> Self {
        if entries.len() > MOST_NODES {
            log::once!(
                "a CUDA graph has {} nodes; nothing is fetched ahead for what comes after the first {MOST_NODES}",
                entries.len()
            );
            entries.truncate(MOST_NODES);
        }
        let uses = Arc::new(uses(&entries));
        Self { entries, reach, uses }
    }

    /// These nodes use something else from now on.
    fn change(&mut self, which: impl Fn(&Entry) -> bool, part: &Part) {
        self.entries.iter_mut().filter(|entry| which(entry)).for_each(|entry| entry.part = part.clone());
        self.uses = Arc::new(uses(&self.entries));
    }
}

fn uses(entries: &[Entry]) -> Uses {
    let mix = entries.iter().fold(Mix::new(), |mix, entry| mix.word(entry.part.key)).end();
    Uses { kernel: KernelId(mix), key: LaunchKey(mix), pointers: nodes::pointers(entries.iter().map(|e| &e.part)) }
}

/// Everything that is kept, by handle.
struct Kept {
    execs: BTreeMap<u64, Exec>,
    /// How far pointers reached in the captures that made these graphs.
    graphs: BTreeMap<u64, Arc<Reach>>,
    /// The same in captures that have not ended; of several at once, in all of them.
    captured: Reach,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { execs: BTreeMap::new(), graphs: BTreeMap::new(), captured: Reach::new() });

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a launch of `exec` uses, if it was seen when it was made.
pub fn of(exec: Ptr) -> Option<Arc<Uses>> {
    kept().execs.get(&(exec as u64)).map(|exec| Arc::clone(&exec.uses))
}

/// A kernel with these pointers is being captured: what they reach is not thrown away from now on.
pub fn captured(pointers: &[DevAddr]) {
    for &at in pointers {
        if let Some(range) = pt::pin(at) {
            let mut kept = kept();
            let reach = kept.captured.entry(at).or_insert(range);
            let (start, end) = (reach.start.min(range.start), reach.end().max(range.end()));
            *reach = AddrRange::new(start, Bytes(end.0 - start.0));
        }
    }
}

/// A launch of a graph is being captured: the graph is part of another one.
pub fn captured_launch(exec: Ptr) {
    let mut kept = kept();
    let Some(exec) = kept.execs.get(&(exec as u64)) else { return };
    let used: Vec<_> = exec.entries.iter().flat_map(|entry| &entry.part.uses).map(|u| (u.at, u.range)).collect();
    kept.captured.extend(used);
}

/// A capture has made `graph`, or added to it; `last` if no other is in progress.
pub fn capture_made(graph: Option<Ptr>, last: bool) {
    let mut kept = kept();
    if let Some(graph) = graph {
        let mut reach = kept.captured.clone();
        if let Some(before) = kept.graphs.get(&(graph as u64)) {
            for (&at, &range) in before.iter() {
                reach.entry(at).or_insert(range);
            }
        }
        kept.graphs.insert(graph as u64, Arc::new(reach));
    }
    if last {
        kept.captured.clear();
    }
}

/// `graph` is executable as `exec`.
fn keep(exec: Ptr, graph: Ptr) {
    if exec.is_null() || link::ring().is_none() {
        return;
    }
    let reach = kept().graphs.get(&(graph as u64)).cloned().unwrap_or_default();
    // The driver is asked outside the lock.
    let made = Exec::new(nodes::of_graph(graph, &reach), reach);
    kept().execs.insert(exec as u64, made);
}

/// Hooks of calls that make `graph` executable.
macro_rules! instantiates {
    ($($(#[doc = $doc:literal])+ $hook:ident($($t:ty),*);)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Where the executable will be, and of what.
            pub unsafe fn before(out: *mut Ptr, graph: Ptr, $(_: $t),*) -> Option<(*mut Ptr, Ptr)> {
                (!out.is_null()).then_some((out, graph))
            }
            /// It is there.
            pub fn after((out, graph): (*mut Ptr, Ptr), status: Status) {
                if status == SUCCESS {
                    // SAFETY: not null, and the call that has just succeeded stored the executable there.
                    keep(unsafe { *out }, graph);
                }
            }
        }
    )*};
}
instantiates! {
    /// With places for an error, before CUDA 12; since then the third argument is flags, and what is behind it is passed on unread.
    Instantiate(Ptr, Ptr, usize);
    /// With flags.
    InstantiateWithFlags(u64);
    /// With a structure of parameters.
    InstantiateWithParams(Ptr);
}

/// Hooks of calls that make an executable do what a graph does.
macro_rules! updates {
    ($($(#[doc = $doc:literal])+ $hook:ident($($t:ty),*);)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Nothing changes if the driver refuses.
            pub unsafe fn before(exec: Ptr, graph: Ptr, $(_: $t),*) -> Option<(Ptr, Ptr)> {
                Some((exec, graph))
            }
            /// It does; its nodes keep their handles.
            pub fn after((exec, graph): (Ptr, Ptr), status: Status) {
                if status == SUCCESS {
                    let handles: Vec<_> = kept().execs.get(&(exec as u64)).map_or_else(Vec::new, handles);
                    keep(exec, graph);
                    if let Some(exec) = kept().execs.get_mut(&(exec as u64)) {
                        for (entry, (node, inside)) in exec.entries.iter_mut().zip(handles) {
                            (entry.node, entry.inside) = (node as Ptr, inside as Ptr);
                        }
                    }
                }
            }
        }
    )*};
}
updates! {
    /// As in CUDA 10.2; since CUDA 12 the third argument is one structure, and what is behind it is passed on unread.
    Update(Ptr, Ptr);
    /// With one structure.
    UpdateWithInfo(Ptr);
}

fn handles(exec: &Exec) -> Vec<(u64, u64)> {
    exec.entries.iter().map(|entry| (entry.node as u64, entry.inside as u64)).collect()
}

/// A node is about to use something else.
pub struct Change {
    exec: u64,
    node: u64,
    part: Part,
}

/// Hooks of calls that give a node of an executable new parameters.
macro_rules! changes {
    ($($(#[doc = $doc:literal])+ $hook:ident($params:ident: *const $t:ty $(, $more:ty)*) => |$reach:ident| $part:expr;)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// What it will use.
            pub unsafe fn before(exec: Ptr, node: Ptr, $params: *const $t $(, _: $more)*) -> Option<Change> {
                let $reach = kept().execs.get(&(exec as u64))?.reach.clone();
                // SAFETY: null, which is the driver's to refuse, or the program's own parameters.
                let $params = unsafe { $params.as_ref()? };
                // SAFETY: they are those of a node of this kind, which the program hands over.
                #[allow(unused_unsafe, reason = "not every kind points to more")]
                let part = unsafe { $part };
                Some(Change { exec: exec as u64, node: node as u64, part })
            }
            /// It does.
            pub fn after(change: Change, status: Status) {
                if status == SUCCESS
                    && let Some(exec) = kept().execs.get_mut(&change.exec)
                {
                    exec.change(|entry| entry.node as u64 == change.node, &change.part);
                }
            }
        }
    )*};
}
changes! {
    /// A kernel, by the driver.
    Kernel(params: *const KernelNode) => |reach| nodes::of_kernel(Kind::DriverHandle, params, &reach);
    /// A kernel, by the driver since CUDA 12.0.
    Kernel2(params: *const KernelNode2) => |reach| nodes::of_kernel(Kind::DriverHandle, &params.plain(), &reach);
    /// A kernel, by the runtime, whose structure lies as the driver's.
    RuntimeKernel(params: *const KernelNode) => |reach| nodes::of_kernel(Kind::Symbol, params, &reach);
    /// A copy, by the driver.
    Memcpy(params: *const DriverCopy3d, Ptr) => |reach| nodes::of_areas(nodes::MEMCPY, &params.areas(), &reach);
    /// A copy, by the runtime.
    RuntimeMemcpy(params: *const RuntimeCopy) => |reach| nodes::of_areas(nodes::MEMCPY, &params.areas(), &reach);
    /// A memset, by the driver.
    Memset(params: *const MemsetNode, Ptr) => |reach| nodes::of_areas(nodes::MEMSET, &[params.area()], &reach);
    /// Whatever it is, by the driver.
    Any(params: *const NodeParams) => |reach| nodes::of_params(params, &reach);
    /// A memset, by the runtime, whose structure lies as the driver's.
    RuntimeMemset(params: *const MemsetNode) => |reach| nodes::of_areas(nodes::MEMSET, &[params.area()], &reach);
}

/// A child node of an executable does from now on what another graph does.
pub struct Child;

impl Child {
    /// Nothing changes if the driver refuses.
    pub unsafe fn before(exec: Ptr, node: Ptr, graph: Ptr) -> Option<(Ptr, Ptr, Ptr)> {
        Some((exec, node, graph))
    }
    /// Its nodes use what those of the graph use: both have the same structure, or the driver had refused.
    pub fn after((exec, node, graph): (Ptr, Ptr, Ptr), status: Status) {
        if status != SUCCESS {
            return;
        }
        let reach = kept().graphs.get(&(graph as u64)).cloned().unwrap_or_default();
        let new = nodes::of_graph(graph, &reach);
        if let Some(exec) = kept().execs.get_mut(&(exec as u64)) {
            let inside = exec.entries.iter_mut().filter(|entry| entry.inside == node);
            inside.zip(new).for_each(|(entry, new)| entry.part = new.part);
            exec.uses = Arc::new(uses(&exec.entries));
        }
    }
}

/// An executable is destroyed.
pub struct Destroy;

impl Destroy {
    /// Forgotten before its handle can be another's.
    pub unsafe fn before(exec: Ptr) -> Option<()> {
        kept().execs.remove(&(exec as u64));
        None
    }
    /// Nothing more.
    pub fn after((): (), _: Status) {}
}

/// A graph is destroyed; what was made executable of it lives on.
pub struct DestroyGraph;

impl DestroyGraph {
    /// Forgotten before its handle can be another's.
    pub unsafe fn before(graph: Ptr) -> Option<()> {
        kept().graphs.remove(&(graph as u64));
        None
    }
    /// Nothing more.
    pub fn after((): (), _: Status) {}
}

/// A capture ends.
pub struct CaptureEnd;

impl CaptureEnd {
    /// Where the graph will be.
    pub unsafe fn before(_: Ptr, out: *mut Ptr) -> Option<*mut Ptr> {
        Some(out)
    }
    /// Also when it fails; unless there was none.
    pub fn after(out: *mut Ptr, status: Status) {
        // SAFETY: the call has just succeeded, so it stored the graph there.
        let graph = (status == SUCCESS && !out.is_null()).then(|| unsafe { *out });
        launch::capture_ended(status);
        capture_made(graph, !launch::capturing());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Used;

    fn entry(node: usize, at: u64) -> Entry {
        let range = AddrRange::new(DevAddr(at), Bytes(8));
        let part = Part { key: at, uses: vec![Used { at: DevAddr(at), range, live: true }] };
        Entry { node: node as Ptr, inside: std::ptr::null_mut(), part }
    }

    #[test]
    fn a_changed_node_uses_something_else_under_another_key() {
        let mut exec = Exec::new(vec![entry(1, 100), entry(2, 200), entry(3, 100)], Arc::default());
        let before = Arc::clone(&exec.uses);
        assert_eq!(*before.pointers, [DevAddr(100), DevAddr(200)]);
        exec.change(|entry| entry.node as u64 == 2, &entry(2, 300).part);
        assert_eq!(*exec.uses.pointers, [DevAddr(100), DevAddr(300)]);
        assert_ne!(exec.uses.key, before.key);
        exec.change(|entry| entry.node as u64 == 2, &entry(2, 200).part);
        assert_eq!(exec.uses.key, before.key, "a key is of what is used, not of how it came to be");
    }

    #[test]
    fn of_a_graph_that_is_too_large_the_beginning_is_kept() {
        let entries = (1..=MOST_NODES + 5).map(|n| entry(n, n as u64 * 8)).collect();
        let exec = Exec::new(entries, Arc::default());
        assert_eq!((exec.entries.len(), exec.uses.pointers.len()), (MOST_NODES, MOST_NODES));
    }

    #[test]
    fn a_graph_keeps_how_far_its_captures_reached_and_the_next_capture_begins_anew() {
        let reach = |graph: usize| kept().graphs.get(&(graph as u64)).cloned().unwrap_or_default();
        let range = AddrRange::new(DevAddr(64), Bytes(100));
        kept().captured.insert(DevAddr(70), range);
        // Another capture is still in progress, and shares what was seen.
        capture_made(Some(0x10 as Ptr), false);
        capture_made(Some(0x20 as Ptr), true);
        assert_eq!([reach(0x10), reach(0x20)].map(|reach| reach.get(&DevAddr(70)).copied()), [Some(range); 2]);
        // Added to, and made by a capture that named nothing.
        capture_made(Some(0x10 as Ptr), true);
        capture_made(Some(0x30 as Ptr), true);
        assert_eq!((reach(0x10).len(), reach(0x30).len()), (1, 0));
        for graph in [0x10, 0x20, 0x30] {
            // SAFETY: the handle is only compared.
            assert!(unsafe { DestroyGraph::before(graph as Ptr) }.is_none());
            assert!(reach(graph).is_empty());
        }
    }
}
