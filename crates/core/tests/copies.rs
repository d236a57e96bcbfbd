//! Two copies of a block: what the core makes of them, by hand. Five blocks, of which 1 is on the GPU.

mod world;

use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch, Migration, MigrationCause};
use deepum_core::policy::PolicyName;
use deepum_core::queues::{Batch, Hand, Lane, Queues};
use deepum_core::steps::{Step, Way};
use deepum_core::units::{
    AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, Place, StreamSlot, UmBlock,
};
use world::DEVICE;
use world::told::{Say, Told};

const SIZE: u64 = UmBlock::SIZE.0;
const ONE: UmBlock = UmBlock(1);

struct Scene {
    engine: Engine,
    queues: Queues,
    told: Told,
    seq: u64,
}

impl Scene {
    fn new(saving: bool) -> Self {
        let told = Told::default();
        let config = Config { saving, ..Config::new(PolicyName::Demand, Bytes(4 * SIZE)) };
        let engine = Engine::deciding(config, Box::new(told.clone()));
        let mut scene = Self { engine, queues: Queues::default(), told, seq: 0 };
        scene.tell(Event::Alloc { range: AddrRange::new(DevAddr(0), Bytes(5 * SIZE)) });
        scene.tell(Event::MoveDone { block: ONE, to: DEVICE, ok: true });
        scene
    }
    fn tell(&mut self, event: Event<'_>) {
        self.engine.step(&event, &mut self.queues);
    }
    fn say(&mut self, say: Say) {
        self.told.say.lock().unwrap().push(say);
        self.seq += 1;
        let (seq, stream, key) = (LaunchSeq(self.seq), StreamSlot(0), LaunchKey(1));
        self.tell(Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &[] }));
    }
    fn fault(&mut self, write: bool) {
        self.tell(Event::Fault(Fault { block: ONE, batch: 1, entries: 2, write, at: Nanos::ZERO }));
    }
    fn moved(&mut self, to: Place, cause: MigrationCause) {
        let from = if to == DEVICE { Place::Host } else { DEVICE };
        let (bytes, at) = (UmBlock::SIZE, Nanos::ZERO);
        self.tell(Event::Migrated(Migration { block: ONE, bytes, from, to, cause, at }));
    }
    /// The mover takes the next batch, and is done with it well.
    fn carry_out(&mut self) -> (Lane, Way) {
        let batch = world::pop(&mut self.queues, 16).expect("something waits");
        self.ends(batch, true);
        (batch.lane, batch.way)
    }
    fn ends(&mut self, batch: Batch, ok: bool) {
        if ok {
            batch.blocks().for_each(|block| Hand::ALL.into_iter().for_each(|hand| self.queues.moved(hand, block)));
        }
        Hand::ALL.into_iter().for_each(|hand| self.queues.done(hand));
        for block in batch.blocks() {
            self.tell(match batch.lane {
                Lane::Save => Event::Saved { block, ok },
                Lane::Drop | Lane::Evict => Event::MoveDone { block, to: Place::Host, ok },
                _ => Event::MoveDone { block, to: DEVICE, ok },
            });
        }
    }
    /// Asks for it, and sees it done.
    fn done(&mut self, say: Say) -> (Lane, Way) {
        self.say(say);
        self.carry_out()
    }
    fn on_device(&self) -> u64 {
        self.engine.snapshot().on_device.get() / SIZE
    }
}

#[test]
fn a_saved_block_stays_and_is_dropped_without_a_copy_and_its_bytes_are_spared() {
    let mut scene = Scene::new(true);
    assert_eq!(scene.done(Say::Save(1)), (Lane::Save, Way::Move));
    assert_eq!(scene.on_device(), 1);
    assert_eq!(scene.done(Say::Drop(1)).0, Lane::Drop);
    assert_eq!((scene.on_device(), scene.engine.counters().bytes_spared), (0, SIZE));
    let counters = scene.engine.counters();
    assert_eq!((counters.saves_asked, counters.saved, counters.drops_asked, counters.dropped), (1, 1, 1, 1));
}

#[test]
fn nothing_is_asked_of_a_driver_that_cannot() {
    let mut scene = Scene::new(false);
    for say in [Say::Save(1), Say::Drop(1), Say::Own(1)] {
        scene.say(say);
    }
    assert_eq!(*scene.told.asked.lock().unwrap(), [false; 3]);
    assert!(scene.queues.is_empty());
    let mut scene = Scene::new(true);
    scene.tell(Event::FaultSource { up: false });
    scene.say(Say::Save(1));
    assert_eq!(*scene.told.asked.lock().unwrap(), [false], "nobody would hear that it was written");
}

#[test]
fn what_the_calls_copy_to_the_host_has_not_left() {
    let mut scene = Scene::new(true);
    scene.say(Say::Save(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    scene.moved(Place::Host, MigrationCause::User);
    assert_eq!(scene.on_device(), 1);
    scene.ends(batch, true);
    scene.moved(Place::Host, MigrationCause::Eviction);
    assert_eq!(scene.on_device(), 0, "but what the driver evicts has");
}

#[test]
fn a_write_to_a_saved_block_is_no_miss_and_costs_the_save() {
    let mut scene = Scene::new(true);
    scene.done(Say::Save(1));
    scene.fault(false);
    assert_eq!(scene.on_device(), 1, "a read is a miss: it had been evicted, and comes again");
    scene.done(Say::Save(1));
    scene.tell(Event::MoveDone { block: ONE, to: DEVICE, ok: true });
    (0..2).for_each(|_| scene.fault(true));
    assert_eq!(*scene.told.overwritten.lock().unwrap(), [1, 1]);
    assert_eq!((scene.on_device(), scene.engine.counters().saves_lost), (1, 1), "lost once");
    scene.done(Say::Drop(1));
    assert_eq!(scene.engine.counters().bytes_spared, 0, "not all of it was saved");
}

#[test]
fn a_block_written_while_it_is_saved_is_not_saved() {
    let mut scene = Scene::new(true);
    scene.say(Say::Save(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    scene.fault(true);
    scene.ends(batch, true);
    scene.done(Say::Drop(1));
    let counters = scene.engine.counters();
    assert_eq!((counters.saved, counters.saves_lost, counters.bytes_spared), (1, 1, 0));
}

#[test]
fn a_write_that_brings_bytes_was_a_miss_after_all() {
    let mut scene = Scene::new(true);
    scene.done(Say::Save(1));
    scene.fault(true);
    scene.moved(DEVICE, MigrationCause::Coherence);
    scene.moved(Place::Host, MigrationCause::Coherence);
    assert_eq!(scene.on_device(), 0, "one batch had come of it, and left");
}

#[test]
fn a_fetched_block_is_saved_again_and_an_owned_one_is_not() {
    let mut scene = Scene::new(true);
    scene.done(Say::Save(1));
    scene.done(Say::Drop(1));
    scene.tell(Event::MoveDone { block: ONE, to: DEVICE, ok: true });
    scene.done(Say::Drop(1));
    assert_eq!(scene.engine.counters().bytes_spared, 2 * SIZE);
    assert_eq!(scene.done(Say::Own(1)), (Lane::Predicted, Way::OwnAway));
    assert_eq!((scene.on_device(), scene.engine.counters().owned), (1, 1));
    scene.done(Say::Save(1));
    assert_eq!(scene.done(Say::Own(1)), (Lane::Predicted, Way::OwnThere));
    assert_eq!(scene.done(Say::Own(1)), (Lane::Predicted, Way::Move), "it has one copy");
    scene.fault(true);
    assert!(scene.told.overwritten.lock().unwrap().is_empty(), "nobody else had a copy");
}

#[test]
fn a_save_gives_way_to_everything_and_an_own_to_a_fetch_that_goes_on() {
    let mut scene = Scene::new(true);
    scene.say(Say::Save(1));
    scene.say(Say::Drop(1));
    scene.say(Say::Save(1));
    assert_eq!(
        scene.carry_out(),
        (Lane::Evict, Way::Keep),
        "the second save was refused, and the first did not come about"
    );
    assert!(scene.queues.is_empty());
    scene.say(Say::Own(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    scene.say(Say::Own(1));
    scene.ends(batch, true);
    assert_eq!(
        scene.engine.counters().owned,
        0,
        "what was asked last was refused, and which of them ended is not known"
    );
    assert_eq!(scene.done(Say::Own(1)), (Lane::Predicted, Way::Move), "but the queues know");
}

#[test]
fn freed_memory_takes_back_what_waits_for_it() {
    let mut scene = Scene::new(true);
    scene.say(Say::Save(1));
    scene.say(Say::Own(2));
    scene.tell(Event::Free { range: AddrRange::new(DevAddr(0), Bytes(5 * SIZE)) });
    assert!(scene.queues.is_empty());
}

#[test]
fn each_way_has_its_calls_and_what_fails_is_taken_to_have_two_copies() {
    use Step::{Duplicate, ToHost};
    let mut scene = Scene::new(true);
    scene.say(Say::Save(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    assert_eq!(batch.steps(), [Duplicate(true), ToHost]);
    scene.ends(batch, false);
    assert_eq!(scene.engine.counters().moves_failed, 1);
    scene.say(Say::Drop(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    assert_eq!(batch.steps(), [Duplicate(false), ToHost, Duplicate(true)]);
    scene.ends(batch, true);
    assert_eq!(scene.engine.counters().bytes_spared, 0, "it was not saved");
    scene.say(Say::Own(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    assert_eq!(batch.steps(), [Duplicate(false), Step::ToDevice]);
    scene.ends(batch, false);
    scene.say(Say::Own(1));
    let batch = world::pop(&mut scene.queues, 16).unwrap();
    assert_eq!(batch.way, Way::OwnAway, "the mode may be on still");
}
