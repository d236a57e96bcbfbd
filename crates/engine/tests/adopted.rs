//! An engine over what another process passed on.

mod common;

use common::{GPU, RING, config, inputs, until, words};
use deepum_core::units::{AddrRange, Bytes, DevAddr};
use deepum_engine::adopted::{self, Passed};
use deepum_kmod_bridge::adopt::{Adopted, Handed};
use deepum_kmod_bridge::{DriverVersion, Linux};
use deepum_protocol::ring::{Record, Ring};
use deepum_protocol::shared::Mode;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock};

static OURS: OnceLock<Ring<'static>> = OnceLock::new();
static MODES: Mutex<Vec<Mode>> = Mutex::new(Vec::new());

/// What the program sees while the engine starts.
fn say(_: &str) {
    MODES.lock().unwrap().push(OURS.get().unwrap().shared().mode());
}

#[test]
fn while_the_engine_starts_the_program_goes_on_recording() {
    let memory = words(RING);
    let inputs = deepum_engine::Inputs { say, ..inputs(config("deepum"), Bytes::gib(1), memory) };
    let ring = *OURS.get_or_init(|| inputs.ring);
    // A reader that was killed, then the program's own before it asks for an engine.
    std::mem::forget(ring.consumer().unwrap());
    drop(ring.recover().unwrap());
    ring.shared().set_mode(Mode::Dormant);
    let range = AddrRange::new(DevAddr(1 << 40), Bytes::mib(8));
    assert!(ring.push(GPU, &Record::Alloc { range }));

    let uvm = File::open("/dev/null").unwrap().into();
    let queue = Err("no tools queue here".to_owned());
    let handed = Handed { driver: DriverVersion::parse("580.65.06"), uvm, gpus: Vec::new(), queue };
    let adopted = Adopted::open(Arc::new(Linux), handed).unwrap();
    let running = adopted::start(&inputs, Passed { adopted, bell: None, workload: 0 }).unwrap();
    assert_eq!(*MODES.lock().unwrap(), [Mode::Dormant], "at its one line, about the queue");
    until("it has read", || running.usage()[0].managed == Bytes::mib(8));
}
