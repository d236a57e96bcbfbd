//! The NVIDIA driver as the system shows it: loaded, known, its nodes, how its memory part was configured, and the link.

use super::finding::Finding;
use super::system::{Entry, Kind, System};
use deepum_kmod_bridge::version::{DriverVersion, KNOWN, Support};
use std::io::ErrorKind;
use std::path::Path;

/// What is lost without the queue of notices.
pub const UNSEEN: &str = "GPU faults stay unseen: what launches use is known from their arguments alone, and what kernels reach through other pointers faults";

const NO_UVM: &str = "no program can use managed memory, so CUDA itself does not start";

/// Whether a driver is loaded; without one there is nothing more to look at.
pub fn is_loaded(system: &dyn System) -> bool {
    ["/sys/module/nvidia/version", "/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"]
        .iter()
        .any(|path| system.has(path))
}

/// Loaded, and known.
pub fn loaded(system: &dyn System) -> Finding {
    const CHECK: &str = "driver";
    if !is_loaded(system) {
        return Finding::stops(
            CHECK,
            "no NVIDIA driver is loaded",
            "there is no GPU to use",
            "install NVIDIA's driver (535 or later), and restart or `modprobe nvidia`; in a container: --gpus all; without a GPU: --gpu emu:v100-32g",
        );
    }
    let (from, to) = KNOWN;
    match Support::of(DriverVersion::loaded(|path| system.text(path))) {
        Support::Known(version) => Finding::ok(CHECK, format!("NVIDIA driver {version}")),
        Support::Older(version) => Finding::stops(
            CHECK,
            format!("NVIDIA driver {version}, which is older than {from}"),
            "programs run as plain unified memory: nothing is prefetched",
            format!("a driver from {from} to {to}"),
        ),
        Support::Newer(version) => Finding::costs(
            CHECK,
            format!("NVIDIA driver {version}, which is newer than {to}"),
            "contents that nobody needs are moved out instead of dropped, and no block is kept twice; should its notices look different, they are left alone",
            format!("a newer DeepUM, or a driver up to {to}"),
        ),
        Support::Unnamed => Finding::costs(
            CHECK,
            "a driver that does not tell its version in /sys/module/nvidia/version or /proc/driver/nvidia/version",
            "contents that nobody needs are moved out instead of dropped, and no block is kept twice",
            "a /sys and /proc that show the driver's files (containers: not masked)",
        ),
    }
}

/// The module for managed memory, and parameters of it that stand in the way.
pub fn uvm_module(system: &dyn System) -> Vec<Finding> {
    if !system.has("/sys/module/nvidia_uvm") && major_of_uvm(system).is_none() {
        return vec![Finding::stops(
            "uvm-module",
            "the module nvidia-uvm is not loaded",
            NO_UVM,
            "`sudo nvidia-modprobe -u -c 0`, or `sudo modprobe nvidia-uvm` (on the host, where this is a container)",
        )];
    }
    let parameter = |name: &str| {
        system.text(&format!("/sys/module/nvidia_uvm/parameters/{name}")).map(|text| text.trim().to_owned())
    };
    let is_off = |name: &str| parameter(name).is_some_and(|value| matches!(value.as_str(), "0" | "N"));
    let reload = |name: &str| format!("set options nvidia-uvm {name}=1 in /etc/modprobe.d, and load the module anew");
    let mut found = Vec::new();
    if is_off("uvm_global_oversubscription") {
        found.push(Finding::stops(
            "uvm-module",
            "nvidia-uvm was loaded with uvm_global_oversubscription=0",
            "nothing may leave the GPU for others, so no program gets more memory than it has",
            reload("uvm_global_oversubscription"),
        ));
    }
    if is_off("uvm_perf_prefetch_enable") {
        found.push(Finding::costs(
            "uvm-module",
            "nvidia-uvm was loaded with uvm_perf_prefetch_enable=0",
            "a fault brings the pages that faulted and not those around them: what is not prefetched by us faults many times for each 2 MiB",
            reload("uvm_perf_prefetch_enable"),
        ));
    }
    if found.is_empty() { vec![Finding::ok("uvm-module", "nvidia-uvm is loaded")] } else { found }
}

/// The major number of nvidia-uvm, which is given out anew at each start of the machine (facts 1).
fn major_of_uvm(system: &dyn System) -> Option<u64> {
    let devices = system.text("/proc/devices")?;
    devices.lines().find_map(|line| line.trim().strip_suffix(" nvidia-uvm")?.trim().parse().ok())
}

/// The character devices.
pub fn nodes(system: &dyn System, in_container: bool) -> Vec<Finding> {
    let major = major_of_uvm(system);
    let pass_in =
        |nodes: &str| format!("pass it in: docker run --device {nodes} (with NVIDIA's container toolkit: --gpus all)");
    let mend = |path: &str, wrong: Wrong| match wrong {
        Wrong::Closed => open(path),
        _ if in_container => pass_in(path),
        Wrong::Missing => "`sudo nvidia-modprobe -u -c 0` makes it".to_owned(),
        Wrong::Stale => format!("`sudo rm {path} && sudo nvidia-modprobe -u -c 0` makes it anew"),
    };
    let [uvm, tools] = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
    let mut found = vec![
        node("uvm-node", system, uvm, major.map(|major| (major, 0)))
            .unwrap_or_else(|(saw, wrong)| Finding::stops("uvm-node", saw, NO_UVM, mend(uvm, wrong))),
        node("tools-node", system, tools, major.map(|major| (major, 1)))
            .unwrap_or_else(|(saw, wrong)| Finding::costs("tools-node", saw, UNSEEN, mend(tools, wrong))),
    ];
    let gpus: Vec<String> = system
        .list(Path::new("/dev"))
        .into_iter()
        .filter(|name| {
            name.strip_prefix("nvidia")
                .is_some_and(|rest| rest == "ctl" || !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(|name| format!("/dev/{name}"))
        .collect();
    let closed = gpus.iter().find(|path| system.entry(Path::new(path)).is_ok_and(|entry| !entry.open));
    found.push(match (gpus.len(), closed) {
        (0 | 1, _) => Finding::stops(
            "gpu-nodes",
            "/dev/nvidiactl and /dev/nvidia0 are not both there",
            "CUDA finds no GPU",
            match in_container {
                true => pass_in("/dev/nvidiactl --device /dev/nvidia0"),
                false => "`sudo nvidia-modprobe -c 0` makes them".to_owned(),
            },
        ),
        (_, Some(path)) => Finding::stops(
            "gpu-nodes",
            format!("{path} cannot be read and written by this user"),
            "CUDA finds no GPU",
            open(path),
        ),
        (_, None) => Finding::ok("gpu-nodes", gpus.join(", ")),
    });
    found
}

fn open(node: &str) -> String {
    format!(
        "`sudo chmod 666 {node}`, which is how nvidia-modprobe makes it, or add this user to the group that owns it"
    )
}

/// What is wrong with a node.
#[derive(Clone, Copy)]
enum Wrong {
    Missing,
    /// It is something else.
    Stale,
    /// This user may not use it.
    Closed,
}

/// Whether a node is what it should be, or what is wrong with it.
fn node(
    check: &'static str,
    system: &dyn System,
    path: &str,
    numbers: Option<(u64, u64)>,
) -> Result<Finding, (String, Wrong)> {
    let Entry { kind, open, mode, .. } = system.entry(Path::new(path)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => (format!("{path} is missing"), Wrong::Missing),
        _ => (format!("{path} cannot be looked at: {error}"), Wrong::Closed),
    })?;
    let Kind::Device { major, minor } = kind else {
        return Err((format!("{path} is no character device"), Wrong::Stale));
    };
    if let Some(wanted) = numbers.filter(|&wanted| wanted != (major, minor)) {
        return Err((
            format!(
                "{path} is device {major}:{minor}, but the driver's is {}:{}: it was made before the driver was loaded anew",
                wanted.0, wanted.1
            ),
            Wrong::Stale,
        ));
    }
    if !open {
        return Err((format!("{path} (mode {mode:o}) cannot be read and written by this user"), Wrong::Closed));
    }
    Ok(Finding::ok(check, path))
}

/// The link of each NVIDIA GPU: everything that does not fit goes over it.
pub fn link(system: &dyn System) -> Vec<Finding> {
    const CHECK: &str = "link";
    let bus = Path::new("/sys/bus/pci/devices");
    let mut found = Vec::new();
    for name in system.list(bus) {
        let value = |what: &str| system.read(&bus.join(&name).join(what)).ok().map(|text| text.trim().to_owned());
        let is_gpu = value("vendor").is_some_and(|vendor| vendor == "0x10de")
            && value("class").is_some_and(|class| class.starts_with("0x03"));
        if !is_gpu {
            continue;
        }
        let [width, widest, speed, fastest] =
            ["current_link_width", "max_link_width", "current_link_speed", "max_link_speed"].map(value);
        let (Some(width), Some(widest), Some(speed), Some(fastest)) = (width, widest, speed, fastest) else {
            found.push(Finding::unknown(CHECK, format!("GPU {name} does not tell how it is linked")));
            continue;
        };
        let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        let saw = format!("GPU {name}: x{width} at {speed}");
        let is_below = |have: &str, most: &str| number(have).zip(number(most)).is_some_and(|(have, most)| have < most);
        found.push(if is_below(&width, &widest) {
            Finding::costs(
                CHECK,
                format!("{saw}, of x{widest} that it could have"),
                format!("memory that does not fit moves at x{width}/x{widest} of the speed it could"),
                "another slot or riser, or more lanes for it in the BIOS: width does not change with load",
            )
        } else if is_below(&speed, &fastest) {
            Finding::unknown(
                CHECK,
                format!("{saw}, of {fastest} that it could have: many GPUs slow the link down while idle; ask again while it works"),
            )
        } else {
            Finding::ok(CHECK, saw)
        });
    }
    found
}
