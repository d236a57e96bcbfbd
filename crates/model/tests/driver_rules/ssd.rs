//! What is no driver's rule: the SSD behind the host.

use super::*;
use deepum_model::Ssd;

const SECOND: u64 = 1_000_000_000;

/// How long blocks take at so many bytes a nanosecond.
fn at(rate: u64, blocks: u64) -> u64 {
    blocks * UmBlock::SIZE.0 / rate
}

fn with_ssd(room: u64, host: u64) -> UnifiedMemory {
    let bytes = |blocks: u64| Some(Bytes(blocks * UmBlock::SIZE.0));
    let ssd = Some(Ssd { read: 2e9, write: 1e9, cached: false });
    node_with(Options { memory: bytes(room), host_memory: bytes(host), ssd, ..Options::default() })
}

#[test]
fn what_finds_no_room_in_host_memory_goes_to_the_ssd_and_comes_back_at_its_rate() {
    let mut mem = with_ssd(2, 1);
    // Blocks 0 and 1 leave for 2 and 3: the first into host memory, the second to the SSD.
    run(&mut mem, &[touch(blocks(0, 4))], Nanos::ZERO);
    let totals = mem.totals(GPU);
    assert_eq!((totals.bytes_out.total(), totals.bytes_ssd_out), (Bytes::mib(4), Bytes::mib(2)));
    assert_eq!(mem.host_in_use(), Bytes::mib(2));

    let free = Nanos(10 * SECOND);
    mem.discard(blocks(2, 2), true, free).unwrap();
    let host = mem.migrate(blocks(0, 1), ON_GPU, Nanos(20 * SECOND)).unwrap();
    assert_eq!(
        (mem.totals(GPU).bytes_ssd_in, mem.host_in_use()),
        (Bytes::ZERO, Bytes::ZERO),
        "its place is free again"
    );
    let ssd = mem.migrate(blocks(1, 1), ON_GPU, Nanos(30 * SECOND)).unwrap();
    assert_eq!(mem.totals(GPU).bytes_ssd_in, Bytes::mib(2));
    assert!((host.done - host.ordered).0 < at(2, 1), "the link is faster");
    // The copy begins before the call has done its own work.
    let took = (ssd.done - Nanos(30 * SECOND)).0;
    assert!((at(2, 1)..at(2, 1) + 100_000).contains(&took), "{took}");
}

#[test]
fn an_ssd_holds_back_who_needs_the_room_and_nobody_else() {
    let mut mem = with_ssd(8, 0);
    let filled = mem.migrate(blocks(0, 8), ON_GPU, Nanos::ZERO).unwrap().done;
    // Eight blocks that come for eight that go: as fast as the SSD writes, and the driver's own work beside it.
    let (_, batches) = run(&mut mem, &[touch(blocks(8, 8))], filled);
    let stalled = batches.last().unwrap().1 - filled;
    assert!(stalled.0 >= at(1, 8) && stalled.0 < at(1, 10), "{stalled:?}");
    let totals = mem.totals(GPU);
    assert!(totals.stall_room > Nanos(stalled.0 / 2) && totals.stall_ssd == Nanos::ZERO, "{totals:?}");
    // And back: what they wait for now is reading, beside the writing of those that leave.
    let start = Nanos(SECOND);
    run(&mut mem, &[touch(blocks(0, 1))], start);
    assert_eq!(mem.totals(GPU).bytes_ssd_in, Bytes::mib(2));
}

#[test]
fn without_an_ssd_a_full_host_is_out_of_memory() {
    let bytes = |blocks: u64| Some(Bytes(blocks * UmBlock::SIZE.0));
    let mut mem = node_with(Options { memory: bytes(1), host_memory: bytes(0), ..Options::default() });
    mem.migrate(blocks(0, 1), ON_GPU, Nanos::ZERO).unwrap();
    let refused = mem.migrate(blocks(1, 1), ON_GPU, Nanos::ZERO);
    assert!(matches!(refused, Err(ModelError::OutOfMemory { place: Place::Host, .. })), "{refused:?}");
}
