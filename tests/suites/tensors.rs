//! Tensors that come and go give the same bits, whatever is thrown away, moved, or held back meanwhile.
//!
//! `programs/tensors.c` trains on memory of an allocator that works and reports as PyTorch's does; a page that was given up is
//! poisoned, so a discard of what somebody still needs changes a result. `docs/data-mode.md` says more.
//!
//! `SEEDS=10000` runs ten thousand seeds, `SEEDS=2000..4000` a part of them; `THIN=5` with it runs all ways but the truth and `horizon` on a fifth of what they have.

use deepum_tests::data::{Bench, Way, seeds};

/// More than any workload needs.
const ROOMY: &str = "v100-32g:data=1";
/// Less than any workload has in tensors.
const TIGHT: &str = "v100-32g:data=1,memory=16MiB";
const PROGRAM: &str = "tensors";
const SOURCES: &[&str] = &["tensors.c", "data_mode_kernels.c"];

const OFF: Way = Way {
    name: "off",
    gpu: ROOMY,
    drivers: &["580", "595"],
    env: &[("DEEPUM", "0")],
    storm: false,
    says: None,
    every: 1,
};
const HORIZON: Way = Way { name: "horizon", gpu: TIGHT, env: &[("DEEPUM_POLICY", "horizon")], ..OFF };
const BUDGET: Way =
    Way { name: "budget", env: &[("DEEPUM_POLICY", "horizon"), ("DEEPUM_GPU_BUDGET", "10MiB")], every: 4, ..HORIZON };
/// Where the driver cannot discard, what nobody needs leaves first.
const EVICT_FIRST: Way = Way { name: "evict first", drivers: &["560", "535"], every: 4, ..HORIZON };
/// Every fifth migration fails, every seventh notice is lost, and all notices are late.
const UNLUCKY: Way = Way {
    name: "unlucky",
    gpu: "v100-32g:data=1,memory=16MiB,fail_migrate=5,drop_notices=7,late_us=40",
    says: Some("the driver goes on by itself where we fail"),
    every: 4,
    ..HORIZON
};
const STORM: Way = Way { name: "storm", storm: true, every: 4, ..HORIZON };
const DEEPUM: Way = Way { name: "deepum", env: &[("DEEPUM_POLICY", "deepum")], every: 2, ..HORIZON };
const DEEPUM_UNLUCKY: Way = Way { name: "deepum unlucky", gpu: UNLUCKY.gpu, says: UNLUCKY.says, every: 4, ..DEEPUM };
/// Blocks have two copies, lose one, and are moved, without reason.
const RESTLESS: Way = Way {
    name: "restless",
    drivers: &["580", "560", "535", "595,mm=first", "550"],
    env: &[("DEEPUM_POLICY", "restless"), ("DEEPUM_COPIES", "2")],
    every: 1,
    ..HORIZON
};
const RESTLESS_BUDGET: Way = Way {
    name: "restless budget",
    env: &[("DEEPUM_POLICY", "restless"), ("DEEPUM_COPIES", "2"), ("DEEPUM_GPU_BUDGET", "10MiB")],
    ..RESTLESS
};
const RESTLESS_UNLUCKY: Way = Way { name: "restless unlucky", gpu: UNLUCKY.gpu, says: UNLUCKY.says, ..RESTLESS };
const COPIES: [Way; 4] = [OFF, RESTLESS, RESTLESS_BUDGET, RESTLESS_UNLUCKY];
const WAYS: [Way; 8] = [OFF, HORIZON, BUDGET, EVICT_FIRST, UNLUCKY, STORM, DEEPUM, DEEPUM_UNLUCKY];

#[test]
fn results_are_the_same_bits_whatever_is_thrown_away() {
    let outcomes = Bench::new(PROGRAM, SOURCES).run_all(&WAYS, seeds(30));
    outcomes.assert_same_results(16 << 20);
    for Way { name, .. } in &WAYS[1..] {
        let discarded = outcomes.counted(name, "discarded");
        println!("{name}: {discarded} blocks thrown away");
        assert_eq!(discarded > 0, outcomes.can(name, |driver| driver.discards), "{name}");
        for outcome in outcomes.of(name) {
            let invalidation = &outcome.status.as_ref().expect("the program asked for its status").invalidation;
            let less = invalidation.less.as_deref();
            let wanted = if outcome.driver.discards {
                invalidation.mode == "discard" && less.is_none()
            } else {
                invalidation.mode == "evict" && less.is_some_and(|why| why.contains("give up the contents"))
            };
            assert!(wanted, "{name}: {invalidation:?}");
        }
    }
}

#[test]
fn results_are_the_same_bits_whatever_has_two_copies() {
    let outcomes = Bench::new(PROGRAM, SOURCES).run_all(&COPIES, seeds(30));
    outcomes.assert_same_results(16 << 20);
    for name in ["restless", "restless budget", "restless unlucky"] {
        let counted = ["saved", "saves_lost", "dropped", "owned", "bytes_spared"].map(|of| outcomes.counted(name, of));
        println!("{name}: saved, lost, dropped, owned, bytes spared: {counted:?}");
        let can = outcomes.can(name, |driver| driver.duplicates);
        // What is given up is spared, too.
        let spared = can || outcomes.can(name, |driver| driver.discards);
        assert_eq!(counted.map(|count| count > 0), [can, can, can, can, spared], "{name}: {counted:?}");
    }
}

#[test]
fn the_same_seeds_take_the_same_virtual_time() {
    let bench = Bench::new(PROGRAM, SOURCES);
    for way in [HORIZON, BUDGET, UNLUCKY, DEEPUM, RESTLESS, RESTLESS_UNLUCKY] {
        // Seeds of one thread: with two it is the system that says who comes first.
        let [one, two] = [(); 2].map(|()| bench.run(way, 20, 3));
        assert_eq!((one.lines, one.totals), (two.lines, two.totals), "{}", way.name);
    }
}
