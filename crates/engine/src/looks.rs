//! Looks: who takes them, and what one is.
//!
//! One look at the driver is one turn of the [`world`](crate::world). On a GPU the fault thread looks, because the driver's queue must be emptied
//! while the correlate thread thinks. Where virtual time stands still until the engine has settled, nobody has anything else to do, and a turn on
//! another thread costs four switches and decides the same: there whoever nudges takes it ([`Looks::Nudgers`]), the device on the program's
//! thread or a mover on its own. With an engine in another process that is not to be had, and its threads look in either pace.

use crate::calm::{BUSY, Calm, Saw, Wait};
use crate::gate::Wake;
use crate::launch_gate::Watchdog;
use crate::ours;
use crate::pending::Token;
use crate::sources::Notices;
use crate::sync::{Mutex, lock};
use crate::threads::Running;
use crate::world::Look;
use deepum_kmod_bridge::QueueStats;
use deepum_protocol::shared::Mode;
use deepum_protocol::status::Pace;
use std::time::Instant;

/// Whose threads take the turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looks {
    /// The engine's: fault and correlate.
    Own,
    /// Those of whoever nudges, one at a time.
    Nudgers,
}

/// Where driver notices come from, as long as they come.
pub struct Source {
    notices: Option<Box<dyn Notices>>,
    stats: QueueStats,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("lives", &self.notices.is_some()).field("stats", &self.stats).finish()
    }
}

impl Source {
    /// Over the driver's notices, if there are any.
    pub fn new(notices: Option<Box<dyn Notices>>) -> Self {
        Self { notices, stats: QueueStats::default() }
    }

    /// What there is to see now. Nothing once the engine is to be off, which it then is.
    fn look(&mut self, running: &Running) -> Option<Look> {
        if running.ring.shared().mode() == Mode::Off {
            running
                .retire("turned off from outside: by the shim, or by a device that waited for it in vain".to_owned());
            return None;
        }
        let mut look = Look::default();
        if let Some(driver) = &mut self.notices {
            let drained = driver.drain(&mut look.notices);
            self.stats = driver.stats();
            if let Err(broken) = drained {
                look.source_lost = true;
                running.watch.forget_notices();
                *lock(&running.no_notices) = Some(broken.to_string());
                (running.say)(&broken.to_string());
                self.notices = None;
            }
        }
        look.stats = self.stats;
        Some(look)
    }
}

impl Running {
    /// Look at everything now. Where nothing is new, that is all there is to do.
    pub fn nudge(&self) {
        if self.watch.notices() || self.watch.life() {
            self.look_soon();
        }
    }

    /// A turn, whether or not anything is new.
    pub(crate) fn look_soon(&self) {
        match self.source.get() {
            Some(source) => self.look_here(source),
            None => self.gate.nudge(),
        }
    }

    /// A turn on the calling thread, which is the engine's for so long.
    fn look_here(&self, source: &Mutex<Source>) {
        if self.is_off().is_some() {
            return;
        }
        let token = self.pending.token();
        let turn = ours::guard("a look", || {
            // Held over the turn, so that looks are dealt with in the order in which they were taken.
            let mut source = lock(source);
            source.look(self).map(|look| self.turn(&look))
        });
        if let Err(why) = turn {
            self.turn_off(why);
        }
        drop(token);
    }

    /// A turn. False if it was the last.
    fn turn(&self, look: &Look) -> bool {
        let turn = lock(&self.world).observe(look, &self.desk, &self.launch_gate);
        turn.map_err(|corrupt| self.turn_off(corrupt.to_string())).is_ok()
    }

    /// The fault thread.
    pub(crate) fn fault(&self, mut source: Source) {
        let mut calm = Calm::default();
        let mut saw = Saw::Nothing;
        let mut watchdog = Watchdog::new(Instant::now());
        while let Some(token) = self.wait(&mut calm, &mut saw, &mut watchdog) {
            let look = source.look(self);
            if !look.is_some_and(|look| self.inbox.push((look, token))) {
                return;
            }
        }
    }

    /// Waits until there is something to look at; nothing once closed.
    fn wait(&self, calm: &mut Calm, saw: &mut Saw, watchdog: &mut Watchdog) -> Option<Token> {
        loop {
            if self.pace == Pace::Polling && watchdog.check(&self.launch_gate, Instant::now()) {
                (self.say)(
                    "no move has ended for too long while launches wait for one; from now on launches wait for nothing, and \
                     may fault where they would have waited",
                );
            }
            let wait = match self.pace {
                Pace::Driven => None,
                Pace::Polling => Some(calm.after(*saw, self.ring.shared().mode() == Mode::Awake)),
            };
            let woken = match wait {
                None => self.gate.wait(None),
                Some(Wait::Sleep(time)) => self.gate.wait(Some(time)),
                Some(Wait::Busy) => {
                    let start = Instant::now();
                    while !self.watch.notices() && start.elapsed() < BUSY {
                        std::hint::spin_loop();
                    }
                    Wake::Late
                }
            };
            *saw = match (self.watch.notices(), self.watch.life()) {
                (true, _) => Saw::Notices,
                (false, true) => Saw::Life,
                (false, false) => Saw::Nothing,
            };
            match woken {
                Wake::Closed => return None,
                Wake::Nudged(token) => return Some(token),
                Wake::Late if *saw != Saw::Nothing || self.ring.shared().mode() == Mode::Off => {
                    return Some(self.pending.token());
                }
                Wake::Late => {}
            }
        }
    }

    /// The correlate thread.
    pub(crate) fn correlate(&self) {
        while let Some((look, token)) = self.inbox.pop() {
            if !self.turn(&look) {
                return;
            }
            drop(token);
        }
    }
}
