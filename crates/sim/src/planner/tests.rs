//! What holds for every planner, on random programs; and what tests of planners write programs with.
//!
//! In these, a channel of 1,000,000,000 B/s moves one byte in a nanosecond.

use super::flashneuron;
use super::g10::{G10, Targets};
use super::most::Most;
use super::oracle;
use super::play::{Played, play};
use super::schedule::{Failure, Kind, Outcome, Schedule};
use crate::published::{self, World};
use crate::tiers::{Duplex, Pipe, Rate, Tier, Tiers};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Kernel, Life, Program, Tensor, TensorId};
use proptest::prelude::*;

pub(crate) fn global(size: u64) -> Tensor {
    Tensor { size: Bytes(size), life: Life::Global }
}

pub(crate) fn intermediate(size: u64) -> Tensor {
    Tensor { size: Bytes(size), life: Life::Intermediate }
}

pub(crate) fn kernel(time: u64, reads: &[u32], writes: &[u32]) -> Kernel {
    let ids = |numbers: &[u32]| numbers.iter().copied().map(TensorId).collect();
    Kernel { name: "k".into(), time: Nanos(time), reads: ids(reads), writes: ids(writes) }
}

pub(crate) fn program(kernels: Vec<Kernel>, tensors: Vec<Tensor>) -> Program {
    Program::new(kernels, tensors).unwrap()
}

/// Rates in bytes per second, without latency.
pub(crate) fn duplex(out: u64, back: u64) -> Duplex {
    let pipe = |rate| Pipe { rate: Rate(rate), latency: Nanos::ZERO };
    Duplex { out: pipe(out), back: pipe(back) }
}

/// One byte per nanosecond.
pub(crate) const BYTE_PER_NS: u64 = 1_000_000_000;

/// A host that is large enough behind a byte per nanosecond each way, and no SSD.
pub(crate) fn tiers(gpu: u64) -> Tiers {
    Tiers { gpu: Bytes(gpu), host: Bytes(1 << 40), link: duplex(BYTE_PER_NS, BYTE_PER_NS), ssd: None }
}

/// What moves, as written in tests: gap, tensor, kind.
pub(crate) fn moves(schedule: &Schedule) -> Vec<(u32, u32, Kind)> {
    schedule.moves().iter().map(|at| (at.gap, at.tensor.0, at.kind)).collect()
}

pub(crate) fn random_program() -> impl Strategy<Value = Program> {
    let tensor = (1u64..40, any::<bool>());
    let tensors = prop::collection::vec(tensor, 2..14);
    let touched = prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..4);
    let kernels = prop::collection::vec((0u64..60, touched), 3..24);
    (tensors, kernels).prop_map(|(tensors, kernels)| {
        let of = |(size, lasting): (u64, bool)| if lasting { global(size) } else { intermediate(size) };
        let tensors: Vec<_> = tensors.into_iter().map(of).collect();
        let one = |(time, touched): (u64, Vec<(prop::sample::Index, bool)>)| {
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            for (index, write) in touched {
                let id = u32::try_from(index.index(tensors.len())).unwrap();
                let list = if write { &mut writes } else { &mut reads };
                if !list.contains(&id) {
                    list.push(id);
                }
            }
            kernel(time, &reads, &writes)
        };
        let kernels = kernels.into_iter().map(one).collect();
        program(kernels, tensors.clone())
    })
}

fn random_tiers() -> impl Strategy<Value = Tiers> {
    let rate = || (1u64..4).prop_map(|rate| rate * BYTE_PER_NS / 2);
    let ssd = prop::option::of((rate(), rate(), 0u64..5));
    (120u64..250, prop_oneof![Just(1u64 << 40), 0u64..200], rate(), rate(), ssd).prop_map(
        |(gpu, host, out, back, ssd)| {
            let slow = |(out, back, latency)| {
                let pipe = |rate| Pipe { rate: Rate(rate), latency: Nanos(latency) };
                Duplex { out: pipe(out), back: pipe(back) }
            };
            Tiers { gpu: Bytes(gpu), host: Bytes(host), link: duplex(out, back), ssd: ssd.map(slow) }
        },
    )
}

/// Every planner's answer, by name.
fn all(program: &Program, tiers: &Tiers) -> Vec<(&'static str, Outcome)> {
    let turn = u32::try_from(program.kernels().len() / 2).unwrap();
    let most = |tiers| Most { tiers, fault_back: Rate(BYTE_PER_NS / 4), fault_out: Rate(BYTE_PER_NS / 4) };
    let g10 = |targets| G10 { targets };
    let world = tiers.ssd.map(|ssd| World {
        gpu: tiers.gpu,
        host: tiers.host,
        link: tiers.link.back.rate,
        ssd: ssd.back.rate,
        ..World::PUBLISHED
    });
    vec![
        ("g10, SSD", g10(Targets::Ssd).plan(program, tiers)),
        ("g10, host", g10(Targets::Host).plan(program, tiers)),
        ("g10", G10::PAPER.plan(program, tiers)),
        ("g10, published", world.map_or(Err(Failure::NoSsd), |world| published::g10::plan(program, &world))),
        ("most, SSD", most(&[Tier::Ssd]).plan(program, tiers)),
        ("most, host", most(&[Tier::Host]).plan(program, tiers)),
        ("most", most(&[Tier::Host, Tier::Ssd]).plan(program, tiers)),
        ("flashneuron", flashneuron::plan(program, tiers, turn)),
        ("oracle", oracle::plan(program, tiers)),
    ]
}

/// Bytes that have to come onto the GPU for what left it: each planned fetch once.
fn planned(program: &Program, schedule: &Schedule, wanted: impl Fn(Kind) -> bool) -> u64 {
    let of = schedule.moves().iter().filter(|at| wanted(at.kind));
    of.map(|at| program.tensor(at.tensor).size.0).sum()
}

fn total(bytes: [Bytes; 2]) -> u64 {
    bytes[0].0 + bytes[1].0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Making a schedule proves that nothing is touched while away. Playing it keeps to capacity and is never faster than ideal. Where all fits as
    /// planned, only what is planned moves.
    #[test]
    fn every_plan_is_legal_and_keeps_to_capacity(program in random_program(), tiers in random_tiers()) {
        for (name, outcome) in all(&program, &tiers) {
            let plan = match outcome {
                Ok(plan) => plan,
                Err(Failure::Illegal(why)) => return Err(TestCaseError::fail(format!("{name}: {why}"))),
                Err(_) => continue,
            };
            let Ok(Played { time, peak, out, back, demanded, times }) = play(&program, &tiers, &plan.schedule) else { continue };
            prop_assert!(peak <= tiers.gpu, "{name}: {peak:?}");
            prop_assert!(time >= program.ideal(), "{name}: {time:?}");
            prop_assert_eq!(times.iter().fold(Nanos::ZERO, |sum, &by| sum + by), time);
            if demanded == Bytes::ZERO {
                let written = planned(&program, &plan.schedule, |kind| matches!(kind, Kind::Evict(_) | Kind::Save(_)));
                let read = planned(&program, &plan.schedule, |kind| kind == Kind::Prefetch);
                prop_assert_eq!((total(out), total(back)), (written, read), "{}", name);
            }
        }
    }

    /// Without a plan everything is on demand, and what left and is used again comes back.
    #[test]
    fn without_a_plan_all_is_on_demand(program in random_program(), tiers in random_tiers()) {
        let Ok(played) = play(&program, &tiers, &Schedule::default()) else { return Ok(()) };
        prop_assert_eq!(played.demanded.0, total(played.out) + total(played.back));
        prop_assert!(played.peak <= tiers.gpu);
        let live = program.live().into_iter().max().unwrap();
        if live <= tiers.gpu {
            prop_assert_eq!((played.time, played.demanded), (program.ideal(), Bytes::ZERO));
        }
    }
}

/// Kernels that take no time at the end of an iteration leave its last fetches to the next one to begin.
#[test]
fn what_is_asked_for_counts_in_the_iteration_that_asks_for_it() {
    let kernels = [
        (0, vec![], vec![8]),
        (0, vec![], vec![1]),
        (20, vec![3], vec![]),
        (2, vec![3], vec![]),
        (0, vec![], vec![5, 0]),
        (0, vec![5], vec![]),
    ];
    let small = intermediate(1);
    let tensors = vec![
        global(31),
        global(10),
        global(15),
        small,
        global(34),
        global(2),
        small,
        intermediate(13),
        global(18),
        small,
        small,
        global(17),
    ];
    let program = program(kernels.map(|(time, reads, writes)| kernel(time, &reads, &writes)).to_vec(), tensors);
    let ssd = Some(duplex(BYTE_PER_NS / 2, BYTE_PER_NS));
    let tiers = Tiers { host: Bytes(10), link: duplex(BYTE_PER_NS / 2, BYTE_PER_NS * 3 / 2), ssd, ..tiers(120) };
    let plan = oracle::plan(&program, &tiers).unwrap();
    let Played { back, demanded, .. } = play(&program, &tiers, &plan.schedule).unwrap();
    let read = planned(&program, &plan.schedule, |kind| kind == Kind::Prefetch);
    assert_eq!((total(back), demanded), (read, Bytes::ZERO));
    assert!(read > 0);
}
