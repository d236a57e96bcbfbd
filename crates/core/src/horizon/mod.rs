//! What `policy::horizon` plans by: the future ([`timeline`]), who is needed when ([`ranks`]), and who stays in between ([`plan`]).

pub mod habits;
mod marks;
pub mod need;
pub mod plan;
pub mod ranks;
pub mod timeline;

#[cfg(test)]
mod tests;
