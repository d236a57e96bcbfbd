//! The page that we share with the GPU and the engine (`docs/page.md`), and the words of it that we move.
//!
//! It is made when the engine is started, so before the first launch and before any memory is managed; and a process that has
//! started the engine has forked children that are off. It is *shared* memory, because a process that forks writes to copies of its
//! private pages, while the GPU goes on reading the old ones.

use crate::{contexts, log, stage};
use deepum_core::units::AddrRange;
use deepum_engine::mapping::Mapping;
use deepum_protocol::handout::HandOuts;
use deepum_protocol::inflight::InFlight;
use deepum_protocol::page::{Page, WORDS};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

struct Made {
    page: Page,
    mapping: Mapping,
    /// For every launch.
    in_flight: InFlight<'static>,
}

static MADE: OnceLock<Option<Made>> = OnceLock::new();

/// Makes the page, the first time. Nothing if the system has no memory for it, which is said, or if the shim is being turned off: nobody
/// would see to it that this page's words are held.
pub fn make() -> Option<Page> {
    let made = MADE.get_or_init(|| {
        let mapping = Mapping::new(c"deepum-page", WORDS);
        let page = mapping.as_ref().and_then(|mapping| Page::format(mapping.words()).ok());
        if page.is_none() {
            log::error("the system has no memory for the page shared with the GPU; managed memory works as the driver manages it");
        }
        Some(Made { in_flight: page?.in_flight(), page: page?, mapping: mapping? })
    });
    contexts::noted();
    // Either whoever turns the shim off finds this page, or we find that it is being turned off.
    fence(Ordering::SeqCst);
    made.as_ref().filter(|_| !stage::is_ending()).map(|made| made.page)
}

/// The page, once it is made.
#[inline]
pub fn get() -> Option<Page> {
    MADE.get().and_then(Option::as_ref).map(|made| made.page)
}

/// Which operations are under way, once any may be of interest.
#[inline]
pub fn in_flight() -> Option<&'static InFlight<'static>> {
    MADE.get().and_then(Option::as_ref).map(|made| &made.in_flight)
}

/// The page and its memory, once it is made, if that can be passed on.
pub fn shared() -> Option<(Page, BorrowedFd<'static>)> {
    let made = MADE.get().and_then(Option::as_ref)?;
    Some((made.page, made.mapping.descriptor()?))
}

/// What may be thrown away, once anything may.
#[inline]
pub fn hand_outs() -> Option<HandOuts<'static>> {
    get().map(|page| page.hand_outs())
}

/// Memory goes back to the driver, or into hands that we do not know: none of it may be thrown away. Waits for a discard in flight.
pub fn close(range: AddrRange) {
    if let Some(outs) = hand_outs() {
        range.blocks().for_each(|block| outs.close(block));
    }
}
