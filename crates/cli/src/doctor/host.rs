//! The host: memory that managed memory may move to, limits of the process, and what kind of place it is.

use super::finding::Finding;
use super::system::System;
use deepum_config::Config;
use deepum_config::host::{self, Available};
use deepum_core::units::Bytes;
use nix::sys::resource::Resource;
use std::path::Path;

/// What the queue of notices takes: 65,536 entries of 64 bytes and a page (facts 2.2).
const QUEUE: Bytes = Bytes((4 << 20) + 4096);

/// How much may move to the host, beside what the GPUs have. `gpus`: memory of each, where that is known.
pub fn memory(system: &dyn System, config: &Config, gpus: &[Bytes]) -> Finding {
    const CHECK: &str = "host-memory";
    let read = |path: &Path| system.read(path).ok();
    let Some(Available { bytes: free, by }) = host::available(&read) else {
        return Finding::unknown(CHECK, "/proc/meminfo does not say how much host memory is available");
    };
    let total = host::total(&read).unwrap_or(free);
    let (promised, why) = match config.host_budget {
        Some(share) => (share.of(total), "DEEPUM_HOST_BUDGET".to_owned()),
        None => match &by {
            Some(dir) => {
                (share_of(free), format!("{}% of what the memory cgroup {} leaves", host::SHARE, dir.display()))
            }
            None => (share_of(free), format!("{}% of what is available", host::SHARE)),
        },
    };
    let saw = format!("{promised} of host memory may be used ({why})");
    let more = match (&by, config.host_budget) {
        (_, Some(_)) => "a larger DEEPUM_HOST_BUDGET".to_owned(),
        (Some(_), None) => {
            "a higher limit for the cgroup (docker run --memory, Slurm --mem, Kubernetes limits.memory)".to_owned()
        }
        (None, None) => "more host memory, or fewer other programs in it".to_owned(),
    };
    // All that a GPU has moves to the host at some time, once it does not fit (facts 4.6).
    match gpus.iter().max() {
        Some(&gpu) if promised <= gpu => Finding::costs(
            CHECK,
            format!("{saw}, and the GPU has {gpu}"),
            "a program that does not fit on the GPU must fit into the host as a whole, so nothing larger than the GPU runs; what has less of the GPU, by a budget or beside others, does",
            more,
        ),
        Some(&gpu) if promised.0 / 2 < gpu.0 => Finding::costs(
            CHECK,
            format!("{saw}, and the GPU has {gpu}"),
            format!(
                "programs get at most {:.1} times the GPU's memory, since they must fit into the host as a whole",
                promised.0 as f64 / gpu.0 as f64
            ),
            more,
        ),
        _ => Finding::ok(CHECK, saw),
    }
}

fn share_of(free: Bytes) -> Bytes {
    Bytes(free.0 / 100 * host::SHARE)
}

/// Limits of the process that CUDA or we run into.
pub fn limits(system: &dyn System) -> Vec<Finding> {
    let mut found = Vec::new();
    found.push(match system.limit(Resource::RLIMIT_MEMLOCK) {
        Some(limit) if limit < QUEUE => Finding::costs(
            "memlock",
            format!("{limit} may be locked (ulimit -l)"),
            format!("the driver pins the {QUEUE} in which it tells of faults; its source does not count them against this limit, which no machine has shown us. If it does, faults stay unseen"),
            "ulimit -l unlimited; docker run --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity",
        ),
        limit => Finding::ok("memlock", limit.map_or("unlimited".to_owned(), |limit| format!("{limit} may be locked"))),
    });
    found.push(match system.limit(Resource::RLIMIT_AS) {
        Some(limit) => Finding::stops(
            "address-space",
            format!("{limit} of addresses may be used (ulimit -v)"),
            "CUDA takes addresses for all memory of host and GPUs when it starts, and fails",
            "ulimit -v unlimited; Slurm: VSizeFactor=0",
        ),
        None => Finding::ok("address-space", "unlimited"),
    });
    found
}

/// A container of any make; it changes how things are mended.
pub fn container(system: &dyn System) -> Option<&'static str> {
    match () {
        () if system.has("/.dockerenv") => Some("Docker"),
        () if system.has("/run/.containerenv") => Some("Podman"),
        () if system.variable("KUBERNETES_SERVICE_HOST").is_some() => Some("Kubernetes"),
        () if system.variable("APPTAINER_CONTAINER").is_some()
            || system.variable("SINGULARITY_CONTAINER").is_some() =>
        {
            Some("Apptainer")
        }
        () => None,
    }
}

/// Where the GPU is not a plain one.
pub fn platform(system: &dyn System) -> Vec<Finding> {
    const CHECK: &str = "platform";
    let release = system.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut found = Vec::new();
    if system.has("/dev/dxg") || release.to_lowercase().contains("microsoft") {
        found.push(Finding::stops(
            CHECK,
            "Windows Subsystem for Linux",
            "its GPUs cannot fault on managed memory (concurrentManagedAccess is 0): DeepUM is off there, with one line",
            "a Linux that runs on the machine itself",
        ));
    }
    // What gVisor says of itself, whatever kernel is below it (pkg/sentry/kernel/version.go).
    if release.trim() == "4.4.0"
        && system.text("/proc/version").is_some_and(|text| text.contains("Jan 10 15:06:54 PST 2016"))
    {
        found.push(Finding::costs(
            CHECK,
            "gVisor, by its kernel's version",
            format!("older releases have no /dev/nvidia-uvm-tools: {}", super::driver::UNSEEN),
            "a newer gVisor, or a container without it",
        ));
    }
    let gpus = Path::new("/proc/driver/nvidia/capabilities");
    let is_mig = system
        .list(gpus)
        .iter()
        .any(|gpu| !system.list(&gpus.join(gpu).join("mig")).iter().all(|name| !name.starts_with("gi")));
    if is_mig {
        found.push(Finding::costs(
            CHECK,
            "a GPU cut into MIG slices",
            "the driver's notices name the whole GPU and not the slice, so they are counted as foreign, and faults are not learned from",
            "nvidia-smi -mig 0, where the whole GPU may be used",
        ));
    }
    let pipe = system.variable("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".to_owned());
    if system.has(&format!("{pipe}/control")) {
        found.push(Finding::unknown(
            CHECK,
            format!("an MPS server in {pipe}: each client has a GPU address space of its own, but nothing here was seen under MPS yet"),
        ));
    }
    let place = container(system).map_or("no container".to_owned(), |name| format!("a container ({name})"));
    if found.is_empty() { vec![Finding::ok(CHECK, format!("Linux {}, {place}", release.trim()))] } else { found }
}
