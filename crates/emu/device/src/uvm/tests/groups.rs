//! Range groups and the host as a preferred place: shapes as in the driver's `uvm_ioctl.h`, answers as in its `uvm_range_group.c`, `uvm_policy.c` and `uvm_migrate.c`.

use super::*;
use crate::config::Config;
use crate::machine::{Cost, Machine};
use crate::space::Kind;

const CREATE: u64 = 23;
const DESTROY: u64 = 24;
const SET: u64 = 31;
const PREVENT: u64 = 40;
const ALLOW: u64 = 41;

const OBJECT_NOT_FOUND: u32 = 0x57;
const INVALID_ADDRESS: u32 = 0x1e;
const INVALID_ARGUMENT: u32 = 0x1f;
const INVALID_DEVICE: u32 = 0x26;
const NO_MEMORY: u32 = 0x51;
const NOT_SUPPORTED: u32 = 0x56;
const MORE_PROCESSING_REQUIRED: u32 = 0x1_0005;

const BLOCK: u64 = 2 << 20;

fn ids(ids: &[u64], count: u64) -> [u8; PARAMS] {
    let mut params = with(&[(256, &count.to_le_bytes())]);
    for (place, id) in params.chunks_exact_mut(8).zip(ids) {
        place.copy_from_slice(&id.to_le_bytes());
    }
    params
}

#[test]
fn requests_have_the_shapes_of_the_driver() {
    for branch in DRIVERS {
        let world = World::new(branch);
        world.initialise();
        let ask = |request, mut params: [u8; PARAMS], len: usize| {
            params[len..].fill(0xee);
            params[len - 8..len - 4].fill(7);
            assert_eq!(world.ioctl(&world.space, request, &mut params), 0);
            assert_eq!(u32_at(&params, len - 8), 0, "status of {request}, driver {branch}");
            assert!(params[len..].iter().all(|byte| *byte == 0xee), "{request} has {len} bytes");
            params
        };
        assert_eq!(u64_at(&ask(CREATE, with(&[]), 16), 0), 0x1122_3344_5566_7788);
        let id = 0x55u64.to_le_bytes();
        ask(DESTROY, with(&[(0, &id)]), 16);
        ask(SET, with(&[(0, &id), (8, &(2 * BLOCK).to_le_bytes()), (16, &BLOCK.to_le_bytes())]), 32);
        let most: Vec<u64> = (1..=32).collect();
        ask(PREVENT, ids(&most, 32), 272);
        ask(ALLOW, ids(&[9, 8, 7], 2), 272);
        let most: Vec<String> = most.iter().map(|id| format!("Group({id:x})")).collect();
        assert_eq!(
            *world.moves.0.lock().unwrap(),
            [
                "make",
                "end Group(55)",
                "join Group(55) 0x400000+200000",
                &format!("[{}] false", most.join(", ")),
                "drain",
                "[Group(9), Group(8)] true",
            ]
        );
        for request in [PREVENT, ALLOW] {
            for count in [0, 33, u64::MAX] {
                let mut params = ids(&[1], count);
                assert_eq!(world.ioctl(&world.space, request, &mut params), 0);
                assert_eq!(u32_at(&params, 264), INVALID_ARGUMENT, "{count}");
            }
        }
        for (base, len) in [(0, 4096), (4096, 0), (4097, 4096), (4096, 100), (u64::MAX - 4095, 8192)] {
            let params: [(usize, &[u8]); 2] = [(8, &u64::to_le_bytes(base)), (16, &u64::to_le_bytes(len))];
            assert_eq!(world.ask(SET, 24, &params), INVALID_ADDRESS);
        }
        assert_eq!(world.moves.0.lock().unwrap().len(), 6, "nothing refused reaches the machine");
        let uninitialised = World::new(branch);
        assert_eq!(uninitialised.ask(CREATE, 8, &[]), NvStatus::ILLEGAL_ACTION.0);
        assert_eq!(uninitialised.ioctl(&uninitialised.tools, CREATE, &mut with(&[])), -libc::EINVAL);
    }
}

#[test]
fn the_host_is_preferred_by_any_of_its_nodes_where_the_driver_asks_for_one() {
    for (branch, node, status) in [
        (535, 3i32, 0),
        (550, -1, 0),
        (580, -1, 0),
        (580, 0, 0),
        (550, 3, INVALID_ARGUMENT),
        (580, 1, INVALID_ARGUMENT),
    ] {
        let world = World::new(branch);
        world.initialise();
        let (block, node) = (BLOCK.to_le_bytes(), node.to_le_bytes());
        let at = if branch == 535 { 32 } else { 36 };
        let answer = world.ask(42, at, &[(0, &block), (8, &block), (16, &sys::CPU_UUID), (32, &node)]);
        assert_eq!(answer, status, "driver {branch}, {node:?}");
        let told = world.moves.0.lock().unwrap().clone();
        assert_eq!(told.first().map(String::as_str), (status == 0).then_some("Prefer(Some(Host)) 0x200000+200000"));
    }
}

/// The driver with a machine behind it, and eight blocks of managed memory of which the first four are on GPU 0.
struct Played {
    world: World,
    machine: Machine,
    base: u64,
}

impl Played {
    fn new(branch: u16, line: &str) -> Self {
        static USED: AtomicU64 = AtomicU64::new(0);
        let config = Config::parse(line, &deepum_model::Profile::NAMES).unwrap();
        let skip = Bytes::gib(700 + 4 * USED.fetch_add(1, Ordering::Relaxed));
        let machine = Machine::with_space_from(config, None, skip).unwrap();
        let memory = machine.call(Cost::Call, |c| c.allocate(Kind::Managed, DeviceId(0), Bytes(8 * BLOCK), 0));
        let world = World::new(branch);
        world.initialise();
        let played = Self { world, machine, base: memory.unwrap().range.start.0 };
        assert_eq!(played.migrate(0, 4, &gpu_uuid(DeviceId(0))), 0);
        played
    }

    fn ask(&self, request: u64, status_at: usize, mut params: [u8; PARAMS]) -> u32 {
        assert_eq!(self.world.ioctl_of(&self.machine, &self.world.space, request, &mut params), 0);
        u32_at(&params, status_at)
    }

    fn range(&self, first: u64, count: u64) -> ([u8; 8], [u8; 8]) {
        ((self.base + first * BLOCK).to_le_bytes(), (count * BLOCK).to_le_bytes())
    }

    fn migrate(&self, first: u64, count: u64, to: &[u8; 16]) -> u32 {
        let (base, len) = self.range(first, count);
        self.ask(51, 72, with(&[(0, &base), (8, &len), (16, to), (52, &[255; 4])]))
    }
    fn prefer(&self, first: u64, count: u64, place: &[u8; 16]) -> u32 {
        let (base, len) = self.range(first, count);
        let at = if self.world.uvm.branch < 550 { 32 } else { 36 };
        self.ask(42, at, with(&[(0, &base), (8, &len), (16, place), (32, &[255; 4])]))
    }
    fn prefer_nothing(&self, first: u64, count: u64) -> u32 {
        let (base, len) = self.range(first, count);
        self.ask(43, 16, with(&[(0, &base), (8, &len)]))
    }
    fn set(&self, group: u64, first: u64, count: u64) -> u32 {
        let (base, len) = self.range(first, count);
        self.ask(SET, 24, with(&[(0, &group.to_le_bytes()), (8, &base), (16, &len)]))
    }
    fn prevent(&self, groups: &[u64]) -> u32 {
        self.ask(PREVENT, 264, ids(groups, groups.len() as u64))
    }
    fn allow(&self, groups: &[u64]) -> u32 {
        self.ask(ALLOW, 264, ids(groups, groups.len() as u64))
    }

    /// A group that may migrate.
    fn group(&self) -> u64 {
        let mut params = with(&[]);
        assert_eq!(self.world.ioctl_of(&self.machine, &self.world.space, CREATE, &mut params), 0);
        assert_eq!(u32_at(&params, 8), 0);
        u64_at(&params, 0)
    }
    /// One that may not.
    fn stay(&self) -> u64 {
        let group = self.group();
        assert_eq!(self.prevent(&[group]), 0);
        group
    }

    /// Which blocks are on GPU 0.
    fn on_gpu(&self) -> Vec<u64> {
        let block = UmBlock::containing(DevAddr(self.base)).0;
        let pages = |n| self.machine.look(|s| Ok(s.memory.pages_at(GPU, UmBlock(block + n)).count())).unwrap();
        (0..8).filter(|n| pages(*n) == 512).collect()
    }
}

const GPU: Place = Place::Device(DeviceId(0));
const SHAPES: [u16; 3] = [535, 550, 580];

fn gpu() -> [u8; 16] {
    gpu_uuid(DeviceId(0))
}

#[test]
fn who_joins_leaves_the_gpu_and_is_passed_by_until_it_is_preferred_nowhere() {
    for branch in SHAPES {
        let played = Played::new(branch, "v100-32g");
        let stay = played.stay();
        assert_eq!(stay, 1, "numbers begin at 1");
        assert_eq!(played.prefer(0, 2, &sys::CPU_UUID), 0);
        assert_eq!(played.on_gpu(), [0, 1, 2, 3], "that alone moves nothing");
        let before = played.machine.look(|s| Ok(s.host)).unwrap();
        assert_eq!(played.set(stay, 0, 2), 0);
        assert_eq!(played.on_gpu(), [2, 3]);
        let took = played.machine.look(|s| Ok(s.host)).unwrap() - before;
        let (took, profile) = (took.0 as f64, &played.machine.profile);
        let copies = 2.0 * BLOCK as f64 / profile.d2h_bandwidth * 1e9;
        assert!(took > copies, "it waits for the copies");
        assert!(took < copies + profile.host_map_cost.0 as f64, "and enters nothing");

        assert_eq!(played.migrate(0, 1, &gpu()), MORE_PROCESSING_REQUIRED);
        assert_eq!(played.migrate(0, 8, &gpu()), MORE_PROCESSING_REQUIRED);
        assert_eq!(played.on_gpu(), [2, 3, 4, 5, 6, 7], "the others moved");
        assert_eq!(played.migrate(0, 1, &sys::CPU_UUID), 0, "it is there");
        assert_eq!(played.prefer(0, 3, &gpu()), INVALID_DEVICE);
        assert_eq!(played.migrate(2, 1, &sys::CPU_UUID), 0);
        assert_eq!(played.prefer_nothing(0, 1), 0);
        assert_eq!([played.migrate(0, 1, &gpu()), played.migrate(1, 1, &gpu())], [0, MORE_PROCESSING_REQUIRED]);
        assert_eq!(played.on_gpu(), [0, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn what_the_driver_refuses_is_refused() {
    for branch in SHAPES {
        let played = Played::new(branch, "v100-32g");
        let (stay, other) = (played.stay(), played.group());
        let unknown = other + 1;
        assert_eq!(played.ask(DESTROY, 8, with(&[(0, &unknown.to_le_bytes())])), OBJECT_NOT_FOUND);
        assert_eq!(played.ask(DESTROY, 8, with(&[])), OBJECT_NOT_FOUND, "there is no group 0");
        assert_eq!(played.set(unknown, 0, 1), OBJECT_NOT_FOUND);
        assert_eq!([played.prevent(&[0]), played.allow(&[stay, unknown])], [OBJECT_NOT_FOUND; 2]);
        assert_eq!(played.allow(&[unknown, stay]), OBJECT_NOT_FOUND);
        assert_eq!(played.prevent(&[stay]), 0);

        assert_eq!(played.set(stay, 0, 1), INVALID_ADDRESS, "preferred nowhere");
        assert_eq!(played.prefer(0, 1, &sys::CPU_UUID), 0);
        assert_eq!(played.set(stay, 0, 2), INVALID_ADDRESS, "one of them");
        assert_eq!(played.set(other, 7, 2), INVALID_ADDRESS, "not all of it managed");
        let part = [(0, &stay.to_le_bytes()[..]), (8, &played.base.to_le_bytes()), (16, &4096u64.to_le_bytes())];
        assert_eq!(played.ask(SET, 24, with(&part)), NOT_SUPPORTED, "ours, not the driver's");
        assert_eq!((played.on_gpu(), played.migrate(0, 2, &gpu())), (vec![0, 1, 2, 3], 0), "nothing is a member");

        assert_eq!(played.set(other, 0, 2), 0);
        assert_eq!(played.prevent(&[other]), INVALID_ARGUMENT, "a member is preferred nowhere");
        assert_eq!(played.on_gpu(), [1, 2, 3], "the one before it went");
        assert_eq!(played.migrate(1, 1, &sys::CPU_UUID), MORE_PROCESSING_REQUIRED, "it does not migrate all the same");
        assert_eq!(played.allow(&[other]), 0);
        assert_eq!([played.prefer(1, 1, &gpu()), played.migrate(1, 1, &sys::CPU_UUID)], [0, 0]);
        assert_eq!(played.prevent(&[other]), INVALID_DEVICE, "a GPU that can fault");
    }
}

#[test]
fn memberships_end_with_the_group_by_joining_none_and_with_the_memory() {
    for branch in SHAPES {
        let played = Played::new(branch, "v100-32g");
        let stay = played.stay();
        assert_eq!([played.prefer(0, 1, &sys::CPU_UUID), played.set(stay, 0, 1)], [0, 0]);
        assert_eq!([played.set(0, 0, 1), played.migrate(0, 1, &gpu())], [0, 0]);
        assert_eq!([played.set(stay, 0, 1), played.migrate(0, 1, &gpu())], [0, MORE_PROCESSING_REQUIRED]);
        assert_eq!(played.ask(DESTROY, 8, with(&[(0, &stay.to_le_bytes())])), 0);
        assert_eq!([played.migrate(0, 1, &gpu()), played.set(stay, 0, 1)], [0, OBJECT_NOT_FOUND]);

        let stay = played.stay();
        assert_eq!(played.set(stay, 0, 1), 0, "it is preferred there still");
        let again = played.machine.call(Cost::Call, |c| {
            c.release(DevAddr(played.base), &[Kind::Managed])?;
            c.allocate(Kind::Managed, DeviceId(0), Bytes(8 * BLOCK), 0)
        });
        let played = Played { base: again.unwrap().range.start.0, ..played };
        assert_eq!([played.migrate(0, 1, &gpu()), played.set(stay, 0, 1)], [0, INVALID_ADDRESS]);
    }
}

#[test]
fn a_join_for_which_the_host_has_no_room_says_so_and_leaves_members() {
    let played = Played::new(580, "v100-32g:host=3MiB");
    let stay = played.stay();
    assert_eq!([played.prefer(0, 2, &sys::CPU_UUID), played.set(stay, 0, 2)], [0, NO_MEMORY]);
    assert_eq!(played.on_gpu(), [1, 2, 3], "the first had room");
    assert_eq!(played.migrate(1, 1, &gpu()), MORE_PROCESSING_REQUIRED);
    assert_eq!([played.prefer_nothing(0, 2), played.migrate(1, 1, &gpu())], [0, 0]);
}

#[test]
fn a_join_is_told_as_a_fault_would_be_and_only_when_somebody_makes_the_driver_look() {
    let played = Played::new(580, "v100-32g");
    let (ring, control) = (Pages::new(4096, true), Pages::new(4096, true));
    assert_eq!(played.world.attach(&ring, &control, 64, played.world.space.as_raw_fd()), 0);
    assert_eq!([played.world.tools(57, 4, 1), played.world.tools(58, 8, 0x7ffe)], [0, 0]);
    let sink = |state: &mut crate::state::State| {
        state.sink = Some(played.world.sink());
        Ok(())
    };
    played.machine.look(sink).unwrap();
    let stay = played.stay();
    assert_eq!([played.prefer(0, 2, &sys::CPU_UUID), played.set(stay, 0, 2), played.prefer_nothing(0, 2)], [0, 0, 0]);
    let put = || control.word(12).load(Ordering::Acquire);
    assert_eq!(put(), 0, "none of these requests makes it look");
    let (base, len) = played.range(0, 1);
    let begin = with(&[(0, &base), (8, &len), (16, &gpu()), (32, &[1])]);
    assert_eq!((played.ask(51, 72, begin), put()), (0, 0), "nor one that is not waited for");
    assert_eq!((played.ask(67, 0, with(&[])), put()), (0, 2), "what is over");
    for (n, block) in [(0, 0), (1, BLOCK)] {
        let entry = ring.bytes(n * 64, 64);
        assert_eq!(entry[..4], [2, 2, 1, 0], "a migration for coherence, from the GPU to the CPU");
        assert_eq!((u64_at(&entry, 8), u64_at(&entry, 16)), (played.base + block, BLOCK));
        assert_eq!(u64_at(&entry, 40), stay, "the group it was in then");
    }
    assert_eq!((played.migrate(1, 1, &gpu()), put()), (0, 4), "the end of one that is");
    assert_eq!(u64_at(&ring.bytes(3 * 64, 64), 40), 0, "in none");
}
