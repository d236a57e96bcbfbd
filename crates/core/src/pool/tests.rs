use super::*;
use proptest::prelude::*;

const UNIT: u64 = ALIGN;

/// The obvious oracle: what each 512 bytes of each slab are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Live,
    Spare(Freed<u64>),
}

#[derive(Default)]
struct Oracle {
    slabs: BTreeMap<DevAddr, (bool, Vec<Unit>)>,
}

impl Oracle {
    fn units(&mut self, range: AddrRange) -> &mut [Unit] {
        let (&start, (_, units)) = self.slabs.range_mut(..=range.start).next_back().unwrap();
        let first = usize::try_from((range.start.0 - start.0) / UNIT).unwrap();
        let count = usize::try_from(range.len.0 / UNIT).unwrap();
        &mut units[first..first + count]
    }

    /// Where the first of the shortest runs begins that are long enough.
    fn best(&self, len: Bytes, usable: impl Fn(Freed<u64>) -> bool) -> Option<DevAddr> {
        let need = len.0.div_ceil(UNIT);
        let mut runs: Vec<(u64, DevAddr)> = Vec::new();
        for (start, (small, units)) in &self.slabs {
            if *small != (Bytes(need * UNIT) < SMALL) {
                continue;
            }
            let mut run = 0;
            for n in 0..=units.len() {
                if units.get(n).is_some_and(|unit| matches!(unit, Unit::Spare(freed) if usable(*freed))) {
                    run += 1;
                } else {
                    if run >= need {
                        runs.push((run, DevAddr(start.0 + (n as u64 - run) * UNIT)));
                    }
                    run = 0;
                }
            }
        }
        runs.into_iter().min().map(|(_, at)| at)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Take { len: u64, stream: u64, others: bool },
    Give { nth: usize, stream: Option<u64> },
    Advance { stream: u64, by: u64 },
    Pass,
    Rename { stream: u64 },
    Shrink { keep: u64 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = prop_oneof![3 => 1u64..200_000, 1 => 1_048_577u64..3_000_000, 1 => 10_485_760u64..14_000_000];
    let op = prop_oneof![
        6 => (len, 0u64..3, any::<bool>()).prop_map(|(len, stream, others)| Op::Take { len, stream, others }),
        5 => (any::<usize>(), proptest::option::weighted(0.8, 0u64..3)).prop_map(|(nth, stream)| Op::Give { nth, stream }),
        2 => (0u64..3, 1u64..4).prop_map(|(stream, by)| Op::Advance { stream, by }),
        2 => Just(Op::Pass),
        1 => (0u64..3).prop_map(|stream| Op::Rename { stream }),
        1 => (0u64..50_000_000).prop_map(|keep| Op::Shrink { keep }),
    ];
    proptest::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever streams do: no block overlaps a live one or what another stream still uses, none is refused that there is room for, and
    /// the sums are those of what is there.
    #[test]
    fn a_block_is_nobody_elses(ops in ops()) {
        let mut pool: Pool<u64> = Pool::default();
        let mut oracle = Oracle::default();
        let mut live: Vec<AddrRange> = Vec::new();
        // Of each stream: what it was given to do, and how much of it is done. Frees are things to do.
        let (mut issued, mut done) = ([0u64; 3], [0u64; 3]);
        let at = |stream: u64| usize::try_from(stream).unwrap();
        let mut next = 0x7000_0000_0000u64;
        let mut most = (0, 0);
        for op in ops {
            match op {
                Op::Take { len, stream, others } => {
                    let len = Bytes(len);
                    let key = StreamKey(stream);
                    let own = |freed: Freed<u64>| freed.is_none_or(|(by, _)| by == key);
                    let want = oracle.best(len, |freed| others || own(freed));
                    let taken = if others {
                        pool.take_of_others(len, key)
                    } else {
                        pool.take(len, key).map(|block| Taken { block, behind: Vec::new() })
                    };
                    prop_assert_eq!(taken.as_ref().map(|taken| taken.block.start), want);
                    if let Some(Taken { block, behind }) = taken {
                        prop_assert_eq!(block.len.0, len.0.div_ceil(UNIT) * UNIT);
                        for unit in oracle.units(block) {
                            let Unit::Spare(freed) = *unit else { panic!("{block:?} is somebody's") };
                            if let Some((by, mark)) = freed.filter(|(by, _)| *by != key) {
                                prop_assert!(behind.iter().any(|&(of, upto)| of == by && upto >= mark));
                            }
                            *unit = Unit::Live;
                        }
                        live.push(block);
                    } else {
                        let slab = AddrRange::new(DevAddr(next), Pool::<u64>::slab_for(len));
                        pool.grow(slab, len);
                        // The next slab touches this one: no run may cross.
                        next = slab.end().0;
                        let units = vec![Unit::Spare(None); usize::try_from(slab.len.0 / UNIT).unwrap()];
                        oracle.slabs.insert(slab.start, (len < SMALL, units));
                    }
                }
                Op::Give { nth, stream } => {
                    if live.is_empty() {
                        prop_assert_eq!(pool.give(DevAddr(next), None), None);
                        continue;
                    }
                    let block = live.swap_remove(nth % live.len());
                    let freed = stream.map(|stream| {
                        issued[at(stream)] += 1;
                        (StreamKey(stream), issued[at(stream)])
                    });
                    prop_assert_eq!(pool.give(block.start, freed), Some(block));
                    prop_assert_eq!(pool.give(block.start, freed), None, "given twice");
                    oracle.units(block).fill(Unit::Spare(freed));
                }
                Op::Advance { stream, by } => done[at(stream)] = (done[at(stream)] + by).min(issued[at(stream)]),
                Op::Pass => {
                    let passed = |by: StreamKey, mark: u64| done[at(by.0 % 10)] >= mark;
                    pool.pass(passed);
                    for unit in oracle.slabs.values_mut().flat_map(|(_, units)| units) {
                        if matches!(*unit, Unit::Spare(Some((by, mark))) if passed(by, mark)) {
                            *unit = Unit::Spare(None);
                        }
                    }
                }
                Op::Rename { stream } => {
                    let new = StreamKey(stream + 10);
                    pool.rename(StreamKey(stream), new);
                    for unit in oracle.slabs.values_mut().flat_map(|(_, units)| units) {
                        if let Unit::Spare(Some((by, _))) = unit
                            && *by == StreamKey(stream)
                        {
                            *by = new;
                        }
                    }
                    prop_assert!(!pool.waiting().contains(&StreamKey(stream)));
                }
                Op::Shrink { keep } => {
                    let before = pool.reserved.now;
                    for slab in pool.shrink(Bytes(keep)) {
                        let (_, units) = oracle.slabs.remove(&slab.start).unwrap();
                        prop_assert!(units.iter().all(|unit| *unit == Unit::Spare(None)));
                    }
                    prop_assert!(pool.reserved.now >= before.min(Bytes(keep)));
                    // What is left would take too much away, or is in use.
                    for (_, units) in oracle.slabs.values() {
                        let idle = units.iter().all(|unit| *unit == Unit::Spare(None));
                        prop_assert!(!idle || pool.reserved.now.0 < keep + units.len() as u64 * UNIT);
                    }
                }
            }
            let reserved: usize = oracle.slabs.values().map(|(_, units)| units.len()).sum();
            let used: u64 = live.iter().map(|block| block.len.0).sum();
            most = (most.0.max(reserved as u64 * UNIT), most.1.max(used));
            prop_assert_eq!((pool.reserved.now.0, pool.used.now.0), (reserved as u64 * UNIT, used));
            prop_assert_eq!((pool.reserved.high.0, pool.used.high.0), most);
        }
        for block in &live {
            prop_assert_eq!(pool.block(DevAddr(block.end().0 - 1)), Some(*block));
        }
    }
}

const A: StreamKey = StreamKey(1);
const B: StreamKey = StreamKey(2);

fn pool() -> Pool<u64> {
    let mut pool = Pool::default();
    pool.grow(AddrRange::new(DevAddr(0x4000_0000), Bytes::mib(20)), Bytes::mib(6));
    pool
}

#[test]
fn who_frees_has_it_back_at_once_also_joined_with_what_is_everybodys() {
    let mut pool = pool();
    let first = pool.take(Bytes::mib(6), A).unwrap();
    let second = pool.take(Bytes::mib(6), A).unwrap();
    pool.give(first.start, Some((A, 1)));
    pool.give(second.start, Some((A, 2)));
    assert_eq!(pool.take(Bytes::mib(9), B), None, "8 MiB are everybody's");
    assert_eq!(pool.take(Bytes::mib(9), A).unwrap().start, first.start);
}

#[test]
fn others_have_it_once_its_mark_is_passed_or_wait_for_it() {
    let mut pool = pool();
    let block = pool.take(Bytes::mib(9), A).unwrap();
    let rest = pool.take(Bytes::mib(9), A).unwrap();
    pool.give(block.start, Some((A, 5)));
    let taken = pool.take_of_others(Bytes::mib(4), B).unwrap();
    assert_eq!((taken.block.start, taken.behind), (block.start, vec![(A, 5)]));
    pool.pass(|_, mark| mark < 5);
    assert_eq!(pool.take(Bytes::mib(4), B), None);
    pool.pass(|_, mark| mark <= 5);
    assert_eq!(pool.take(Bytes::mib(4), B).unwrap().start, taken.block.end());
    assert_eq!(pool.shrink(Bytes(0)), []);
    pool.give(rest.start, None);
}

#[test]
fn small_blocks_leave_the_slabs_of_large_ones_alone() {
    let mut pool = pool();
    assert_eq!(pool.take(Bytes(100), A), None);
    assert_eq!(Pool::<u64>::slab_for(Bytes(100)), Bytes::mib(2));
    assert_eq!(Pool::<u64>::slab_for(Bytes::mib(1)), Bytes::mib(20));
    assert_eq!(Pool::<u64>::slab_for(Bytes(11 << 20 | 1)), Bytes::mib(12));
    assert_eq!(pool.take(Bytes(0), A), None);
    assert_eq!(pool.take(Bytes(u64::MAX), A), None);
}
