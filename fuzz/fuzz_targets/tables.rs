//! A file of saved tables: it is refused by name and nothing is changed, or it is taken over, and saved again as the same bytes.
//!
//! No mutation hits a checksum. So the first byte of the input says whether the header's own words (who learned it, how long it is, its checksum)
//! are put right before the file is read.
#![no_main]

use deepum_core::engine::{Config, Engine};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::units::Bytes;
use libfuzzer_sys::fuzz_target;

const WORKLOAD: u64 = 7;
/// Bytes of the header, the checksum's eight among them at the end (`docs/tables.md`).
const HEADER: usize = 72;

fn engine() -> Engine {
    Engine::new(Config::new(PolicyName::Deepum, Bytes::mib(64)))
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if how & 1 != 0 && bytes.len() >= HEADER {
        let mut empty = Vec::new();
        assert!(engine().save(WORKLOAD, &mut empty));
        bytes[..40].copy_from_slice(&empty[..40]);
        let len = bytes.len() as u64;
        bytes[56..64].copy_from_slice(&len.to_le_bytes());
        let sum = Mix::new().bytes(&bytes[..64]).bytes(&bytes[HEADER..]).end();
        bytes[64..72].copy_from_slice(&sum.to_le_bytes());
    }
    let mut taken = engine();
    match taken.take_over(&bytes, WORKLOAD) {
        Ok(_) => {
            let (mut first, mut again, mut second) = (Vec::new(), engine(), Vec::new());
            assert!(taken.save(WORKLOAD, &mut first));
            again.take_over(&first, WORKLOAD).expect("our own");
            assert!(again.save(WORKLOAD, &mut second));
            assert!(first == second, "saved tables are not what was saved");
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let (mut empty, mut after) = (Vec::new(), Vec::new());
            engine().save(WORKLOAD, &mut empty);
            taken.save(WORKLOAD, &mut after);
            assert!(empty == after, "refused tables left something");
        }
    }
});
