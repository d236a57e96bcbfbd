//! What is no driver's rule: host memory in front of an SSD.

use super::*;
use deepum_model::Ssd;

const SECOND: u64 = 1_000_000_000;

/// An SSD of 1 GB/s each way, a block taking 2.1 ms, behind a host with room for so many blocks.
fn cached(room: u64, host: u64) -> UnifiedMemory {
    let bytes = |blocks: u64| Some(Bytes(blocks * UmBlock::SIZE.0));
    let ssd = Some(Ssd { read: 1e9, write: 1e9, cached: true });
    node_with(Options { memory: bytes(room), host_memory: bytes(host), ssd, ..Options::default() })
}

/// All of these are on the GPU, one after the other; when that is so.
fn fill(mem: &mut UnifiedMemory, count: u64) -> Nanos {
    mem.migrate(blocks(0, count), ON_GPU, Nanos::ZERO).unwrap().done
}

fn leave(mem: &mut UnifiedMemory, block: u64, now: Nanos) -> Nanos {
    mem.migrate(blocks(block, 1), Place::Host, now).unwrap().done
}

/// How much comes from the SSD for a block that is fetched.
fn from_ssd(mem: &mut UnifiedMemory, block: u64, now: Nanos) -> Bytes {
    let before = mem.totals(GPU).bytes_ssd_in;
    mem.migrate(blocks(block, 1), ON_GPU, now).unwrap();
    mem.totals(GPU).bytes_ssd_in - before
}

#[test]
fn what_is_written_already_makes_room_at_once() {
    let mut mem = cached(4, 2);
    let filled = fill(&mut mem, 3);
    for block in 0..2 {
        leave(&mut mem, block, filled);
    }
    // The SSD had a second to write both.
    let start = Nanos(SECOND);
    let left = leave(&mut mem, 2, start);
    assert!((left - start).0 < 1_000_000, "at the link's rate");
    assert_eq!(mem.totals(GPU).bytes_ssd_out, Bytes::mib(4));
    assert_eq!(mem.host_in_use(), Bytes::mib(4));

    // Had it none, its writing is waited for.
    let mut mem = cached(4, 2);
    let filled = fill(&mut mem, 3);
    leave(&mut mem, 0, filled);
    let start = leave(&mut mem, 1, filled);
    let left = leave(&mut mem, 2, start);
    assert!((left - start).0 > 1_000_000, "{:?}", left - start);
}

#[test]
fn who_left_first_is_on_the_ssd_until_there_is_room() {
    let mut mem = cached(4, 2);
    let mut now = fill(&mut mem, 3);
    for block in 0..3 {
        now = leave(&mut mem, block, Nanos(SECOND * (block + 1)));
    }
    // Block 0 is on the SSD. As soon as 2 has given up its place, 0 comes back to host memory, and then to the GPU at the link's rate.
    assert_eq!(from_ssd(&mut mem, 2, now), Bytes::ZERO);
    let start = Nanos(5 * SECOND);
    let before = mem.totals(GPU).bytes_ssd_in;
    let done = mem.migrate(blocks(0, 1), ON_GPU, start).unwrap().done;
    assert_eq!(mem.totals(GPU).bytes_ssd_in - before, Bytes::mib(2));
    assert!((done - start).0 < 1_000_000, "{:?}", done - start);
}

#[test]
fn who_stays_away_longer_makes_room_for_who_comes_back_sooner() {
    let mut mem = cached(4, 2);
    let mut now = fill(&mut mem, 3);
    // Block 0 is away for a second each time, block 1 for ten, block 2 for twenty: of 0 and 1, in host memory, 1 makes room, though 0 left before it.
    for (block, away) in [(0, 1), (1, 10), (2, 20)] {
        let left = leave(&mut mem, block, now);
        now = mem.migrate(blocks(block, 1), ON_GPU, left + Nanos(away * SECOND)).unwrap().done;
    }
    for block in 0..3 {
        now = leave(&mut mem, block, now + Nanos(SECOND / 10));
    }
    assert_eq!(from_ssd(&mut mem, 0, now), Bytes::ZERO);
}

#[test]
fn a_copy_of_what_is_on_the_gpu_has_no_entry_until_that_leaves() {
    let mut mem = cached(4, 2);
    let filled = fill(&mut mem, 1);
    let now = mem.advise(blocks(0, 1), deepum_model::Advice::Duplicate(true), filled).unwrap();
    let now = leave(&mut mem, 0, now);
    // It is on the GPU still: nothing is written.
    mem.migrate(blocks(1, 1), ON_GPU, now + Nanos(SECOND)).unwrap();
    assert_eq!(mem.totals(GPU).bytes_ssd_out, Bytes::ZERO);
}
