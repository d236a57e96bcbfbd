//! Programs with real results give the same bits whatever DeepUM moves, and whatever anybody else moves meanwhile.
//!
//! `programs/data_mode.c`, an ordinary CUDA program, runs a random workload per seed on the emulated device in data mode,
//! where kernels compute, page moves carry real bytes, and a page that left a place is poisoned there. The truth is what it
//! prints with the shim off and more memory than it needs. Every other way of running it must print the same, on a device
//! that cannot hold its buffers. `docs/data-mode.md` says what is in a workload and how long the long form takes.
//!
//! `SEEDS=1000` runs a thousand seeds; `THIN=10` with it runs all ways but the truth and `horizon budget` on a tenth of them.

use deepum_tests::data::{Bench, Way, seeds};

/// More than any workload needs.
const ROOMY: &str = "v100-32g:data=1";
/// Less than any workload has in buffers; half of what most have.
const TIGHT: &str = "v100-32g:data=1,memory=16MiB";
/// The drivers played, in turn.
const DRIVERS: &[&str] = &["580", "560", "535", "595,mm=first", "550"];
/// The program, and what else it is compiled of.
const PROGRAM: &str = "data_mode";
const SOURCES: &[&str] = &["data_mode.c", "data_mode_kernels.c"];

const OFF: Way =
    Way { name: "off", gpu: ROOMY, drivers: DRIVERS, env: &[("DEEPUM", "0")], storm: false, says: None, every: 1 };
const HORIZON: Way = Way { name: "horizon", gpu: TIGHT, env: &[("DEEPUM_POLICY", "horizon")], ..OFF };
const DEEPUM: Way = Way { name: "deepum", env: &[("DEEPUM_POLICY", "deepum")], every: 2, ..HORIZON };
const DEMAND: Way = Way { name: "demand", env: &[("DEEPUM_POLICY", "demand")], ..DEEPUM };
const NEXT_BLOCK: Way = Way { name: "next_block", env: &[("DEEPUM_POLICY", "next_block")], ..DEEPUM };
const BUDGET: Way =
    Way { name: "budget", env: &[("DEEPUM_POLICY", "deepum"), ("DEEPUM_GPU_BUDGET", "8MiB")], ..DEEPUM };
/// Every fifth migration fails, every seventh notice is lost, and all notices are late.
const UNLUCKY: Way = Way {
    name: "unlucky",
    gpu: "v100-32g:data=1,memory=16MiB,fail_migrate=5,drop_notices=7,late_us=40",
    says: Some("the driver goes on by itself where we fail"),
    ..DEEPUM
};
const HORIZON_BUDGET: Way =
    Way { name: "horizon budget", env: &[("DEEPUM_POLICY", "horizon"), ("DEEPUM_GPU_BUDGET", "8MiB")], ..HORIZON };
const HORIZON_UNLUCKY: Way = Way { name: "horizon unlucky", gpu: UNLUCKY.gpu, says: UNLUCKY.says, ..HORIZON };
/// Blocks have two copies, lose one, and are moved, without reason.
const RESTLESS: Way =
    Way { name: "restless", env: &[("DEEPUM_POLICY", "restless"), ("DEEPUM_COPIES", "2")], ..HORIZON };
const RESTLESS_UNLUCKY: Way = Way { name: "restless unlucky", gpu: UNLUCKY.gpu, says: UNLUCKY.says, ..RESTLESS };
const DEMAND_STORM: Way = Way { name: "storm on demand", storm: true, ..DEMAND };
const DEEPUM_STORM: Way = Way { name: "storm on deepum", storm: true, ..DEEPUM };
const HORIZON_STORM: Way = Way { name: "storm on horizon", storm: true, ..HORIZON };

const WAYS: [Way; 14] = [
    OFF,
    HORIZON_BUDGET,
    HORIZON,
    BUDGET,
    DEEPUM,
    DEMAND,
    NEXT_BLOCK,
    UNLUCKY,
    HORIZON_UNLUCKY,
    RESTLESS,
    RESTLESS_UNLUCKY,
    DEMAND_STORM,
    DEEPUM_STORM,
    HORIZON_STORM,
];

#[test]
fn results_are_the_same_bits_whatever_moves() {
    let outcomes = Bench::new(PROGRAM, SOURCES).run_all(&WAYS, seeds(25));
    outcomes.assert_same_results(16 << 20);
    // Each way moved what it is there to move.
    let sum = |name, field| outcomes.sum(name, field);
    assert!(sum("demand", |t| t.d2h_eviction) > 0 && sum("demand", |t| t.h2d_user) == 0);
    // What it fetches is next to what faulted.
    assert_eq!(sum("next_block", |t| t.h2d_user) > 0, outcomes.can("next_block", |driver| driver.tells));
    assert!(sum("deepum", |t| t.h2d_user) > 0 && sum("deepum", |t| t.d2h_eviction) > 0);
    assert!(sum("budget", |t| t.d2h_user) > 0 && sum("budget", |t| t.h2d_user) > 0);
    for name in ["budget", "horizon budget"] {
        // One of those played in turn can.
        assert_eq!(sum(name, |t| t.discarded) > 0, outcomes.can(name, |driver| driver.discards), "{name}");
    }
    assert!(sum("horizon", |t| t.d2h_user) > 0 && sum("horizon", |t| t.h2d_user) > 0);
    assert!(sum("horizon budget", |t| t.d2h_user) > 0);
    assert!(sum("horizon unlucky", |t| t.h2d_user) > 0);
    assert!(sum("restless", |t| t.d2h_user) > 0 && sum("restless", |t| t.h2d_user) > 0);
    assert_eq!(sum("unlucky", |t| t.notices_dropped) > 0, outcomes.can("unlucky", |driver| driver.tells));
    assert!(sum("unlucky", |t| t.h2d_user) > 0);
}

#[test]
fn the_same_seeds_take_the_same_virtual_time() {
    let bench = Bench::new(PROGRAM, SOURCES);
    for way in [HORIZON, DEEPUM, BUDGET, HORIZON_UNLUCKY] {
        let [one, two] = [(); 2].map(|()| bench.run(way, 20, 5));
        assert_eq!((one.lines, one.totals), (two.lines, two.totals), "{}", way.name);
    }
}
