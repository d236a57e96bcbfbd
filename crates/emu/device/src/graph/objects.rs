//! User objects: things of the program that live until the last graph that holds them is gone (CUDA driver API,
//! `cuUserObjectCreate`).
//!
//! Who ends an object is told by nobody but the count of references: the program's own and those of graphs, executable ones too.
//! The program's function is called without any lock of ours, so what has died is collected here, and called by whoever took it.

use std::collections::{BTreeMap, HashMap};

use crate::error::{CuError, CuResult};
use crate::work::HostFn;

/// Which objects something holds, and how often.
pub type Held = BTreeMap<u32, u64>;

#[derive(Debug)]
struct Object {
    end: HostFn,
    users: u64,
}

/// Every object of the process.
#[derive(Debug, Default)]
pub struct Objects {
    next: u32,
    live: HashMap<u32, Object>,
    dead: Vec<HostFn>,
}

impl Objects {
    /// A new object with so many references; `end` is called when the last is gone.
    pub fn create(&mut self, end: HostFn, users: u64) -> u32 {
        self.next += 1;
        self.live.insert(self.next, Object { end, users });
        self.next
    }

    /// More references.
    ///
    /// # Errors
    /// `InvalidValue`.
    pub fn retain(&mut self, id: u32, count: u64) -> CuResult {
        let object = self.live.get_mut(&id).ok_or(CuError::InvalidValue)?;
        object.users += count;
        Ok(())
    }

    /// Fewer references.
    ///
    /// # Errors
    /// `InvalidValue` for what is no object, or has not so many.
    pub fn release(&mut self, id: u32, count: u64) -> CuResult {
        let object = self.live.get_mut(&id).filter(|o| o.users >= count).ok_or(CuError::InvalidValue)?;
        object.users -= count;
        if object.users == 0
            && let Some(object) = self.live.remove(&id)
        {
            self.dead.push(object.end);
        }
        Ok(())
    }

    /// All of these are held once more.
    pub fn share(&mut self, held: &Held) {
        for (id, count) in held {
            // What a graph holds is alive.
            let _ = self.retain(*id, *count);
        }
    }

    /// All of these are held once less.
    pub fn release_all(&mut self, held: &Held) {
        for (id, count) in held {
            let _ = self.release(*id, *count);
        }
    }

    /// What has died and whose function was not called yet.
    pub fn take_dead(&mut self) -> Vec<HostFn> {
        std::mem::take(&mut self.dead)
    }
}
