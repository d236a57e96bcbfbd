//! Off the GPU by a range group, and back by words, on the emulated device: its driver is written from the real one's side, and knows nothing of this package.

use deepum_core::units::{AddrRange, Bytes, DevAddr, DeviceId, Place, UmBlock};
use deepum_emu_abi::forward::Node;
use deepum_emu_device::config::Config;
use deepum_emu_device::error::CuResult;
use deepum_emu_device::machine::{Call, Cost, Machine};
use deepum_emu_device::memory::Return;
use deepum_emu_device::space::Kind;
use deepum_emu_device::uvm::caller::FileKey;
use deepum_emu_device::uvm::{Mapping, Uvm, gpu_uuid, release};
use deepum_emu_device::work::{Copy, Direction};
use deepum_kmod_bridge::raw::Params;
use deepum_kmod_bridge::{Bridge, DriverVersion, Gpu, Kernel, MigrateFailure, NoSemaphores, Uuid, VaSpace, Word};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GPU: DeviceId = DeviceId(0);
const BLOCK: u64 = UmBlock::SIZE.0;
const BLOCKS: u64 = 6;

/// A process's view of the emulated driver: one file of the address space, and no preloaded node.
#[derive(Debug)]
struct Emulated {
    uvm: Arc<Uvm>,
    machine: Machine,
    branch: u16,
    file: OwnedFd,
    asked: AtomicU64,
}

impl Emulated {
    /// Requests so far.
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Kernel for Emulated {
    fn driver_version(&self) -> Option<DriverVersion> {
        DriverVersion::parse(if self.branch > 595 { "600.10.01" } else { release(self.branch) })
    }
    fn open_tools(&self) -> io::Result<OwnedFd> {
        let (file, peer) = UnixStream::pair()?;
        let file = OwnedFd::from(file);
        let key = FileKey::of(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        self.uvm.open(Node::Tools, key, peer.into());
        Ok(file)
    }
    fn uvm_fds(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.file.try_clone()?])
    }
    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, params: &mut Params) -> io::Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let key = FileKey::of(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the parameters are longer than any struct, and what they point to is as our caller promises.
        let outcome = unsafe { self.uvm.ioctl(key, request.into(), std::ptr::from_mut(params).addr(), &self.machine) };
        if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(()) }
    }
    unsafe fn map(&self, fd: BorrowedFd<'_>, at: NonNull<c_void>, len: NonZeroUsize) -> io::Result<()> {
        let key = FileKey::of(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let offset = at.as_ptr().expose_provenance() as i64;
        let how = Mapping { may_write: true, is_shared: true, is_fixed: true, offset };
        // SAFETY: our caller's own mapping.
        let outcome = unsafe { self.uvm.map(key, offset.cast_unsigned(), len.get() as u64, how) };
        if outcome < 0 { Err(io::Error::from_raw_os_error(-outcome)) } else { Ok(()) }
    }
}

/// A program with managed memory, all of it on the GPU, whose words are their own numbers.
struct Program {
    kernel: Arc<Emulated>,
    space: Arc<VaSpace>,
    /// Keeps the queue.
    _bridge: Bridge,
    base: u64,
}

impl Program {
    fn start(branch: u16, line: &str) -> Self {
        static USED: AtomicU64 = AtomicU64::new(0);
        let config = Config::parse(line, &deepum_model::Profile::NAMES).unwrap();
        let skip = Bytes::gib(4 * USED.fetch_add(1, Ordering::Relaxed));
        let machine = Machine::with_space_from(config, None, skip).unwrap();
        let uvm = Uvm::new(branch, 1);
        let sink = uvm.sink();
        machine
            .look(|state| {
                state.sink = Some(sink);
                Ok(())
            })
            .unwrap();
        let (file, peer) = UnixStream::pair().unwrap();
        uvm.open(Node::Uvm, FileKey::of(file.as_raw_fd()).unwrap(), peer.into());
        let memory = machine.call(Cost::Call, |c| c.allocate(Kind::Managed, GPU, Bytes(BLOCKS * BLOCK), 0)).unwrap();
        let kernel = Arc::new(Emulated { uvm, machine, branch, file: file.into(), asked: AtomicU64::new(0) });
        // As libcuda does.
        let mut params = Params::default();
        // SAFETY: no address among the parameters.
        unsafe { kernel.ioctl(std::os::fd::AsFd::as_fd(&kernel.file), 0x3000_0001, &mut params) }.unwrap();
        assert_eq!(params.u32(8), 0);
        let gpus = [Gpu { id: GPU, uuid: Uuid(gpu_uuid(GPU)) }];
        let bridge = Bridge::open(Arc::clone(&kernel) as Arc<dyn Kernel>, &gpus, 1024);
        assert!(bridge.queue.is_ok(), "{bridge:?}");
        let space = Arc::clone(bridge.va_space.as_ref().unwrap());
        let program = Self { kernel, space, _bridge: bridge, base: memory.range.start.0 };
        let words: Vec<u64> = (0..BLOCKS * BLOCK / 8).collect();
        program.copy(program.base, words.as_ptr().expose_provenance() as u64);
        program.space.migrate(program.blocks(0, BLOCKS), Place::Device(GPU)).unwrap();
        assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
        program
    }

    fn call<R>(&self, f: impl FnOnce(&mut Call<'_>) -> CuResult<R>) -> R {
        self.kernel.machine.call(Cost::Call, f).unwrap()
    }

    fn copy(&self, dst: u64, src: u64) {
        let bytes = BLOCKS * BLOCK;
        let copy = Copy {
            dst: DevAddr(dst),
            dst_pitch: bytes,
            src: DevAddr(src),
            src_pitch: bytes,
            width: bytes,
            height: 1,
            direction: Direction::OnHost,
            staged: None,
        };
        self.call(|c| {
            let stream = c.state.contexts.primary(GPU)?.legacy;
            c.copy(stream, copy, Return::Late)
        });
    }

    /// Whether every word is still its own number.
    fn intact(&self) -> bool {
        let words = vec![0u64; usize::try_from(BLOCKS * BLOCK / 8).unwrap()];
        let mut words = words.into_boxed_slice();
        self.copy(words.as_mut_ptr().expose_provenance() as u64, self.base);
        words.iter().enumerate().all(|(at, word)| *word == at as u64)
    }

    fn blocks(&self, first: u64, count: u64) -> AddrRange {
        AddrRange::new(DevAddr(self.base + first * BLOCK), Bytes(count * BLOCK))
    }

    /// The blocks of which `pages` says that there are any.
    fn having(&self, pages: impl Fn(&deepum_model::UnifiedMemory, UmBlock) -> u32) -> Vec<u64> {
        let first = UmBlock::containing(DevAddr(self.base)).0;
        let count = |n| self.kernel.machine.look(|state| Ok(pages(&state.memory, UmBlock(first + n)))).unwrap();
        (0..BLOCKS).filter(|n| count(*n) > 0).collect()
    }
    fn on_gpu(&self) -> Vec<u64> {
        self.having(|memory, block| memory.pages_at(Place::Device(GPU), block).count())
    }
    fn preferred(&self) -> Vec<u64> {
        self.having(|memory, block| (memory.preferred(block) == Some(Place::Host)).into())
    }
    fn mapped(&self) -> Vec<u64> {
        self.having(|memory, block| memory.mapped_on_host(block).count())
    }
}

#[test]
fn a_range_leaves_unmapped_and_unchanged_and_comes_back() {
    for branch in [535, 550, 560, 580, 595] {
        let program = Program::start(branch, "v100-32g:data=1");
        let stay = program.space.stay().unwrap();
        program.space.leave(program.blocks(1, 3), stay).unwrap();
        assert_eq!((program.on_gpu(), program.mapped()), (vec![0, 4, 5], vec![]), "driver {branch}");
        // Nothing is left in the group, nor preferred on the host.
        program.space.migrate(program.blocks(0, BLOCKS), Place::Device(GPU)).unwrap();
        assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
        program.space.migrate(program.blocks(2, 1), Place::Host).unwrap();
        assert_eq!(program.mapped(), [2], "the other way is not unmapped");
        program.space.leave(program.blocks(0, 3), stay).unwrap();
        assert_eq!((program.on_gpu(), program.mapped()), (vec![3, 4, 5], vec![]));
        assert!(program.intact(), "driver {branch}");
    }
}

#[test]
fn a_preference_that_is_kept_holds_nobody_on_the_host() {
    for branch in [535, 550, 560, 580, 595] {
        let program = Program::start(branch, "v100-32g:data=1");
        let stay = program.space.stay().unwrap();
        for _ in 0..2 {
            program.space.leave_preferred(program.blocks(1, 3), stay).unwrap();
            assert_eq!((program.on_gpu(), program.mapped()), (vec![0, 4, 5], vec![]), "driver {branch}");
            program.space.migrate(program.blocks(0, BLOCKS), Place::Device(GPU)).unwrap();
            assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
        }
        program.space.forget_preference(program.blocks(0, BLOCKS)).unwrap();
        program.space.leave(program.blocks(0, 3), stay).unwrap();
        assert_eq!((program.on_gpu(), program.mapped()), (vec![3, 4, 5], vec![]));
        assert!(program.intact(), "driver {branch}");
    }
}

#[test]
fn what_left_before_leaves_again_and_what_did_not_is_told_of() {
    for branch in [535, 550, 560, 580, 595] {
        let program = Program::start(branch, "v100-32g:data=1");
        let stay = program.space.stay().unwrap();
        program.space.leave_preferred(program.blocks(1, 2), stay).unwrap();
        program.space.migrate(program.blocks(0, BLOCKS), Place::Device(GPU)).unwrap();
        let before = program.kernel.asked();
        program.space.leave_again(program.blocks(1, 2), stay).unwrap();
        assert_eq!(program.kernel.asked() - before, 2, "into the group and out of it");
        assert_eq!((program.on_gpu(), program.mapped()), (vec![0, 3, 4, 5], vec![]), "driver {branch}");
        // As if 3 had been freed since, and given out anew.
        program.space.leave_again(program.blocks(2, 2), stay).unwrap();
        assert_eq!((program.on_gpu(), program.preferred()), (vec![0, 4, 5], vec![1, 2, 3]), "driver {branch}");
        program.space.migrate(program.blocks(0, BLOCKS), Place::Device(GPU)).unwrap();
        assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5], "nothing is left in the group");
        assert!(program.intact(), "driver {branch}");
    }
}

#[test]
fn preferences_are_taken_back_wherever_their_blocks_are_and_of_what_is_left_of_them() {
    let program = Program::start(580, "v100-32g");
    let stay = program.space.stay().unwrap();
    program.space.leave_preferred(program.blocks(0, 2), stay).unwrap();
    program.space.leave_preferred(program.blocks(3, 3), stay).unwrap();
    program.space.migrate(program.blocks(1, 3), Place::Device(GPU)).unwrap();
    assert_eq!(program.preferred(), [0, 1, 3, 4, 5]);
    let first = UmBlock::containing(DevAddr(program.base)).0;
    // One that is none, as if it had been freed, and one of which nothing was told.
    let told = [0, 1, 3, 4, 6, 7].map(|n| UmBlock(first + n));
    program.space.forget_preferences(&BTreeSet::from(told));
    assert_eq!(program.preferred(), [5]);
}

#[test]
fn what_goes_home_is_there_and_mapped_when_the_call_returns() {
    for branch in [535, 550, 560, 580, 595] {
        let program = Program::start(branch, "v100-32g:data=1");
        program.space.migrate_home(program.blocks(1, 3)).unwrap();
        assert_eq!((program.on_gpu(), program.mapped()), (vec![0, 4, 5], vec![1, 2, 3]), "driver {branch}");
        assert!(program.intact(), "driver {branch}");
    }
}

#[test]
fn what_comes_is_known_to_be_there_by_a_word() {
    for branch in [535, 550, 560, 580, 595] {
        let program = Program::start(branch, "v100-32g:data=1");
        let (stay, pool) = (program.space.stay().unwrap(), program.space.semaphores().unwrap());
        let waited = Cell::new(0);
        let wait = |word: Word<'_>| {
            assert!(!word.is_written(), "the copy takes longer than the call");
            program.kernel.machine.await_word(word.address());
            waited.set(waited.get() + 1);
            word.is_written()
        };
        let all = program.blocks(0, BLOCKS);
        for count in 1..=BLOCKS {
            program.space.leave(program.blocks(0, count), stay).unwrap();
            let came = program.space.migrate_with(program.blocks(0, count), GPU, &pool, true, wait);
            assert_eq!((came.unwrap(), waited.get()), (true, count), "driver {branch}, {count} blocks");
            assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
        }
        // The driver's own call waits where a word is not written in time.
        program.space.leave(all, stay).unwrap();
        assert!(!program.space.migrate_with(all, GPU, &pool, true, |_| false).unwrap());
        assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
        assert!(program.intact(), "driver {branch}");
        // And says why nothing comes.
        let freed = AddrRange::new(DevAddr(program.base + BLOCKS * BLOCK), Bytes(BLOCK));
        let error = program.space.migrate_with(freed, GPU, &pool, true, |_| unreachable!()).unwrap_err();
        assert!(matches!(error.why, MigrateFailure::NotManaged), "{error}");
    }
}

#[test]
fn a_driver_that_is_not_known_is_not_asked_for_words() {
    let program = Program::start(600, "v100-32g");
    assert!(matches!(program.space.semaphores(), Err(NoSemaphores::Unknown)));
}

#[test]
fn words_are_taken_in_turn_for_ever() {
    let program = Program::start(580, "v100-32g");
    let pool = program.space.semaphores().unwrap();
    // More calls than a page has words, of what is there: each is over at once.
    let mut words = BTreeSet::new();
    for n in 0..1100u32 {
        let wait = |word: Word<'_>| {
            program.kernel.machine.await_word(word.address());
            word.is_written()
        };
        let seen = Cell::new(0);
        let came = program.space.migrate_with(program.blocks(0, 1), GPU, &pool, false, |word| {
            seen.set(word.address());
            wait(word)
        });
        assert!(came.unwrap(), "{n}");
        words.insert(seen.get());
    }
    assert_eq!(words.len(), 1024);
    assert_eq!(words.last().unwrap() - words.first().unwrap(), 4092);
}

#[test]
fn groups_are_several_and_each_serves_any_range() {
    let program = Program::start(580, "v100-32g:data=1");
    let groups = [program.space.stay().unwrap(), program.space.stay().unwrap()];
    assert_ne!(groups[0], groups[1]);
    for (block, stay) in [(0, 0), (1, 1), (2, 0), (0, 1)] {
        program.space.leave(program.blocks(block, 1), groups[stay]).unwrap();
    }
    assert_eq!(program.on_gpu(), [3, 4, 5]);
    assert!(program.intact());
}

#[test]
fn a_range_that_fails_to_leave_is_in_no_group_afterwards() {
    // Room for one block and a half on the host.
    let program = Program::start(580, "v100-32g:data=1,host=3MiB");
    let stay = program.space.stay().unwrap();
    let error = program.space.leave(program.blocks(0, 2), stay).unwrap_err();
    assert!(matches!(error.why, MigrateFailure::NoMemory), "{error}");
    assert_eq!(program.on_gpu(), [1, 2, 3, 4, 5], "part of it has moved");
    program.space.migrate(program.blocks(0, 2), Place::Device(GPU)).unwrap();
    assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5], "who is in the group would have been passed by");
    assert!(program.intact());
}

#[test]
fn what_is_not_managed_does_not_leave_and_takes_nothing_with_it() {
    let program = Program::start(580, "v100-32g:data=1");
    let stay = program.space.stay().unwrap();
    let error = program.space.leave(program.blocks(BLOCKS - 1, 2), stay).unwrap_err();
    assert!(matches!(error.why, MigrateFailure::NotManaged), "{error}");
    assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn who_was_left_in_a_group_is_taken_out_and_moves() {
    let program = Program::start(580, "v100-32g:data=1");
    let stay = program.space.stay().unwrap();
    let space = &program.space;
    space.leave(program.blocks(0, 1), stay).unwrap();
    // As if the process had died between two of the requests of `leave`.
    let (base, len) = (program.blocks(0, 1).start.0, BLOCK);
    for (request, at, status) in [(42, [0, 8, 16, 24], 36), (31, [8, 16, 0, 0], 24)] {
        let mut params = Params::default();
        params.put_u64(at[0], base);
        params.put_u64(at[1], len);
        if request == 42 {
            params.put_uuid(at[2], Uuid::CPU);
        } else {
            params.put_u64(0, 1);
        }
        // SAFETY: the only address is of managed memory, and no byte of it changes.
        unsafe { program.kernel.ioctl(std::os::fd::AsFd::as_fd(&program.kernel.file), request, &mut params) }.unwrap();
        assert_eq!(params.u32(status), 0, "{request}");
    }
    space.migrate(program.blocks(0, 2), Place::Device(GPU)).unwrap();
    assert_eq!(program.on_gpu(), [0, 1, 2, 3, 4, 5]);
    assert!(program.intact());
}
