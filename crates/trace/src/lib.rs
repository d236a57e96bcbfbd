//! What programs did, kept and told again: the trace format, the importer of G10's profiles, and one iteration by its tensors.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`event`] | what a program did, as data |
//! | [`binary`] | events as bytes: small, streamed, never believed |
//! | [`text`] | events as lines that a person reads and writes |
//! | [`g10`] | G10's profiles of an A100, read and checked |
//! | [`program`] | one iteration: kernels with their times, and the tensors they read and write |

#![forbid(unsafe_code)]

pub mod binary;
pub mod event;
pub mod g10;
pub mod program;
pub mod text;
