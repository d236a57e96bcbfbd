//! What the driver's character device and the prefetch calls make the device do to managed memory.
//!
//! A command of the engine takes effect at the instant at which the device stands still for it, plus the profile's
//! reaction time; if it is synchronous, the thread is held until virtual time has reached its end ([`crate::hands`]). A
//! synchronous command of the program itself lets time pass until then.

use deepum_core::units::{AddrRange, Place};
use deepum_model::{Advice, Group};

use crate::error::CuResult;
use crate::hands::{Order, Outcome};
use crate::machine::{Cost, Machine};
use crate::run::Until;
use crate::uvm::Wait;

impl Machine {
    /// `UVM_MIGRATE`: moves `range` to `to`; `wait` until the copies are done.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed, `OutOfMemory` if neither side can take it (or if the configuration
    /// makes this call fail).
    pub fn migrate(&self, range: AddrRange, to: Place, wait: bool) -> CuResult {
        self.migrate_members(range, to, if wait { Wait::Here } else { Wait::Not(None) }).map(|_| ())
    }

    /// As [`Self::migrate`]; whether something was passed by that may not migrate.
    ///
    /// # Errors
    /// As [`Self::migrate`].
    pub fn migrate_members(&self, range: AddrRange, to: Place, wait: Wait) -> CuResult<Outcome> {
        self.command(Order::Migrate(range, to, wait))
    }

    /// A policy of the blocks of `range`.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed, `NotSupported` if it is not of whole blocks.
    pub fn advise(&self, range: AddrRange, advice: Advice) -> CuResult {
        self.command(Order::Advise(range, advice)).map(|_| ())
    }

    /// `UVM_SET_RANGE_GROUP` of whole blocks.
    ///
    /// # Errors
    /// `NotFound` if there is no such group, `InvalidValue` if `range` is not managed, or is to stay where it is preferred and is not preferred,
    /// `NotSupported` if it is not of whole blocks, `OutOfMemory` if there is no room where it is preferred.
    pub fn join(&self, range: AddrRange, group: Group) -> CuResult {
        self.command(Order::Join(range, group)).map(|_| ())
    }

    /// Groups may migrate from now on, or may not; then their members go where they are preferred, group after group, as if by a call for each.
    ///
    /// # Errors
    /// `NotFound` if there is no such group: of those before it, that they may or may not stays. `InvalidValue` if a member is preferred nowhere, `InvalidDevice` if it is preferred
    /// on a GPU, `OutOfMemory`.
    pub fn set_migratable(&self, groups: &[Group], migratable: bool) -> CuResult {
        self.look(|state| groups.iter().try_for_each(|&group| Ok(state.memory.set_migratable(group, migratable)?)))?;
        let gathered = groups.iter().filter(|_| !migratable);
        gathered.copied().try_for_each(|group| self.command(Order::Gather(group)).map(|_| ()))
    }

    /// Puts all notices of what is over into the tools queues.
    pub fn drain(&self) {
        // A machine that ends has nobody to tell.
        let _ = self.look(|state| {
            let now = state.now;
            state.deliver(now, &self.config, true);
            Ok(())
        });
    }

    /// The request that does so, and takes its time.
    pub fn flush(&self) {
        // A machine that ends has nobody to tell.
        let _ = self.command(Order::Flush);
    }

    /// Keeps the calling thread until the word at `address`, of a pool, was written for the last migration that it was asked for with: for threads of an engine, which virtual time does not
    /// wait for while they look at a word themselves.
    pub fn await_word(&self, address: u64) {
        let Some(at) = self.lock().releases.last(address) else { return };
        // A machine that ends keeps nobody.
        let _ = self.command(Order::Await(at));
        // Nor does one whose engine has gone: whoever is let go before the time finds the word written, as a call that waits finds all done.
        let mut state = self.lock();
        if let Some(semaphore) = state.releases.take_of(address)
            && let Some(sink) = &mut state.sink
        {
            sink.release(semaphore);
        }
    }

    /// Keeps the calling thread until all is over that it gave up: for threads of an engine, to which a discard returns sooner (`hands`).
    pub fn rest(&self) {
        // A machine that ends keeps nobody.
        let _ = self.command(Order::Rest);
    }

    /// `UVM_DISCARD`: gives up the contents of `range`.
    ///
    /// # Errors
    /// `InvalidValue` if `range` is not managed.
    pub fn discard(&self, range: AddrRange, unmap: bool) -> CuResult {
        self.command(Order::Discard(range, unmap)).map(|_| ())
    }

    /// Carries out a command of whichever thread calls. One of an engine that drives no more takes a turn like the program's, and
    /// makes time pass itself, so it ends whatever the program does. It cannot be of the engine that drives next: that
    /// one is asked for nothing before the device knows of it, and whoever gave the pace back waits for this to end first.
    fn command(&self, order: Order) -> CuResult<Outcome> {
        if let Some(outcome) = self.engine_command(order) {
            return outcome;
        }
        self.call(Cost::Free, |call| {
            let at = call.state.host;
            let moved = call.state.carry_out(order, at, self);
            if let Ok(moved) = moved {
                call.run(Until::Time(order.returns(moved)))?;
            }
            let now = call.state.now;
            if call.state.deliver(now, &self.config, order.drains()) {
                call.settle(true);
            }
            moved.map(Outcome::from)
        })
    }
}
