//! What a person meets when a variable is wrong, moves fail or host memory is used up: one line says what is lost, the status
//! shows it, and the program goes on, or hears of it in CUDA's own words. A tools node that is missing: `pytorch.rs`.

use deepum_protocol::status::{State, Status};
use deepum_tests::{Run, Script, Torch};

/// Tens of MiB, of which the budget leaves a fraction on the GPU.
fn pressed() -> Script {
    Script::new(Torch::Cu13, &["mlp.py"]).env("DEEPUM_GPU_BUDGET", "16MiB")
}

/// The status, and our own lines on stderr.
fn said(run: &Run) -> (&Status, Vec<String>) {
    (run.shim.as_ref().expect("the program lives to ask for the status"), run.said())
}

#[test]
fn moves_that_fail_are_said_once_and_counted() {
    let run = pressed().gpu("emu:v100-32g:fail_migrate=3").run();
    let (status, lines) = said(run.assert_clean());
    assert!(lines.len() == 1 && lines[0].contains("the driver goes on by itself where we fail"), "{lines:?}");
    assert!(status.counters["moves_failed"] > 1 && run.device.totals.h2d_user > 0);
}

/// Calls wait then for what comes, as where nobody asks for words.
#[test]
fn words_that_cannot_be_had_or_are_not_written_are_said_once_and_done_without() {
    let by_calls = pressed().env("DEEPUM_AWAIT", "call").run();
    assert_eq!(said(by_calls.assert_clean()).1, [""; 0]);
    for (pools, why) in
        [("refused", "UVM_ALLOC_SEMAPHORE_POOL answered NO_MEMORY"), ("silent", "one was not written in time")]
    {
        let run = pressed().gpu(&format!("emu:v100-32g:pools={pools}")).run();
        let (_, lines) = said(run.assert_clean());
        assert!(lines.len() == 1 && lines[0].contains(&format!("DEEPUM_AWAIT=word: {why}")), "{pools}: {lines:?}");
        assert_eq!(run.output.stdout, by_calls.output.stdout, "{pools}");
        assert!(run.device.totals.h2d_user > 0, "{pools}");
    }
}

#[test]
fn exhausted_host_memory_is_pytorchs_own_out_of_memory() {
    let run = pressed().env("DEEPUM_HOST_BUDGET", "4MiB").run();
    let (status, lines) = said(&run);
    assert!(lines.len() == 1 && lines[0].contains("the program gets CUDA's out-of-memory"), "{lines:?}");
    let stderr = String::from_utf8_lossy(&run.output.stderr);
    assert!(!run.output.status.success() && stderr.contains("torch.OutOfMemoryError: CUDA out of memory"), "{stderr}");
    assert!(
        stderr.contains("total capacity of 16.00 MiB"),
        "the budget, since the host has less, is what there is: {stderr}"
    );
    assert!(status.shim["allocations_refused"] > 0);
}

/// Pages keep their place on the host when they go back to the GPU, so that both together are not what there is.
#[test]
fn a_host_that_holds_the_rest_but_not_all_is_an_error_of_pytorch_and_no_dead_kernel() {
    let script = Script::new(Torch::Cu13, &["language_model.py", "gpt2"]);
    let run = script.gpu("emu:v100-32g:memory=400MiB,host=500MiB").run();
    let stderr = String::from_utf8_lossy(&run.output.stderr);
    assert!(!run.output.status.success() && stderr.contains("torch.OutOfMemoryError: CUDA out of memory"), "{stderr}");
}

#[test]
fn bad_variables_are_named_with_what_is_allowed_and_defaults_used() {
    let script = Script::new(Torch::Cu13, &["mlp.py"]).env("DEEPUM_POLICY", "lru").env("DEEPUM_TABLE", "3,2,4");
    let run = script.env("DEEPUM_BUDGET", "1GiB").run();
    let (status, lines) = said(run.assert_clean());
    assert_eq!(lines.len(), 3, "{lines:?}");
    for parts in [
        ["DEEPUM_POLICY=lru", "demand"],
        ["DEEPUM_TABLE=3,2,4", "power of two"],
        ["DEEPUM_BUDGET", "DEEPUM_GPU_BUDGET"],
    ] {
        assert!(lines.iter().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?} in {lines:?}");
    }
    assert_eq!((status.policy.as_str(), status.state), ("horizon", State::Dormant));
}
