//! A daemon in a folder of its own, and programs that are no more than a ring, a page and a few descriptors.

#![allow(dead_code, reason = "each test program uses its part")]

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, UmBlock};
use deepum_engine::packet;
use deepum_protocol::AtomicU64;
use deepum_protocol::control::{Device, Hello, Packet, Refused, Welcome};
use deepum_protocol::page::{self, Page};
use deepum_protocol::programs::Programs;
use deepum_protocol::ring::{HEADER_WORDS, Record, Ring};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{UnixAddr, bind};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Far beyond anything that happens here; only a failure takes so long.
pub const FOREVER: Duration = Duration::from_secs(20);
pub const RING_WORDS: usize = HEADER_WORDS + (1 << 12);

/// Waits for something that must become true.
#[track_caller]
pub fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(start.elapsed() < FOREVER, "never happens: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running `deepumd`.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    pub child: Child,
    args: Vec<String>,
}

impl Daemon {
    pub fn start(args: &[&str]) -> Self {
        // A crowd has more descriptors than are usual.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(8192), hard).unwrap();
        // Where every user can pass through, and the library of emulated devices lies beside the executable.
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_deepumd"));
        let copy = |from: &Path, name: &str| {
            let to = dir.path().join(name);
            std::fs::copy(from, &to).unwrap();
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        copy(built, "deepumd");
        copy(&built.parent().unwrap().join("deps/libdeepum_emu_node.so"), "libdeepum_emu_node.so");
        copy(&std::env::current_exe().unwrap(), "tests");
        std::fs::create_dir(dir.path().join("runtime")).unwrap();
        let args = args.iter().map(ToString::to_string).collect();
        let child = Self::spawn(dir.path(), &args);
        let mut daemon = Self { dir, child, args };
        daemon.wait_for();
        daemon
    }

    fn spawn(dir: &Path, args: &Vec<String>) -> Child {
        Command::new(dir.join("deepumd"))
            .arg("--socket")
            .arg(dir.join("deepumd.sock"))
            .arg("--tables")
            .arg(dir.join("tables"))
            .args(args)
            .env("XDG_RUNTIME_DIR", dir.join("runtime"))
            .stderr(std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap())
            .spawn()
            .unwrap()
    }

    fn wait_for(&mut self) {
        let status = self.socket().with_extension("status");
        until("the daemon listens", || {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            UnixStream::connect(&status).ok().map(drop)
        });
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("deepumd.sock")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many it has.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid())).map_or(0, Iterator::count)
    }

    /// As the kernel would, in the middle of anything.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another one in the same place.
    pub fn again(&mut self) {
        self.child = Self::spawn(self.dir.path(), &self.args);
        self.wait_for();
    }

    pub fn connect(&self) -> OwnedFd {
        packet::connect(&self.socket()).unwrap()
    }

    pub fn programs(&self) -> Programs {
        let line = ask(&self.socket().with_extension("status"), "{\"get\":\"programs\"}\n");
        Programs::parse(&line).unwrap()
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.programs().counters[name]
    }

    /// The status that a program's worker gives.
    pub fn status_socket(&self, pid: u32) -> PathBuf {
        self.dir.path().join(format!("runtime/deepum/{pid}.sock"))
    }

    /// A command that runs one of this test program's ignored tests, as a process of its own.
    pub fn child(&self, test: &str) -> Command {
        let mut command = Command::new(self.dir.path().join("tests"));
        command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("DAEMON_SOCKET", self.socket()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the daemon:\n{}", self.log());
        }
    }
}

pub fn ask(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(FOREVER)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Files that a process has open in its first thread, by what they are.
pub fn open_files(pid: u32) -> Vec<String> {
    files_in(Path::new(&format!("/proc/{pid}/fd")))
}

fn files_in(folder: &Path) -> Vec<String> {
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some(std::fs::read_link(e.path()).ok()?.to_string_lossy().into_owned()))
        .collect();
    files.sort();
    files
}

/// What the daemon has open in any thread, when nobody asks for its status: names of sockets differ, their number does not.
pub fn files(daemon: &Daemon) -> Vec<String> {
    let kinds = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
        let files = threads.flat_map(|thread| files_in(&thread.path().join("fd")));
        let mut kinds: Vec<String> = files.map(|f| f.split(":[").next().unwrap().to_owned()).collect();
        kinds.sort();
        kinds
    };
    let mut last: Vec<String> = kinds();
    let mut times = 0;
    until("nobody asks", || {
        let now: Vec<String> = kinds();
        times = if now == last { times + 1 } else { 0 };
        last.clone_from(&now);
        (times >= 10).then_some(now)
    })
}

/// Whether a test can be another user. Says so if not.
pub fn others_can_be_played() -> bool {
    let root = nix::unistd::getuid().is_root();
    if !root {
        eprintln!("left out: only root can be another user");
    }
    root
}

/// Lets `command` run as the user 54321.
pub fn as_another_user(command: &mut Command) {
    command.uid(54_321).gid(54_322).env("XDG_RUNTIME_DIR", "/nowhere");
}

pub fn alive(pid: u32) -> bool {
    // A zombie is not.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub const SEALED: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

pub fn memory(words: usize, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    nix::unistd::ftruncate(&fd, (words * 8).try_into().unwrap()).unwrap();
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    fd
}

pub fn map(fd: &OwnedFd, words: usize) -> &'static [AtomicU64] {
    let len = NonZeroUsize::new(words * 8).unwrap();
    // SAFETY: a new mapping.
    let at =
        unsafe { mmap(None, len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }.unwrap();
    // SAFETY: of that length, never unmapped, used as atomics only.
    unsafe { std::slice::from_raw_parts(at.as_ptr().cast_const().cast(), words) }
}

/// A file of an emulated device, whose device never answers, and its other end.
pub fn emulated(node: &str) -> (OwnedFd, OwnedFd) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (file, device) = packet::pair().unwrap();
    let name = format!("deepum-emu/{node}/test.{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    bind(file.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).unwrap()).unwrap();
    (file, device)
}

/// What a program passes on, and keeps.
pub struct Parts {
    pub hello: Hello,
    pub fds: Vec<OwnedFd>,
    pub ring: Ring<'static>,
    pub ring_words: &'static [AtomicU64],
    pub page: Page,
    pub page_words: &'static [AtomicU64],
    device: OwnedFd,
}

pub const GPU: DeviceId = DeviceId(0);

impl Parts {
    /// A good program on the GPU with this number.
    pub fn new(gpu: u8) -> Self {
        let (ring_fd, page_fd) = (memory(RING_WORDS, SEALED), memory(page::WORDS, SEALED));
        let (ring_words, page_words) = (map(&ring_fd, RING_WORDS), map(&page_fd, page::WORDS));
        let (uvm, device) = emulated("nvidia-uvm");
        let nudge: OwnedFd = EventFd::new().unwrap().into();
        let hello = Hello {
            ring: Bytes(RING_WORDS as u64 * 8),
            page: Bytes(page::WORDS as u64 * 8),
            tools: Err("none in this test".to_owned()),
            driven: false,
            attachment: 1,
            weight: 1,
            workload: 0,
            devices: vec![Device { id: GPU, uuid: [gpu; 16], memory: Bytes(1 << 30), budget: Bytes(1 << 30) }],
            driver: "580.65.06".to_owned(),
            config: "DEEPUM_POLICY=deepum\n".to_owned(),
        };
        let (ring, page) = (Ring::format(ring_words).unwrap(), Page::format(page_words).unwrap());
        Self { hello, fds: vec![ring_fd, page_fd, uvm, nudge], ring, ring_words, page, page_words, device }
    }

    pub fn send(&self, connection: &OwnedFd) {
        self.send_bytes(connection, &Packet::Hello(self.hello.clone()).to_bytes());
    }

    pub fn send_bytes(&self, connection: &OwnedFd, bytes: &[u8]) {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        packet::send(connection.as_fd(), bytes, &fds).unwrap();
    }

    pub fn attach(self, daemon: &Daemon) -> Program {
        let connection = daemon.connect();
        self.send(&connection);
        match hear(&connection) {
            Some(Packet::Welcome(welcome)) => Program { parts: self, connection, welcome },
            other => panic!("not welcome: {other:?}\n{}", daemon.log()),
        }
    }

    pub fn alloc(&self, first: u64, blocks: u64) {
        let range = AddrRange::new(
            DevAddr(UmBlock::SIZE.get() * (1 << 20) + first * UmBlock::SIZE.get()),
            Bytes(UmBlock::SIZE.get() * blocks),
        );
        assert!(self.ring.push(GPU, &Record::Alloc { range }));
    }
}

/// One that is served.
pub struct Program {
    pub parts: Parts,
    pub connection: OwnedFd,
    pub welcome: Welcome,
}

impl Program {
    pub fn new(daemon: &Daemon) -> Self {
        Parts::new(1).attach(daemon)
    }

    /// The next packet of this kind; others are passed over.
    pub fn wait_for<T>(&self, what: &str, mut kind: impl FnMut(Packet) -> Option<T>) -> T {
        loop {
            match hear(&self.connection) {
                Some(packet) => {
                    if let Some(found) = kind(packet) {
                        return found;
                    }
                }
                None => panic!("hung up, and no {what}"),
            }
        }
    }

    pub fn budget(&self) -> u64 {
        self.wait_for("budget", |packet| match packet {
            Packet::Budget(budgets) => Some(budgets[0].1.get()),
            _ => None,
        })
    }

    /// That the engine still takes records.
    pub fn is_served(&self) {
        let before = self.parts.ring.used();
        self.parts.alloc(1000, 1);
        until("the ring is read", || (self.parts.ring.used() == 0).then_some(()));
        assert!(before == 0, "records lay there unread");
        let range = AddrRange::new(DevAddr(UmBlock::SIZE.get() * ((1 << 20) + 1000)), UmBlock::SIZE);
        assert!(self.parts.ring.push(GPU, &Record::Free { range }));
        until("the ring is read", || (self.parts.ring.used() == 0).then_some(()));
    }

    pub fn wait_for_hang_up(&self) {
        while hear(&self.connection).is_some() {}
    }

    pub fn bye(self) -> Parts {
        packet::send(self.connection.as_fd(), &Packet::Bye.to_bytes(), &[]).unwrap();
        self.wait_for_hang_up();
        self.parts
    }
}

/// The next packet, or nothing where the other end has hung up.
pub fn hear(connection: &OwnedFd) -> Option<Packet> {
    let mut fds = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(FOREVER.as_millis()).unwrap();
    assert_eq!(poll(&mut fds, timeout), Ok(1), "neither an answer nor a hang-up");
    let mut buffer = [0; 1 << 15];
    match packet::receive(connection.as_fd(), &mut buffer) {
        Ok(got) if got.len == 0 => None,
        Ok(got) => Some(Packet::parse(&buffer[..got.len]).unwrap()),
        // What we sent lay unread when it hung up; what it sent before comes next.
        Err(e) if e.raw_os_error() == Some(libc::ECONNRESET) => hear(connection),
        Err(e) => panic!("{e}"),
    }
}

/// The refusal that must come, and the hang-up after it.
#[track_caller]
pub fn refused(connection: &OwnedFd) -> Refused {
    match hear(connection) {
        Some(Packet::Refused(refused)) => {
            assert_eq!(hear(connection), None);
            refused
        }
        other => panic!("not refused: {other:?}"),
    }
}
