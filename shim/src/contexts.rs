//! Contexts that a program makes beside a device's own.
//!
//! Problem: each context has a default stream, of the same handle (facts 4.5), and what one progress word follows must be one stream
//! ([`crate::streams`]). To ask for the context at every launch would cost all programs something for the sake of very few: PyTorch, the
//! runtime and the vendor libraries use the device's own context, the *primary* one.
//!
//! Idea: a program that makes another context is known when it does. From then on its operations count as such that cannot be
//! followed, so nothing is thrown away (`docs/page.md`). The rest goes on: a progress word that is early costs a fetch, never a result.
//!
//! Invariant: that is so before the other context is there, also if the page is made later ([`noted`]).

use crate::abi::{Dev, Ptr, Status};
use crate::page;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Set before the first of them is made.
static OTHERS: AtomicBool = AtomicBool::new(false);

fn note() {
    OTHERS.store(true, Ordering::Relaxed);
    // Either we find the page, or whoever makes it finds the note.
    fence(Ordering::SeqCst);
    if let Some(slots) = page::in_flight() {
        slots.lose_sight();
    }
}

/// Whether there are, or were, others.
pub fn others() -> bool {
    OTHERS.load(Ordering::Relaxed)
}

/// The page was made: notes there that there are other contexts, if so.
pub fn noted() {
    fence(Ordering::SeqCst);
    if OTHERS.load(Ordering::Relaxed)
        && let Some(slots) = page::in_flight()
    {
        slots.lose_sight();
    }
}

macro_rules! made {
    ($($(#[doc = $doc:literal])+ $hook:ident($($t:ty),*);)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Also if the driver refuses.
            pub unsafe fn before($(_: $t),*) -> Option<()> {
                note();
                None
            }
            /// Nothing more.
            pub fn after((): (), _: Status) {}
        }
    )*};
}
made! {
    /// With flags.
    Create(*mut Ptr, c_uint, Dev);
    /// With an affinity.
    CreateAffine(*mut Ptr, Ptr, c_int, c_uint, Dev);
    /// With parameters.
    CreateWith(*mut Ptr, Ptr, c_uint, Dev);
    /// From a part of the device.
    FromGreen(*mut Ptr, Ptr);
}
