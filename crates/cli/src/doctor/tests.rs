//! Illnesses are planted in a healthy machine, one at a time: exactly that one is named, with what it costs and how to mend it.

use super::finding::{Finding, Verdict};
use super::judge::{Trial, judge};
use super::probe::{Seen, SeenDriver, SeenGpu};
use super::system::planted::{Planted, folder, node};
use super::system::{Entry, Kind};
use super::{host, look, program};
use crate::cuda::Failed;
use deepum_config::Config;
use deepum_core::units::Bytes;
use nix::sys::resource::Resource;
use std::ffi::OsStr;
use std::path::Path;

const GPU: Bytes = Bytes::gib(24);

/// All that is found on a machine whose driver answers so.
fn findings(system: &Planted, seen: &Seen) -> Vec<Finding> {
    let reading = Config::read(system.variables.clone());
    let mut found = look(system, true, &reading.config, &reading.lines);
    found.push(host::memory(system, &reading.config, &[GPU]));
    found.extend(judge(&Trial::Seen(seen.clone())));
    found
}

fn healthy() -> Seen {
    let gpu = SeenGpu {
        name: "NVIDIA GeForce RTX 4090".to_owned(),
        memory_bytes: GPU.0,
        uuid: [7; 16],
        concurrent_managed_access: true,
        stream_mem_ops: true,
        host_page_tables: false,
        integrated: false,
    };
    let driver = SeenDriver { queue: Ok(()), va_space: Ok(()), discard: Ok(()), duplicate: Ok(()) };
    Seen { preloaded: true, cuda: 13_000, gpus: vec![gpu], failed: None, driver: Some(driver) }
}

#[test]
fn nothing_is_said_of_a_machine_on_which_nothing_is_wrong() {
    let found = findings(&Planted::healthy(), &healthy());
    let ill: Vec<&Finding> = found.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert!(ill.is_empty(), "{ill:?}");
    for check in [
        "driver",
        "uvm-node",
        "tools-node",
        "gpu-nodes",
        "link",
        "memlock",
        "host-memory",
        "cuda",
        "notices",
        "preload",
    ] {
        assert!(found.iter().any(|finding| finding.check == check), "{check} was not looked at");
    }
}

/// An illness of the machine: its name, how it is planted, which check names it, how bad it is, and words of what was seen and of the remedy.
type Illness = (&'static str, fn(&mut Planted), &'static str, Verdict, &'static str, &'static str);

const CLOSED: Entry = Entry { kind: Kind::Device { major: 511, minor: 1 }, owner: 0, mode: 0o600, open: false };

#[rustfmt::skip]
const ILLNESSES: &[Illness] = &[
    ("older driver", |m| m.write("/sys/module/nvidia/version", "470.256.02\n"), "driver", Verdict::Stops, "470.256.02", "515"),
    ("newer driver", |m| m.write("/sys/module/nvidia/version", "700.10\n"), "driver", Verdict::Costs, "700.10", "595"),
    ("driver without a name", |m| { m.write("/sys/module/nvidia/version", "?\n"); m.write("/proc/driver/nvidia/version", "?\n"); }, "driver", Verdict::Costs, "does not tell", "/proc"),
    ("module not loaded", |m| { m.entries.remove(Path::new("/sys/module/nvidia_uvm")); m.files.retain(|path, _| !path.starts_with("/sys/module/nvidia_uvm")); m.write("/proc/devices", "195 nvidia\n"); }, "uvm-module", Verdict::Stops, "not loaded", "nvidia-modprobe"),
    ("no oversubscription", |m| m.write("/sys/module/nvidia_uvm/parameters/uvm_global_oversubscription", "0\n"), "uvm-module", Verdict::Stops, "uvm_global_oversubscription=0", "modprobe.d"),
    ("no tree prefetcher", |m| m.write("/sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_enable", "0\n"), "uvm-module", Verdict::Costs, "uvm_perf_prefetch_enable=0", "modprobe.d"),
    ("no uvm node", |m| { m.entries.remove(Path::new("/dev/nvidia-uvm")); }, "uvm-node", Verdict::Stops, "/dev/nvidia-uvm is missing", "nvidia-modprobe"),
    ("no tools node", |m| { m.entries.remove(Path::new("/dev/nvidia-uvm-tools")); }, "tools-node", Verdict::Costs, "is missing", "nvidia-modprobe"),
    ("tools node of an earlier start", |m| { m.entries.insert("/dev/nvidia-uvm-tools".into(), node(510, 1)); }, "tools-node", Verdict::Costs, "510:1, but the driver's is 511:1", "rm /dev/nvidia-uvm-tools"),
    ("wrong minor", |m| { m.entries.insert("/dev/nvidia-uvm".into(), node(511, 1)); }, "uvm-node", Verdict::Stops, "511:1, but the driver's is 511:0", "rm /dev/nvidia-uvm"),
    ("a file in place of a node", |m| { m.entries.insert("/dev/nvidia-uvm-tools".into(), Entry { kind: Kind::Other, ..node(0, 0) }); }, "tools-node", Verdict::Costs, "no character device", "rm"),
    ("tools node of root alone", |m| { m.entries.insert("/dev/nvidia-uvm-tools".into(), CLOSED); }, "tools-node", Verdict::Costs, "mode 600", "chmod 666"),
    ("GPU of root alone", |m| { m.entries.insert("/dev/nvidia0".into(), Entry { open: false, ..node(195, 0) }); }, "gpu-nodes", Verdict::Stops, "/dev/nvidia0", "chmod 666"),
    ("no GPU nodes", |m| { m.entries.remove(Path::new("/dev/nvidia0")); }, "gpu-nodes", Verdict::Stops, "not both there", "nvidia-modprobe"),
    ("a riser of four lanes", |m| m.write("/sys/bus/pci/devices/0000:01:00.0/current_link_width", "4\n"), "link", Verdict::Costs, "x4 at 16.0 GT/s PCIe, of x16", "slot"),
    ("an idle link", |m| m.write("/sys/bus/pci/devices/0000:01:00.0/current_link_speed", "2.5 GT/s PCIe\n"), "link", Verdict::Unknown, "while idle", ""),
    ("Windows", |m| m.write("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n"), "platform", Verdict::Stops, "Windows", "Linux"),
    ("gVisor", |m| { m.write("/proc/sys/kernel/osrelease", "4.4.0\n"); m.write("/proc/version", "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"); }, "platform", Verdict::Costs, "gVisor", "newer"),
    ("MIG", |m| { m.entries.insert("/proc/driver/nvidia/capabilities/gpu0/mig/gi1".into(), folder()); }, "platform", Verdict::Costs, "MIG", "nvidia-smi -mig 0"),
    ("MPS", |m| { m.entries.insert("/tmp/nvidia-mps/control".into(), node(0, 0)); }, "platform", Verdict::Unknown, "MPS", ""),
    ("memlock of 64 KiB", |m| m.limits.push((Resource::RLIMIT_MEMLOCK, Bytes::kib(64))), "memlock", Verdict::Costs, "64.00 KiB", "ulimit -l unlimited"),
    ("few addresses", |m| m.limits.push((Resource::RLIMIT_AS, Bytes::gib(64))), "address-space", Verdict::Stops, "ulimit -v", "unlimited"),
    ("a cgroup below the GPU's memory", |m| { m.write("/proc/self/cgroup", "0::/job\n"); m.write("/sys/fs/cgroup/job/memory.max", "17179869184\n"); m.write("/sys/fs/cgroup/job/memory.current", "0\n"); }, "host-memory", Verdict::Costs, "/sys/fs/cgroup/job", "docker run --memory"),
    ("a cgroup of little more", |m| { m.write("/proc/self/cgroup", "0::/job\n"); m.write("/sys/fs/cgroup/job/memory.max", "34359738368\n"); m.write("/sys/fs/cgroup/job/memory.current", "0\n"); }, "host-memory", Verdict::Costs, "/sys/fs/cgroup/job", "Slurm"),
    ("a full host", |m| m.write("/proc/meminfo", "MemTotal: 263000000 kB\nMemAvailable: 9000000 kB\n"), "host-memory", Verdict::Costs, "of what is available", "fewer other programs"),
    ("a small host budget", |m| m.set("DEEPUM_HOST_BUDGET", "30GiB"), "host-memory", Verdict::Costs, "DEEPUM_HOST_BUDGET", "larger"),
    ("forced device memory", |m| m.set("CUDA_MANAGED_FORCE_DEVICE_ALLOC", "1"), "environment", Verdict::Stops, "CUDA_MANAGED_FORCE_DEVICE_ALLOC=1", "unset"),
    ("blocking launches", |m| m.set("CUDA_LAUNCH_BLOCKING", "1"), "environment", Verdict::Costs, "CUDA_LAUNCH_BLOCKING", "unset"),
    ("hidden GPUs", |m| m.set("CUDA_VISIBLE_DEVICES", ""), "environment", Verdict::Stops, "CUDA_VISIBLE_DEVICES=", "by its number"),
    ("no caching", |m| m.set("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), "environment", Verdict::Costs, "PYTORCH_NO_CUDA_MEMORY_CACHING", "unset"),
    ("expandable segments", |m| m.set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512,expandable_segments:True"), "environment", Verdict::Stops, "expandable_segments:True", "leave expandable_segments:True out"),
    ("a misspelt variable", |m| m.set("DEEPUM_POLCY", "deepum"), "configuration", Verdict::Costs, "DEEPUM_POLCY", "docs/configuration.md"),
    ("DeepUM off", |m| m.set("DEEPUM", "0"), "configuration", Verdict::Stops, "DEEPUM=0", "unset DEEPUM"),
    ("tables of somebody else", |m| { m.entries.insert("/data/tables".into(), Entry { owner: 0, ..folder() }); m.set("DEEPUM_TABLES", "/data/tables"); }, "tables-folder", Verdict::Costs, "owner 0", "DEEPUM_TABLES"),
    ("no folder for sockets", |m| { m.entries.remove(Path::new("/run/user/1000")); m.entries.insert("/run".into(), Entry { open: false, ..folder() }); m.entries.insert("/tmp".into(), Entry { open: false, ..folder() }); }, "status-folder", Verdict::Costs, "/tmp/deepum-1000", "XDG_RUNTIME_DIR"),
    ("no daemon", |m| m.set("DEEPUM_ENGINE", "daemon"), "daemon", Verdict::Costs, "/run/user/1000/deepum/deepumd.sock or /run/deepum/deepumd.sock", "start deepumd"),
];

/// Of a machine with one illness: that one finding, and nothing else that is not well.
#[track_caller]
fn only(what: &str, found: &[Finding]) -> Finding {
    let ill: Vec<&Finding> = found.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert_eq!(ill.len(), 1, "{what}: {ill:?}");
    let finding = ill[0].clone();
    if finding.verdict > Verdict::Unknown {
        assert!(!finding.cost.is_empty() && !finding.remedy.is_empty(), "{what}: {finding:?}");
    }
    finding
}

#[test]
fn each_illness_of_a_machine_is_named_alone_with_its_cost_and_its_remedy() {
    for &(what, plant, check, verdict, saw, remedy) in ILLNESSES {
        let mut machine = Planted::healthy();
        plant(&mut machine);
        let finding = only(what, &findings(&machine, &healthy()));
        assert_eq!((finding.check, finding.verdict), (check, verdict), "{what}: {finding:?}");
        assert!(finding.saw.contains(saw), "{what}: no {saw:?} in {finding:?}");
        assert!(finding.remedy.contains(remedy), "{what}: no {remedy:?} in {finding:?}");
    }
}

#[test]
fn without_a_driver_that_is_all_that_is_said_of_it() {
    let mut machine = Planted::healthy();
    machine.files.retain(|path, _| !path.starts_with("/sys/module") && !path.starts_with("/proc/driver"));
    machine.entries.retain(|path, _| !path.starts_with("/dev") && !path.starts_with("/sys"));
    let finding = only("no driver", &look(&machine, true, &Config::default(), &[]));
    assert_eq!((finding.check, finding.verdict), ("driver", Verdict::Stops));
}

#[test]
fn in_a_container_nodes_are_passed_in_and_not_made() {
    let mut machine = Planted::healthy();
    machine.entries.insert("/.dockerenv".into(), folder());
    machine.entries.remove(Path::new("/dev/nvidia-uvm-tools"));
    let finding = only("container", &findings(&machine, &healthy()));
    assert!(finding.remedy.contains("docker run --device /dev/nvidia-uvm-tools"), "{finding:?}");
}

#[test]
fn what_the_driver_answers_is_judged() {
    type Answer = (&'static str, fn(&mut Seen), &'static str, Verdict, &'static str);
    let answers: &[Answer] = &[
        (
            "no faults",
            |s| s.gpus[0].concurrent_managed_access = false,
            "faults",
            Verdict::Stops,
            "concurrentManagedAccess",
        ),
        ("integrated", |s| s.gpus[0].integrated = true, "faults", Verdict::Stops, "shares the host's memory"),
        ("GH200", |s| s.gpus[0].host_page_tables = true, "faults", Verdict::Unknown, "GH200"),
        ("no stream operations", |s| s.gpus[0].stream_mem_ops = false, "progress", Verdict::Costs, "64-bit"),
        ("not preloaded", |s| s.preloaded = false, "preload", Verdict::Stops, "is not in the process"),
        ("no queue", |s| driver(s).queue = Err("refused".to_owned()), "notices", Verdict::Costs, "refused"),
        (
            "no address space",
            |s| driver(s).va_space = Err("none found".to_owned()),
            "address-space-of-gpu",
            Verdict::Stops,
            "none found",
        ),
        (
            "no discard",
            |s| driver(s).discard = Err("NVIDIA driver 550.54".to_owned()),
            "discard",
            Verdict::Costs,
            "550.54",
        ),
        (
            "no two copies",
            |s| driver(s).duplicate = Err("NVIDIA driver 700.10".to_owned()),
            "two-copies",
            Verdict::Costs,
            "700.10",
        ),
        (
            "half updated",
            |s| *s = failed("cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            "cuda",
            Verdict::Stops,
            "MISMATCH",
        ),
        (
            "no library",
            |s| *s = failed("dlopen", 0, "libcuda.so.1: cannot open"),
            "cuda",
            Verdict::Stops,
            "libcuda.so.1",
        ),
        ("no GPU", |s| s.gpus.clear(), "cuda", Verdict::Stops, "no GPU"),
    ];
    for &(what, plant, check, verdict, saw) in answers {
        let mut seen = healthy();
        plant(&mut seen);
        let finding = only(what, &judge(&Trial::Seen(seen)));
        assert_eq!((finding.check, finding.verdict), (check, verdict), "{what}");
        assert!(finding.saw.contains(saw), "{what}: {finding:?}");
    }
    let finding = only("hangs", &judge(&Trial::Broken("did not end within 120 s".to_owned())));
    assert!(finding.saw.contains("did not end") && finding.remedy.contains("Xid"), "{finding:?}");
}

fn driver(seen: &mut Seen) -> &mut SeenDriver {
    seen.driver.as_mut().expect("a healthy one answers")
}

fn failed(call: &str, status: i32, name: &str) -> Seen {
    let failed = Failed { call: call.to_owned(), status, name: name.to_owned() };
    Seen { preloaded: true, failed: Some(failed), ..Seen::default() }
}

#[test]
fn a_program_that_nothing_can_be_preloaded_into_is_named() {
    let unasked = |_: &Path| panic!("it is no Python");
    let of = |path: &Path| program::examine(path.as_os_str(), unasked).remove(0);
    assert_eq!(of(Path::new("sh")).verdict, Verdict::Ok, "the shell is found in PATH");
    let temp = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8], mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = temp.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let shell = std::fs::read(std::fs::canonicalize("/bin/sh").unwrap()).unwrap();
    let set_user = of(&file("suid", &shell, 0o4755));
    assert_eq!((set_user.verdict, set_user.saw.contains("set-user-ID")), (Verdict::Stops, true), "{set_user:?}");
    // The same, for a machine of another make (`e_machine`), and without an interpreter.
    let mut other = shell.clone();
    other[18..20].copy_from_slice(&183u16.to_le_bytes());
    assert!(of(&file("aarch64", &other, 0o755)).saw.contains("x86-64"));
    let mut fixed = shell;
    let (offset, count) = (usize::from(fixed[32]), usize::from(fixed[56]));
    for header in 0..count {
        let at = offset + 56 * header;
        if fixed[at..at + 4] == 3u32.to_le_bytes() {
            fixed[at..at + 4].copy_from_slice(&0u32.to_le_bytes());
        }
    }
    assert!(of(&file("static", &fixed, 0o755)).saw.contains("statically"));
    assert!(of(&file("script", b"#!/usr/bin/env sh\n", 0o755)).saw.ends_with("sh"));
    assert_eq!(
        of(&file("loop", format!("#!{}/loop\n", temp.path().display()).as_bytes(), 0o755)).verdict,
        Verdict::Unknown
    );
    assert_eq!(of(Path::new("/no/such/program")).verdict, Verdict::Stops);
}

#[test]
fn a_pytorch_without_cuda_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let python = temp.path().join("python3");
    std::os::unix::fs::symlink(std::fs::canonicalize("/bin/sh").unwrap(), &python).unwrap();
    let says = |said: Result<&str, &str>| {
        program::examine(OsStr::new(&python), |_| said.map(str::to_owned).map_err(str::to_owned)).remove(1)
    };
    assert_eq!(says(Ok("2.11.0 13.0")).verdict, Verdict::Ok);
    let cpu = says(Ok("2.11.0+cpu None"));
    assert_eq!((cpu.verdict, cpu.remedy.contains("pip install torch")), (Verdict::Stops, true), "{cpu:?}");
    assert_eq!(says(Err("No module named 'torch'")).verdict, Verdict::Unknown);
}
