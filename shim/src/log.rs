//! Quiet, raw logging: one `write` to stderr per line, nothing buffered, no lock, nothing the program owns.

use crate::opt;
use deepum_config::LogLevel;

/// Says what is lost and why.
pub fn error(line: &str) {
    say(LogLevel::Error, line);
}

/// Says what a curious person wants to know.
pub fn info(line: &str) {
    say(LogLevel::Info, line);
}

/// Says what helps to find a mistake.
pub fn debug(line: impl FnOnce() -> String) {
    if opt::config().log >= LogLevel::Debug {
        say(LogLevel::Debug, &line());
    }
}

fn say(level: LogLevel, line: &str) {
    if opt::config().log < level {
        return;
    }
    let text = format!("deepum: {line}\n");
    without_sigpipe(|| {
        // SAFETY: the buffer is ours and as long as said. A short or failed write loses a line of log, nothing else.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    });
}

/// Runs `f`, and takes the SIGPIPE that it raises: nobody is to die of a line of ours that nobody reads.
fn without_sigpipe(f: impl FnOnce()) {
    // SAFETY: all zero is a valid signal set, and a time of 0.
    let (mut pipe, mut mask, mut pending, now): (libc::sigset_t, libc::sigset_t, libc::sigset_t, libc::timespec) =
        unsafe { std::mem::zeroed() };
    // SAFETY: the sets are ours; the mask is this thread's and put back below, and a SIGPIPE of `write` is this thread's, too.
    unsafe {
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut mask);
        libc::sigpending(&raw mut pending);
    }
    f();
    // SAFETY: as above.
    unsafe {
        // One that waited before is the program's.
        if libc::sigismember(&raw const pending, libc::SIGPIPE) == 0 {
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
    }
}

/// Says an error line the first time this place is reached, and never again.
macro_rules! once {
    ($($format:tt)*) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !SAID.swap(true, std::sync::atomic::Ordering::Relaxed) {
            $crate::log::error(&format!($($format)*));
        }
    }};
}
pub(crate) use once;
