//! Planners that know the iteration in advance: from a [`Program`](deepum_trace::program::Program) and what memory and links there are, a
//! schedule of what leaves when and comes back when.
//!
//! Problem: published planners differ in whom they send away, and share all the rest: what is idle, what a channel can still carry, how much is
//! resident when. Compared fairly, they must share that in code, too.
//! Idea: a planner only chooses [`absence::Absence`]s among the [`vitality::Period`]s of a program, on one [`ledger::Ledger`]; from there on all go
//! the same way to a [`schedule::Schedule`], which is proven legal when it is made.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`schedule`] | the vocabulary: moves at gaps, legal or refused; plans and failures |
//! | [`vitality`] | when a tensor's contents matter to nobody for a while |
//! | [`ledger`] | bytes resident by kernel, and bytes each channel can still carry |
//! | [`absence`] | a tensor away for a part of a period, booked and brought back in time |
//! | [`g10`] | greatest relief for its cost first (MICRO'23) |
//! | [`flashneuron`] | activations in the order of the forward pass (FAST'21) |
//! | [`most`] | a delay is worth it where it saves a longer stall (IEEE CAL 2025) |
//! | [`oracle`] | furthest next use, written ahead of need, with knowledge of stalls: what plans of whole tensors can reach |
//! | [`play`] | a schedule carried out by whole tensors: time and bytes, no faults |
//!
//! Not here: pages and UM blocks; faults and what they cost. The executor over the memory model has these.

pub mod absence;
pub mod flashneuron;
pub mod g10;
pub mod ledger;
pub mod most;
pub mod oracle;
pub mod play;
pub mod schedule;
pub mod vitality;

#[cfg(test)]
pub(crate) mod tests;
