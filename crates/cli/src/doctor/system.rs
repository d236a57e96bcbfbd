//! The machine as checks see it, so that they can be shown one that is ill.

use deepum_core::units::Bytes;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::stat::{SFlag, major, minor, stat};
use nix::unistd::{AccessFlags, access, getuid};
use std::fs;
use std::io;
use std::path::Path;

/// What a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Folder,
    /// A character device of these numbers.
    Device {
        major: u64,
        minor: u64,
    },
    Other,
}

/// A path that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub kind: Kind,
    pub owner: u32,
    /// Permission bits.
    pub mode: u32,
    /// Whether this process may read and write it.
    pub open: bool,
}

/// See the module.
pub trait System {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Names in a folder, in order; none if it cannot be listed.
    fn list(&self, folder: &Path) -> Vec<String>;
    /// What a path is, links followed.
    fn entry(&self, path: &Path) -> io::Result<Entry>;
    /// A limit of this process; nothing where there is none.
    fn limit(&self, of: Resource) -> Option<Bytes>;
    /// The environment.
    fn variables(&self) -> Vec<(String, String)>;
    /// Whose process this is.
    fn uid(&self) -> u32;

    /// As [`Self::read`], where why not does not matter.
    fn text(&self, path: &str) -> Option<String> {
        self.read(Path::new(path)).ok()
    }
    /// A variable that is set to something.
    fn variable(&self, name: &str) -> Option<String> {
        self.variables().into_iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value)
    }
    /// Whether a path is there.
    fn has(&self, path: &str) -> bool {
        self.entry(Path::new(path)).is_ok()
    }
}

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl System for Here {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
    fn list(&self, folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let found = stat(path)?;
        let kind = match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => Kind::Folder,
            SFlag::S_IFCHR => Kind::Device { major: major(found.st_rdev), minor: minor(found.st_rdev) },
            _ => Kind::Other,
        };
        let open = access(path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok();
        Ok(Entry { kind, owner: found.st_uid, mode: found.st_mode & 0o7777, open })
    }
    fn limit(&self, of: Resource) -> Option<Bytes> {
        getrlimit(of).ok().map(|(soft, _)| soft).filter(|&soft| soft != RLIM_INFINITY).map(Bytes)
    }
    fn variables(&self) -> Vec<(String, String)> {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
    }
    fn uid(&self) -> u32 {
        getuid().as_raw()
    }
}

#[cfg(test)]
pub mod planted {
    //! A machine as a test says it is: a healthy one, and what is wrong with it.

    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    #[derive(Clone, Default, Debug)]
    pub struct Planted {
        pub files: BTreeMap<PathBuf, String>,
        pub entries: BTreeMap<PathBuf, Entry>,
        /// `getrlimit`, by its number.
        pub limits: Vec<(Resource, Bytes)>,
        pub variables: BTreeMap<String, String>,
    }

    pub fn node(major: u64, minor: u64) -> Entry {
        Entry { kind: Kind::Device { major, minor }, owner: 0, mode: 0o666, open: true }
    }

    pub fn folder() -> Entry {
        Entry { kind: Kind::Folder, owner: 1000, mode: 0o700, open: true }
    }

    impl Planted {
        /// A workstation on which nothing is wrong.
        pub fn healthy() -> Self {
            let mut healthy = Self::default();
            for (path, text) in [
                ("/sys/module/nvidia/version", "580.95.05\n"),
                (
                    "/proc/driver/nvidia/version",
                    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
                ),
                ("/sys/module/nvidia_uvm/parameters/uvm_global_oversubscription", "1\n"),
                ("/sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_enable", "1\n"),
                (
                    "/proc/devices",
                    "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n259 blkext\n",
                ),
                ("/proc/meminfo", "MemTotal:       263000000 kB\nMemFree: 1 kB\nMemAvailable:   200000000 kB\n"),
                ("/proc/self/cgroup", "0::/user.slice\n"),
                ("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
                ("/proc/version", "Linux version 6.8.0-45-generic (buildd@lcy02)\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/current_link_width", "16\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/max_link_width", "16\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n"),
                ("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n"),
            ] {
                healthy.files.insert(path.into(), text.to_owned());
            }
            for (path, entry) in [
                ("/dev/nvidiactl", node(195, 255)),
                ("/dev/nvidia0", node(195, 0)),
                ("/dev/nvidia-uvm", node(511, 0)),
                ("/dev/nvidia-uvm-tools", node(511, 1)),
                ("/sys/module/nvidia_uvm", folder()),
                ("/run/user/1000", folder()),
                ("/home/me", folder()),
            ] {
                healthy.entries.insert(path.into(), entry);
            }
            healthy.set("XDG_RUNTIME_DIR", "/run/user/1000");
            healthy.set("HOME", "/home/me");
            healthy
        }
        pub fn set(&mut self, name: &str, value: &str) {
            self.variables.insert(name.to_owned(), value.to_owned());
        }
        pub fn write(&mut self, path: &str, text: &str) {
            self.files.insert(path.into(), text.to_owned());
        }
    }

    impl System for Planted {
        fn read(&self, path: &Path) -> io::Result<String> {
            self.files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        fn list(&self, folder: &Path) -> Vec<String> {
            let below = self.files.keys().chain(self.entries.keys()).filter_map(|path| path.strip_prefix(folder).ok());
            let mut names: Vec<String> =
                below.filter_map(|rest| Some(rest.iter().next()?.to_string_lossy().into_owned())).collect();
            names.sort();
            names.dedup();
            names
        }
        fn entry(&self, path: &Path) -> io::Result<Entry> {
            let file = || self.files.get(path).map(|_| Entry { kind: Kind::Other, owner: 0, mode: 0o444, open: false });
            self.entries.get(path).copied().or_else(file).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        fn limit(&self, of: Resource) -> Option<Bytes> {
            self.limits.iter().find(|(known, _)| *known == of).map(|&(_, bytes)| bytes)
        }
        fn variables(&self) -> Vec<(String, String)> {
            self.variables.clone().into_iter().collect()
        }
        fn uid(&self) -> u32 {
            1000
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_seen_as_it_is() {
        let null = Here.entry(Path::new("/dev/null")).unwrap();
        assert_eq!((null.kind, null.open), (Kind::Device { major: 1, minor: 3 }, true));
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(Here.entry(temp.path()).unwrap().kind, Kind::Folder);
        assert!(Here.entry(&temp.path().join("none")).is_err() && !Here.has("/no/such/path"));
        fs::write(temp.path().join("b"), "text\n").unwrap();
        fs::write(temp.path().join("a"), [0xff]).unwrap();
        assert_eq!(Here.list(temp.path()), ["a", "b"]);
        assert_eq!(Here.read(&temp.path().join("b")).unwrap(), "text\n");
        assert!(Here.text("/proc/meminfo").unwrap().contains("MemTotal"));
    }
}
