//! The link to a daemon, against one that is played here: what it is told, and what is left when it goes.
//!
//! One test, because a process has one link.

use deepum_config::Config;
use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, LaunchSeq, UmBlock};
use deepum_engine::mapping::Mapping;
use deepum_engine::nudges::pending_word;
use deepum_engine::remote::{self, Remote};
use deepum_engine::{DeviceFacts, packet};
use deepum_kmod_bridge::raw::Params;
use deepum_kmod_bridge::{DriverVersion, Kernel};
use deepum_protocol::control::{Descriptor, Hello, PACKET_BYTES, Packet, Reason, Refused, Welcome};
use deepum_protocol::page::{self, Page};
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring};
use deepum_protocol::shared::Mode;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a machine that does many other things.
const LONG: Duration = Duration::from_secs(60);

/// A driver that has an address space, and no tools node.
#[derive(Debug)]
struct Driver;

impl Kernel for Driver {
    fn driver_version(&self) -> Option<DriverVersion> {
        DriverVersion::parse("580.65.06")
    }
    fn open_tools(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![fs::File::open("/dev/null")?.into()])
    }
    unsafe fn ioctl(&self, _: BorrowedFd<'_>, _: u32, _: &mut Params) -> io::Result<()> {
        Ok(())
    }
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
static RING: OnceLock<Mapping> = OnceLock::new();
static PAGE: OnceLock<Mapping> = OnceLock::new();
static REPLAYS: AtomicUsize = AtomicUsize::new(0);
static OFF: AtomicBool = AtomicBool::new(false);

fn say(line: &str) {
    SAID.lock().unwrap().push(line.to_owned());
}
fn info(line: &str) {
    say(&format!("info: {line}"));
}
fn said() -> Vec<String> {
    std::mem::take(&mut SAID.lock().unwrap())
}

fn ring() -> Ring<'static> {
    Ring::open(RING.get().unwrap().words()).unwrap()
}

/// What lives: one allocation of two blocks.
fn allocation() -> AddrRange {
    AddrRange::new(DevAddr(0x7000_0000_0000), Bytes(2 * UmBlock::SIZE.get()))
}
fn replay(first: &dyn Fn()) {
    first();
    REPLAYS.fetch_add(1, Ordering::Relaxed);
    assert!(ring().push(DeviceId(0), &Record::Alloc { range: allocation() }));
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "never: {what}; said: {:?}", SAID.lock().unwrap());
        thread::sleep(Duration::from_millis(5));
    }
}

/// The next program that connects, its Hello and descriptors.
fn accept(listener: &OwnedFd) -> (OwnedFd, Hello, Vec<OwnedFd>) {
    let connection = packet::accept(listener.as_fd()).unwrap();
    let mut buffer = vec![0; PACKET_BYTES];
    let mut got = None;
    until("a Hello", || {
        got = packet::receive(connection.as_fd(), &mut buffer).ok();
        got.is_some()
    });
    let got = got.unwrap();
    let Packet::Hello(hello) = Packet::parse(&buffer[..got.len]).unwrap() else { panic!("no Hello") };
    (connection, hello, got.fds)
}

fn send(connection: &OwnedFd, packet: &Packet) {
    packet::send(connection.as_fd(), &packet.to_bytes(), &[]).unwrap();
}

fn listen(path: &Path) -> OwnedFd {
    let _ = fs::remove_file(path);
    packet::listen(path).unwrap()
}

/// The sockets that a process has open, as `/proc` calls them.
fn sockets(pid: u32) -> BTreeSet<PathBuf> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    all.filter_map(|fd| fs::read_link(fd.path()).ok())
        .filter(|to| to.to_string_lossy().starts_with("socket:"))
        .collect()
}
fn inode(socket: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap()
}

/// What a worker does with what it is handed, and its traces in it.
struct Engine {
    ring: Ring<'static>,
    page: Page,
}

impl Engine {
    fn over(fds: &[OwnedFd]) -> Self {
        let ring = Mapping::adopt(&fds[Descriptor::Ring as usize], HEADER_WORDS + 1024).unwrap();
        let page = Mapping::adopt(&fds[Descriptor::Page as usize], page::WORDS).unwrap();
        Self { ring: Ring::open(ring).unwrap(), page: Page::open(page).unwrap() }
    }

    /// As it is when it is killed: in the middle of everything.
    fn work(&self) -> Vec<AddrRange> {
        let mut reader = self.ring.recover().unwrap();
        let mut live = Vec::new();
        while let Some((_, record)) = reader.pop().unwrap() {
            if let Record::Alloc { range } = record {
                live.push(range);
            }
        }
        std::mem::forget(reader);
        self.ring.shared().set_mode(Mode::Awake);
        pending_word(self.page).store(3, Ordering::Relaxed);
        let block = UmBlock::containing(allocation().start);
        let outs = self.page.hand_outs();
        outs.open(block);
        // Nothing is in flight here, so what was opened is left alone.
        self.page.grace().look(&self.page.in_flight());
        assert!(outs.begin_discard(block));
        live
    }
}

#[test]
fn whatever_becomes_of_the_daemon_the_program_has_an_engine_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deepumd.sock");
    let ring_memory = RING.get_or_init(|| Mapping::new(c"ring", HEADER_WORDS + 1024).unwrap());
    let page_memory = PAGE.get_or_init(|| Mapping::new(c"page", page::WORDS).unwrap());
    let ring = Ring::format(ring_memory.words()).unwrap();
    let page = Page::format(page_memory.words()).unwrap();
    page.set_reached();
    ring.push(DeviceId(0), &Record::Alloc { range: allocation() });
    let memory = Bytes::gib(32);
    let remote = Remote {
        ring: (ring, ring_memory.descriptor().unwrap()),
        page: (page, page_memory.descriptor().unwrap()),
        devices: vec![DeviceFacts { id: DeviceId(0), uuid: [7; 16], memory, budget: Bytes::gib(16) }],
        sockets: vec![dir.path().join("nowhere.sock"), path.clone()],
        variables: "DEEPUM_DEGREE=8\n".to_owned(),
        weight: 3,
        workload: 99,
        replay,
        is_off: || OFF.load(Ordering::Relaxed),
        say,
        info,
    };
    let before = sockets(std::process::id());
    remote::start_over(remote, Arc::new(Driver)).unwrap();
    let free = || {
        ring.shared().mode() == Mode::Off
            && !page.gates().is_closed()
            && pending_word(page).load(Ordering::Relaxed) == 0
    };

    // No daemon: one line that names the places, and the state without an engine.
    until("a line about no daemon", || !SAID.lock().unwrap().is_empty());
    assert!(free());
    thread::sleep(Duration::from_millis(300));
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["no deepumd", "nowhere.sock", path.to_str().unwrap(), "plain unified memory"] {
        assert!(lines[0].contains(part), "{} lacks {part}", lines[0]);
    }

    // One comes: it is told everything, and what lives as records.
    let listener = listen(&path);
    let (connection, hello, fds) = accept(&listener);
    let Config { degree, .. } = Config::read(hello.config.lines().filter_map(|line| line.split_once('='))).config;
    assert_eq!((degree, hello.weight, hello.workload, hello.attachment, hello.driven), (8, 3, 99, 1, false));
    assert_eq!((hello.devices.len(), hello.devices[0].uuid, hello.devices[0].budget), (1, [7; 16], Bytes::gib(16)));
    assert_eq!((hello.driver.as_str(), fds.len()), ("580.65.06", Descriptor::count(false)));
    assert!(hello.tools.as_ref().unwrap_err().contains("nvidia-uvm-tools"), "{:?}", hello.tools);
    let engine = Engine::over(&fds);
    assert_eq!(engine.work(), [allocation()], "once, though it was recorded before, too");
    send(&connection, &Packet::Welcome(Welcome { worker: 7, release: "1.2.3".to_owned() }));
    send(&connection, &Packet::Say("a line".to_owned()));
    send(&connection, &Packet::Budget(vec![(DeviceId(0), Bytes::gib(4))]));
    until("three lines", || SAID.lock().unwrap().len() == 3);
    let lines = said();
    assert!(lines[0].starts_with("info: deepumd 1.2.3") && lines[1] == "a line", "{lines:?}");
    assert!(lines[2].starts_with("info: deepumd gives this program GPU 0: 4"), "{lines:?}");
    page.gates().set(0, Some(LaunchSeq(5)), &ring.shared());
    assert!(page.gates().is_closed() && ring.shared().mode() == Mode::Awake);

    // It dies, with a discard under way and work counted: all is let go.
    drop((connection, fds, listener));
    fs::remove_file(&path).unwrap();
    until("letting go", free);
    // A hold would wait for a discard under way for ever.
    let (outs, block) = (page.hand_outs(), UmBlock::containing(allocation().start));
    outs.hold(block);
    outs.release(block, outs.stamp());
    until("two lines", || SAID.lock().unwrap().len() == 2);
    let lines = said();
    assert!(lines[0].contains("is gone") && lines[1].contains("no deepumd"), "{lines:?}");

    // A daemon that refuses for good is asked once; the next one is asked again.
    let refusing = listen(&path);
    let (connection, hello, _fds) = accept(&refusing);
    assert_eq!(hello.attachment, 2);
    send(&connection, &Packet::Refused(Refused { reason: Reason::User, text: "user is 5; allowed is 6".to_owned() }));
    drop(connection);
    until("a refusal", || !SAID.lock().unwrap().is_empty());
    let lines = said();
    assert!(lines.len() == 1 && lines[0].contains("user is 5; allowed is 6"), "{lines:?}");
    assert!(free());
    drop(refusing);

    // One that talks nonsense, then hangs up; then a good one.
    let listener = listen(&path);
    let (connection, _, _) = accept(&listener);
    packet::send(connection.as_fd(), b"HTTP/1.1 400 Bad Request", &[]).unwrap();
    // Until it hangs up an engine of its may be at work: nothing is asked for anew.
    let mut buffer = [0; 8];
    until("the program's end of it", || packet::receive(connection.as_fd(), &mut buffer).is_ok_and(|got| got.len == 0));
    thread::sleep(Duration::from_millis(300));
    assert!(SAID.lock().unwrap().is_empty());
    drop(connection);
    until("nonsense", || !SAID.lock().unwrap().is_empty());
    assert!(said()[0].contains("makes no sense"));
    let (connection, hello, fds) = accept(&listener);
    assert_eq!(hello.attachment, 4);
    assert_eq!(Engine::over(&fds).ring.used(), 3, "emptied, and told again");
    send(&connection, &Packet::Welcome(Welcome { worker: 8, release: "1.2.3".to_owned() }));
    until("a line that it is back", || !SAID.lock().unwrap().is_empty());
    let lines = said();
    assert!(lines[0].starts_with("deepumd 1.2.3"), "loudly: {lines:?}");

    // A forked child lets go of the connection: the daemon must see the end of the program, not of its children.
    let theirs = [&connection, &listener].map(inode);
    let mut new = sockets(std::process::id());
    new.retain(|socket| !before.contains(socket) && !theirs.contains(socket));
    assert_eq!(new.len(), 1, "the program's end: {new:?}");
    // SAFETY: the child only waits and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        thread::sleep(2 * LONG);
        // SAFETY: ends the child here.
        unsafe { libc::_exit(0) };
    }
    let in_child = || sockets(child.unsigned_abs());
    until("the child has none of it", || in_child().is_disjoint(&new));
    assert!(theirs.iter().all(|socket| in_child().contains(socket)), "what nobody closes is there");
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }

    // The shim is off for good: the link says so, and takes back what was claimed when the other end has hung up. Until then its call
    // may be in the driver, and whoever holds everything for good waits for it.
    Engine::over(&fds).work();
    let held = thread::spawn(move || page.hand_outs().pin_all());
    OFF.store(true, Ordering::Relaxed);
    let mut buffer = [0; 64];
    until("the program's end of it", || packet::receive(connection.as_fd(), &mut buffer).is_ok_and(|got| got.len == 0));
    thread::sleep(Duration::from_millis(300));
    assert!(!held.is_finished(), "a discard may be under way");
    drop(connection);
    until("letting go", free);
    held.join().unwrap();
}
