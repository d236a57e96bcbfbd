//! Threads with a descriptor table of their own.
//!
//! Problem: taking a descriptor out of a table may wait, for as long as somebody else likes: a file whose file system does not answer is flushed each
//! time, and the last one of a socket that lingers waits for the network. A child process has a copy of all that is in the table, and
//! takes it out when it executes something. So what a stranger sends must never get into the table of a thread that has other
//! things to do, or that starts processes.
//! Idea: threads share descriptors only by default. One may have a table of its own, with a few that are moved there; what it receives
//! is then in no other table, and whoever waits for it, waits alone.
//!
//! What may be in the common table: files of ours, and of strangers' only Unix sockets, memory, eventfds and files of the driver. These are not
//! flushed, and nobody waits who takes out one that another table has, too.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::thread;

/// Room for a packet, and for what its parts become.
const STACK: usize = 256 << 10;

/// Starts a thread that has these descriptors and nothing else from the table of the calling thread, but the standard three. They are moved:
/// `body` begins when they are here no more. So the last one to close is the thread.
///
/// # Errors
/// Why there is no such thread, and the descriptors.
pub fn start(
    name: &str,
    moved: Vec<OwnedFd>,
    body: impl FnOnce(Vec<OwnedFd>) + Send + 'static,
) -> Result<(), (io::Error, Vec<OwnedFd>)> {
    let numbers: Vec<RawFd> = moved.iter().map(AsRawFd::as_raw_fd).collect();
    let (tell, told) = mpsc::channel();
    let (hold, held) = mpsc::channel::<Infallible>();
    let thread = move || {
        let table = keep_only(&numbers);
        let alone = table.is_ok();
        let _ = tell.send(table);
        if !alone {
            return;
        }
        // SAFETY: they are open in this table, which no other thread has, and nothing else here owns them.
        let own = numbers.iter().map(|number| unsafe { OwnedFd::from_raw_fd(*number) }).collect();
        // Ends with an error, when the other side lets go.
        let _ = held.recv();
        body(own);
    };
    if let Err(e) = thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(thread) {
        return Err((e, moved));
    }
    // A moment: it copies the table, and our copies keep whatever it throws away there from being the last.
    match told.recv().unwrap_or_else(|gone| Err(io::Error::other(gone))) {
        Ok(()) => {
            drop(moved);
            drop(hold);
            Ok(())
        }
        Err(e) => Err((e, moved)),
    }
}

/// Hangs up on peers, whatever they have sent that nobody has read. The end of a thread closes its table, and a process or thread that
/// ends does not wait for a socket that lingers (`inet_release` and its like); files that are still in a packet are not flushed.
///
/// # Errors
/// Why nobody was hung up on, and the connections.
pub fn hang_up(connections: Vec<OwnedFd>) -> Result<(), (io::Error, Vec<OwnedFd>)> {
    start("deepumd-hang-up", connections, |all| {
        for connection in all {
            let _ = connection.into_raw_fd();
        }
    })
}

/// Gives the calling thread a table of its own with all that is in the common one.
///
/// # Errors
/// As `close_range(2)`.
pub fn own_table() -> io::Result<()> {
    // Above all there are, so that nothing is closed.
    close_range(u32::MAX, u32::MAX, libc::CLOSE_RANGE_UNSHARE)
}

/// Gives the calling thread a table of its own, with these and the standard three.
fn keep_only(numbers: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = numbers.iter().map(|number| number.unsigned_abs()).collect();
    keep.sort_unstable();
    // This one makes the table, those below only thin it.
    close_range(keep.last().map_or(3, |last| last + 1), u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    let mut from = 3;
    for kept in keep {
        if from < kept {
            close_range(from, kept - 1, 0)?;
        }
        from = kept + 1;
    }
    Ok(())
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: no pointers. It closes nothing that this thread owns: with the flag the table is a copy from then on, and the calls without
    // it come after one with it.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
