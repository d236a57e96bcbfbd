//! How fast a program is under a policy, how well its iteration can be planned, and how fast it can be at most.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`tiers`] | what memory there is beside the GPU's, and how fast bytes get there and back |
//! | [`replay`] | a program again, under a policy, on a modelled GPU |
//! | [`placement`] | its tensors where PyTorch's allocator would put them |
//! | [`planner`] | planners that know the iteration in advance, and their schedules |
//! | [`published`] | the simulator that G10 was published with, as a world of its own |
//! | [`bound`] | how fast an iteration can be at most: a proven lower bound on its time |

#![forbid(unsafe_code)]

pub mod bound;
pub mod placement;
pub mod planner;
pub mod published;
pub mod replay;
pub mod tiers;
