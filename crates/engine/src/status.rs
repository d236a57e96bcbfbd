//! The engine as people see it: one [`Status`] of `deepum-protocol`, filled from what is there at this moment.
//!
//! Reading disturbs nothing: it waits for the end of a turn, and no event comes of it. Also after the engine went off, what it
//! last knew is told, and why it is off.

use crate::sync::lock;
use crate::threads::Running;
use crate::world::{Gpu, World};
use deepum_core::engine::Snapshot;
use deepum_protocol::shared::{Mode, ShimCounter};
use deepum_protocol::status::{
    Device, Invalidation, Prefetch, RingStatus, Source, State, Status, StreamProgress, Tables,
};
use std::collections::BTreeMap;

/// What the engine of this process has to tell.
pub fn of(running: &Running) -> Status {
    let world = lock(&running.world);
    let mut status = Status::new(std::process::id());
    let shared = running.ring.shared();
    let missing = lock(&running.no_notices).clone();
    status.pace = running.pace;
    status.state = match (running.is_off(), shared.mode()) {
        (Some(_), _) | (None, Mode::Off) => State::Off,
        (None, Mode::Awake) => State::Awake,
        (None, Mode::Dormant) => State::Dormant,
    };
    status.reason = running.is_off().map(str::to_owned).or_else(|| missing.clone());
    status.sources.tools_queue = Source { attached: missing.is_none(), reason: missing };
    status.sources.progress = match running.progress_words() {
        0 => Source { attached: false, reason: Some("no progress words: predictions may come late".to_owned()) },
        _ => Source { attached: true, reason: None },
    };
    status.sources.driver.clone_from(&running.driver);
    status.invalidation =
        Invalidation { mode: running.invalidation.what.to_string(), less: running.invalidation.less.clone() };
    status.sources.notices_lost = world.stats.lost;
    status.ring = RingStatus {
        capacity_words: running.ring.capacity() as u64,
        used_words: running.ring.used(),
        dropped: running.ring.dropped(),
    };
    status.shim = ShimCounter::ALL.iter().map(|c| (c.name().to_owned(), shared.get(*c))).collect();
    status.progress = world
        .progress
        .slots()
        .filter_map(|(slot, done)| Some(StreamProgress { slot: slot.try_into().ok()?, done }))
        .collect();
    for gpu in &world.gpus {
        let snapshot = gpu.engine.snapshot();
        status.policy = snapshot.policy.to_string();
        add(&mut status.prefetch, &mut status.tables, gpu, &snapshot);
        status.devices.push(device(gpu, &snapshot, shared.launched(gpu.facts.id)));
    }
    status.counters = counters(running, &world);
    status
}

fn device(gpu: &Gpu, snapshot: &Snapshot, launches: u64) -> Device {
    let c = gpu.engine.counters();
    Device {
        ordinal: gpu.facts.id.0,
        memory_bytes: gpu.facts.memory.get(),
        budget_bytes: snapshot.budget.get(),
        allocated_bytes: snapshot.managed.get(),
        resident_bytes: snapshot.on_device.get(),
        launches,
        exec_ids: snapshot.exec_ids as u64,
        faults: c.fault_blocks,
        bytes_h2d: c.bytes_h2d_fault + c.bytes_h2d_tree + c.bytes_h2d_call,
        bytes_d2h: c.bytes_d2h_evicted + c.bytes_d2h_call + c.bytes_d2h_fault,
    }
}

fn add(prefetch: &mut Prefetch, tables: &mut Tables, gpu: &Gpu, snapshot: &Snapshot) {
    let c = gpu.engine.counters();
    prefetch.asked += c.prefetch_asked;
    prefetch.issued += c.prefetch_issued;
    prefetch.useful += c.prefetch_useful;
    prefetch.late += c.prefetch_late;
    prefetch.useless += c.prefetch_useless;
    prefetch.dropped += c.prefetch_dropped;
    tables.exec_ids += snapshot.exec_ids as u64;
    tables.exec_records += snapshot.tables.exec_records as u64;
    tables.block_tables += snapshot.tables.block_tables as u64;
    tables.bytes += (snapshot.exec_id_bytes + snapshot.tables.bytes()).get();
}

/// The core's counters, all GPUs together, and our own.
fn counters(running: &Running, world: &World) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for gpu in &world.gpus {
        for (name, _, value) in gpu.engine.counters().rows() {
            *all.entry(name.to_owned()).or_default() += value;
        }
    }
    let (own, queue, saved) = (world.counters, world.stats, running.table_figures());
    let rest = [
        ("engine_observations", own.observations),
        ("engine_records", own.records),
        ("tables_taken_over", saved.taken_over),
        ("tables_written", saved.written),
        ("engine_strangers", own.strangers),
        ("tools_entries", queue.entries),
        ("tools_fault_entries", queue.fault_entries),
        ("tools_late_entries", queue.late_entries),
        ("tools_migrations", queue.migrations),
        ("tools_fatal_faults", queue.fatal_faults),
        ("tools_thrashing", queue.thrashing),
        ("tools_remote_maps", queue.remote_maps),
        ("tools_unmapped", queue.unmapped),
        ("tools_foreign", queue.foreign),
        ("tools_malformed", queue.malformed),
    ];
    all.extend(rest.map(|(name, value)| (name.to_owned(), value)));
    for (lane, waiting) in running.desk.waiting() {
        let [batches, blocks, nanos] = running.work.of(lane);
        let figures = [("waiting", waiting as u64), ("batches", batches), ("blocks", blocks), ("busy_ns", nanos)];
        all.extend(figures.map(|(what, value)| (format!("{what}_{}", lane.name()), value)));
    }
    all
}
