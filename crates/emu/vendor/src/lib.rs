//! placeholder

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
