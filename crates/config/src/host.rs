//! How much host memory managed memory may still count on, where [`DEEPUM_HOST_BUDGET`](crate::schema) says nothing.
//!
//! Pages of managed memory on the host cannot be swapped, are charged to the memory cgroup, and stay allocated after the
//! data moved to the GPU (facts 4.6). Promising more than the host has ends in the kernel killing somebody, so an
//! allocation past it is refused with CUDA's own out-of-memory, which PyTorch knows how to handle.
//!
//! Files are read by the caller's own function, so that a machine can be described as well as asked.

use deepum_core::units::Bytes;
use std::path::{Path, PathBuf};

/// Share of the host's available memory that may be promised by default, in percent (assumption): the rest is the program's own.
pub const SHARE: u64 = 90;

/// The text of a file; nothing if it cannot be read.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Reads the files of this machine.
pub fn here(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Memory that may be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Available {
    /// How much.
    pub bytes: Bytes,
    /// The memory cgroup that says so, where one leaves less than the machine has.
    pub by: Option<PathBuf>,
}

/// Memory of the machine, `MemTotal`.
pub fn total(read: Read<'_>) -> Option<Bytes> {
    meminfo(&read(Path::new("/proc/meminfo"))?, "MemTotal")
}

/// What may be had now: `MemAvailable`, or what is left to the tightest memory cgroup above us.
pub fn available(read: Read<'_>) -> Option<Available> {
    let free = meminfo(&read(Path::new("/proc/meminfo"))?, "MemAvailable")?;
    let cgroup = read(Path::new("/proc/self/cgroup"));
    let left = cgroup.and_then(|own| left_in_cgroups(Path::new("/sys/fs/cgroup"), &own, read));
    Some(match left {
        Some((bytes, dir)) if bytes < free => Available { bytes, by: Some(dir) },
        _ => Available { bytes: free, by: None },
    })
}

/// A line `NAME:   123 kB` of `/proc/meminfo`.
fn meminfo(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::kib)
}

/// The least that any memory cgroup from ours up to the root leaves; nothing where none has a limit. Reads version 2, and
/// version 1 mounted as `memory`.
fn left_in_cgroups(mount: &Path, own: &str, read: Read<'_>) -> Option<(Bytes, PathBuf)> {
    own.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let (base, limit, usage) = match controllers {
                "" => (mount.to_owned(), "memory.max", "memory.current"),
                c if c.split(',').any(|c| c == "memory") => {
                    (mount.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
                }
                _ => return None,
            };
            lineage(&base, path).filter_map(|dir| Some((left_in(&dir, limit, usage, read)?, dir))).min()
        })
        .min()
}

/// The directory of cgroup `path` and every one above it, down to the mount itself. In a container the path may be one that
/// only the host sees; the directories that are not there are passed over by the reader.
fn lineage(base: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let own = base.join(path.trim_start_matches('/'));
    let base = base.to_owned();
    own.ancestors().map(Path::to_owned).collect::<Vec<_>>().into_iter().take_while(move |dir| dir.starts_with(&base))
}

/// What a limit leaves; a limit of `max`, or version 1's huge number for none, is none.
fn left_in(dir: &Path, limit: &str, usage: &str, read: Read<'_>) -> Option<Bytes> {
    let number = |file: &str| read(&dir.join(file))?.trim().parse::<u64>().ok();
    let limit = number(limit).filter(|&l| l < 1 << 60)?;
    Some(Bytes(limit.saturating_sub(number(usage)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24 kB\nMemFree:    1 kB\nMemAvailable:  3 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(Bytes(3072)));
        assert_eq!(meminfo(text, "MemTotal"), Some(Bytes(24 * 1024)));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo("MemAvailable: many kB", "MemAvailable"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        let (total, available) = (total(&here).unwrap(), available(&here).unwrap());
        assert!(available.bytes > Bytes::ZERO && available.bytes <= total);
    }

    #[test]
    fn the_tightest_cgroup_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "400\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "10\n");
        let left = |text: &str| left_in_cgroups(root.path(), text, &here).map(|(bytes, _)| bytes);
        assert_eq!(left("0::/a/b\n"), Some(Bytes(600)));
        assert_eq!(left("0::/\n"), None);
        assert_eq!(left("0::/not/visible/here\n"), None);
        write("a/b/memory.max", "15\n");
        assert_eq!(left("0::/a/b\n"), Some(Bytes(5)));
        write("a/b/memory.current", "20\n");
        assert_eq!(left("0::/a/b\n"), Some(Bytes::ZERO));

        write("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/x/memory.usage_in_bytes", "1\n");
        assert_eq!(left("5:cpu,cpuacct:/x\n4:memory:/x\n"), None);
        write("memory/x/memory.limit_in_bytes", "100\n");
        assert_eq!(left("5:cpu,cpuacct:/x\n4:memory:/x\n"), Some(Bytes(99)));
    }
}
