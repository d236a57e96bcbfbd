//! Whether what came with a Hello is what it is said to be.
//!
//! Only looks: sizes, seals, kinds of descriptor. Nothing is mapped, read, or asked of the driver here; but the file system of a
//! descriptor may be asked (`fstat`) and not answer, so this is for a thread that may wait ([`crate::visit`]). What the worker does with
//! descriptors afterwards it does as the program's own user, so a descriptor of the wrong kind could do no more than the program
//! itself; the check is there for a refusal that says what is wrong.

use deepum_core::units::Bytes;
use deepum_emu_abi::forward;
use deepum_protocol::control::{Descriptor, Hello};
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::socket::{UnixAddr, getsockname};
use nix::sys::stat::{SFlag, fstat, major, minor};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Which of the two files of nvidia-uvm: minor numbers of one device (facts 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    Uvm = 0,
    Tools = 1,
}

/// Whether the program's device is a real one, decided by its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Device {
    /// Files of the driver.
    Genuine,
    /// Sockets of a certain name, whose other end is the emulated device in the program.
    Emulated,
}

/// Checks what came with `hello`.
///
/// # Errors
/// Which descriptor, what it is, what is allowed.
pub fn check(hello: &Hello, fds: &[OwnedFd]) -> Result<Device, String> {
    let want = Descriptor::count(hello.tools.is_ok());
    if fds.len() != want {
        let names: Vec<_> = Descriptor::ALL[..want].iter().map(|d| d.name()).collect();
        return Err(format!("descriptors are {}; allowed is {want}: {}", fds.len(), names.join(", ")));
    }
    let fd = |which: Descriptor| fds[which as usize].as_fd();
    memory(Descriptor::Ring, fd(Descriptor::Ring), hello.ring)?;
    memory(Descriptor::Page, fd(Descriptor::Page), hello.page)?;
    let kind = node(Descriptor::Uvm, fd(Descriptor::Uvm), Node::Uvm)?;
    if !is_eventfd(fd(Descriptor::Nudge)) {
        return Err(refusal(Descriptor::Nudge, &kind_of(fd(Descriptor::Nudge)), "an eventfd"));
    }
    if let Ok(queue) = &hello.tools {
        memory(Descriptor::ToolsMemory, fd(Descriptor::ToolsMemory), queue.memory)?;
        let of_tools = node(Descriptor::Tools, fd(Descriptor::Tools), Node::Tools)?;
        if of_tools != kind {
            return Err(refusal(
                Descriptor::Tools,
                &kind_of(fd(Descriptor::Tools)),
                "of the same device as the address space",
            ));
        }
    }
    Ok(kind)
}

fn refusal(which: Descriptor, have: &str, allowed: &str) -> String {
    format!("descriptor {} ({}) is {have}; allowed is {allowed}", which as usize, which.name())
}

/// A memfd that keeps its size and can be written.
fn memory(which: Descriptor, fd: BorrowedFd<'_>, bytes: Bytes) -> Result<(), String> {
    let fixed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    // Only files in memory answer this.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    let allowed =
        format!("a memfd of {} bytes that can be read and written, sealed against shrinking and growing", bytes.get());
    let refuse = |have: &str| Err(refusal(which, have, &allowed));
    let Ok(seals) = seals else { return refuse(&kind_of(fd)) };
    let size = fstat(fd).map_or(-1, |found| found.st_size);
    if u64::try_from(size).ok() != Some(bytes.get()) {
        return refuse(&format!("a memfd of {size} bytes"));
    }
    if !seals.contains(fixed) {
        return refuse("a memfd that may change its size");
    }
    let mode = fcntl(fd, FcntlArg::F_GETFL).map(|flags| OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE);
    if mode != Ok(OFlag::O_RDWR) || seals.intersects(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_FUTURE_WRITE) {
        return refuse("a memfd that cannot be written");
    }
    Ok(())
}

/// A file of nvidia-uvm, or a socket.
fn node(which: Descriptor, fd: BorrowedFd<'_>, want: Node) -> Result<Device, String> {
    let allowed = match want {
        Node::Uvm => "/dev/nvidia-uvm, opened (or the socket of an emulated device)",
        Node::Tools => "/dev/nvidia-uvm-tools, opened (or the socket of an emulated device)",
    };
    let refuse = || Err(refusal(which, &kind_of(fd), allowed));
    let Ok(found) = fstat(fd) else { return refuse() };
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFSOCK {
        return if is_emulated(fd, want) { Ok(Device::Emulated) } else { refuse() };
    }
    let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
    let ours = kind == SFlag::S_IFCHR
        && uvm_major(&devices) == Some(major(found.st_rdev))
        && minor(found.st_rdev) == want as u64;
    if ours { Ok(Device::Genuine) } else { refuse() }
}

/// Whether a socket has the name of such a file of an emulated device.
fn is_emulated(fd: BorrowedFd<'_>, want: Node) -> bool {
    let Ok(name) = getsockname::<UnixAddr>(fd.as_raw_fd()) else { return false };
    // The name with its first byte, which is 0.
    let whole: Vec<u8> = std::iter::once(0).chain(name.as_abstract().unwrap_or_default().iter().copied()).collect();
    match (forward::Node::named(&whole), want) {
        (Some(forward::Node::Uvm), Node::Uvm) | (Some(forward::Node::Tools), Node::Tools) => true,
        (Some(_) | None, _) => false,
    }
}

/// The number of the driver's files: a line of `/proc/devices`.
fn uvm_major(devices: &str) -> Option<u64> {
    let lines = devices.lines().filter_map(|line| line.trim().split_once(' '));
    lines.filter(|(_, name)| *name == "nvidia-uvm").find_map(|(number, _)| number.parse().ok())
}

fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    kind_of(fd) == "anon_inode:[eventfd]"
}

/// What a descriptor is, in the kernel's words.
fn kind_of(fd: BorrowedFd<'_>) -> String {
    // Of this thread: it may have a table of its own.
    match fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd())) {
        // The name may be anything its maker likes; people read this.
        Ok(link) => link.to_string_lossy().chars().filter(|c| !c.is_control()).take(200).collect(),
        Err(e) => format!("unreadable ({e})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_driver_is_found_by_its_whole_name() {
        let devices = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm-x\n508 nvidia-uvm\n\nBlock devices:\n";
        assert_eq!(uvm_major(devices), Some(508));
        assert_eq!(uvm_major("195 nvidia\n"), None);
    }
}
