//! Data mode: page moves carry real bytes, and whatever moves, results stay.

mod common;

use common::*;
use deepum_core::command::{Command, Why};
use deepum_core::queues::{Hand, Queues};
use deepum_core::steps::Step;
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchSeq, Place, UmBlock};
use deepum_emu_device::error::CuResult;
use deepum_emu_device::machine::Machine;
use deepum_emu_device::space::Kind;
use deepum_model::Advice;

fn at_index(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

const BLOCK: u64 = UmBlock::SIZE.0;
const FLOATS: u64 = BLOCK / 4;

/// Runs random test kernels over 12 blocks on a device of 4, and `between` two of them whatever it does to these blocks, beside an
/// oracle that keeps every number in an ordinary vector. The first wrong number, if any.
fn play(seed: u64, mut between: impl FnMut(&Machine, &mut Random, UmBlock, u64)) -> Option<usize> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let m = machine("v100-32g:memory=8MiB,host=1GiB,data=1");
    let s = null_stream(&m);
    let blocks = 12;
    let base = allocate(&m, Kind::Managed, blocks * BLOCK).unwrap();
    let at = |block: u64| base + block * BLOCK;
    let names = ["fill", "copy", "scale", "axpy", "sum"];
    let kernels = names.map(|n| kernel(&m, &format!("deepum_test_{n}")));
    let n = FLOATS / 64;
    let mut oracle = vec![0f32; at_index(blocks * FLOATS)];
    for _ in 0..40 {
        let (x, y) = (random.below(blocks), random.below(blocks));
        let skew = random.below(64 * 63) / 64 * n;
        let (px, py) = (at(x) + skew % (FLOATS - n) * 4, at(y));
        let (ix, iy) = (at_index(x * FLOATS + skew % (FLOATS - n)), at_index(y * FLOATS));
        let len = at_index(n);
        let value = random.below(100) as f32 / 8.0;
        match random.below(5) {
            0 => {
                launch(&m, s, &kernels[0], &[px, n, number(value)]);
                (0..len).for_each(|i| oracle[ix + i] = value + i as f32);
            }
            1 => {
                launch(&m, s, &kernels[1], &[py, px, n]);
                let from = oracle[ix..ix + len].to_vec();
                oracle[iy..iy + len].copy_from_slice(&from);
            }
            2 => {
                launch(&m, s, &kernels[2], &[px, n, number(value)]);
                oracle[ix..ix + len].iter_mut().for_each(|v| *v = value * *v + 1.0);
            }
            3 => {
                launch(&m, s, &kernels[3], &[py, px, n, number(value)]);
                let from = oracle[ix..ix + len].to_vec();
                oracle[iy..iy + len].iter_mut().zip(from).for_each(|(y, x)| *y += value * x);
            }
            _ => {
                launch(&m, s, &kernels[4], &[py, px, n]);
                oracle[iy] = oracle[ix..ix + len].iter().sum();
            }
        }
        between(&m, &mut random, UmBlock::containing(DevAddr(base)), blocks);
    }
    let mut got = vec![0f32; oracle.len()];
    copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, base, blocks * BLOCK);
    got.iter().zip(&oracle).position(|(a, b)| a.to_bits() != b.to_bits())
}

/// As an engine has blocks leave.
fn leave(m: &Machine, range: AddrRange) -> CuResult {
    let group = m.look(|state| Ok(state.memory.make_group()))?;
    m.set_migratable(&[group], false)?;
    m.advise(range, Advice::Prefer(Some(Place::Host)))?;
    let left = m.join(range, group);
    m.advise(range, Advice::Prefer(None))?;
    left
}

/// Up to so many random legal migrations at a time.
fn storm(seed: u64, storms: u64) -> Option<usize> {
    play(seed, |m, random, base, blocks| {
        for _ in 0..random.below(storms + 1) {
            let first = random.below(blocks);
            let pages = 1 + random.below(512 * (blocks - first));
            let range = AddrRange::new(UmBlock(base.0 + first).start(), Bytes(pages * 4096));
            let to = if random.below(2) == 0 { Place::Host } else { Place::Device(GPU) };
            m.migrate(range, to, random.below(2) == 0).unwrap();
        }
    })
}

/// Random blocks that leave by a group, or stay in it, where kernels fault on them and migrations pass them by.
fn leaves(seed: u64) -> Option<usize> {
    let mut stay = None;
    let result = play(seed, |m, random, base, blocks| {
        let stay = *stay.get_or_insert_with(|| {
            let group = m.look(|state| Ok(state.memory.make_group())).unwrap();
            m.set_migratable(&[group], false).unwrap();
            group
        });
        for _ in 0..random.below(5) {
            let first = random.below(blocks);
            let count = 1 + random.below(blocks - first);
            let range = AddrRange::new(UmBlock(base.0 + first).start(), Bytes(count * BLOCK));
            match random.below(6) {
                0 => m.advise(range, Advice::Prefer(None)).unwrap(),
                1 => m.migrate(range, Place::Device(GPU), random.below(2) == 0).unwrap(),
                _ => {
                    m.advise(range, Advice::Prefer(Some(Place::Host))).unwrap();
                    m.join(range, stay).unwrap();
                    // What a kernel that runs meanwhile faults on is back on the GPU.
                    let mapped = |block| m.look(|s| Ok(!s.memory.mapped_on_host(block).is_empty())).unwrap();
                    assert!(!range.blocks().any(mapped));
                }
            }
        }
    });
    assert!(stay.is_some());
    result
}

/// What an engine may ask for, at random, by its queues, and carried out by the driver's calls, of which every `fails`-th is not made, if any.
fn copies(seed: u64, fails: Option<u64>) -> Option<usize> {
    let (mut queues, mut calls) = (Queues::default(), 0u64);
    play(seed, |m, random, base, blocks| {
        for _ in 0..random.below(6) {
            let (block, by) = (UmBlock(base.0 + random.below(blocks)), LaunchSeq(random.below(3)));
            let command = match random.below(8) {
                0 | 1 => Command::Save { block },
                2 | 3 => Command::Drop { block },
                4 => Command::Own { block, by },
                5 => Command::Evict { block },
                6 => Command::Fetch { block, why: Why::Fault },
                _ => Command::Fetch { block, why: Why::Predicted { by } },
            };
            queues.push_about(command, random.below(2) == 0);
        }
        while random.below(8) > 0 {
            let hand = Hand::ALL[at_index(random.below(4))];
            let Some(batch) = queues.pop_batch(hand, 4) else { continue };
            let mut ok = true;
            for &step in batch.steps() {
                calls += 1;
                ok = ok && fails.is_none_or(|n| !calls.is_multiple_of(n));
                if ok {
                    match step {
                        Step::Leave => leave(m, batch.range()),
                        Step::ToHost => m.migrate(batch.range(), Place::Host, true),
                        Step::ToDevice => m.migrate(batch.range(), Place::Device(GPU), true),
                        Step::Duplicate(on) => m.advise(batch.range(), Advice::Duplicate(on)),
                        Step::Prefer(on) => m.advise(batch.range(), Advice::Prefer(on.then_some(Place::Device(GPU)))),
                        Step::Access(on) => m.advise(batch.range(), Advice::AccessedBy(GPU, on)),
                    }
                    .unwrap();
                }
            }
            if ok {
                batch.blocks().for_each(|block| queues.moved(hand, block));
            }
            queues.done(hand);
        }
    })
}

fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(6, |n| n.parse().expect("SEEDS is a number"))
}

/// `SEEDS=1000 cargo test --release -p deepum-emu-device --test data` runs the long form.
#[test]
fn no_result_changes_whatever_leaves_by_a_group() {
    for seed in 1..=12 {
        assert_eq!(leaves(seed), None, "seed {seed}");
    }
}

#[test]
fn results_are_the_same_whatever_pages_move() {
    for seed in 0..seeds() {
        assert_eq!([0, 4].map(|storms| storm(seed, storms)), [None; 2], "seed {seed}");
    }
}

#[test]
fn results_are_the_same_whatever_has_two_copies_even_if_calls_fail() {
    for seed in 0..seeds() {
        assert_eq!([None, Some(3), Some(7)].map(|fails| copies(seed, fails)), [None; 3], "seed {seed}");
    }
}

/// The trap of facts 4.7.
#[test]
fn what_the_driver_evicted_and_was_not_sent_home_before_it_is_fetched_loses_what_is_written() {
    for home_first in [false, true] {
        let m = machine("v100-32g:memory=2MiB,host=1GiB,data=1");
        let s = null_stream(&m);
        let x = allocate(&m, Kind::Managed, 2 * BLOCK).unwrap();
        let fill = kernel(&m, "deepum_test_fill");
        let block = UmBlock::containing(DevAddr(x)).range();
        // The second launch evicts what the first wrote.
        launch(&m, s, &fill, &[x, 2, number(1.0)]);
        launch(&m, s, &fill, &[x + BLOCK, 2, number(5.0)]);
        call(&m, |c| c.synchronize(GPU));
        m.advise(block, Advice::Duplicate(true)).unwrap();
        if home_first {
            m.migrate(block, Place::Host, true).unwrap();
        }
        m.migrate(block, Place::Device(GPU), true).unwrap();
        launch(&m, s, &fill, &[x, 2, number(3.0)]);
        call(&m, |c| c.synchronize(GPU));
        m.advise(block, Advice::Duplicate(false)).unwrap();
        m.migrate(block, Place::Host, true).unwrap();
        let mut got = [0f32; 2];
        copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, x, 8);
        assert_eq!(got, if home_first { [3.0, 4.0] } else { [1.0, 2.0] });
    }
}

#[test]
fn a_discarded_page_is_poison_until_it_is_written() {
    let m = machine("v100-32g:data=1");
    let s = null_stream(&m);
    let x = allocate(&m, Kind::Managed, BLOCK).unwrap();
    let fill = kernel(&m, "deepum_test_fill");
    launch(&m, s, &fill, &[x, FLOATS, number(1.0)]);
    call(&m, |c| c.synchronize(GPU));
    m.discard(UmBlock::containing(DevAddr(x)).range(), false).unwrap();
    let mut got = [0u8; 8];
    copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, x, 8);
    assert_eq!(got, [0xDB; 8]);
    launch(&m, s, &fill, &[x, 2, number(3.0)]);
    copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, x, 8);
    assert_eq!(got, [0, 0, 64, 64, 0, 0, 128, 64], "3.0 and 4.0");
}

#[test]
fn gather_and_matmul_compute() {
    let m = machine("v100-32g:data=1");
    let s = null_stream(&m);
    let x = allocate(&m, Kind::Managed, BLOCK).unwrap();
    let (input, index, out) = (x, x + 4096, x + 8192);
    let values: Vec<f32> = (0..6).map(|n| n as f32).collect();
    let picks: Vec<u32> = vec![5, 0, 3, 9];
    copy(&m, s, input, address(&values), 24);
    copy(&m, s, index, address(&picks), 16);
    let mut got = [0f32; 4];
    let into = got.as_mut_ptr().expose_provenance() as u64;
    launch(&m, s, &kernel(&m, "deepum_test_gather"), &[out, input, index, 4, 6]);
    copy(&m, s, into, out, 16);
    assert_eq!(got, [5.0, 0.0, 3.0, 3.0]);
    // (2x3) times (3x2), both made of 0, 1, 2, 3, 4, 5.
    launch(&m, s, &kernel(&m, "deepum_test_matmul"), &[out, input, input, 2, 2, 3]);
    copy(&m, s, into, out, 16);
    assert_eq!(got, [10.0, 13.0, 28.0, 40.0]);
}
