//! One side attaches, another reads and moves.

mod common;

use common::{Fake, GPU0, GPU1, SHAPES, Shape, fault};
use deepum_core::units::{AddrRange, Bytes, DevAddr, Place};
use deepum_kmod_bridge::adopt::{Adopted, Handed, HandedQueue, Lent};
use deepum_kmod_bridge::{DriverVersion, Kernel, ToolsQueue, Unavailable};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const MIB2: u64 = 2 << 20;
const OUR_GPU: u8 = 2;

fn lend(fake: Fake, entries: u32) -> (Arc<Fake>, Arc<dyn Kernel>, Lent) {
    let fake = Arc::new(fake);
    let kernel: Arc<dyn Kernel> = Arc::clone(&fake) as _;
    let lent = Lent::open(&kernel, entries);
    (fake, kernel, lent)
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

/// As another process would see it; the address space goes over, since the fake driver knows it by number.
fn hand(lent: &Lent, uvm: OwnedFd) -> Handed {
    let queue = lent.queue.as_ref().unwrap();
    Handed {
        driver: lent.support.version().cloned(),
        uvm,
        gpus: vec![GPU0, GPU1],
        queue: Ok(HandedQueue {
            tracker: copy(queue.tracker()),
            memory: copy(queue.memory()),
            entries: queue.entries(),
        }),
    }
}

fn blocks(queue: &mut ToolsQueue) -> Vec<String> {
    let mut notices = Vec::new();
    queue.drain(&mut notices).unwrap();
    notices.iter().map(|notice| format!("{:?}", notice.event)).collect()
}

#[test]
fn notices_cross_and_pages_move_by_the_passed_descriptors() {
    for (shape, version) in SHAPES {
        let (fake, kernel, mut lent) = lend(Fake::new(shape, version), 8);
        let uvm = std::mem::replace(&mut lent.uvm, Err(Unavailable::NoVaSpace { tried: 0 })).unwrap();
        assert_eq!(lent.queue.as_ref().unwrap().bytes(), 8192);
        let adopted = Adopted::open(kernel, hand(&lent, uvm)).unwrap();
        let mut queue = adopted.queue.unwrap();
        // Twice as many as there is room for: so room is given back to the driver through the other mapping.
        for round in 0..4 {
            for i in 0..4u64 {
                fake.put(fault(OUR_GPU, round, (40 + i) * MIB2, 1, 100));
            }
            assert_eq!(blocks(&mut queue).len(), 4, "{version} round {round}");
        }
        let range = AddrRange::new(DevAddr(40 * MIB2), Bytes(MIB2));
        adopted.space.migrate(range, Place::Device(GPU1.id)).unwrap();
        assert_eq!(fake.state.lock().unwrap().migrations[0].2, GPU1.uuid.0);
    }
}

#[test]
fn who_adopts_stops_nothing_when_it_goes_and_the_lender_stops_it() {
    let (fake, kernel, mut lent) = lend(Fake::new(Shape::D580, "580.65.06"), 4);
    let uvm = std::mem::replace(&mut lent.uvm, Err(Unavailable::NoVaSpace { tried: 0 })).unwrap();
    let adopted = Adopted::open(kernel, hand(&lent, uvm)).unwrap();
    let enabled = fake.state.lock().unwrap().enabled;
    assert_ne!(enabled, 0);
    drop(adopted.queue.unwrap());
    assert_eq!(fake.state.lock().unwrap().enabled, enabled);
    drop(lent);
    assert_eq!(fake.state.lock().unwrap().enabled, 0);
}

#[test]
fn memory_that_is_too_short_or_may_become_so_is_refused_by_name() {
    let (_fake, kernel, mut lent) = lend(Fake::new(Shape::D580, "580.65.06"), 8);
    let uvm = std::mem::replace(&mut lent.uvm, Err(Unavailable::NoVaSpace { tried: 0 })).unwrap();
    let refusal = |memory: OwnedFd, entries: u32| {
        let mut handed = hand(&lent, copy(&uvm));
        let queue = handed.queue.as_mut().unwrap();
        (queue.memory, queue.entries) = (memory, entries);
        Adopted::open(Arc::clone(&kernel), handed).unwrap().queue.unwrap_err()
    };
    let file = |bytes: i64, seals: SealFlag| {
        let file = memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        nix::unistd::ftruncate(&file, bytes).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    };
    assert!(refusal(file(8192, SealFlag::empty()), 8).contains("not sealed"));
    let short = refusal(file(4096, SealFlag::F_SEAL_SHRINK), 8);
    assert!(short.contains("4096 bytes; 8 entries need 8192"), "{short}");
    assert!(refusal(file(8192, SealFlag::F_SEAL_SHRINK), 7).contains("powers of two"));
    assert!(refusal(copy(std::fs::File::open("/dev/null").unwrap()), 8).contains("0 bytes"));
}

#[test]
fn a_driver_that_is_too_old_is_refused_on_both_sides() {
    let (_fake, kernel, lent) = lend(Fake::new(Shape::D535, "470.256.02"), 8);
    assert!(lent.queue.unwrap_err().to_string().contains("470.256.02"));
    let handed = Handed {
        driver: DriverVersion::parse("470.256.02"),
        uvm: std::fs::File::open("/dev/null").unwrap().into(),
        gpus: vec![GPU0],
        queue: Err("none".to_owned()),
    };
    assert!(Adopted::open(kernel, handed).unwrap_err().to_string().contains("470.256.02"));
}
