//! Nudges from a program to its engine in another process.
//!
//! In driven pace the device calls `nudge` in the program and then waits for the count of work ([`crate::pending`]), which is a word of
//! the shared page. So the program takes the token, and the engine adopts it:
//!
//! ```text
//! program: pending + 1; given 0 → 1, or pending - 1 again, since the nudge before is not taken yet; rings the bell
//! engine:  hears the bell; given 1 → 0; from here on the token is its own
//! ```
//!
//! Never is a nudge lost, nor counted twice: who finds the word at 1 knows of a look that is still to come and will show
//! everything. If the engine dies meanwhile, whoever learns of it forgets what was counted ([`Nudges::forget`]).

use crate::pending::{Pending, Token};
use deepum_kmod_bridge::high;
use deepum_protocol::AtomicU64;
use deepum_protocol::page::Page;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Both ends: the words, and an eventfd as the bell.
#[derive(Debug)]
pub struct Nudges {
    pending: &'static AtomicU32,
    given: &'static AtomicU64,
    bell: OwnedFd,
}

/// The count of work in a page, as the device looks at it.
pub fn pending_word(page: Page) -> &'static AtomicU32 {
    const { assert!(cfg!(target_endian = "little"), "the lower half of a word comes first") };
    let word: *const AtomicU64 = page.pending();
    // SAFETY: the lower half of a word of the page, which is never unmapped; nobody uses the whole word, and all use of the half is
    // atomic.
    unsafe { AtomicU32::from_ptr(word.cast_mut().cast()) }
}

impl Nudges {
    /// The program's end, with a new bell.
    ///
    /// # Errors
    /// If the system gives no eventfd.
    pub fn new(page: Page) -> io::Result<Self> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made for us alone.
        let bell = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self::over(page, high::copy(bell)?))
    }

    /// The engine's end, with the bell that the program passed on.
    pub fn over(page: Page, bell: OwnedFd) -> Self {
        Self { pending: pending_word(page), given: page.nudge(), bell }
    }

    /// The bell, to be passed on.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Program: look at everything now. Counted before this returns. Never waits.
    pub fn give(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        if self.given.swap(1, Ordering::AcqRel) == 0 {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes. It fails only where the bell has rung often enough already.
            unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        } else {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Engine: waits for the bell.
    ///
    /// # Errors
    /// If it is none.
    pub fn wait(&self) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one valid pollfd.
            if unsafe { libc::poll(&raw mut poll, 1, -1) } == 1 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut count = [0u8; 8];
        // SAFETY: room for eight bytes.
        match unsafe { libc::read(self.bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) } {
            8 => Ok(()),
            0.. => Err(io::ErrorKind::InvalidData.into()),
            // Somebody else took it, which says as much.
            _ => match io::Error::last_os_error() {
                error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Engine: the nudge that was given, if one was. `pending` counts in the same page.
    pub fn take(&self, pending: &Arc<Pending>) -> Option<Token> {
        (self.given.swap(0, Ordering::AcqRel) != 0).then(|| pending.adopt())
    }

    /// Program: the engine is gone, and with it all that it had to do.
    pub fn forget(&self) {
        self.given.store(0, Ordering::Release);
        self.pending.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_protocol::page;
    use std::thread;

    fn fresh() -> Page {
        Page::format(Box::leak((0..page::WORDS).map(|_| AtomicU64::new(0)).collect())).unwrap()
    }

    #[test]
    fn a_nudge_is_counted_when_given_and_done_where_it_is_taken() {
        let page = fresh();
        let program = Nudges::new(page).unwrap();
        let engine = Nudges::over(page, program.bell().try_clone_to_owned().unwrap());
        let pending = Arc::new(Pending::over(pending_word(page)));
        program.give();
        program.give();
        assert_eq!((pending.count(), page.pending().load(Ordering::Relaxed)), (1, 1), "two are one");
        engine.wait().unwrap();
        let token = engine.take(&pending).unwrap();
        assert!(engine.take(&pending).is_none());
        program.give();
        assert_eq!(pending.count(), 2, "a new one while the last is under way");
        drop(token);
        assert_eq!(pending.count(), 1);
        engine.wait().unwrap();
        drop(engine.take(&pending));
        assert_eq!(pending.count(), 0);
        program.give();
        program.forget();
        assert!(engine.take(&pending).is_none() && pending.count() == 0);
    }

    #[test]
    fn every_nudge_is_followed_by_a_look_and_the_count_comes_back_to_zero() {
        let page = fresh();
        let program = Nudges::new(page).unwrap();
        let engine = Nudges::over(page, program.bell().try_clone_to_owned().unwrap());
        let pending = Arc::new(Pending::over(pending_word(page)));
        // What there is to see: the engine must not miss the last of it.
        let (shown, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while seen.load(Ordering::Acquire) < 20_000 {
                    engine.wait().unwrap();
                    if let Some(token) = engine.take(&pending) {
                        seen.store(shown.load(Ordering::Acquire), Ordering::Release);
                        drop(token);
                    }
                }
            });
            for n in 1..=20_000 {
                shown.store(n, Ordering::Release);
                program.give();
                if n % 7 == 0 {
                    while pending.count() != 0 {
                        thread::yield_now();
                    }
                    assert_eq!(seen.load(Ordering::Acquire), n, "settled, and not everything was seen");
                }
            }
        });
        assert_eq!(pending.count(), 0);
    }
}
