//! A second run of the same training begins with what the first one learned.
//!
//! What a first run has not learned yet its arguments mostly tell, since the host is hundreds of launches ahead. So a first iteration faults seldom
//! already, and there are two things to hold: it stays so with tables, run after run, and where much is left to learn a tenth of it remains.
//! That the tables alone are enough, where no argument tells anything, is tested in `crates/core/tests/saved.rs`.

use deepum_tests::{Run, Script, Torch, root};
use std::path::Path;

/// GPT-2 XL: an iteration takes 41 GB on a GPU with 32.
fn script(iterations: &str) -> Script {
    let script = root().join("examples/gpt2_xl.py");
    let script = script.to_str().expect("the tree has a plain name");
    Script::new(Torch::Cu13, &[script, "--batch", "3", "--iterations", iterations]).gpu("emu:v100-32g")
}

/// One iteration with this folder.
fn train(folder: &Path) -> Run {
    let folder = folder.to_str().expect("a temporary folder has a plain name");
    script("1").env("DEEPUM_WORKLOAD", "gpt2-xl").env("DEEPUM_TABLES", folder).run()
}

/// Fault entries after the launches that make the model.
fn of_the_iteration(run: &Run, making: usize) -> u64 {
    run.device.totals.fault_entries - run.device.entries[making - 1].fault_entries
}

#[test]
fn first_iterations_hardly_fault_and_with_saved_tables_a_tenth_or_as_hardly_remains_in_the_second_and_third_run() {
    let making = script("0").run().device.entries.len();
    let naive = of_the_iteration(&script("1").env("DEEPUM_POLICY", "demand").run(), making);
    assert!(naive > 10_000_000, "there is nothing to learn: {naive} fault entries");

    let temp = tempfile::tempdir().expect("a temporary folder");
    let runs: Vec<Run> = (0..3).map(|_| train(temp.path())).collect();
    let taken_over = |run: &Run| run.shim.as_ref().expect("a clean run has it").counters["tables_taken_over"];
    let faults: Vec<u64> = runs.iter().map(|run| of_the_iteration(run, making)).collect();
    println!("{faults:?} fault entries; naive unified memory has {naive}");
    for run in &runs {
        run.assert_clean();
        println!("{} ms, {} execution IDs taken over", run.device.totals.virtual_ns / 1_000_000, taken_over(run));
    }
    assert_eq!(taken_over(&runs[0]), 0);
    // Nothing is learned by a program that has just begun; what arguments tell in time does not fault.
    assert!(faults[0] * 100 <= naive, "first run: {} fault entries", faults[0]);
    for (run, &found) in runs.iter().zip(&faults).skip(1) {
        assert!(taken_over(run) > 1000);
        assert!(found <= (faults[0] / 10).max(naive / 500), "{found} fault entries, and {} the first time", faults[0]);
    }
}
