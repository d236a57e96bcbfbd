//! Stream-ordered memory: programs that use it can exceed the GPU, and read back what they wrote, as without the shim.
//!
//! `programs/pools.c` goes through the doors; `programs/tensors.c`, on memory of a pool, is the one in which memory that is handed out too early changes
//! results; PyTorch has its `backend:cudaMallocAsync`.

use deepum_tests::data::{Bench, Way, seeds};
use deepum_tests::{Driver, Run, Script, Torch, deepum, on_this_driver, root};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program, built.
fn program(folder: &Path) -> PathBuf {
    let at = |name: &str| folder.join(name);
    for (name, library) in [("libcudart.so.13", "libdeepum_emu_cudart.so"), ("libcuda.so.1", "libdeepum_emu_cuda.so")] {
        symlink(root().join("target/release").join(library), at(name)).unwrap();
    }
    let built = Command::new("gcc")
        .args(["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,--allow-shlib-undefined", "-o"])
        .args([at("pools"), root().join("tests/programs/pools.c")])
        .args(["-L".as_ref(), folder.as_os_str()])
        .args(["-l:libcudart.so.13", "-l:libcuda.so.1"])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    at("pools")
}

/// How it ended, what it printed, and what was said but for the lines about the driver.
fn run(program: &Path, what: &str, gpu: &str, on: bool) -> (Output, String, Vec<String>) {
    let mut run = Command::new(deepum());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
        run.env_remove(name);
    }
    let gpu = on_this_driver(gpu);
    let output = run
        .env("DEEPUM", if on { "1" } else { "0" })
        .args(["run", "--gpu", &gpu, "--"])
        .arg(program)
        .arg(what)
        .output()
        .unwrap();
    let driver = Driver::of(&gpu);
    let driver = if on { driver } else { driver.unheard() };
    let (out, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), driver.said(&output.stderr));
    (output, out, said)
}

#[test]
fn where_it_fits_a_program_hears_the_same_with_and_without_the_shim() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let (plain, without, said) = run(&program, "fit", "emu:v100-32g:data=1,memory=256MiB", false);
    assert!(plain.status.success() && said.is_empty(), "{said:?}");
    let (shim, with, said) = run(&program, "fit", "emu:v100-32g:data=1,memory=256MiB", true);
    assert!(shim.status.success(), "{said:?}");
    assert_eq!(with, without);
    assert!(without.lines().count() > 12 && !without.contains(": 0\n"), "{without}");
    // It resets the GPU in the end.
    assert!(said.len() == 1 && said[0].contains("reset a GPU"), "{said:?}");
}

#[test]
fn four_times_what_the_gpu_holds_is_out_of_memory_without_the_shim_alone() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let small = "emu:v100-32g:data=1,memory=64MiB";
    let (plain, out, _) = run(&program, "big", small, false);
    assert_eq!((plain.status.code(), out.as_str()), (Some(3), "out of memory\n"));
    let (shim, out, said) = run(&program, "big", small, true);
    assert!(shim.status.success() && said.is_empty(), "{out}{said:?}");
    assert_eq!(out, "used 256 MiB at most\n");
    // Out of memory is what it is also where the host has no room.
    let (none, out, said) = run(&program, "big", "emu:v100-32g:data=1,memory=64MiB,host=128MiB", true);
    assert_eq!((none.status.code(), out.as_str()), (Some(3), "out of memory\n"), "{said:?}");
    assert!(said.len() == 1 && said[0].contains("out-of-memory"), "{said:?}");
}

/// The variable that asks PyTorch for another allocator.
fn conf(torch: Torch) -> &'static str {
    if torch == Torch::Cu13 { "PYTORCH_ALLOC_CONF" } else { "PYTORCH_CUDA_ALLOC_CONF" }
}

/// As in `tensors.rs`.
const OFF: Way = Way {
    name: "off",
    gpu: "v100-32g:data=1",
    drivers: &["580"],
    env: &[("DEEPUM", "0")],
    storm: false,
    says: None,
    every: 1,
};
const HORIZON: Way =
    Way { name: "horizon", gpu: "v100-32g:data=1,memory=16MiB", env: &[("DEEPUM_POLICY", "horizon")], ..OFF };
const BUDGET: Way =
    Way { name: "budget", env: &[("DEEPUM_POLICY", "horizon"), ("DEEPUM_GPU_BUDGET", "10MiB")], ..HORIZON };
const STORM: Way = Way { name: "storm", storm: true, ..HORIZON };
const WAYS: [Way; 4] = [OFF, HORIZON, BUDGET, STORM];

#[test]
fn tensors_of_a_pool_are_the_same_bits_whatever_is_thrown_away() {
    let bench = Bench::new("pool_tensors", &["pool_tensors.c", "data_mode_kernels.c"]);
    let outcomes = bench.run_all(&WAYS, seeds(20));
    outcomes.assert_same_results(16 << 20);
    for name in ["horizon", "budget", "storm"] {
        let discarded = outcomes.counted(name, "discarded");
        println!("{name}: {discarded} blocks thrown away");
        assert_eq!(discarded > 0, outcomes.can(name, |driver| driver.discards), "{name}");
    }
}

/// GPT-2, small, needs more than 400 MiB.
fn gpt2(torch: Torch, gpu: &str) -> Script {
    Script::new(torch, &["language_model.py", "gpt2"]).gpu(gpu).env(conf(torch), "backend:cudaMallocAsync")
}

#[test]
fn pytorch_trains_on_stream_ordered_memory_that_exceeds_the_gpu() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        let small = "emu:v100-32g:memory=400MiB";
        let plain = gpt2(torch, small).env("DEEPUM", "0").without_status().run();
        let said = String::from_utf8_lossy(&plain.output.stderr);
        assert!(!plain.output.status.success() && said.contains("OutOfMemoryError"), "{torch:?}: {said}");
        assert_eq!(plain.device.totals.managed_bytes, 0);

        let run = gpt2(torch, small).run();
        let shim = run.assert_clean().shim.as_ref().expect("a clean run has it");
        assert!(run.device.totals.d2h_eviction > 0 && shim.prefetch.useful > 0, "{shim:?}");
        assert_eq!(shim.counters["discarded"] > 0, run.driver.discards, "{:?}", shim.counters);
        assert_eq!(run.said(), [""; 0]);

        gpt2(torch, "emu:v100-32g").run().assert_clean();
    }
}

#[test]
fn what_pytorch_says_of_its_memory_is_what_there_is() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        let stats = |on: &str, gpu: &str| {
            let script = Script::new(torch, &["pool_memory.py"]).gpu(gpu).env(conf(torch), "backend:cudaMallocAsync");
            let run = script.env("DEEPUM", on).without_status().run();
            let said = String::from_utf8_lossy(&run.output.stderr);
            assert!(run.output.status.success(), "{torch:?}: {said}");
            String::from_utf8_lossy(&run.output.stdout).into_owned()
        };
        let with = stats("1", "emu:v100-32g");
        assert_eq!(with, stats("0", "emu:v100-32g"), "{torch:?}");
        assert_eq!(with, stats("1", "emu:v100-32g:memory=100MiB"), "{torch:?}");
    }
}

/// They stay device memory: where they fit, it trains; where they do not, it is told which setting is in the way, and PyTorch says what it says without
/// the shim.
#[test]
fn expandable_segments_stay_device_memory_and_one_line_says_so() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        let script = |gpu| {
            Script::new(torch, &["language_model.py", "gpt2"]).gpu(gpu).env(conf(torch), "expandable_segments:True")
        };
        let line = |run: &Run| {
            let said = run.said();
            assert!(said.len() == 1 && said[0].contains("expandable_segments:True"), "{torch:?}: {said:?}");
        };
        let run = script("emu:v100-32g").run();
        line(run.assert_clean());
        // What libraries allocate beside PyTorch is no segment of its.
        assert!(run.device.totals.peak_managed < 16 << 20, "{:?}", run.device.totals);
        assert!(run.device.totals.device_bytes > 400 << 20);

        let small = "emu:v100-32g:memory=400MiB";
        let with = script(small).without_status().run();
        line(&with);
        let said = String::from_utf8_lossy(&with.output.stderr);
        assert!(!with.output.status.success() && said.contains("OutOfMemoryError"), "{torch:?}: {said}");
        let plain = script(small).env("DEEPUM", "0").without_status().run();
        let said = String::from_utf8_lossy(&plain.output.stderr);
        assert!(!plain.output.status.success() && said.contains("OutOfMemoryError"), "{torch:?}: {said}");
    }
}
