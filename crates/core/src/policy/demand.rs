//! `demand`: naive unified memory. The driver brings in what faults and evicts in its own order; we only keep
//! the budget, where one is set. Every result is quoted against this.

use super::{Policy, PolicyName};

/// See the module.
#[derive(Debug)]
pub struct Demand;

impl Policy for Demand {
    fn name(&self) -> PolicyName {
        PolicyName::Demand
    }
}
