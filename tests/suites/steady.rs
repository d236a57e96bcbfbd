//! A training that repeats itself gives the same bits where `horizon` keeps two copies of what is only read, and gives one up before it is written.
//!
//! `programs/steady.c` says what it trains. There is no storm: who fetches what the driver may keep two copies of meets the trap of facts 4.7, which is why one copy is the default. `docs/data-mode.md` says more; `SEEDS=100` runs a hundred seeds.

use deepum_tests::data::{Bench, Way, seeds};

const OFF: Way = Way {
    name: "off",
    gpu: "v100-32g:data=1",
    drivers: &["580", "560", "535", "595,mm=first", "550"],
    env: &[("DEEPUM", "0")],
    storm: false,
    says: None,
    every: 1,
};
/// Seven to eight tenths of what an iteration has alive at most.
const HORIZON: Way = Way {
    name: "horizon",
    gpu: "v100-32g:data=1,memory=128MiB",
    env: &[("DEEPUM_POLICY", "horizon"), ("DEEPUM_COPIES", "2")],
    ..OFF
};
/// Every fifth migration fails, every seventh notice is lost, and all notices are late.
const UNLUCKY: Way = Way {
    name: "unlucky",
    gpu: "v100-32g:data=1,memory=128MiB,fail_migrate=5,drop_notices=7,late_us=40",
    says: Some("the driver goes on by itself where we fail"),
    ..HORIZON
};
const ONE_COPY: Way = Way { name: "one copy", env: &[("DEEPUM_POLICY", "horizon")], ..HORIZON };

#[test]
fn results_are_the_same_bits_where_horizon_keeps_copies_of_what_is_only_read() {
    let outcomes = Bench::new("steady", &["steady.c", "data_mode_kernels.c"])
        .run_all(&[OFF, HORIZON, UNLUCKY, ONE_COPY], seeds(4));
    outcomes.assert_same_results(128 << 20);
    let counted = |name| ["saved", "owned"].map(|of| outcomes.counted(name, of));
    for name in ["horizon", "unlucky"] {
        println!("{name}: saved, owned: {:?}", counted(name));
        let can = outcomes.can(name, |driver| driver.duplicates);
        // Where contents that nobody needs leave with a copy, the way out may have no time for others' copies.
        if !can || outcomes.can(name, |driver| driver.discards) {
            assert_eq!(counted(name).map(|count| count > 0), [can; 2], "{name}: {:?}", counted(name));
        }
    }
    assert_eq!(counted("one copy"), [0; 2]);
}
