//! When shares are told, with a clock of our own.

use super::*;
use crate::admit::Device as Kind;
use crate::room::MAKING_ROOM;
use crate::share::FLOOR;
use deepum_core::units::DeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: u64 = 1 << 20;

/// Programs at GPUs of 16 GiB.
struct World {
    programs: Programs,
    now: Instant,
    /// How often a claim was looked at.
    claims: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let claims = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&claims);
        let budget_of = move |device: &Device| {
            count.fetch_add(1, Ordering::Relaxed);
            device.memory
        };
        Self { programs: Programs::new(Box::new(budget_of)), now: Instant::now(), claims }
    }

    /// One more of this user, at these GPUs, of each of which it wants so much. Its number, and its share of the first, in MiB.
    fn join(&mut self, uid: u32, kind: Kind, gpus: &[u8], wanted: u64) -> (ProgramId, u64) {
        let device = |(id, gpu): (u8, &u8)| Device {
            id: DeviceId(id),
            uuid: [*gpu; 16],
            memory: Bytes::gib(16),
            budget: Bytes(wanted * MIB),
        };
        let hello = Hello {
            ring: Bytes::ZERO,
            page: Bytes::ZERO,
            tools: Err(String::new()),
            driven: false,
            attachment: 1,
            weight: 1,
            workload: 0,
            devices: (0..).zip(gpus).map(device).collect(),
            driver: String::new(),
            config: String::new(),
        };
        let program = Program::new(Peer { uid, gid: 1, pid: 0 }, &hello, kind, self.now);
        let (id, first) = self.programs.join(program, self.now);
        assert_eq!(first.len(), gpus.len());
        (id, first[0].get() / MIB)
    }

    /// One that wants all of a GPU.
    fn greedy(&mut self, uid: u32, gpu: u8) -> (ProgramId, u64) {
        self.join(uid, Kind::Genuine, &[gpu], 16 << 10)
    }

    /// A program has launched, and holds so many MiB on its first GPU.
    fn holds(&mut self, id: ProgramId, mib: u64) {
        let launches = self.programs.all[&id].figures[0].launches + 1;
        let mut report = Report { gpus: self.programs.all[&id].figures.clone() };
        report.gpus[0] = Figures { managed: mib * MIB, resident: 0, launches };
        self.programs.report(id, report, self.now).unwrap();
    }

    /// After so many milliseconds: who is told what share of its first GPU, in MiB.
    fn orders(&mut self, millis: u64) -> Vec<(ProgramId, u64)> {
        self.now += Duration::from_millis(millis);
        self.programs.orders(self.now).into_iter().map(|(id, shares)| (id, shares[0].get() / MIB)).collect()
    }

    fn share(&self, id: ProgramId) -> u64 {
        self.programs.all[&id].told[0].get() / MIB
    }
}

#[test]
fn a_newcomer_begins_with_its_floor_and_grows_once_there_is_room() {
    let mut world = World::new();
    let (first, share) = world.greedy(1, 1);
    assert_eq!(share, 16 << 10);
    assert_eq!((world.orders(0), world.programs.deadline()), (vec![], None));
    let (second, share) = world.greedy(2, 1);
    assert_eq!(share, FLOOR.get() / MIB);
    assert_eq!(world.orders(0), [(first, 8192)]);
    assert_eq!(world.programs.deadline(), Some(world.now + MAKING_ROOM));
    assert_eq!(world.orders(199), []);
    assert_eq!(world.orders(1), [(second, 8192)]);
    // One that comes while room is made has no part in it.
    let (third, share) = world.greedy(3, 1);
    assert_eq!(share, 64);
    world.orders(0);
    let (fourth, share) = world.greedy(4, 1);
    assert_eq!(share, 64);
    world.orders(100);
    assert_eq!((world.share(third), world.share(fourth)), (64, 64));
    world.orders(100);
    assert_eq!((world.share(third), world.share(fourth)), (4096, 64));
    world.orders(200);
    assert_eq!([first, second, third, fourth].map(|id| world.share(id)), [4096; 4]);
}

#[test]
fn a_newcomer_gets_at_once_what_was_promised_to_nobody() {
    let mut world = World::new();
    let modest = |world: &mut World, uid| world.join(uid, Kind::Genuine, &[1], 6 << 10).1;
    assert_eq!(modest(&mut world, 1), 6 << 10);
    assert_eq!(modest(&mut world, 2), 6 << 10);
    // Of the rest 4 GiB, though a third of all is its share.
    assert_eq!(modest(&mut world, 3), 4 << 10);
}

#[test]
fn what_a_program_had_is_free_when_it_leaves() {
    let mut world = World::new();
    let ((first, _), (second, _)) = (world.greedy(1, 1), world.greedy(2, 1));
    world.orders(0);
    world.orders(200);
    world.programs.leave(first);
    assert_eq!(world.orders(0), [(second, 16 << 10)]);
    // Room is made for the third when both leave.
    let (third, _) = world.greedy(3, 1);
    assert_eq!(world.orders(0), [(second, 8192)]);
    world.programs.leave(second);
    world.programs.leave(third);
    assert_eq!(world.greedy(4, 1).1, 16 << 10, "nobody is left to wait for");
}

#[test]
fn steady_shrinking_of_one_defers_nobodys_growth() {
    let mut world = World::new();
    let ((shrinks, _), (grows, _)) = (world.greedy(1, 1), world.greedy(2, 1));
    let ((there, _), (also_there, _)) = (world.greedy(3, 2), world.greedy(4, 2));
    let level = 8192;
    for round in 0..30 {
        // A little less every 100 ms, from the half that is its due on: the other wants all there is.
        let left = level - 64 * round;
        world.holds(shrinks, left);
        world.holds(grows, 40 << 10);
        world.holds(there, 40 << 10);
        world.holds(also_there, 40 << 10);
        world.orders(100);
        assert_eq!(world.share(shrinks), left);
        // What was left 400 ms ago has been taken.
        let then = level - 64 * round.saturating_sub(4);
        assert!(round < 4 || world.share(grows) >= 2 * level - then, "round {round}: {}", world.share(grows));
        assert!(round < 2 || (world.share(there), world.share(also_there)) == (8192, 8192), "round {round}");
    }
}

#[test]
fn gpus_do_not_wait_for_each_other() {
    let mut world = World::new();
    let ((here, _), (there, _)) = (world.greedy(1, 1), world.join(1, Kind::Genuine, &[2], 16 << 10));
    world.orders(0);
    // Room is made here until 200.
    world.greedy(2, 1);
    assert_eq!(world.orders(0), [(here, 8192)]);
    let (other, _) = world.greedy(2, 2);
    assert_eq!(world.orders(150), [(there, 8192)]);
    assert_eq!(world.orders(50).len(), 1, "the one here");
    assert_eq!(world.share(other), 64);
    assert_eq!(world.orders(150), [(other, 8192)]);
}

#[test]
fn a_made_up_device_does_not_compete_with_a_real_one_of_its_name() {
    let mut world = World::new();
    let (real, _) = world.greedy(1, 1);
    assert_eq!(world.join(2, Kind::Emulated, &[1], 16 << 10).1, 16 << 10);
    assert_eq!(world.orders(0), []);
    assert_eq!(world.orders(10_000), []);
    assert_eq!(world.share(real), 16 << 10);
}

#[test]
fn who_falls_idle_gives_way_and_gets_its_part_back_when_it_launches() {
    let mut world = World::new();
    let ((first, _), (second, _)) = (world.greedy(1, 1), world.greedy(2, 1));
    for id in [first, second] {
        world.holds(id, 40 << 10);
    }
    world.orders(0);
    world.orders(200);
    assert_eq!([first, second].map(|id| world.share(id)), [8192; 2]);
    assert_eq!(world.programs.deadline(), Some(world.now + Duration::from_millis(800)));
    world.orders(300);
    world.holds(second, 40 << 10);
    assert_eq!(world.orders(500), [(first, 64)]);
    world.orders(200);
    assert_eq!(world.share(second), (16 << 10) - 64);
    world.holds(first, 40 << 10);
    assert_eq!(world.orders(0), [(second, 8192)]);
}

#[test]
fn nothing_is_computed_while_nothing_changes() {
    let mut world = World::new();
    let ids: Vec<ProgramId> = (0..20).map(|uid| world.greedy(uid, 1).0).collect();
    world.orders(0);
    world.orders(200);
    let before = world.claims.load(Ordering::Relaxed);
    for _ in 0..100 {
        // Launches, and moves, but holds what it held.
        world.holds(ids[3], 0);
        assert_eq!(world.orders(1), []);
    }
    assert_eq!(world.claims.load(Ordering::Relaxed), before);
    world.holds(ids[3], 1);
    world.orders(0);
    assert_eq!(world.claims.load(Ordering::Relaxed), before + ids.len(), "each claim once");
}
