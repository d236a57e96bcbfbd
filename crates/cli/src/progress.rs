//! A line on stderr that says what is going on, for anything that takes longer than two seconds.
//!
//! On a terminal the line is redrawn in place; elsewhere a new one follows every ten seconds, so that a log stays readable.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(2);
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Shown from two seconds after its creation until it is dropped.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    shown: Option<ProgressBar>,
    next_log: Instant,
}

impl Progress {
    /// Starts the clock; shows nothing yet.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { started: now, shown: None, next_log: now + QUIET }
    }

    /// Says what is going on now.
    pub fn say(&mut self, what: &str) {
        if self.started.elapsed() < QUIET {
            return;
        }
        if std::io::stderr().is_terminal() {
            let started = self.started;
            let bar = self.shown.get_or_insert_with(|| {
                let bar =
                    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_elapsed(started.elapsed());
                bar.set_style(
                    ProgressStyle::with_template("{spinner} {elapsed} {msg}")
                        .expect("the template is a constant and valid"),
                );
                bar
            });
            bar.set_message(what.to_owned());
            bar.tick();
        } else if Instant::now() >= self.next_log {
            self.next_log = Instant::now() + LOG_EVERY;
            eprintln!("deepum: {}s: {what}", self.started.elapsed().as_secs());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
