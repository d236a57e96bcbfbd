//! The device stands still for an engine: a small one, with three threads, that answers each fault by fetching the next block,
//! and by moving out or giving up one that was touched before.

mod common;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use common::*;
use deepum_core::units::{Place, UmBlock};
use deepum_emu_device::error::CuError;
use deepum_emu_device::hands::Hand;
use deepum_emu_device::machine::{Machine, NoticeSink};
use deepum_emu_device::pace::DeepumHooks;
use deepum_emu_device::space::Kind;
use deepum_emu_device::uvm::Semaphore;
use deepum_model::Notice;

static PENDING: AtomicU32 = AtomicU32::new(0);
static NUDGES: AtomicU64 = AtomicU64::new(0);
static WAKE: OnceLock<Mutex<Option<Sender<()>>>> = OnceLock::new();
/// One machine at a time drives: the hooks are functions without state.
static ONE: Mutex<()> = Mutex::new(());
thread_local!(static OURS: Cell<bool> = const { Cell::new(false) });

unsafe extern "C" fn nudge() {
    PENDING.fetch_add(1, Ordering::SeqCst);
    NUDGES.fetch_add(1, Ordering::SeqCst);
    let wake = WAKE.get().unwrap().lock().unwrap();
    wake.as_ref().unwrap().send(()).unwrap();
}
unsafe extern "C" fn is_ours() -> c_int {
    c_int::from(OURS.get())
}
unsafe extern "C" fn names_block_of(seq: u64, blocks: *mut u64, cap: usize) -> usize {
    assert!(cap > 0);
    // SAFETY: room for `cap` numbers, by the contract.
    unsafe { *blocks = seq };
    1
}

fn hooks(nudge: unsafe extern "C" fn()) -> DeepumHooks {
    DeepumHooks {
        abi: 3,
        reserved: 0,
        pending: &raw const PENDING,
        nudge: Some(nudge),
        is_engine_thread: Some(is_ours),
        may_touch: None,
        given_up: None,
    }
}

type Shared = Arc<Mutex<VecDeque<UmBlock>>>;

struct Sink(Shared);
impl NoticeSink for Sink {
    fn wanted(&self) -> bool {
        true
    }
    fn put(&mut self, notice: &Notice) {
        if let Notice::GpuFault { block, .. } = notice {
            self.0.lock().unwrap().push_back(*block);
        }
    }
    fn drop_one(&mut self, _: &Notice) {}
    fn release(&mut self, _: Semaphore) {}
    fn unread(&self) -> bool {
        !self.0.lock().unwrap().is_empty()
    }
}

/// What one mover is to do, and whether it is at work: together one piece of pending work.
#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    busy: bool,
}

#[derive(Clone, Copy)]
enum Job {
    Fetch(UmBlock),
    Evict(UmBlock),
    Discard(UmBlock),
}

/// What is given up, outwards, inwards.
type Desk = [Mutex<Jobs>; 3];

/// The engine's first thread: looks when it is told to. Sleeps now and then, so that its speed in real time differs
/// from run to run.
fn looker(woken: &Receiver<()>, queue: &Shared, desk: &Desk, wake: [&Sender<()>; 3], dawdle: u64) {
    OURS.set(true);
    let (mut random, mut first) = (Random(dawdle | 1), None);
    while woken.recv().is_ok() {
        if dawdle > 0 && random.below(8) == 0 {
            thread::sleep(Duration::from_micros(random.below(300)));
        }
        let faults: Vec<UmBlock> = queue.lock().unwrap().drain(..).collect();
        // Addresses differ from run to run, and what is done about a block may not.
        let dies = |block: &&UmBlock| (block.0 - *first.get_or_insert(block.0)).is_multiple_of(3);
        let (dead, leave): (Vec<UmBlock>, Vec<UmBlock>) = faults.iter().partition(dies);
        let new: [Vec<Job>; 3] = [
            dead.iter().map(|block| Job::Discard(UmBlock(block.0 - 9))).collect(),
            leave.iter().map(|block| Job::Evict(UmBlock(block.0 - 9))).collect(),
            faults.iter().map(|block| Job::Fetch(UmBlock(block.0 + 1))).collect(),
        ];
        for ((jobs, new), wake) in desk.iter().zip(new).zip(wake) {
            let mut jobs = jobs.lock().unwrap();
            jobs.waiting.extend(new);
            if !jobs.waiting.is_empty() && !jobs.busy {
                jobs.busy = true;
                PENDING.fetch_add(1, Ordering::SeqCst);
                wake.send(()).unwrap();
            }
        }
        PENDING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One of the engine's movers: one block after the other. Now and then slower than the other.
fn mover(machine: &Machine, woken: &Receiver<()>, jobs: &Mutex<Jobs>, dawdle: u64) {
    OURS.set(true);
    let mut random = Random(dawdle | 1);
    while woken.recv().is_ok() {
        loop {
            if dawdle > 0 && random.below(4) == 0 {
                thread::sleep(Duration::from_micros(random.below(200)));
            }
            let mut state = jobs.lock().unwrap();
            let Some(job) = state.waiting.pop_front() else {
                state.busy = false;
                PENDING.fetch_sub(1, Ordering::SeqCst);
                break;
            };
            drop(state);
            // Some are outside of the memory there is: refused at once.
            let _ = match job {
                Job::Fetch(block) => machine.migrate(block.range(), Place::Device(GPU), true),
                Job::Evict(block) => machine.migrate(block.range(), Place::Host, true),
                Job::Discard(block) => machine.discard(block.range(), true).inspect(|()| machine.rest()),
            };
        }
    }
}

/// Walks three times over twice the device's memory; answers the final time and the number of fault batches.
fn run(dawdle: u64, driven: bool) -> (u64, u64) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let m = machine("v100-32g:memory=64MiB,host=1GiB");
    let queue = Shared::default();
    let desk = Desk::default();
    let (wake, woken) = channel();
    *WAKE.get_or_init(Mutex::default).lock().unwrap() = Some(wake);
    let hooks = DeepumHooks { may_touch: Some(names_block_of), ..hooks(nudge) };
    let end = thread::scope(|scope| {
        if driven {
            // SAFETY: the hooks outlive every use: the machine is told to forget them below.
            assert!(unsafe { m.drive(&raw const hooks) });
            m.look(|state| {
                state.sink = Some(Box::new(Sink(queue.clone())));
                Ok(())
            })
            .unwrap();
            let (m, queue, desk) = (&m, &queue, &desk);
            let (ring_up, rung_up) = channel();
            let (ring_out, rung_out) = channel();
            let (ring_in, rung_in) = channel();
            scope.spawn(move || looker(&woken, queue, desk, [&ring_up, &ring_out, &ring_in], dawdle));
            scope.spawn(move || mover(m, &rung_up, &desk[0], dawdle * 5));
            scope.spawn(move || mover(m, &rung_out, &desk[1], dawdle * 7));
            scope.spawn(move || mover(m, &rung_in, &desk[2], dawdle * 11));
        }
        let (s, scale) = (null_stream(&m), kernel(&m, "deepum_test_scale"));
        let x = allocate(&m, Kind::Managed, 128 * MIB).unwrap();
        for part in (0..16).cycle().take(48) {
            launch(&m, s, &scale, &[x + part * 8 * MIB, 2 * MIB, 0]);
        }
        call(&m, |c| c.synchronize(GPU));
        // What the movers still have to do from here on they do by themselves, one beside the other.
        let end = host(&m).0;
        // SAFETY: null takes the hooks away again.
        assert!(unsafe { m.drive(std::ptr::null()) });
        WAKE.get().unwrap().lock().unwrap().take();
        end
    });
    let totals = m.look(|state| {
        state.sum_up(&m.pace);
        Ok(state.totals)
    });
    let totals = totals.unwrap();
    if driven {
        assert_eq!(totals.named_launches, 48);
        assert_eq!(totals.blocks_touched, 48 * 4);
        assert_eq!(totals.blocks_missed, 48 * 4, "block numbers 1 to 48 are nowhere near");
        assert_eq!(totals.blocks_exceeding, 48);
        assert!(totals.h2d_user > 0 && totals.d2h_user > 0, "the engine's migrates were carried out");
        let discarded = m.look(|state| Ok(state.memory.totals(GPU).bytes_discarded)).unwrap();
        assert!(discarded.get() > 0, "and its discards");
    }
    (end, totals.fault_batches)
}

#[test]
fn virtual_time_does_not_depend_on_how_fast_the_engine_is() {
    let (plain, plain_batches) = run(0, false);
    let first = run(0, true);
    assert!(NUDGES.load(Ordering::SeqCst) > 0);
    for dawdle in 1..6 {
        assert_eq!(run(dawdle, true), first, "dawdle {dawdle}");
    }
    assert!(
        first.1 < plain_batches && first.0 < plain,
        "fetching ahead helps: {first:?}, {:?}",
        (plain, plain_batches)
    );
}

#[test]
fn hooks_that_make_no_sense_are_refused() {
    let m = machine("v100-32g");
    let good = DeepumHooks { is_engine_thread: None, ..hooks(nudge) };
    let refused = [
        DeepumHooks { abi: 2, ..good },
        DeepumHooks { reserved: 1, ..good },
        DeepumHooks { pending: std::ptr::null(), ..good },
        DeepumHooks { nudge: None, ..good },
    ];
    for hooks in &refused {
        // SAFETY: refused hooks are not kept.
        assert!(!unsafe { m.drive(hooks) });
    }
    assert!(!m.pace.driven());
}

/// A program that waits for the end of a discard, before it uses the block again, makes no call meanwhile.
#[test]
fn a_discard_of_the_engine_ends_without_a_call_of_the_program() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let m = machine("v100-32g");
    let hooks = hooks(nudge);
    let block = UmBlock::containing(deepum_core::units::DevAddr(allocate(&m, Kind::Managed, 2 * MIB).unwrap()));
    // SAFETY: the hooks outlive the machine's use of them, which ends below.
    assert!(unsafe { m.drive(&raw const hooks) });
    let before = m.look(|state| Ok(state.now)).unwrap();
    let nowhere = thread::scope(|scope| {
        let engine = scope.spawn(|| {
            OURS.set(true);
            (0..1000).for_each(|_| m.discard(block.range(), true).unwrap());
            m.discard(UmBlock(7).range(), true)
        });
        engine.join().unwrap()
    });
    assert_eq!(nowhere, Err(CuError::InvalidValue));
    assert_eq!(m.look(|state| Ok(state.now)), Ok(before));
    // They cost their thread time all the same, and hold nobody else up.
    let over = before.0 + 1000 * m.profile.ioctl_cost.0;
    thread::scope(|scope| {
        let ticket = |of| loop {
            match m.look(|state| Ok(state.hands.next())).unwrap() {
                Some(ticket) if ticket.hand == of => break ticket,
                _ => thread::yield_now(),
            }
        };
        scope.spawn(|| {
            OURS.set(true);
            m.rest();
        });
        assert!(ticket(Hand::GiveUp).at.0 > over);
        scope.spawn(|| {
            OURS.set(true);
            m.migrate(block.range(), Place::Device(GPU), true).unwrap();
        });
        assert!(ticket(Hand::In).at.0 < over);
        // SAFETY: null takes the hooks away again, and lets the thread go.
        assert!(unsafe { m.drive(std::ptr::null()) });
    });
}

/// The machine that the next nudge takes the hooks from.
static LEAVES: AtomicPtr<Machine> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn nudge_to_an_engine_that_dies() {
    // SAFETY: null, or a machine that outlives the call that nudges.
    if let Some(machine) = unsafe { LEAVES.swap(std::ptr::null_mut(), Ordering::SeqCst).as_ref() } {
        // SAFETY: null takes the hooks away.
        assert!(unsafe { machine.drive(std::ptr::null()) });
    }
}

/// The device stands still to let a thread go, and the engine dies at that very moment: the thread is let go once, and the next engine
/// finds nobody held.
#[test]
fn an_engine_that_dies_while_its_thread_is_let_go_leaves_nobody_counted() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let m = machine("v100-32g");
    let hooks = hooks(nudge_to_an_engine_that_dies);
    let x = allocate(&m, Kind::Managed, 2 * MIB).unwrap();
    let (s, scale) = (null_stream(&m), kernel(&m, "deepum_test_scale"));
    launch(&m, s, &scale, &[x, MIB / 4, 0]);
    call(&m, |c| c.synchronize(GPU));
    let block = UmBlock::containing(deepum_core::units::DevAddr(x));
    m.look(|state| {
        state.sink = Some(Box::new(Sink(Shared::default())));
        Ok(())
    })
    .unwrap();
    // SAFETY: the hooks outlive the machine's use of them, which ends below.
    assert!(unsafe { m.drive(&raw const hooks) });
    thread::scope(|scope| {
        let engine = scope.spawn(|| {
            OURS.set(true);
            m.migrate(block.range(), Place::Host, true)
        });
        while m.look(|state| Ok(state.hands.next().is_none())).unwrap() {
            thread::yield_now();
        }
        PENDING.store(1, Ordering::SeqCst);
        LEAVES.store((&raw const m).cast_mut(), Ordering::SeqCst);
        // The engine's thread is let go once as much time has passed; the notice of the move comes first.
        call(&m, |c| c.run(deepum_emu_device::run::Until::Time(deepum_core::units::Nanos(1_000_000_000))));
        assert_eq!(engine.join().unwrap(), Ok(()));
        PENDING.store(0, Ordering::SeqCst);
    });
    assert!(LEAVES.load(Ordering::SeqCst).is_null(), "it died in between");
    assert!(!m.pace.driven() && m.pace.held() == 0, "{} held", m.pace.held());
}

#[test]
fn the_end_of_the_process_lets_held_threads_go() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let m = machine("v100-32g");
    let hooks = hooks(nudge);
    let x = allocate(&m, Kind::Managed, 2 * MIB).unwrap();
    thread::scope(|scope| {
        // SAFETY: the hooks outlive the machine's use of them, which ends below.
        assert!(unsafe { m.drive(&raw const hooks) });
        let held = scope.spawn(|| {
            OURS.set(true);
            m.migrate(UmBlock::containing(deepum_core::units::DevAddr(x)).range(), Place::Device(GPU), true)
        });
        while m.look(|state| Ok(state.hands.next().is_none())).unwrap() {
            thread::yield_now();
        }
        m.end();
        assert_eq!(held.join().unwrap(), Ok(()));
    });
    assert!(m.call(deepum_emu_device::machine::Cost::Call, |_| Ok(())).is_err(), "later calls are refused");
}
