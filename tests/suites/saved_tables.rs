//! A second run of the same training begins with what the first one learned.
//!
//! What a first run has not learned yet its arguments mostly tell, since the host is hundreds of launches ahead. What is left to learn is when
//! memory will not fit: a first run begins to watch launches when it is nearly full, and by then hundreds of them, of which nobody told, are
//! on their way. In BERT Base at the batch taken here the largest tensor of the iteration is among them.
//! That the tables alone are enough, where no argument tells anything, is tested in `crates/core/tests/saved.rs`.

use deepum_tests::{Run, Script, Torch, root};
use std::path::Path;

/// One iteration of BERT Base, in less memory than it needs.
fn train(folder: &Path) -> Run {
    let script = root().join("benches/paper/bert.py");
    let script = script.to_str().expect("the tree has a plain name");
    let words = [script, "--size", "base", "--batch", "44", "--iterations", "1"];
    let folder = folder.to_str().expect("a temporary folder has a plain name");
    let script = Script::new(Torch::Cu13, &words).gpu("emu:v100-32g");
    script.env("DEEPUM_WORKLOAD", "bert-base").env("DEEPUM_TABLES", folder).run()
}

#[test]
fn a_second_and_a_third_run_have_at_most_a_tenth_of_the_first_ones_first_iteration_faults() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let runs: Vec<Run> = (0..3).map(|_| train(temp.path())).collect();
    let taken_over = |run: &Run| run.shim.as_ref().expect("a clean run has it").counters["tables_taken_over"];
    // With those of the launches that make the model, which are the same in each run.
    let faults = |run: &Run| run.device.totals.fault_entries;
    for run in &runs {
        run.assert_clean();
        let time = run.device.totals.virtual_ns / 1_000_000;
        println!("{} fault entries, {time} ms, {} execution IDs taken over", faults(run), taken_over(run));
    }
    let (first, later) = runs.split_first().expect("three runs");
    assert_eq!(taken_over(first), 0);
    assert!(faults(first) > 100_000, "there was nothing to learn: {} fault entries", faults(first));
    for run in later {
        assert!(taken_over(run) > 500);
        assert!(
            faults(run) * 10 <= faults(first),
            "{} fault entries, and {} the first time",
            faults(run),
            faults(first)
        );
        assert!(run.device.totals.virtual_ns < first.device.totals.virtual_ns, "it gains no time");
    }
}
