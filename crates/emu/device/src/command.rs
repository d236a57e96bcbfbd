//! What the driver's character device and the prefetch calls make the device do to managed memory.
//!
//! A command of the engine takes effect at the instant at which the device stands still for it, plus the profile's
//! reaction time; if it is synchronous, the thread is held until virtual time has reached its end. A synchronous
//! command of the program itself lets time pass until then.

use std::thread;

use deepum_core::units::{AddrRange, Nanos, Place};
use deepum_model::Migrated;

use crate::error::{CuError, CuResult};
use crate::machine::{Cost, Machine};
use crate::run::Until;
use crate::state::{State, Ticket};

impl Machine {
    /// `UVM_MIGRATE`: moves `range` to `to`; `wait` until the copies are done.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed, `OutOfMemory` if neither side can take it (or if the configuration
    /// makes this call fail).
    pub fn migrate(&self, range: AddrRange, to: Place, wait: bool) -> CuResult {
        let fail = self.config.fail_migrate;
        self.command(wait, move |state, at| {
            state.migrate_count += 1;
            if fail.is_some_and(|n| state.migrate_count.is_multiple_of(n)) {
                return Err(CuError::OutOfMemory);
            }
            Ok(state.memory.migrate(range, to, at)?)
        })
    }

    /// `UVM_DISCARD`: gives up the contents of `range`.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed.
    pub fn discard(&self, range: AddrRange, unmap: bool) -> CuResult {
        self.command(true, move |state, at| {
            let done = state.memory.discard(range, unmap, at)?;
            Ok(Migrated { ordered: done, done })
        })
    }

    /// Carries out a command of whichever thread calls.
    fn command(&self, wait: bool, f: impl FnOnce(&mut State, Nanos) -> CuResult<Migrated>) -> CuResult {
        let data = self.config.data;
        if !(self.pace.driven() && self.pace.is_engine_thread()) {
            return self.call(Cost::Free, |call| {
                let at = call.state.host;
                let moved = f(&mut call.state, at);
                call.state.settle_bytes(data);
                let moved = moved?;
                call.run(Until::Time(if wait { moved.done } else { moved.ordered }))?;
                let now = call.state.now;
                if call.state.deliver(now, &self.config) {
                    call.settle(true);
                }
                Ok(())
            });
        }
        let me = thread::current().id();
        let mut state = self.lock();
        let now = state.now;
        // A thread that was let go at this very instant is awake already.
        let awake = state.let_go.iter().any(|(thread, at)| *thread == me && *at == now);
        let at = if awake { now } else { now + self.profile.engine_reaction };
        let moved = f(&mut state, at);
        state.settle_bytes(data);
        let moved = moved?;
        if !wait || self.ended() {
            return Ok(());
        }
        state.ticket_count += 1;
        let ticket = Ticket { at: moved.done, number: state.ticket_count };
        let place = state.tickets.partition_point(|t| *t > ticket);
        state.tickets.insert(place, ticket);
        self.pace.hold(1);
        while state.tickets.contains(&ticket) && !self.ended() {
            self.released.wait(&mut state);
        }
        let now = state.now;
        state.let_go.retain(|(thread, _)| *thread != me);
        state.let_go.push((me, now));
        Ok(())
    }
}
