//! The page is what `docs/page.md` says: its header and its layout. What its words are for is in modules: how what was issued before a release is known to be over (`epochs`), what a slot says of
//! its thread's operations (`slots`), and which blocks may lose their contents (`handouts`).
#![cfg(not(loom))]

mod bench;
mod epochs;
mod handouts;
mod slots;

use bench::words;
use deepum_core::units::{LaunchSeq, UmBlock};
use deepum_protocol::AtomicU64;
use deepum_protocol::gate::OPEN;
use deepum_protocol::page::{MAGIC, Page, PageError, VERSION, WORDS};
use std::sync::atomic::Ordering;

#[test]
fn a_page_is_known_by_its_header_and_anything_else_is_refused_by_name() {
    let all = words(WORDS);
    Page::format(all).unwrap();
    assert!(Page::open(all).is_ok());
    let broken = |at: usize, value: u64, want: PageError, text: &str| {
        let before = all[at].swap(value, Ordering::Relaxed);
        let have = Page::open(all).unwrap_err();
        all[at].store(before, Ordering::Relaxed);
        assert_eq!(have, want);
        assert!(have.to_string().contains(text), "{have}");
    };
    broken(1024, 7, PageError::Magic { have: 7 }, "marked with 0x7");
    broken(1025, 2, PageError::Version { have: 2 }, "version 2; this program knows version 6");
    broken(1026, 9, PageError::Words { have: 9 }, "header says 9 words");
    let short = &all[..WORDS - 1];
    assert_eq!(Page::open(short).unwrap_err(), PageError::Size { words: WORDS - 1 });
    assert_eq!(Page::format(short).unwrap_err(), PageError::Size { words: WORDS - 1 });
}

/// Word by word as in `docs/page.md`.
#[test]
fn the_layout_is_the_documented_one() {
    let all = words(1_314_816);
    let page = Page::format(all).unwrap();
    assert_eq!(all[1024].load(Ordering::Relaxed), MAGIC);
    assert_eq!(MAGIC.to_le_bytes(), *b"DEEPUMPG");
    assert_eq!((all[1025].load(Ordering::Relaxed), VERSION), (6, 6));
    assert_eq!(all[1026].load(Ordering::Relaxed), 1_314_816);
    assert!(all[512..528].iter().all(|gate| gate.load(Ordering::Relaxed) == OPEN));
    assert!(
        all.iter()
            .enumerate()
            .all(|(i, w)| (512..528).contains(&i) || (1024..1027).contains(&i) || w.load(Ordering::Relaxed) == 0)
    );

    assert_eq!((page.progress().len(), page.gates().word(0).is_none()), (0, true), "not reached yet");
    page.set_reached();
    assert_eq!(all[1032].load(Ordering::Relaxed), 1);
    let at = |word: &AtomicU64| (std::ptr::from_ref(word) as usize - all.as_ptr() as usize) / 8;
    assert_eq!((at(&page.progress()[0]), page.progress().len()), (0, 512));
    assert_eq!((at(page.gates().word(0).unwrap()), at(page.gates().word(15).unwrap())), (512, 527));
    assert!(page.gates().word(16).is_none());
    assert_eq!(page.gpu_words().len() * 8, 2 * 4096);
    assert_eq!((Page::progress_at(5), Page::gate_at(3)), (5, 515));
    assert_eq!((at(page.pending()), at(page.nudge())), (1040, 1048));
    page.set_clear_until(3, LaunchSeq(9));
    page.set_lead(3, Some(8));
    assert_eq!([1107, 1123].map(|at: usize| all[at].load(Ordering::Relaxed)), [8, 9]);
    assert_eq!((at(page.grace().epoch), at(page.grace().ended)), (1064, 1072));
    let streams = page.in_flight();
    assert_eq!((at(streams.blind), at(&streams.used[0]), streams.used.len()), (1080, 1088, 8));
    assert_eq!((at(&streams.issued[0]), at(&streams.streams[0]), at(&streams.epochs[0])), (1536, 2048, 2560));
    assert_eq!((at(&streams.ends[0]), streams.ends.len()), (266_240, 512 * 2048));
    let outs = page.hand_outs();
    assert!(outs.open(UmBlock(262_144 * 3 + 2)));
    outs.hold(UmBlock(262_144 * 3 + 2));
    // Open, one holder, tag 3, stamp 0.
    assert_eq!(all[4096 + 2].load(Ordering::Relaxed), 1 << 13 | 1 | 3 << 16);
}

#[test]
fn a_lead_and_what_is_clear_are_one_gpus_and_nothing_is_said_for_those_past_the_last() {
    let page = Page::format(words(WORDS)).unwrap();
    assert_eq!(page.lead(0), None);
    page.set_lead(1, Some(64));
    page.set_lead(99, Some(7));
    assert_eq!([0, 1, 2, 99].map(|ordinal| page.lead(ordinal)), [None, Some(64), None, None]);
    page.set_lead(1, None);
    assert_eq!(page.lead(1), None);
    assert_eq!(page.clear_until(1), LaunchSeq(0));
    page.set_clear_until(1, LaunchSeq(7));
    page.set_clear_until(99, LaunchSeq(5));
    assert_eq!([0, 1, 2, 99].map(|ordinal| page.clear_until(ordinal)), [0, 7, 0, 0].map(LaunchSeq));
}
