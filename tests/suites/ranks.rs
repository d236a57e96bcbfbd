//! Two ranks of one training, each on a GPU of its own: DDP and FSDP under `torchrun`, over gloo.
//!
//! Each rank is a process that sees both GPUs, has an engine for each, and uses one. With a daemon, one serves both, and each has the GPU that it uses to itself, but for a floor of the other.

use deepum_emu_device::log::{FlightLog, Totals};
use deepum_protocol::status::{State, Status};
use deepum_tests::{Driver, Torch, deepum, on_this_driver, python, root};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a rank said of itself at its end.
fn train(torch: Torch, how: &str, memory: &str, env: &[(&str, &str)]) -> Vec<Status> {
    let scratch = tempfile::tempdir().expect("a folder");
    let (log, status) = (scratch.path().join("flight.log"), scratch.path().join("status.json"));
    let train = root().join("tests/train");
    let gpu = on_this_driver(&format!("emu:v100-32g:devices=2,memory={memory}"));
    // Taken and given back: who else wants a port gets another one meanwhile.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let output = Command::new(deepum())
        .args(["run", "--gpu", &gpu, "--"])
        .arg(python(torch))
        .args(["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", &port.to_string()])
        .args([&train.join("status_at_end.py"), &deepum(), &status, &train.join("ranks.py")])
        .args([how, "--iterations", "4"])
        .env("DEEPUM_EMU_LOG", &log)
        .envs(env.iter().copied())
        .output()
        .expect("the deepum executable starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{how}: {}\n{said}", output.status);
    assert!(!said.contains("not supported by the emulated device"), "{said}");

    let statuses: Vec<Status> = (0..2).map(|rank| read(&status.with_extension(format!("json.{rank}")))).collect();
    let mut launches: Vec<u64> = statuses.iter().map(|one| one.devices.iter().map(|gpu| gpu.launches).sum()).collect();
    let logs = std::fs::read_dir(scratch.path()).expect("our own folder").map(|entry| entry.expect("a file").path());
    let logs = logs.filter(|path| path.to_string_lossy().contains("flight.log"));
    let totals = logs.map(|path| FlightLog::totals(&path).expect("a flight log"));
    // The launcher may have a log, and launches nothing.
    let totals: Vec<Totals> = totals.filter(|totals| totals.launches > 0).collect();
    assert!(totals.iter().all(|totals| totals.d2h_eviction + totals.d2h_user > 0), "{how}: it fitted: {totals:?}");
    let mut truth: Vec<u64> = totals.iter().map(|totals| totals.launches).collect();
    launches.sort_unstable();
    truth.sort_unstable();
    assert_eq!(launches, truth, "{how}: launches of the ranks, shim (left) against device (right)\n{said}");
    for (rank, one) in statuses.iter().enumerate() {
        let (own, other) = (&one.devices[rank], &one.devices[1 - rank]);
        assert_eq!((one.devices.len(), one.state), (2, State::Awake), "{how}, rank {rank}: {one:?}");
        assert!(own.launches > 0 && own.resident_bytes > 0, "{how}, {rank}: {own:?}");
        assert_eq!(own.bytes_d2h > 0, Driver::of(&gpu).tells, "{how}, {rank}: {own:?}");
        assert_eq!((other.launches, other.allocated_bytes), (0, 0), "{how}, rank {rank} uses one GPU: {other:?}");
    }
    statuses
}

fn read(path: &Path) -> Status {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let all: serde_json::Value = serde_json::from_str(&text).expect("status is JSON");
    Status::parse(&all["rows"][0].to_string()).expect("a status")
}

#[test]
fn ddp_on_gpus_that_do_not_hold_it() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        train(torch, "ddp", "400MiB", &[]);
    }
}

#[test]
fn fsdp_on_gpus_that_do_not_hold_their_parts() {
    train(Torch::Cu13, "fsdp", "200MiB", &[]);
}

/// Killed where it goes out of scope.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_daemon_serves_both_with_a_budget_for_each() {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("deepumd.sock");
    let mut command = Command::new(root().join("target/release/deepumd"));
    command.arg("--socket").arg(&socket).arg("--no-tables").stderr(Stdio::null());
    let _daemon = Daemon(command.spawn().expect("deepumd starts"));
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < Duration::from_secs(300), "deepumd never listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    let engine = format!("daemon:{}", socket.display());
    for (rank, one) in train(Torch::Cu13, "ddp", "400MiB", &[("DEEPUM_ENGINE", &engine)]).iter().enumerate() {
        let (own, other) = (&one.devices[rank], &one.devices[1 - rank]);
        // All floors together are a quarter of a GPU (docs/daemon.md).
        let quarter = own.memory_bytes / 4;
        assert!(own.budget_bytes >= 3 * quarter, "rank {rank} has its GPU but for the other's floor: {own:?}");
        assert!(other.budget_bytes <= quarter, "rank {rank} has a floor where it uses nothing: {other:?}");
    }
}
