//! What the trial of the driver means ([`super::probe`]).

use super::driver::UNSEEN;
use super::finding::Finding;
use super::probe::Seen;
use crate::cuda::Failed;

/// How the trial ended.
#[derive(Debug)]
pub enum Trial {
    Seen(Seen),
    /// It did not come to an end of its own; how it ended.
    Broken(String),
}

pub fn judge(trial: &Trial) -> Vec<Finding> {
    let seen = match trial {
        Trial::Seen(seen) => seen,
        Trial::Broken(how) => {
            return vec![Finding::stops(
                "cuda",
                format!("a process that starts CUDA {how}"),
                "programs do the same",
                "look for Xid lines in `dmesg`; restart the machine if the driver hangs",
            )];
        }
    };
    let mut found = vec![preload(seen)];
    if let Some(failed) = &seen.failed {
        found.push(failure(failed));
        return found;
    }
    if seen.gpus.is_empty() {
        found.push(Finding::stops("cuda", "CUDA finds no GPU", "there is no GPU to use", "nvidia-smi should list one"));
        return found;
    }
    let names: Vec<String> = seen.gpus.iter().map(|gpu| format!("{} with {}", gpu.name, gpu.memory())).collect();
    found.push(Finding::ok(
        "cuda",
        format!("CUDA {}.{}: {}", seen.cuda / 1000, seen.cuda % 1000 / 10, names.join("; ")),
    ));
    for (number, gpu) in seen.gpus.iter().enumerate() {
        if !gpu.concurrent_managed_access {
            found.push(Finding::stops(
                "faults",
                format!("GPU {number} cannot fault on managed memory (concurrentManagedAccess is 0)"),
                "DeepUM is off, with one line, and programs run as without it",
                "a GPU of the Pascal generation or later, on Linux, not as a vGPU without unified memory",
            ));
        }
        if gpu.integrated {
            found.push(Finding::stops(
                "faults",
                format!("GPU {number} shares the host's memory"),
                "there is nowhere else to move to",
                "none: what does not fit there needs more memory",
            ));
        }
        if gpu.host_page_tables {
            found.push(Finding::unknown(
                "faults",
                format!("GPU {number} walks the host's page tables (as on GH200): nothing here was seen on such a machine yet"),
            ));
        }
        if !gpu.stream_mem_ops {
            found.push(Finding::costs(
                "progress",
                format!("GPU {number} has no 64-bit stream operations"),
                "which launch executes is not known, so faults are not told apart, and no launch waits for what is on its way",
                "a driver that has them (any since 515 on Linux)",
            ));
        }
    }
    if !found.iter().any(|finding| finding.check == "faults") {
        found.push(Finding::ok("faults", "managed memory may be used by GPU and host at once"));
    }
    let Some(driver) = &seen.driver else { return found };
    let part = |check, answer: &Result<(), String>, good: &str, cost: &str, remedy: &str| match answer {
        Ok(()) => Finding::ok(check, good),
        // Behind the first clause it goes on with what that costs, as it does in a program.
        Err(why) => Finding::costs(check, why.split("; ").next().unwrap_or(why), cost, remedy),
    };
    found.push(match &driver.va_space {
        Ok(()) => Finding::ok("address-space-of-gpu", "found, so pages can be moved"),
        Err(why) => Finding::stops(
            "address-space-of-gpu",
            why.clone(),
            "nothing can be prefetched or made room for",
            "a /proc that shows a process its own descriptors",
        ),
    });
    found.push(part(
        "notices",
        &driver.queue,
        "the driver tells of faults and migrations",
        UNSEEN,
        "see tools-node, memlock and driver",
    ));
    found.push(part(
        "discard",
        &driver.discard,
        "contents that nobody needs are dropped",
        "contents that nobody needs are moved out like others, if room is short",
        "a driver from 580.65.06 to 595",
    ));
    found.push(part(
        "two-copies",
        &driver.duplicate,
        "the driver can keep two copies (used with DEEPUM_COPIES=2)",
        "DEEPUM_COPIES=2 has no effect",
        "a driver that is known (see driver)",
    ));
    found
}

fn preload(seen: &Seen) -> Finding {
    match seen.preloaded {
        true => Finding::ok("preload", "libdeepum.so loads into a program"),
        false => Finding::stops(
            "preload",
            "libdeepum.so was preloaded, and is not in the process",
            "programs run as without DeepUM",
            "look at what the dynamic linker says: LD_DEBUG=libs deepum run -- true",
        ),
    }
}

/// What errors of a start of CUDA mean (`cuda.h`, `cudaError_enum`).
fn failure(failed: &Failed) -> Finding {
    let Failed { call, status, .. } = failed;
    let remedy = match *status {
        0 if call == "dlopen" => {
            "install the part of the driver that programs use (Debian: libcuda1; Ubuntu: libnvidia-compute-NNN); in a container: --gpus all, and NVIDIA_DRIVER_CAPABILITIES with compute"
        }
        34 => {
            "a stub of the toolkit is found in place of the driver's library: take its stubs folder out of LD_LIBRARY_PATH"
        }
        46 => "all GPUs are in use and exclusive (nvidia-smi -c 0), or another program's MIG slice",
        2 => "another program fills the GPU: nvidia-smi names it",
        100 => "see gpu-nodes and CUDA_VISIBLE_DEVICES",
        304 | 999 => {
            "see uvm-module and uvm-node; after a suspend: `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm`"
        }
        802 => "start nvidia-fabricmanager (HGX and NVSwitch machines)",
        803 | 804 => {
            "libcuda and the loaded module are of different releases: restart after an update, or use a container image without a libcuda of its own"
        }
        _ => "nvidia-smi, and `dmesg` for lines with NVRM",
    };
    Finding::stops("cuda", failed.to_string(), "no program can use the GPU", remedy)
}
