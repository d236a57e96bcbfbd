//! Small programs whose iterations can be worked out by hand. Kernels take so long that the host is always ahead.

mod mixture;

use super::*;
use crate::planner::schedule::{Kind, Move};
use crate::tiers::Tier;
use deepum_core::command::Commands;
use deepum_core::copies;
use deepum_core::known::Known;
use deepum_core::policy::{Policy, PolicyName};
use deepum_core::residency::Ask;
use deepum_core::units::{AddrRange, DevAddr, LaunchKey, LaunchSeq, StreamSlot, UmBlock};
use deepum_trace::event::{Access, Header, NameId, Touch};
use deepum_trace::program::TensorId;

const BASE: u64 = 1 << 40;
/// Of a kernel.
const TIME: Nanos = Nanos(10_000_000);

/// Tensor number `n`, of 8 MiB.
fn tensor(n: u64) -> AddrRange {
    AddrRange::new(DevAddr(BASE + n * (8 << 20)), Bytes::mib(8))
}

fn launch(name: u32, tensors: &[u64]) -> Does {
    let touches: Vec<_> =
        tensors.iter().map(|&n| Touch { range: tensor(n), access: Access::ReadWrite, phase: 0 }).collect();
    let pointers = tensors.iter().map(|&n| tensor(n).start).collect();
    let what = What::Launch { kernel: NameId(name), key: LaunchKey(name.into()), pointers };
    Does::Issue(Work { stream: StreamSlot(0), what, touches, time: Some(TIME) })
}

/// Six tensors in an allocation of their own, and iterations of one kernel for each.
fn cycle(iterations: u32) -> Script {
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(48)))];
    for _ in 0..iterations {
        does.push(Does::Iteration);
        does.extend((0..6).map(|n| launch(n, &[n.into()])));
    }
    does.push(Does::Iteration);
    script(does)
}

fn script(does: Vec<Does>) -> Script {
    let header = Header { program: "cycle".into(), device: "by hand".into(), budget: Bytes::mib(48) };
    let steps = does.into_iter().map(|does| Step { own: Nanos::ZERO, does }).collect();
    Script { header, names: Vec::new(), steps, lost: 0 }
}

fn setup(policy: PolicyName, memory: Bytes) -> Setup {
    let profile = Profile::named("a100-40g").unwrap();
    let engine = Config::new(policy, memory);
    Setup { profile, memory, host: Bytes::gib(1), ssd: None, engine, gate: true, lost: None, late: Nanos::ZERO }
}

fn run(script: &Script, policy: PolicyName, memory: Bytes) -> Replayed {
    replay(script, &setup(policy, memory), |_, _| ()).unwrap()
}

fn counters(replayed: &Replayed) -> Counters {
    replayed.core.expect("the core thought").0
}

#[test]
fn where_all_fits_an_iteration_takes_its_kernels_and_the_gaps_between() {
    let script = cycle(3);
    let replayed = run(&script, PolicyName::Demand, Bytes::mib(64));
    let gap = setup(PolicyName::Demand, Bytes::gib(1)).profile.kernel_gap;
    assert_eq!(replayed.iterations.len(), 3);
    let first = &replayed.iterations[0];
    assert_eq!(first.totals.bytes_populated, Bytes::mib(48));
    assert_eq!(first.totals.bytes_in.total(), Bytes::ZERO);
    assert_eq!(script.last_iteration().unwrap().program.with_gaps(gap).ideal(), replayed.iterations[2].time);
    for iteration in &replayed.iterations[1..] {
        assert_eq!(iteration.time, Nanos(6 * (TIME.0 + gap.0)));
        assert_eq!((iteration.totals.fault_entries, iteration.totals.compute), (0, Nanos(6 * TIME.0)));
    }
}

#[test]
fn a_cycle_larger_than_memory_moves_all_of_it_on_demand() {
    let replayed = run(&cycle(4), PolicyName::Demand, Bytes::mib(32));
    // The driver evicts what came longest ago: just what comes next.
    for iteration in &replayed.iterations[1..] {
        assert_eq!(iteration.totals.bytes_in.total(), Bytes::mib(48));
        assert_eq!(iteration.totals.bytes_out.total(), Bytes::mib(48));
        assert!(iteration.totals.fault_entries > 0 && iteration.gate == Nanos::ZERO);
    }
}

#[test]
fn what_was_learned_is_fetched_ahead_without_a_fault() {
    let (demand, deepum) = (PolicyName::Demand, PolicyName::Deepum);
    let [demand, deepum] = [demand, deepum].map(|policy| run(&cycle(6), policy, Bytes::mib(32)));
    let (slow, fast) = (demand.iterations[5], deepum.iterations[5]);
    assert!(fast.totals.fault_entries * 20 < slow.totals.fault_entries, "{fast:?}\n{slow:?}");
    assert!(fast.time < slow.time, "{fast:?}\n{slow:?}");
    assert!(counters(&deepum).prefetch_useful > 0);
}

/// There and back through forty layers, each with two tensors: 640 MiB, of which the kernels of one need sixteen.
fn there_and_back(iterations: u32) -> Script {
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(640)))];
    does.extend((0..80).map(|n| Does::PtBlock { range: tensor(n), active: true }));
    for _ in 0..iterations {
        does.push(Does::Iteration);
        for (kernel, layer) in (0..40).chain((0..40).rev()).enumerate() {
            does.push(launch(u32::try_from(kernel).unwrap(), &[2 * layer, 2 * layer + 1]));
        }
    }
    does.push(Does::Iteration);
    script(does)
}

#[test]
fn neither_lost_launches_nor_kernels_that_take_longer_or_shorter_upset_the_horizon() {
    let setup = setup(PolicyName::Horizon, Bytes::mib(500));
    // Of the iterations in which nothing is new.
    let time = |script: &Script, lost| -> u64 {
        let replayed = replay(script, &Setup { lost: NonZeroU64::new(lost), ..setup.clone() }, |_, _| ()).unwrap();
        replayed.iterations[4..].iter().map(|iteration| iteration.time.0).sum()
    };
    let mut script = there_and_back(24);
    let undisturbed = time(&script, 0);
    assert!(undisturbed * 100 < 20 * 80 * TIME.0 * 102, "{undisturbed}");
    let lost = time(&script, 100);
    assert!(lost * 100 < undisturbed * 102, "{lost}, not {undisturbed}");
    script.vary_times(0.25);
    let kernels: u64 = script.steps.iter().skip(1 + 80 + 4 * 81).filter_map(time_of).sum();
    let varied = time(&script, 0);
    assert!(varied * 100 < kernels * 102, "{varied} for {kernels}");
}

/// An engine that is behind sees launches fault before it knows of them; it is still no worse than none.
#[test]
fn who_hears_late_is_not_slower_than_who_does_nothing() {
    let script = there_and_back(12);
    let time = |setup: &Setup| -> u64 {
        let replayed = replay(&script, setup, |_, _| ()).unwrap();
        replayed.iterations[4..].iter().map(|iteration| iteration.time.0).sum()
    };
    let demand = time(&setup(PolicyName::Demand, Bytes::mib(500)));
    for saving in [false, true] {
        let mut horizon = setup(PolicyName::Horizon, Bytes::mib(500));
        horizon.engine.saving = saving;
        let times =
            [0, 100, 1_000, 10_000, 100_000].map(|late| time(&Setup { late: Nanos::micros(late), ..horizon.clone() }));
        assert!(times.iter().all(|time| *time < demand), "{times:?}, and {demand} without");
        assert!(times[1] * 100 < times[0] * 102, "{times:?}");
    }
}

/// As of a model that answers: 640 MiB of weights, all read for each token and hardly any work, among them a few launches that nobody knows; and 200 MiB of which
/// each third token looks up 8.
#[test]
fn what_does_not_fit_of_a_cycle_of_weights_is_streamed_and_the_rest_stays() {
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(848)))];
    let table = AddrRange::new(tensor(81).start, Bytes::mib(200));
    does.extend((0..81).map(tensor).chain([table]).map(|range| Does::PtBlock { range, active: true }));
    for token in 0..24 {
        does.push(Does::Iteration);
        if token % 3 == 0 {
            does.push(short(launch(9999, &[81])));
        }
        for weight in 0..80u32 {
            let others = (0..2).filter(|_| weight % 4 == 0);
            does.extend(others.map(|n| short(launch(10_000 + 1000 * token + 2 * weight + n, &[80]))));
            does.push(short(launch(weight, &[weight.into()])));
        }
    }
    does.push(Does::Iteration);
    let replayed = run(&script(does), PolicyName::Horizon, Bytes::mib(500));
    let profile = Profile::named("a100-40g").unwrap();
    // As much leaves as comes, and the host enters what leaves into its page tables, which takes longer than the link.
    let entries = UmBlock::SIZE.get() as f64 / (profile.host_map_cost.0 as f64 / 1e9);
    for iteration in &replayed.iterations[20..] {
        let bytes = iteration.totals.bytes_in.total();
        // What does not fit, and as much as is kept free (16 blocks) or on its way (32).
        assert!((Bytes::mib(156)..Bytes::mib(156 + 2 * 48)).contains(&bytes), "{bytes}");
        let seconds = iteration.time.0 as f64 / 1e9;
        assert!(bytes.get() as f64 > 0.7 * seconds * profile.h2d_bandwidth.min(entries), "{bytes} in {seconds} s");
    }
}

fn short(launch: Does) -> Does {
    let Does::Issue(work) = launch else { return launch };
    Does::Issue(Work { time: Some(Nanos(50_000)), ..work })
}

fn time_of(step: &Step) -> Option<u64> {
    if let Does::Issue(Work { time: Some(time), .. }) = step.does { Some(time.0) } else { None }
}

#[test]
fn the_same_replay_twice_is_the_same() {
    let [one, two] = [(); 2].map(|()| run(&cycle(6), PolicyName::Deepum, Bytes::mib(32)));
    assert_eq!((counters(&one), &one.iterations), (counters(&two), &two.iterations));
}

#[test]
fn contents_of_a_pt_block_that_was_taken_back_are_thrown_away_and_not_moved() {
    // Weights in tensors 0 to 2, and an activation in 3 that is made and used anew each time, while 4 needs the room.
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(40)))];
    does.extend([0, 1, 2].map(|n| Does::PtBlock { range: tensor(n), active: true }));
    for _ in 0..6 {
        does.push(Does::Iteration);
        for n in [3, 4] {
            does.push(Does::PtBlock { range: tensor(n), active: true });
            does.extend((0..3).map(|weight| launch(10 * u32::try_from(n).unwrap() + weight, &[weight.into(), n])));
            does.push(Does::PtBlock { range: tensor(n), active: false });
        }
    }
    does.push(Does::Iteration);
    let script = script(does);
    let discards = run(&script, PolicyName::Deepum, Bytes::mib(32));
    let last = discards.iterations[5].totals;
    assert!(counters(&discards).discarded > 0 && last.bytes_discarded > Bytes::ZERO, "{last:?}");
    let keeps = run(&script, PolicyName::Demand, Bytes::mib(32)).iterations[5].totals;
    assert!(last.bytes_out.total() < keeps.bytes_out.total(), "{last:?}\n{keeps:?}");
}

#[test]
fn launches_that_lack_nothing_do_not_look_at_the_gate_where_that_is_foreseen() {
    // What is used fits, but not what nobody uses beside it.
    let unused = AddrRange::new(DevAddr(BASE + (1 << 30)), Bytes::mib(48));
    let mut does = vec![Does::Alloc(unused), Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(48)))];
    for _ in 0..6 {
        does.push(Does::Iteration);
        does.extend((0..60).map(|n| launch(n, &[u64::from(n % 6)])));
    }
    does.push(Does::Iteration);
    let script = script(does);
    let memory = Bytes::mib(64);
    let write = setup(PolicyName::Horizon, memory).profile.stream_write_cost;
    for (policy, operations) in [(PolicyName::Horizon, 1), (PolicyName::Deepum, 2)] {
        let last = run(&script, policy, memory).iterations[5];
        assert_eq!(last.time, Nanos(60 * (TIME.0 + operations * write.0)), "{policy:?}");
    }
}

#[test]
fn a_plan_is_carried_out_to_the_byte_and_nothing_faults() {
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(48)))];
    does.extend((0..6).map(|n| Does::PtBlock { range: tensor(n), active: true }));
    for _ in 0..4 {
        does.push(Does::Iteration);
        does.extend((0..6).map(|n| launch(n, &[n.into()])));
    }
    does.push(Does::Iteration);
    let script = script(does);
    let recorded = script.last_iteration().unwrap();
    // Each tensor leaves after its kernel, and comes back two kernels before it.
    let moves = (0..6u32).flat_map(|kernel| {
        let tensor = TensorId(kernel);
        let away = Move { gap: (kernel + 1) % 6, tensor, kind: Kind::Evict(Tier::Host) };
        [away, Move { gap: (kernel + 4) % 6, tensor, kind: Kind::Prefetch }]
    });
    let schedule = Schedule::new(&recorded.program, moves.collect()).unwrap();
    let setup = setup(PolicyName::Demand, Bytes::mib(40));
    let planned = replay_plan(&script, &setup, &recorded, &schedule, |_, _| ()).unwrap();
    let last = planned.iterations[3];
    // Between two launches are the progress write of one and the wait of the other at the gate.
    assert!(setup.profile.kernel_gap < Nanos(2 * setup.profile.stream_write_cost.0));
    assert_eq!(last.time, Nanos(6 * (TIME.0 + 2 * setup.profile.stream_write_cost.0)));
    assert_eq!((last.totals.bytes_in.user, last.totals.bytes_in.total()), (Bytes::mib(48), Bytes::mib(48)));
    // Who leaves unmapped goes where it is preferred, which the driver calls coherence.
    let out = last.totals.bytes_out;
    assert_eq!((out.user.0 + out.coherence.0, out.total()), (48 << 20, Bytes::mib(48)));
    assert_eq!((last.totals.fault_entries, planned.core), (0, None));
}

#[test]
fn under_a_plan_the_program_is_held_and_what_is_dead_does_not_move() {
    // Each tensor lives for one launch. A host that were hundreds of launches ahead would have handed all of them out again when room is needed.
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(320)))];
    for _ in 0..4 {
        does.push(Does::Iteration);
        for n in 0..40 {
            does.push(Does::PtBlock { range: tensor(n), active: true });
            does.push(launch(u32::try_from(n).unwrap(), &[n]));
            does.push(Does::PtBlock { range: tensor(n), active: false });
        }
    }
    does.push(Does::Iteration);
    let script = script(does);
    let recorded = script.last_iteration().unwrap();
    let schedule = Schedule::new(&recorded.program, Vec::new()).unwrap();
    let setup = setup(PolicyName::Demand, Bytes::mib(64));
    let planned = replay_plan(&script, &setup, &recorded, &schedule, |_, _| ()).unwrap();
    let totals = planned.iterations[3].totals;
    assert_eq!((totals.bytes_in.total(), totals.bytes_out.total()), (Bytes::ZERO, Bytes::ZERO), "{totals:?}");
}

/// Saves what is on the GPU and that nobody uses, and drops what is saved; the GPU faults for all of it.
#[derive(Debug)]
struct Drops;

impl Policy for Drops {
    fn name(&self) -> PolicyName {
        PolicyName::Demand
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn launch(&mut self, seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        let there: Vec<_> = known.residency.oldest_first().collect();
        for at in there {
            let state = known.residency.get(at);
            let (block, idle, saved) = (state.block, state.ask() == Ask::None, state.saved);
            if !idle || known.window.uses(block) {
                continue;
            }
            match saved {
                // Every other one, as if it were to be written.
                true if block.0 % 2 == seq.0 % 2 => _ = copies::own(at, seq, known, out),
                true => _ = copies::drop_copy(at, known, out),
                false => _ = copies::save(at, known, out),
            }
        }
    }
}

#[test]
fn what_is_only_read_is_copied_out_once_and_dropped_and_what_was_owned_is_copied_out_again() {
    let read = |n: u64| {
        let Does::Issue(mut work) = launch(u32::try_from(n).unwrap(), &[n]) else { unreachable!() };
        work.touches.iter_mut().for_each(|touch| touch.access = Access::Read);
        Does::Issue(work)
    };
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(48)))];
    does.extend((0..6).map(|n| Does::PtBlock { range: tensor(n), active: true }));
    for _ in 0..6 {
        does.push(Does::Iteration);
        does.extend((0..6).flat_map(|n| [read(n), Does::Wait]));
    }
    does.push(Does::Iteration);
    let script = script(does);
    let mut setup = setup(PolicyName::Demand, Bytes::mib(32));
    setup.engine.saving = true;
    let run = || {
        let engine = Engine::deciding(setup.engine, Box::new(Drops));
        play(&script, &setup, Mind::new(engine, Nanos::ZERO), |_, _| ()).unwrap()
    };
    let (replayed, mind) = run();
    let counters = *mind.thinks.counters();
    assert!(counters.saved > 0 && counters.dropped > 0 && counters.owned > 0, "{counters:?}");
    assert_eq!((counters.moves_failed, counters.saves_lost), (0, 0), "{counters:?}");
    let out = replayed.iterations.iter().fold(Bytes::ZERO, |sum, one| sum + one.totals.bytes_out.total());
    assert_eq!(out, Bytes(counters.saved * UmBlock::SIZE.get()), "nothing but what was saved was copied out");
    let demand =
        replay(&script, &Setup { engine: Config::new(PolicyName::Demand, Bytes::mib(32)), ..setup.clone() }, |_, _| ());
    let demand = demand.unwrap().iterations[5].totals.bytes_out.total();
    assert!(replayed.iterations[5].totals.bytes_out.total() < demand, "{demand:?}");
    assert_eq!(run().0.iterations, replayed.iterations, "the same again");
}

#[test]
fn the_programs_wait_is_waited_for() {
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(48)))];
    for _ in 0..3 {
        does.push(Does::Iteration);
        does.push(launch(0, &[0]));
        does.push(Does::Wait);
        does.push(launch(1, &[0]));
    }
    does.push(Does::Iteration);
    let mut script = script(does);
    // The host thinks for 3 ms after each wait.
    let after_wait: Vec<_> =
        (1..script.steps.len()).filter(|&n| matches!(script.steps[n - 1].does, Does::Wait)).collect();
    for n in after_wait {
        script.steps[n].own = Nanos(3_000_000);
    }
    let replayed = run(&script, PolicyName::Demand, Bytes::mib(64));
    let Profile { kernel_gap, call_cost, .. } = setup(PolicyName::Demand, Bytes::gib(1)).profile;
    // The first launch follows the second of the iteration before at once; the second comes when the call has returned and the host has thought.
    assert_eq!(replayed.iterations[2].time, Nanos(2 * TIME.0 + kernel_gap.0 + call_cost.0 + 3_000_000));
}

#[test]
fn a_host_that_is_full_is_told() {
    let small = Setup { host: Bytes::mib(4), ..setup(PolicyName::Demand, Bytes::mib(32)) };
    let refused = replay(&cycle(2), &small, |_, _| ()).map(|_| ());
    assert_eq!(refused, Err(ReplayError::OutOfMemory { place: Place::Host }));
}

#[test]
fn memory_that_is_not_there_is_no_program() {
    let mut does = vec![Does::Free(tensor(0))];
    does.extend([Does::Iteration, Does::Iteration]);
    let refused = replay(&script(does), &setup(PolicyName::Demand, Bytes::mib(32)), |_, _| ()).map(|_| ());
    assert!(matches!(refused, Err(ReplayError::Trace(ModelError::NotManaged { .. }))), "{refused:?}");
}
