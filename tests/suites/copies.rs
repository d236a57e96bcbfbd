//! Copies and memsets of managed memory on the emulated device, by every door it has, in programs of CUDA 12 and of CUDA 13.
//!
//! `programs/copies_emu.c` counts; here is what the engine made of it.

use deepum_protocol::status::Status;
use deepum_tests::{Driver, deepum, on_this_driver, root};
use std::os::unix::fs::symlink;
use std::process::Command;

/// Builds the program against the runtime of this release, runs it, and looks at its status.
fn every_door_is_one_place(cuda: u32) {
    let runtime = &format!("libcudart.so.{cuda}");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A program is linked against the libraries' names; which they are, is decided when it starts.
    for (name, library) in [(runtime.as_str(), "libdeepum_emu_cudart.so"), ("libcuda.so.1", "libdeepum_emu_cuda.so")] {
        symlink(root().join("target/release").join(library), at(name)).unwrap();
    }
    let built = Command::new("gcc")
        .args(["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,--allow-shlib-undefined", "-o"])
        .args([at("copies_emu"), root().join("tests/programs/copies_emu.c")])
        .args(["-L".as_ref(), folder.path().as_os_str()])
        .args([format!("-DCUDA={cuda}"), format!("-l:{runtime}"), "-l:libcuda.so.1".to_owned()])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let mut run = Command::new(deepum());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
        run.env_remove(name);
    }
    let gpu = on_this_driver("emu:v100-32g:memory=16MiB");
    run.args(["run", "--gpu", &gpu, "--"]);
    let output = run.args([at("copies_emu"), deepum(), at("status.json")]).output().unwrap();
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let mut said = Driver::of(&gpu).said(&output.stderr);
    // The device says once that it takes advice and does not act on it.
    said.retain(|line| !line.starts_with("deepum-emu: cuMemAdvise: "));
    assert_eq!(said, [""; 0]);

    let numbers: Vec<u64> =
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect();
    let (taken, untold) = (numbers[0], numbers[1]);
    assert!(taken > 100);
    let all: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(at("status.json")).unwrap()).expect("status is JSON");
    let status = Status::parse(&all["rows"][0].to_string()).unwrap();
    assert_eq!(status.shim["copies"], taken);
    assert_eq!(status.devices[0].launches, 0, "no copy is a launch");
    assert_eq!(status.ring.dropped, 0);
    // Many are of two ranges of managed memory.
    assert!(status.counters["copies"] > taken - untold);
    // Everything is over, so the newest place is in some stream's word.
    assert_eq!(status.progress.iter().map(|stream| stream.done).max(), Some(taken));
}

#[test]
fn of_cuda_13() {
    every_door_is_one_place(13);
}

#[test]
fn of_cuda_12() {
    every_door_is_one_place(12);
}
