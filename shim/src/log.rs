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
    // SAFETY: the buffer is ours and as long as said. A short or failed write loses a line of log, nothing else.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
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
