//! Tables that outlive a run: taken over whole, or refused by name.

mod world;

use deepum_core::command::Commands;
use deepum_core::correlate::saved::{SavedError, check};
use deepum_core::correlate::{Geometry, Layout as TableLayout};
use deepum_core::engine::{Config, Engine};
use deepum_core::event::{Event, Fault, Launch};
use deepum_core::mix::Mix;
use deepum_core::policy::PolicyName;
use deepum_core::units::{AddrRange, Bytes, DevAddr, KernelId, LaunchKey, LaunchSeq, Nanos, StreamSlot, UmBlock};
use proptest::prelude::*;
use world::{Iteration, Layout, Work, World, training_step};

const WORKLOAD: u64 = 77;

fn config(policy: PolicyName, blocks: usize) -> Config {
    Config::new(policy, Bytes(blocks as u64 * UmBlock::SIZE.get()))
}

fn saved(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(engine.save(WORKLOAD, &mut bytes));
    bytes
}

/// An engine that learned what the steps say: a launch of this key, and faults on these blocks.
fn learned(policy: PolicyName, geometry: Geometry, steps: &[(u8, Vec<u8>)]) -> Engine {
    let mut engine = Engine::new(Config { geometry, ..config(policy, 16) });
    learn(&mut engine, steps);
    engine
}

fn learn(engine: &mut Engine, steps: &[(u8, Vec<u8>)]) {
    let mut out = Commands::new();
    for (first, blocks) in [(1000, 100), (3000, 7), (2000, 200)] {
        let range = AddrRange::new(UmBlock(first).start(), Bytes(blocks * UmBlock::SIZE.get()));
        engine.on(&Event::Alloc { range }, &mut out);
    }
    for ((key, blocks), seq) in steps.iter().zip(1..) {
        let (seq, stream, key) = (LaunchSeq(seq), StreamSlot(0), LaunchKey(u64::from(*key) << 40));
        engine.on(
            &Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &[UmBlock(2000).start()] }),
            &mut out,
        );
        for &block in blocks {
            let block = UmBlock(if block < 100 { 1000 } else { 2000 } + u64::from(block % 100));
            engine.on(&Event::Fault(Fault { block, batch: 1, entries: 1, write: false, at: Nanos::ZERO }), &mut out);
        }
        engine.on(&Event::Progress { stream, done: seq }, &mut out);
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    prop::collection::vec((0u8..12, prop::collection::vec(any::<u8>(), 0..9)), 0..60)
}
fn geometry() -> impl Strategy<Value = Geometry> {
    (0u32..6, 1u32..4, 1u32..5).prop_map(|(rows, ways, successors)| Geometry::new(1 << rows, ways, successors).unwrap())
}
fn policy() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(vec![PolicyName::Deepum, PolicyName::DeepumPaper])
}

/// Makes the checksum right again, as somebody would who wants these bytes to be read.
fn sign(bytes: &mut [u8]) {
    if bytes.len() >= 72 {
        let length = bytes.len() as u64;
        bytes[56..64].copy_from_slice(&length.to_le_bytes());
        let sum = Mix::new().bytes(&bytes[..64]).bytes(&bytes[72..]).end();
        bytes[64..72].copy_from_slice(&sum.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever was learned, in either layout, is written, taken over and written again as the same bytes.
    #[test]
    fn what_is_taken_over_is_what_was_saved(policy in policy(), geometry in geometry(), steps in steps()) {
        let layouts = [TableLayout::Compact, TableLayout::Paper].map(|layout| geometry.laid_out(layout));
        let [compact, paper] = layouts.map(|geometry| saved(&learned(policy, geometry, &steps)));
        prop_assert_eq!(&compact, &paper);
        prop_assert!(check(&compact));
        for geometry in layouts {
            let mut engine = Engine::new(Config { geometry, ..config(policy, 16) });
            engine.take_over(&compact, WORKLOAD).unwrap();
            prop_assert_eq!(&saved(&engine), &compact);
        }
    }

    /// Cut off anywhere, or with any bit turned, it is refused, and nothing is lost.
    #[test]
    fn cut_off_or_changed_bytes_are_refused_and_change_nothing(
        policy in policy(),
        geometry in geometry(),
        steps in steps(),
        cut in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let bytes = saved(&learned(policy, geometry, &steps));
        let mut engine = Engine::new(Config { geometry, ..config(policy, 16) });
        let fresh = saved(&engine);
        let cut = cut.index(bytes.len());
        prop_assert!(engine.take_over(&bytes[..cut], WORKLOAD).is_err(), "cut at {}", cut);
        let mut flipped = bytes.clone();
        let bit = bit.index(bytes.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(engine.take_over(&flipped, WORKLOAD).is_err(), "bit {}", bit);
        prop_assert_eq!(saved(&engine), fresh);
        engine.take_over(&bytes, WORKLOAD).unwrap();
    }

    /// With a right checksum the contents are all there is to go by: what is read holds together, or it is refused.
    #[test]
    fn forged_bytes_are_refused_or_hold_together(
        policy in policy(),
        geometry in geometry(),
        steps in steps(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..6),
        small in any::<bool>(),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = saved(&learned(policy, geometry, &steps));
        for (at, word) in changes {
            let at = at.index(bytes.len() / 4) * 4;
            let word = if small { word % 64 } else { word };
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()) / 4 * 4);
        }
        sign(&mut bytes);
        prop_assert_eq!(read_and_go_on(&bytes, policy, geometry, &steps), check(&bytes) && is_ours(&bytes, policy, geometry));
    }

    /// Small numbers behind a right head are often tables.
    #[test]
    fn no_bytes_whatever_are_more_than_refused(
        policy in policy(),
        geometry in geometry(),
        steps in steps(),
        counts in prop::array::uniform4(0u32..4),
        words in prop::collection::vec(prop_oneof![9 => 0u32..6, 1 => any::<u32>()], 0..80),
        head in any::<bool>(),
    ) {
        let mut bytes = if head { saved(&learned(policy, geometry, &[])) } else { Vec::new() };
        bytes.truncate(72);
        if head {
            for (at, count) in counts.iter().enumerate() {
                bytes[40 + at * 4..44 + at * 4].copy_from_slice(&count.to_le_bytes());
            }
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        sign(&mut bytes);
        prop_assert_eq!(read_and_go_on(&bytes, policy, geometry, &steps), check(&bytes));
    }
}

/// Takes the bytes over in both layouts, if they are tables, and goes on learning from there: both layouts then hold the same, and what they hold can
/// be taken over again. If not, nothing is changed. Returns which.
fn read_and_go_on(bytes: &[u8], policy: PolicyName, geometry: Geometry, steps: &[(u8, Vec<u8>)]) -> bool {
    let [compact, paper] = [TableLayout::Compact, TableLayout::Paper].map(|layout| {
        let mut engine = Engine::new(Config { geometry: geometry.laid_out(layout), ..config(policy, 16) });
        let fresh = saved(&engine);
        if engine.take_over(bytes, WORKLOAD).is_err() {
            assert_eq!(saved(&engine), fresh);
            return None;
        }
        learn(&mut engine, steps);
        Some(saved(&engine))
    });
    assert_eq!(compact, paper);
    if let Some(later) = &compact {
        assert!(check(later), "what goes on from tables are tables");
    }
    compact.is_some()
}

/// Whether the head names this policy's rules, this workload and this geometry.
fn is_ours(bytes: &[u8], policy: PolicyName, geometry: Geometry) -> bool {
    bytes.get(12..40) == saved(&learned(policy, geometry, &[])).get(12..40)
}

#[test]
fn a_chain_that_starts_and_never_ends_is_refused() {
    let geometry = Geometry::default();
    let bytes = saved(&learned(PolicyName::Deepum, geometry, &[(1, vec![1, 2])]));
    let none = u32::MAX.to_le_bytes();
    // Three allocations, one key, one record; then execution ID, start block, end block.
    let counts: Vec<usize> =
        (0..4).map(|n| u32::from_le_bytes(bytes[40 + n * 4..44 + n * 4].try_into().unwrap()) as usize).collect();
    let start = 72 + counts[0] * 8 + counts[1] * 8 + counts[2] * 20 + 4;
    for at in [start, start + 4] {
        let mut forged = bytes.clone();
        assert_ne!(forged[at..at + 4], none);
        forged[at..at + 4].copy_from_slice(&none);
        sign(&mut forged);
        let mut engine = Engine::new(config(PolicyName::Deepum, 16));
        assert!(engine.take_over(&forged, WORKLOAD).unwrap_err().to_string().contains("end block"));
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let steps = [(1, vec![1, 2]), (2, vec![3])];
    let geometry = Geometry::default();
    let bytes = saved(&learned(PolicyName::Deepum, geometry, &steps));
    let refused = |bytes: &[u8], config: Config, workload: u64| {
        Engine::new(config).take_over(bytes, workload).unwrap_err().to_string()
    };
    let ours = config(PolicyName::Deepum, 16);
    assert_eq!(
        refused(&bytes, ours, 78),
        "saved tables of another workload: 000000000000004d, and this run has 000000000000004e"
    );
    assert_eq!(
        refused(&bytes, config(PolicyName::DeepumPaper, 16), WORKLOAD),
        "saved tables of another policy: 1, and this run has 2"
    );
    let wider = Config { geometry: Geometry::new(2048, 4, 4).unwrap(), ..ours };
    assert_eq!(
        refused(&bytes, wider, WORKLOAD),
        "saved tables of another table geometry: 2048,8,4, and this run has 2048,4,4"
    );
    assert_eq!(refused(&bytes, config(PolicyName::Demand, 16), WORKLOAD), "the policy demand has no tables");
    let few = Config { exec_ids: 1, ..ours };
    assert_eq!(refused(&bytes, few, WORKLOAD), "saved tables with execution IDs 2: more than this run may have");
    assert_eq!(refused(b"", ours, WORKLOAD), "no saved tables: the first bytes are not DEEPUMTB");
    let mut newer = bytes.clone();
    newer[8] += 1;
    sign(&mut newer);
    assert_eq!(refused(&newer, ours, WORKLOAD), "saved tables of version 3; version 2 is known");
    let mut longer = bytes.clone();
    longer.push(0);
    let length = bytes.len();
    assert_eq!(
        refused(&longer, ours, WORKLOAD),
        format!("{} bytes of saved tables, and the head says {length}", length + 1)
    );
    sign(&mut longer);
    assert_eq!(refused(&longer, ours, WORKLOAD), "saved tables with bytes behind its end: 1: must be 0");

    let mut used = learned(PolicyName::Deepum, geometry, &steps);
    let before = saved(&used);
    assert_eq!(used.take_over(&bytes, WORKLOAD), Err(SavedError::TooLate));
    assert_eq!(saved(&used), before);
}

#[test]
fn changes_tell_whether_saving_again_is_worth_while() {
    let mut engine = learned(PolicyName::Deepum, Geometry::default(), &[(1, vec![1, 2]), (2, vec![3]), (1, vec![1])]);
    let (before, bytes) = (engine.changes(), saved(&engine));
    assert!(before > 0);
    engine.on(&Event::Progress { stream: StreamSlot(0), done: LaunchSeq(3) }, &mut Commands::new());
    assert_eq!((engine.changes(), saved(&engine)), (before, bytes));
    let (seq, stream, key) = (LaunchSeq(9), StreamSlot(0), LaunchKey(5));
    engine.on(
        &Event::Launch(Launch { seq, stream, key, kernel: KernelId(0), pointers: &[DevAddr(0)] }),
        &mut Commands::new(),
    );
    assert!(engine.changes() > before);
}

/// A training step at this place in the address space, in a memory that holds half of it.
fn train(policy: PolicyName, base: u64, tables: Option<&[u8]>) -> (World, Vec<Iteration>) {
    let mut layout = Layout::default();
    layout.tensor(base);
    layout.tensors.clear();
    let works: Vec<Work> = training_step(&mut layout, 10, 12, 12000);
    let first = layout.tensors[0].start.get();
    // The toy world's keys are of addresses; those of the shim are of allocation and block. And no argument tells what is touched.
    let works = works.into_iter().map(|work| Work { key: stable_key(&work, first), tensors: Vec::new(), ..work });
    let works: Vec<Work> = works.collect();
    let capacity = layout.blocks() / 2;
    let mut world = World::new(config(policy, capacity), capacity);
    if let Some(tables) = tables {
        world.engine.take_over(tables, WORKLOAD).unwrap();
    }
    layout.tensors.iter().for_each(|&tensor| world.alloc(tensor));
    let iterations = (0..3).map(|_| world.iterate(&works, 3)).collect();
    (world, iterations)
}

fn stable_key(work: &Work, first: u64) -> u64 {
    work.tensors.iter().fold(Mix::new().word(work.micros), |mix, tensor| mix.word(tensor.start.get() - first)).end()
}

#[test]
fn a_second_run_elsewhere_in_the_address_space_has_a_tenth_of_the_first_ones_faults_from_its_first_iteration() {
    for (policy, least) in [(PolicyName::Deepum, 10), (PolicyName::DeepumPaper, 4)] {
        let (world, first) = train(policy, 0, None);
        let (_, second) = train(policy, 12_345, Some(&saved(&world.engine)));
        println!("{policy}: {first:#?} {second:#?}");
        assert!(first[0].faults > 100, "{policy}: there was nothing to learn");
        assert!(second[0].faults * least <= first[0].faults, "{policy}: {} and {}", first[0].faults, second[0].faults);
    }
}
