//! A packet on the daemon's socket: it is refused by name, or its values come back as the bytes they came in.
#![no_main]

use deepum_protocol::control::Packet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Packet::parse(bytes) {
        Ok(packet) => assert_eq!(Packet::parse(&packet.to_bytes()).expect("our own"), packet),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
