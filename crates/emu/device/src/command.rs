//! What the driver's character device and the prefetch calls make the device do to managed memory.
//!
//! A command of the engine takes effect at the instant at which the device stands still for it, plus the profile's
//! reaction time; if it is synchronous, the thread is held until virtual time has reached its end ([`crate::hands`]). A
//! synchronous command of the program itself lets time pass until then.

use deepum_core::units::{AddrRange, Place};
use deepum_model::Advice;

use crate::error::CuResult;
use crate::hands::Order;
use crate::machine::{Cost, Machine};
use crate::run::Until;

impl Machine {
    /// `UVM_MIGRATE`: moves `range` to `to`; `wait` until the copies are done.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed, `OutOfMemory` if neither side can take it (or if the configuration
    /// makes this call fail).
    pub fn migrate(&self, range: AddrRange, to: Place, wait: bool) -> CuResult {
        self.command(Order::Migrate(range, to), wait)
    }

    /// A policy of the blocks of `range`.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed, `NotSupported` if it is not of whole blocks.
    pub fn advise(&self, range: AddrRange, advice: Advice) -> CuResult {
        self.command(Order::Advise(range, advice), true)
    }

    /// `UVM_DISCARD`: gives up the contents of `range`.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed.
    pub fn discard(&self, range: AddrRange, unmap: bool) -> CuResult {
        self.command(Order::Discard(range, unmap), true)
    }

    /// Carries out a command of whichever thread calls. One of an engine that drives no more takes a turn like the program's, and
    /// makes time pass itself, so it ends whatever the program does. It cannot be of the engine that drives next: that
    /// one is asked for nothing before the device knows of it, and whoever gave the pace back waits for this to end first.
    fn command(&self, order: Order, wait: bool) -> CuResult {
        if let Some(outcome) = self.engine_command(order, wait) {
            return outcome;
        }
        self.call(Cost::Free, |call| {
            let at = call.state.host;
            let moved = call.state.carry_out(order, at, self)?;
            call.run(Until::Time(if wait { moved.done } else { moved.ordered }))?;
            let now = call.state.now;
            if call.state.deliver(now, &self.config) {
                call.settle(true);
            }
            Ok(())
        })
    }
}
