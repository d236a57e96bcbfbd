//! What `policy::horizon` plans by: the future ([`timeline`]), and who is needed when ([`ranks`]).

pub mod habits;
pub mod need;
pub mod ranks;
pub mod timeline;

#[cfg(test)]
mod tests;
