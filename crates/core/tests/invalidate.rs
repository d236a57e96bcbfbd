//! Whose contents may be given up, and whose not: scenes of a few blocks, by hand.
//!
//! A budget of four blocks is full with the blocks 0 to 3, each a PT block of its own; block 9 faults, and somebody must leave.

mod world;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{DiscardOutcome, Event, Fault, Launch};
use deepum_core::invalidate::Invalidate;
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Lane, Queues};
use deepum_core::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, StreamSlot, UmBlock};
use world::DEVICE;

const SIZE: u64 = UmBlock::SIZE.0;

struct Scene {
    engine: Engine,
    queues: Queues,
}

impl Scene {
    fn new(invalidate: Invalidate) -> Self {
        let config = Config { budget: Bytes(4 * SIZE), invalidate, ..Config::new(PolicyName::Deepum, Bytes(8 * SIZE)) };
        let mut scene = Self { engine: Engine::new(config), queues: Queues::default() };
        scene.tell(Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(10 * SIZE)) });
        for block in 0..4 {
            scene.pt(block, true);
            scene.tell(Event::MoveDone { block: UmBlock(block), to: DEVICE, ok: true });
        }
        scene
    }
    fn tell(&mut self, event: Event<'_>) {
        self.engine.step(&event, &mut self.queues);
    }
    fn pt(&mut self, block: u64, active: bool) {
        self.tell(Event::PtBlock { range: UmBlock(block).range(), active });
    }
    /// A launch on the stream, given this block.
    fn launch(&mut self, seq: u64, stream: u16, block: u64) {
        let pointers = [UmBlock(block).start()];
        let stream = StreamSlot(stream);
        self.tell(Event::Launch(Launch {
            seq: LaunchSeq(seq),
            stream,
            key: LaunchKey(seq),
            kernel: KernelId(0),
            pointers: &pointers,
        }));
    }
    fn done(&mut self, seq: u64, stream: u16) {
        self.tell(Event::Progress { stream: StreamSlot(stream), done: LaunchSeq(seq) });
    }
    /// Block 9 faults: who is asked to leave for it, and how.
    fn leaves(&mut self) -> Option<(Lane, u64)> {
        let fault = Fault { block: UmBlock(9), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
        self.tell(Event::Fault(fault));
        let batch = world::pop(&mut self.queues, 16)?;
        assert_eq!(batch.count, 1);
        batch.lane.direction().eq(&Lane::Evict.direction()).then_some((batch.lane, batch.first.0))
    }
}

#[test]
fn a_dead_block_whose_users_are_finished_is_given_up_before_an_older_one_is_evicted() {
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, 0, 2);
    scene.pt(2, false);
    scene.done(1, 0);
    assert_eq!(scene.leaves(), Some((Lane::Discard, 2)));
    scene.tell(Event::Discarded { block: UmBlock(2), outcome: DiscardOutcome::Done });
    assert_eq!(scene.engine.snapshot().on_device, Bytes(4 * SIZE), "2 is gone, 9 is there");
    assert_eq!(scene.engine.counters().bytes_spared, SIZE);
}

#[test]
fn without_a_driver_that_can_the_dead_block_is_evicted_first_and_where_nothing_is_to_be_done_the_oldest() {
    for (invalidate, expected) in [(Invalidate::EvictFirst, 2), (Invalidate::No, 0)] {
        let mut scene = Scene::new(invalidate);
        scene.launch(1, 0, 2);
        scene.pt(2, false);
        scene.done(1, 0);
        assert_eq!(scene.leaves(), Some((Lane::Evict, expected)), "{invalidate:?}");
    }
}

#[test]
fn a_user_on_another_stream_or_a_copy_keeps_the_contents() {
    for copy in [false, true] {
        let mut scene = Scene::new(Invalidate::Discard);
        scene.launch(1, 0, 2);
        match copy {
            false => scene.launch(2, 1, 2),
            true => scene.tell(Event::Copy {
                seq: LaunchSeq(2),
                stream: StreamSlot(1),
                range: UmBlock(2).range(),
                write: false,
            }),
        }
        scene.pt(2, false);
        scene.done(1, 0);
        assert_eq!(scene.leaves(), Some((Lane::Evict, 0)), "a copy: {copy}");
        scene.done(2, 1);
        scene.tell(Event::MoveDone { block: UmBlock(0), to: deepum_core::units::Place::Host, ok: true });
        let fault = Fault { block: UmBlock(8), batch: 2, entries: 1, write: false, at: Nanos::ZERO };
        scene.tell(Event::Fault(fault));
        assert_eq!(scene.queues.waiting(Lane::Discard), 1, "a copy: {copy}");
    }
}

#[test]
fn a_block_half_of_which_holds_a_tensor_is_not_dead() {
    let mut scene = Scene::new(Invalidate::Discard);
    let half = |n: u64| AddrRange::new(DevAddr(2 * SIZE + n * SIZE / 2), Bytes(SIZE / 2));
    for n in [0, 1] {
        scene.tell(Event::PtBlock { range: half(n), active: true });
    }
    scene.launch(1, 0, 2);
    scene.tell(Event::PtBlock { range: half(0), active: false });
    scene.done(1, 0);
    assert_eq!(scene.leaves(), Some((Lane::Evict, 0)));
}

#[test]
fn handed_out_again_it_stays() {
    // Before anybody is asked to leave, and after.
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, 0, 2);
    scene.pt(2, false);
    scene.done(1, 0);
    scene.pt(2, true);
    assert_eq!(scene.leaves(), Some((Lane::Evict, 0)));

    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, 0, 2);
    scene.pt(2, false);
    scene.done(1, 0);
    let fault = Fault { block: UmBlock(9), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
    scene.tell(Event::Fault(fault));
    assert_eq!(scene.queues.waiting(Lane::Discard), 1);
    scene.pt(2, true);
    assert_eq!((scene.queues.waiting(Lane::Discard), scene.engine.counters().discards_cancelled), (0, 1));
    assert_eq!(scene.queues.waiting(Lane::Evict), 1, "somebody else must leave");
}

/// Launches that nobody told of may still be under way: of them only a new hand-out says that they are over.
#[test]
fn launches_that_nobody_told_of_keep_what_was_handed_out_before_them() {
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(4, 0, 3);
    scene.pt(2, false);
    scene.done(4, 0);
    assert_eq!(scene.leaves(), Some((Lane::Evict, 0)), "1 to 3 may use it");

    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(4, 0, 3);
    scene.pt(2, true);
    scene.launch(5, 0, 2);
    scene.pt(2, false);
    scene.done(5, 0);
    assert_eq!(scene.leaves(), Some((Lane::Discard, 2)));

    // Issued and never told, after the last that was.
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, 0, 2);
    scene.tell(Event::Issued { seq: LaunchSeq(2) });
    scene.pt(2, false);
    scene.done(1, 0);
    assert_eq!(scene.leaves(), Some((Lane::Evict, 0)), "2 may use it");

    // A stream that reports no progress.
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, StreamSlot::NONE.0, 2);
    scene.pt(2, false);
    scene.launch(2, 0, 3);
    scene.done(2, 0);
    assert_eq!(scene.leaves(), Some((Lane::Evict, 0)), "nobody knows when 1 ends");
}

#[test]
fn what_died_while_it_was_away_is_given_up_at_once_and_comes_back_without_a_copy() {
    let mut scene = Scene::new(Invalidate::Discard);
    scene.launch(1, 0, 2);
    scene.tell(Event::MoveDone { block: UmBlock(2), to: deepum_core::units::Place::Host, ok: true });
    scene.pt(2, false);
    assert_eq!(scene.queues.waiting(Lane::Discard), 0);
    scene.done(1, 0);
    assert_eq!(scene.queues.waiting(Lane::Discard), 1);
    scene.tell(Event::Discarded { block: UmBlock(2), outcome: DiscardOutcome::Done });
    assert_eq!(scene.engine.counters().bytes_spared, 0, "nothing left the GPU");
    scene.pt(2, true);
    scene.pt(2, false);
    scene.launch(2, 0, 3);
    scene.done(2, 0);
    assert_eq!(scene.engine.counters().discard_asked, 1, "it is empty already");
}

#[test]
fn a_smaller_budget_is_kept_at_once_and_a_larger_one_is_used() {
    let mut scene = Scene::new(Invalidate::Discard);
    scene.tell(Event::Budget { bytes: Bytes(2 * SIZE) });
    assert_eq!(scene.queues.waiting(Lane::Evict), 2);
    assert_eq!(scene.engine.snapshot().budget, Bytes(2 * SIZE));
    scene.tell(Event::Budget { bytes: Bytes(100 * SIZE) });
    assert_eq!(scene.engine.snapshot().budget, Bytes(8 * SIZE), "the GPU has no more");
    let asked = scene.engine.counters().evict_asked;
    let fault = Fault { block: UmBlock(9), batch: 1, entries: 1, write: false, at: Nanos::ZERO };
    scene.tell(Event::Fault(fault));
    assert_eq!(scene.engine.counters().evict_asked, asked, "at the GPU's memory the driver evicts");
}

#[test]
fn what_nobody_told_of_keeps_the_contents_until_all_is_over() {
    for over in [None, Some(1), Some(3)] {
        let mut scene = Scene::new(Invalidate::Discard);
        scene.launch(1, 0, 2);
        scene.launch(3, 0, 3);
        scene.pt(2, false);
        scene.done(3, 0);
        if let Some(seq) = over {
            scene.tell(Event::Over { seq: LaunchSeq(seq) });
        }
        let expected = if over == Some(3) { (Lane::Discard, 2) } else { (Lane::Evict, 0) };
        assert_eq!(scene.leaves(), Some(expected), "launch 2 may read it: {over:?}");
    }
}
