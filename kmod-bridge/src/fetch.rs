//! Onto the GPU, in calls that do not wait, and ones behind them that do, or a look at a word: which, and why, says `deepum_core::steps`.

use crate::migrate::{MigrateError, VaSpace};
use crate::semaphores::{Semaphores, Word};
use deepum_core::steps::{By, Comes, comes};
use deepum_core::units::{AddrRange, DeviceId, Place};
use std::collections::VecDeque;

impl VaSpace {
    /// Moves all of `range`, whole blocks of managed memory, to a GPU, and returns when it is there.
    ///
    /// # Errors
    /// [`MigrateError`]. Part of the range may have moved then.
    pub fn fetch(&self, range: AddrRange, to: DeviceId) -> Result<(), MigrateError> {
        let place = Place::Device(to);
        for call in comes(range, By::Call) {
            match call {
                // The call that waits says why, or mends it.
                Comes::Begin(piece) if self.begin(piece, to).is_err() => return self.migrate(range, place),
                Comes::Begin(_) => {}
                Comes::Await(piece) => self.migrate(piece, place)?,
            }
        }
        Ok(())
    }

    /// The same, but that nobody waits in the driver: `wait` keeps the calling thread until the word is written, and says whether it was. Where it was not the driver's own
    /// call waits for all of `range`, and the answer is false: words are better not relied on any more. The driver tells of such moves when it is asked to, which it is while the last of
    /// `range` comes, if anybody hears it (`told`); so of these it tells later.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub fn fetch_with(
        &self,
        range: AddrRange,
        to: DeviceId,
        pool: &mut Semaphores,
        told: bool,
        wait: impl Fn(Word<'_>) -> bool,
    ) -> Result<bool, MigrateError> {
        let place = Place::Device(to);
        let mut under_way = VecDeque::new();
        for call in comes(range, By::Word) {
            match call {
                Comes::Begin(piece) => match self.begin_with(piece, to, pool) {
                    Ok(taken) => under_way.push_back((piece, taken)),
                    Err(_) => return self.migrate(range, place).map(|()| true),
                },
                Comes::Await(part) => {
                    if told && part.end() == range.end() {
                        // If it fails, what is told comes late.
                        let _ = self.flush();
                    }
                    while let Some((_, taken)) = under_way.pop_front_if(|(piece, _)| piece.start < part.end()) {
                        if !wait(pool.word(taken)) {
                            return self.migrate(range, place).map(|()| false);
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    /// Moves all of `range` to a GPU by one call, whose end a word tells: for what is there, or has nothing to carry. Otherwise as [`Self::fetch_with`].
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub fn place_with(
        &self,
        range: AddrRange,
        to: DeviceId,
        pool: &mut Semaphores,
        told: bool,
        wait: impl Fn(Word<'_>) -> bool,
    ) -> Result<bool, MigrateError> {
        let written = self.begin_with(range, to, pool).map(|taken| wait(pool.word(taken)));
        if told {
            // The driver may have evicted for it. If this fails, that is told late.
            let _ = self.flush();
        }
        match written {
            Ok(true) => Ok(true),
            _ => self.migrate(range, Place::Device(to)).map(|()| written.is_err()),
        }
    }
}
