//! How well an iteration can be planned, and how fast it can be at most.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`tiers`] | what memory there is beside the GPU's, and how fast bytes get there and back |
//! | [`planner`] | planners that know the iteration in advance, and their schedules |
//! | [`bound`] | how fast an iteration can be at most: a proven lower bound on its time |

#![forbid(unsafe_code)]

pub mod bound;
pub mod planner;
pub mod tiers;
