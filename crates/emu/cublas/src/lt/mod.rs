//! cuBLASLt: products described by objects instead of arguments.
//!
//! [`objects`] holds what the program says (operation, layouts, preference), attribute by attribute; [`matmul`] turns it into
//! an operand list, offers one algorithm for it, and launches.

mod matmul;
mod objects;
