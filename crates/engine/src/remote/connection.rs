//! The connection to the daemon, for those who meet it in passing: a forked child, the end of the process, a device that gives up.
//!
//! The link owns it. A forked child may take no lock, and needs only its number, which is right at any moment at which the process may
//! be copied: it is set after the descriptor is there and taken back before it goes.

use deepum_protocol::control::Packet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

static NUMBER: AtomicI32 = AtomicI32::new(-1);
static OPEN: Mutex<Option<Arc<OwnedFd>>> = Mutex::new(None);

/// This is the connection from now on; the one before, if there was one, is closed when its last user lets go.
pub(super) fn set(connection: Option<Arc<OwnedFd>>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    NUMBER.store(-1, Ordering::SeqCst);
    let before = std::mem::replace(&mut *open, connection);
    if let Some(connection) = &*open {
        NUMBER.store(connection.as_raw_fd(), Ordering::SeqCst);
    }
    drop(before);
}

/// Tells the engine that this is the end; the link hears of it when the engine has ended.
pub(super) fn hang_up() {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(connection) = &*open {
        // SAFETY: a descriptor that lives as long as the lock is held.
        unsafe { libc::shutdown(connection.as_raw_fd(), libc::SHUT_WR) };
    }
}

/// Says that this is the end, and waits until the other end is gone, however long that takes, also at the end of the program or of the shim:
/// until then it may be in the driver, and only then does no process write into ring or page any more that was handed them over this
/// connection. Nobody waits for the link.
pub(super) fn part(connection: BorrowedFd<'_>) {
    // SAFETY: a descriptor that is open.
    unsafe { libc::shutdown(connection.as_raw_fd(), libc::SHUT_WR) };
    loop {
        let mut poll = libc::pollfd { fd: connection.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } == 1 {
            return;
        }
        // A signal, or no memory for a moment.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Says that the program ends as it should; if the moment is a bad one, the hang-up will say it.
pub(super) fn say_bye() {
    if let Ok(open) = OPEN.try_lock()
        && let Some(connection) = &*open
    {
        let bye = Packet::Bye.to_bytes();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: a packet of ours, a descriptor that lives as long as the lock is held.
        unsafe { libc::send(connection.as_raw_fd(), bye.as_ptr().cast(), bye.len(), flags) };
    }
}

/// In a forked child: closes the child's copy, or the daemon would take the program to go on as long as its child.
pub(super) fn close_in_child() {
    let number = NUMBER.swap(-1, Ordering::SeqCst);
    if number >= 0 {
        // SAFETY: this process's copy of a descriptor whose owner is a thread of another process.
        unsafe { libc::close(number) };
    }
}
