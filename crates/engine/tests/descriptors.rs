//! What numbers our descriptors have in a program that has closed its first three.

mod common;

use common::page;
use deepum_engine::mapping::Mapping;
use deepum_engine::nudges::Nudges;
use deepum_engine::packet;
use deepum_engine::tables::folder::Folder;
use deepum_kmod_bridge::adopt::Lent;
use deepum_kmod_bridge::high::{self, HIGH};
use deepum_kmod_bridge::raw::Params;
use deepum_kmod_bridge::{DriverVersion, Kernel, Linux};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A driver that grants everything. What it opens is numbered as [`Linux`] does.
#[derive(Debug)]
struct Driver;

impl Kernel for Driver {
    fn driver_version(&self) -> Option<DriverVersion> {
        DriverVersion::parse("580.65.06")
    }
    fn open_tools(&self) -> io::Result<OwnedFd> {
        Ok(high::copy(File::open("/dev/null")?)?)
    }
    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>> {
        Linux.uvm_fds()
    }
    unsafe fn ioctl(&self, _: BorrowedFd<'_>, _: u32, params: &mut Params) -> io::Result<()> {
        // Wherever the outcome is looked for: it is well.
        *params = Params::default();
        Ok(())
    }
}

/// Open descriptors.
fn open() -> BTreeSet<i32> {
    // SAFETY: only asks.
    (0..1024).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

/// The program: says in a file which descriptors it has more of once it has all that we open in one.
fn program(folder: &Path) -> ! {
    let uvm = File::create(folder.join("nvidia-uvm")).unwrap();
    // SAFETY: nobody owns them; the test harness finds them closed, but does not live to see it.
    (0..3).for_each(|fd| unsafe { assert_eq!(libc::close(fd), 0) });
    let before = open();
    let kernel: Arc<dyn Kernel> = Arc::new(Driver);
    let lent = Lent::open(&kernel, 2);
    let (queue, space) = (lent.queue.unwrap(), lent.uvm.unwrap());
    let ours = (
        Mapping::new(c"test", 512).unwrap(),
        Nudges::new(page()).unwrap(),
        packet::connect(&folder.join("socket")).unwrap(),
        Folder::open(&folder.join("tables")).unwrap(),
    );
    let more: Vec<String> = open().difference(&before).map(ToString::to_string).collect();
    fs::write(folder.join("more"), more.join(" ")).unwrap();
    drop((queue, space, ours, uvm));
    // SAFETY: ends the process here.
    unsafe { libc::_exit(0) }
}

#[test]
fn they_are_out_of_the_programs_way() {
    const FOLDER: &str = "TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        program(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let _listener = packet::listen(&folder.path().join("socket")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "they_are_out_of_the_programs_way"]).env(FOLDER, folder.path());
    let status = child.status().unwrap();
    assert!(status.success(), "{status}");
    let more = fs::read_to_string(folder.path().join("more")).unwrap();
    let more: Vec<i32> = more.split(' ').map(|number| number.parse().unwrap()).collect();
    // Queue memory, tracker, address space, words, bell, connection, folder.
    assert!(more.len() == 7 && more.iter().all(|&fd| fd >= HIGH), "{more:?}");
}
