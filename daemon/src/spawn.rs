//! Starting a worker: the same file executed again, with the program's descriptors and nothing else of ours.
//!
//! The child marks every descriptor close-on-exec and takes the mark off those that it is to have; so what the parent has open besides
//! never reaches a worker, and the numbers stay what they are. Their list goes with the command line.
//!
//! The parent waits until the child has executed the file, so until then nobody else may stop it: it keeps our rights, and takes on the
//! program's as the first thing it does then (`worker/rights.rs`). It has a session of its own, without a terminal: signals of ours are the parent's
//! business, which ends workers in order, and our terminal is none of theirs. Between `fork` and `exec` only system calls are made.

use crate::admit::Device;
use crate::peer::Peer;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::getuid;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Most descriptors that a worker opens by itself. It needs a handful.
const DESCRIPTORS: u64 = 64;
/// Most memory of its own. The largest tables of the paper are a third of a gigabyte.
const DATA: u64 = 8 << 30;
/// Largest file it writes: saved tables.
const FILE: u64 = 1 << 30;

/// How workers are started.
#[derive(Clone, Debug)]
pub struct Workers {
    /// Preloaded where the program's device is emulated: what makes a socket answer as the driver does.
    pub emulated: Option<PathBuf>,
}

impl Workers {
    /// Looks for the library of emulated devices beside this executable and in `../lib/deepum`.
    pub fn find() -> Self {
        let exe = std::env::current_exe().ok().and_then(|exe| exe.canonicalize().ok());
        let bin = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
        let near = |folder: &str| bin.as_ref().map(|bin| bin.join(folder).join("libdeepum_emu_node.so"));
        Self { emulated: [near(""), near("../lib/deepum")].into_iter().flatten().find(|path| path.is_file()) }
    }

    /// Starts a worker, which takes on the rights of `peer`, inherits `fds` in this order, and has `log` as its standard error. Call it on
    /// the main thread: the worker is killed when the thread that started it ends.
    ///
    /// # Errors
    /// Why there is none.
    pub fn start(&self, peer: Peer, device: Device, fds: &[BorrowedFd<'_>], log: OwnedFd) -> io::Result<Child> {
        let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let same_user = getuid().as_raw() == peer.uid;
        let parent = std::process::id();
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("deepumd")
            .arg("--worker")
            .arg(format!("{parent}:{}:{}:{}", peer.uid, peer.gid, list.join(",")))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.current_dir("/");
        let kept = ["LD_PRELOAD", "RUST_BACKTRACE"].into_iter().chain(same_user.then_some("XDG_RUNTIME_DIR"));
        command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
        if device == Device::Emulated {
            let library = self.emulated.as_ref().ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    "this daemon lacks libdeepum_emu_node.so, which an emulated GPU needs",
                )
            })?;
            let mut preload: OsString = library.into();
            if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|text| !text.is_empty()) {
                preload.push(":");
                preload.push(before);
            }
            command.env("LD_PRELOAD", preload);
        }
        // SAFETY: `prepare` makes system calls only, and reads what was made before the fork.
        unsafe { command.pre_exec(move || prepare(parent, &numbers)) };
        command.spawn()
    }
}

/// In the child.
fn prepare(parent: u32, keep: &[RawFd]) -> io::Result<()> {
    let check = |rc: libc::c_int| if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: no pointers.
    check(unsafe { libc::setsid() })?;
    let limits = [
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_DATA, DATA),
        (libc::RLIMIT_FSIZE, FILE),
        (libc::RLIMIT_NOFILE, DESCRIPTORS),
    ];
    for (what, most) in limits {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls read or write one struct of ours.
        unsafe {
            check(libc::getrlimit(what, &raw mut limit))?;
            limit.rlim_cur = limit.rlim_max.min(most);
            limit.rlim_max = limit.rlim_cur;
            check(libc::setrlimit(what, &raw const limit))?;
        }
    }
    // SAFETY: no pointers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        // It may have ended before the wish was made.
        if libc::getppid().unsigned_abs() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        libc::umask(0o077);
        let all = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(libc::c_int::try_from(all).unwrap_or(-1))?;
    }
    for fd in keep {
        // SAFETY: no pointers; the descriptor was open before the fork.
        check(unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) })?;
    }
    // The parent waits for its signals by descriptor, so they are blocked there.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}
