//! Pools of semaphores: shapes as in the driver's `uvm_ioctl.h`, answers as in its `uvm_va_range.c`, `uvm.c` and `uvm_migrate.c`.

use super::*;
use crate::uvm::{Mapping, Semaphore};

const POOL: u64 = 68;
const PAGE: u64 = 4096;
/// Bytes of the longest of its structs, and some.
const LONG: usize = 9300;

/// How a program maps a pool.
const RIGHT: Mapping = Mapping { may_write: true, is_shared: true, is_fixed: true, offset: 0 };

/// Addresses that nothing else is put at.
fn reserve(len: u64) -> Pages {
    // SAFETY: a fresh mapping of nothing.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(null_mut(), usize::try_from(len).unwrap(), libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    Pages { at: at.cast(), len: usize::try_from(len).unwrap() }
}

impl World {
    /// The driver's answer, which it puts at one place and nowhere else.
    fn pool(&self, base: u64, len: u64, rows: &[[u8; 16]], count: u64) -> u32 {
        let (count_at, status) = if self.uvm.branch < 550 { (1168, 1176) } else { (9232, 9240) };
        let mut params = vec![0xee; LONG];
        params[..8].copy_from_slice(&base.to_le_bytes());
        params[8..16].copy_from_slice(&len.to_le_bytes());
        for (n, uuid) in rows.iter().enumerate() {
            params[16 + 36 * n..32 + 36 * n].copy_from_slice(uuid);
        }
        params[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
        let before = params.clone();
        // SAFETY: a buffer longer than the struct.
        let rc = unsafe { self.uvm.ioctl(key(&self.space), POOL, params.as_mut_ptr() as usize, &self.moves) };
        assert_eq!(rc, 0);
        let answer = u32_at(&params, status);
        params[status..status + 4].fill(0xee);
        assert!(params == before, "nothing but the status, driver {}", self.uvm.branch);
        answer
    }

    fn map(&self, at: u64, len: u64, how: Mapping) -> i32 {
        // SAFETY: over a mapping of the test's own that nothing refers to.
        unsafe { self.uvm.map(key(&self.space), at, len, how) }
    }

    /// `UVM_MIGRATE` that does not wait.
    fn begin(&self, word: u64, payload: u32) -> u32 {
        let gpu = gpu_uuid(DeviceId(0));
        let block = (2u64 << 20).to_le_bytes();
        let (word, payload) = (word.to_le_bytes(), payload.to_le_bytes());
        self.ask(51, 72, &[(0, &block), (8, &block), (16, &gpu), (32, &[1]), (40, &word), (48, &payload)])
    }
}

#[test]
fn a_pool_is_made_mapped_and_written_to_until_its_file_is_closed() {
    for branch in DRIVERS {
        let world = World::new(branch);
        let pages = reserve(2 * PAGE);
        let at = pages.at as u64;
        assert_eq!(world.pool(at, PAGE, &[], 0), NvStatus::ILLEGAL_ACTION.0);
        world.initialise();
        let how = Mapping { offset: at.cast_signed(), ..RIGHT };
        assert_eq!(world.map(at, PAGE, how), -libc::EINVAL, "there is none");
        assert_eq!(world.pool(at, PAGE, &[gpu_uuid(DeviceId(1))], 1), 0, "driver {branch}");
        assert_eq!(world.begin(at + 8, 7), 0);
        let semaphore = Semaphore { address: at + 8, payload: 7 };
        assert_eq!(
            *world.moves.0.lock().unwrap(),
            [format!("migrate 0x200000+200000 Device(DeviceId(0)) {:?}", Wait::Not(Some(semaphore)))]
        );
        let mut sink = world.sink();
        // Nobody has it yet: at this address there is nothing to write to.
        sink.release(semaphore);
        assert_eq!(world.map(at, PAGE, how), 0);
        assert_eq!((pages.word(8).load(Ordering::Acquire), pages.word(12).load(Ordering::Acquire)), (0, 0));
        sink.release(semaphore);
        assert_eq!((pages.word(8).load(Ordering::Acquire), pages.word(12).load(Ordering::Acquire)), (7, 0));
        world.uvm.closed(key(&world.space));
        sink.release(Semaphore { address: at + 12, payload: 9 });
        assert_eq!(pages.word(12).load(Ordering::Acquire), 0);
    }
}

#[test]
fn what_is_no_pool_is_refused() {
    for branch in DRIVERS {
        let world = World::new(branch);
        world.initialise();
        let pages = reserve(4 * PAGE);
        let at = pages.at as u64;
        for (base, len) in [(0, PAGE), (PAGE, 0), (at + 1, PAGE), (at, 100), (u64::MAX - PAGE + 1, 2 * PAGE)] {
            assert_eq!(world.pool(base, len, &[], 0), NvStatus::INVALID_ADDRESS.0, "{base:#x} {len:#x}");
        }
        let rows = if branch < 550 { 32 } else { 256 };
        assert_eq!(world.pool(at, PAGE, &[], rows + 1), NvStatus::INVALID_ARGUMENT.0);
        assert_eq!(world.pool(at, PAGE, &[gpu_uuid(DeviceId(0)), [7; 16]], 2), NvStatus::INVALID_DEVICE.0);
        assert_eq!(world.pool(at + PAGE, PAGE, &[], 0), 0);
        assert_eq!(world.pool(at, 2 * PAGE, &[], 0), NvStatus::UVM_ADDRESS_IN_USE.0);
        assert_eq!(world.pool(at + 2 * PAGE, PAGE, &[], 0), 0, "beside it");
        let (at, how) = (at + PAGE, Mapping { offset: (at + PAGE).cast_signed(), ..RIGHT });
        for wrong in [
            Mapping { may_write: false, ..how },
            Mapping { is_shared: false, ..how },
            Mapping { is_fixed: false, ..how },
            Mapping { offset: 0, ..how },
        ] {
            assert_eq!(world.map(at, PAGE, wrong), -libc::EINVAL, "{wrong:?}");
        }
        assert_eq!([world.map(at, 2 * PAGE, how), world.map(at - PAGE, PAGE, how)], [-libc::EINVAL; 2]);
        for (word, status) in [
            (at, 0),
            (at + PAGE - 4, 0),
            (at + 2, NvStatus::INVALID_ADDRESS.0),
            (at - 4, NvStatus::INVALID_ADDRESS.0),
            (at + 2 * PAGE, NvStatus::INVALID_ADDRESS.0),
            (0, NvStatus::INVALID_ARGUMENT.0),
        ] {
            assert_eq!(world.begin(word, 1), status, "{word:#x}");
        }
        // SAFETY: nothing is mapped there; the file is refused.
        assert_eq!(unsafe { world.uvm.map(key(&world.tools), at, PAGE, how) }, -libc::EBADFD);
    }
}
