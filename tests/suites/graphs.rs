//! CUDA graphs: unmodified PyTorch trains through them, and an ordinary program has the same results with and without the shim. A graph's launch is
//! one launch, and its record names what its nodes touch.

use deepum_core::units::{AddrRange, LaunchKey, UmBlock};
use deepum_emu_device::log::FlightLog;
use deepum_protocol::status::State;
use deepum_tests::{Driver, Run, Script, Torch, deepum, in_turn, on_this_driver, root};
use deepum_trace::binary::Reader;
use deepum_trace::event::{Event, Launch};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn script(torch: Torch, how: &str) -> Script {
    Script::new(torch, &["graphs.py", "--how", how])
}

/// It did use graphs, and no capture was disturbed: one that is fails the program.
fn assert_graphs(run: &Run) {
    let shim = run.assert_clean().shim.as_ref().expect("a clean run has it");
    assert!(shim.shim["launches_captured"] > 50, "{shim:?}");
    let (device, kernels) = (&run.device.totals, run.device.totals.exact_launches + run.device.totals.guessed_launches);
    assert!(kernels > device.launches + 100, "what ran was launched one by one: {device:?}");
    assert_eq!(shim.shim["pointers_left_out"], 0);
}

#[test]
fn what_fits_trains_and_each_launch_is_counted_once() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        for how in ["step", "callables", "compiled"] {
            assert_graphs(&script(torch, how).run());
        }
    }
}

/// Needs about 700 MiB; the device has 400.
fn under_pressure(torch: Torch, how: &str) {
    let tight = script(torch, how).gpu("emu:a100-40g:memory=400MiB");
    let [demand, horizon] = ["demand", "horizon"].map(|policy| tight.clone().env("DEEPUM_POLICY", policy).run());
    assert_graphs(&demand);
    assert_graphs(&horizon);
    assert_eq!(horizon.shim.as_ref().map(|shim| shim.state), Some(State::Awake));
    // A launch's record names every block that the device says it touched.
    let device = &horizon.device.totals;
    assert!(device.named_launches > 20 && device.blocks_touched > 1000, "{device:?}");
    assert_eq!(device.blocks_missed, 0, "{torch:?} {how}: {device:?}");
    assert!(device.h2d_user > 0, "{torch:?} {how}: {device:?}");
    let faults = |run: &Run| run.device.totals.fault_entries;
    let (few, many) = (faults(&horizon), faults(&demand));
    // What a graph of more than there is room for leaves there, the driver's notices tell.
    if horizon.driver.tells {
        assert!(few * 3 < many * 2, "{torch:?} {how}: {few} with horizon, {many} on demand");
    }
}

#[test]
fn a_whole_step_in_one_graph_under_pressure() {
    under_pressure(Torch::Cu13, "step");
    under_pressure(Torch::Cu12, "step");
}

#[test]
fn graphed_callables_under_pressure() {
    under_pressure(Torch::Cu13, "callables");
    under_pressure(Torch::Cu12, "callables");
}

#[test]
fn graphs_of_torch_compile_under_pressure() {
    under_pressure(Torch::Cu13, "compiled");
}

/// `programs/graphs.c`, built.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Self { folder };
        symlink(root().join("target/release/libdeepum_emu_cuda.so"), program.at("libcuda.so.1")).expect("a link");
        let built = Command::new("gcc")
            .args(["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,--allow-shlib-undefined", "-o"])
            .args([program.at("graphs"), root().join("tests/programs/graphs.c")])
            .args(["-L".as_ref(), program.folder.path().as_os_str()])
            .arg("-l:libcuda.so.1")
            .output()
            .expect("gcc is there");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, gpu: &str, env: &[(&str, &Path)]) -> Output {
        let mut run = Command::new(deepum());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPUM")) {
            run.env_remove(name);
        }
        let gpu = on_this_driver(gpu);
        let output = run.args(["run", "--gpu", &gpu, "--"]).arg(self.at("graphs")).envs(env.iter().copied()).output();
        let output = output.expect("deepum starts");
        assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        let driver = Driver::of(&gpu);
        let driver = if env.contains(&("DEEPUM", Path::new("0"))) { driver.unheard() } else { driver };
        assert_eq!(driver.said(&output.stderr), [""; 0]);
        output
    }
}

#[test]
fn a_program_has_the_same_results_with_and_without_the_shim() {
    let program = Program::new();
    let truth = program.run("emu:v100-32g:data=1", &[("DEEPUM", Path::new("0"))]).stdout;
    let lines = String::from_utf8(truth.clone()).expect("text");
    assert_eq!(lines.lines().next(), Some("captured: 0 0 0 0 0 0 0 0"), "{lines}");
    assert_eq!(lines.lines().count(), 6, "{lines}");
    for policy in ["horizon", "deepum", "demand", "restless"] {
        for driver in in_turn(&["550", "580"]) {
            let log = program.at("flight.log");
            let gpu = format!("emu:v100-32g:data=1,memory=16MiB,{driver}");
            let env = [("DEEPUM_POLICY", Path::new(policy)), ("DEEPUM_EMU_LOG", &log)];
            let output = program.run(&gpu, &env);
            assert_eq!(output.stdout, truth, "{policy} on {driver}");
            let totals = FlightLog::totals(&log).expect("the device keeps a flight log");
            assert_eq!((totals.launches, totals.exact_launches, totals.blocks_missed), (12, 78, 0), "{totals:?}");
            assert!(totals.d2h_eviction + totals.d2h_user > 0, "it fitted: {totals:?}");
        }
    }
}

/// Launches of a trace, with the blocks that the device says they touched; and its allocations.
type Recorded = (Vec<(Launch, BTreeSet<UmBlock>)>, Vec<AddrRange>);

fn recorded(path: &Path) -> Recorded {
    let reader = Reader::new(BufReader::new(File::open(path).expect("the trace"))).expect("a trace");
    let (mut all, mut touched, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    for record in reader {
        match record.expect("a whole trace").event {
            Event::Launch(launch) => all.push(Some(launch)),
            // A copy has a place in the same sequence.
            Event::Copy { .. } => all.push(None),
            Event::Touched { launch, touches } => touched.push((launch.0, touches)),
            Event::Alloc { range } => allocations.push(range),
            _ => {}
        }
    }
    let blocks = |seq: u64| touched.iter().filter(move |(of, _)| *of == seq).flat_map(|(_, touches)| touches);
    let with = |(seq, launch): (u64, Option<Launch>)| {
        launch.map(|launch| (launch, blocks(seq).flat_map(|touch| touch.range.blocks()).collect()))
    };
    ((1..).zip(all).filter_map(with).collect(), allocations)
}

/// Handles differ from run to run, what a graph does not: its launches have the same keys, by what they use.
#[test]
fn a_graphs_launch_is_recorded_with_what_it_uses_under_a_key_that_repeats() {
    let program = Program::new();
    let record = |name: &str| {
        let path = program.at(name);
        program.run("emu:v100-32g:data=1,memory=16MiB", &[("DEEPUM_RECORD", &path)]);
        recorded(&path)
    };
    let ((first, allocations), (second, _)) = (record("first.trace"), record("second.trace"));
    let keys = |all: &[(Launch, BTreeSet<UmBlock>)]| all.iter().map(|(l, _)| l.key).collect::<Vec<LaunchKey>>();
    assert_eq!(keys(&first), keys(&second));
    assert_eq!((first.len(), allocations.len()), (12, 8));
    // As it was made; updated; one node changed; built by hand; two nodes of that changed.
    let different: BTreeSet<LaunchKey> = keys(&first).into_iter().collect();
    assert_eq!(different.len(), 5);
    // The buffers that pointers name, each an allocation of its own.
    let named = |n: usize| -> Vec<AddrRange> {
        let launch = &first[n].0;
        allocations.iter().filter(|range| launch.pointers.iter().any(|&at| range.contains(at))).copied().collect()
    };
    for (n, (launch, touched)) in first.iter().enumerate() {
        let blocks: BTreeSet<UmBlock> = named(n).iter().flat_map(|range| range.blocks()).collect();
        assert_eq!(*touched, blocks, "launch {n}: {launch:?}");
    }
    // What is not used any more is not named.
    assert_eq!([0, 6, 8, 9, 11].map(|n| named(n).len()), [8, 8, 8, 3, 4]);
}
