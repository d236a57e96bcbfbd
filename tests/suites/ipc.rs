//! Memory that processes share by CUDA IPC, on the emulated device in data mode. That single programs behave the same with the shim and without is among
//! what `same.rs` runs (`tests/programs/same/ipc*.c`).

use deepum_emu_device::log::FlightLog;
use deepum_tests::{Torch, deepum, on_this_driver, python, root};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// A program on a device of so much memory, with the shim or without its help; its flight logs are in `folder`.
fn run(folder: &Path, memory: &str, env: &[(&str, &str)], words: &[&Path]) -> Output {
    let mut command = Command::new(deepum());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
        command.env_remove(name);
    }
    command.args(["run", "--gpu", &on_this_driver(&format!("emu:a100-40g:data=1,memory={memory}")), "--"]).args(words);
    command.env("DEEPUM_EMU_LOG", folder.join("flight.log")).envs(env.iter().copied());
    let output = command.output().expect("the deepum executable starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?} {memory} {env:?}: {}\n{said}", output.status);
    assert!(!said.contains("not supported by the emulated device") && !said.contains("cannot be"), "{said}");
    output
}

/// Bytes that left the devices of a run against their will.
fn evicted(folder: &Path) -> u64 {
    let logs = std::fs::read_dir(folder).expect("our own folder").map(|entry| entry.expect("a file").path());
    let logs = logs.filter(|path| path.to_string_lossy().contains("flight.log"));
    logs.map(|path| {
        let totals = FlightLog::totals(&path).expect("a flight log");
        totals.d2h_eviction + totals.d2h_user
    })
    .sum()
}

/// `share.py` checks every value itself.
fn torch_shares_tensors(torch: Torch) {
    let script = root().join("tests/train/share.py");
    let words = [python(torch), script, "64".into()];
    let words = words.each_ref().map(AsRef::as_ref);
    for (memory, env) in
        [("2GiB", &[("DEEPUM", "0")][..]), ("2GiB", &[]), ("64MiB", &[]), ("64MiB", &[("DEEPUM_COPIES", "1")])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let output = run(folder.path(), memory, env, &words);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "shared beside 6 tensors of 16 MiB\n");
        assert_eq!(evicted(folder.path()) > 0, memory == "64MiB", "{memory}");
    }
}

#[test]
fn torch_of_cuda_13_shares_tensors() {
    torch_shares_tensors(Torch::Cu13);
}

#[test]
fn torch_of_cuda_12_shares_tensors() {
    torch_shares_tensors(Torch::Cu12);
}

#[test]
fn what_is_freed_or_whose_process_is_killed_lives_on_where_it_is_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for (name, library) in [("libcudart.so.13", "libdeepum_emu_cudart.so"), ("libcuda.so.1", "libdeepum_emu_cuda.so")] {
        symlink(root().join("target/release").join(library), at(name)).expect("a link in our own folder");
    }
    let programs = root().join("tests/programs");
    let built = Command::new("gcc")
        .args(["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-DCUDA=13", "-Wl,--allow-shlib-undefined", "-o"])
        .args([at("kept"), programs.join("ipc_kept.c"), programs.join("data_mode_kernels.c")])
        .args(["-L".as_ref(), folder.path().as_os_str()])
        .args(["-l:libcudart.so.13", "-l:libcuda.so.1", "-lm"])
        .output()
        .expect("gcc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let kept = at("kept");
    let said = |memory, env: &[_]| {
        let output = Command::new(deepum())
            .args(["run", "--gpu", &on_this_driver(&format!("emu:a100-40g:data=1,memory={memory}")), "--"])
            .arg(&kept)
            .envs(env.iter().copied())
            .output()
            .expect("the deepum executable starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), output.stderr)
    };
    let truth = said("1GiB", &[("DEEPUM", "0")]);
    assert!(truth.0 == Some(0) && truth.1.lines().count() == 8, "{truth:?}");
    for memory in ["1GiB", "24MiB"] {
        let ours = said(memory, &[]);
        assert_eq!((&ours.0, &ours.1), (&truth.0, &truth.1), "{}", String::from_utf8_lossy(&ours.2));
        // That the memory is gone is said once, with the reason.
        let lines = String::from_utf8_lossy(&ours.2)
            .lines()
            .filter(|line| line.contains("does not export it any more"))
            .count();
        assert_eq!(lines, 1, "{}", String::from_utf8_lossy(&ours.2));
    }
}
