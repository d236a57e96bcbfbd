//! A policy that asks for what the test says, when a launch is issued.

use std::sync::{Arc, Mutex};

use deepum_core::command::Commands;
use deepum_core::copies;
use deepum_core::known::Known;
use deepum_core::policy::{Policy, PolicyName};
use deepum_core::residency::Handle;
use deepum_core::units::{LaunchSeq, UmBlock};

/// What to ask for, and about which block.
#[derive(Clone, Copy, Debug)]
pub enum Say {
    Save(u64),
    Drop(u64),
    Own(u64),
}

/// The test keeps one, the engine another.
#[derive(Clone, Default, Debug)]
pub struct Told {
    pub say: Arc<Mutex<Vec<Say>>>,
    /// Whether each was asked for.
    pub asked: Arc<Mutex<Vec<bool>>>,
    /// Blocks that were overwritten.
    pub overwritten: Arc<Mutex<Vec<u64>>>,
}

impl Policy for Told {
    fn name(&self) -> PolicyName {
        PolicyName::Demand
    }
    fn watches_launches(&self) -> bool {
        true
    }
    fn launch(&mut self, seq: LaunchSeq, known: &mut Known, out: &mut Commands) {
        for say in self.say.lock().unwrap().drain(..) {
            let (Say::Save(block) | Say::Drop(block) | Say::Own(block)) = say;
            let at = known.residency.find(UmBlock(block)).unwrap();
            let asked = match say {
                Say::Save(_) => copies::save(at, known, out),
                Say::Drop(_) => copies::drop_copy(at, known, out),
                Say::Own(_) => copies::own(at, seq, known, out),
            };
            self.asked.lock().unwrap().push(asked);
        }
    }
    fn overwritten(&mut self, at: Handle, known: &mut Known, _out: &mut Commands) {
        self.overwritten.lock().unwrap().push(known.residency.get(at).block.0);
    }
}
