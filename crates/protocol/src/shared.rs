//! The header words of the ring that both sides use while it runs: mode, launch counters, shim counters.
//!
//! They are plain words beside the ring and not records, because they are wanted at any moment, also
//! when the ring is full or nobody reads it.

use crate::sync::{AtomicU64, Ordering, fence};
use deepum_core::units::{DeviceId, LaunchSeq};

/// Most GPUs one process may use under DeepUM; launches on further ones are not recorded.
pub const MAX_DEVICES: usize = 16;

pub(crate) const MODE: usize = 32;
const LOOKS: usize = 33;
const LEAVING: usize = 34;
pub(crate) const LAUNCHES: usize = 48;
pub(crate) const COUNTERS: usize = LAUNCHES + MAX_DEVICES;
pub(crate) const COPIES: usize = 112;

/// What the engine wants of the shim. Written by the engine, read at every launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything fits: hash and count launches, record allocations, write no progress.
    Dormant,
    /// Record launches too, and write progress words.
    Awake,
    /// The engine is gone: record nothing.
    Off,
}

impl Mode {
    const fn word(self) -> u64 {
        match self {
            Self::Dormant => 0,
            Self::Awake => 1,
            Self::Off => 2,
        }
    }
}

macro_rules! shim_counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)*) => {
        /// What the shim counts by itself, each in one word of the ring's header.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum ShimCounter { $($(#[doc = $doc])+ $name,)* }

        impl ShimCounter {
            /// All of them, in the order of their words.
            pub const ALL: &[Self] = &[$(Self::$name),*];
            /// Its name in the status.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}
shim_counters! {
    /// Launches the driver accepted, all devices.
    Launches = "launches",
    /// Launches the driver refused; they have no place in the sequence.
    LaunchesRefused = "launches_refused",
    /// Launches of kernels whose parameter layout is unknown (driver before CUDA 12.4): no pointers.
    LaunchesWithoutLayout = "launches_without_layout",
    /// Launches that entered a CUDA graph being captured; the graph's own launch is counted instead.
    LaunchesCaptured = "launches_captured",
    /// Pointers left out because one launch had more than a record holds.
    PointersLeftOut = "pointers_left_out",
    /// Live bytes of device memory that became managed memory, or was managed already.
    ManagedBytes = "managed_bytes",
    /// Device allocations that became managed memory.
    AllocationsManaged = "allocations_managed",
    /// Device allocations left as they were: small ones, and those of communication libraries.
    AllocationsKept = "allocations_kept",
    /// Device allocations refused because host memory would not hold them.
    AllocationsRefused = "allocations_refused",
    /// Notices of PyTorch's caching allocator.
    PtBlockNotices = "pt_block_notices",
    /// Progress words written into streams.
    ProgressWrites = "progress_writes",
    /// Launches into streams beyond the progress page: no progress is known of them.
    LaunchesWithoutProgress = "launches_without_progress",
    /// Waits for the launch gate put into streams.
    GateWaits = "gate_waits",
    /// Copies and memsets of managed memory; each has a place in the sequence.
    Copies = "copies",
    /// Launches before which the program waited, because it was further ahead of the GPU than the engine wants it to be.
    LaunchesHeld = "launches_held",
}

/// The shared words of one ring.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    pub(crate) words: &'a [AtomicU64],
}

impl Shared<'_> {
    /// What the engine wants now. Before it says anything, [`Mode::Dormant`]; a word of neither mode reads as [`Mode::Off`].
    #[inline]
    pub fn mode(&self) -> Mode {
        match self.words[MODE].load(Ordering::Relaxed) {
            0 => Mode::Dormant,
            1 => Mode::Awake,
            _ => Mode::Off,
        }
    }

    /// Says what the shim shall do from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.words[MODE].store(mode.word(), Ordering::Relaxed);
    }

    /// The program has managed memory of its own, or may think that ours is managed: from now on it may look at pages on the host's side at any moment. Gives
    /// whether pages are leaving that it must not look at yet; once they are not, none will.
    pub fn host_looks(&self) -> bool {
        self.words[LOOKS].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.words[LEAVING].load(Ordering::Acquire) != 0
    }

    /// No engine is there that moves pages.
    pub(crate) fn nothing_leaves(&self) {
        self.words[LEAVING].store(0, Ordering::Relaxed);
    }

    /// Does `leave`, during which the host must not look at some pages, unless it may at any moment ([`Self::host_looks`]): then nothing.
    pub fn unlooked<R>(&self, leave: impl FnOnce() -> R) -> Option<R> {
        struct Leaving<'a>(&'a AtomicU64);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        // Each side says what it is about to do before it looks what the other does: one of them sees the other.
        self.words[LEAVING].fetch_add(1, Ordering::Relaxed);
        let _leaving = Leaving(&self.words[LEAVING]);
        fence(Ordering::SeqCst);
        (self.words[LOOKS].load(Ordering::Relaxed) == 0).then(leave)
    }

    /// Takes the next place in the device's sequence of launches and copies; nothing for a device past [`MAX_DEVICES`].
    #[inline]
    pub fn take_seq(&self, device: DeviceId) -> Option<LaunchSeq> {
        let word = self.launches_word(device)?;
        Some(LaunchSeq(word.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// Gives a place back after the driver refused the launch. Works only while no other thread took a later
    /// one; says whether it did.
    pub fn give_back_seq(&self, device: DeviceId, seq: LaunchSeq) -> bool {
        self.launches_word(device)
            .is_some_and(|w| w.compare_exchange(seq.0, seq.0 - 1, Ordering::Relaxed, Ordering::Relaxed).is_ok())
    }

    /// Takes the next place for a copy, as [`Self::take_seq`] does for a launch.
    #[inline]
    pub fn take_copy_seq(&self, device: DeviceId) -> Option<LaunchSeq> {
        let seq = self.take_seq(device)?;
        self.words[COPIES + usize::from(device.0)].fetch_add(1, Ordering::Relaxed);
        Some(seq)
    }

    /// Gives the place of a copy back, as [`Self::give_back_seq`] does that of a launch.
    pub fn give_back_copy_seq(&self, device: DeviceId, seq: LaunchSeq) -> bool {
        let given = self.give_back_seq(device, seq);
        if given {
            self.words[COPIES + usize::from(device.0)].fetch_sub(1, Ordering::Relaxed);
        }
        given
    }

    /// How many of the device's places are copies'.
    pub fn copies(&self, device: DeviceId) -> u64 {
        self.launches_word(device).map_or(0, |_| self.words[COPIES + usize::from(device.0)].load(Ordering::Relaxed))
    }

    /// How many of them are launches'.
    pub fn launched(&self, device: DeviceId) -> u64 {
        // Copies first: each takes its place before it counts.
        let copies = self.copies(device);
        self.issued(device).0.saturating_sub(copies)
    }

    /// The newest place taken in the device's sequence.
    pub fn issued(&self, device: DeviceId) -> LaunchSeq {
        LaunchSeq(self.launches_word(device).map_or(0, |w| w.load(Ordering::Relaxed)))
    }

    #[inline]
    fn launches_word(&self, device: DeviceId) -> Option<&AtomicU64> {
        (usize::from(device.0) < MAX_DEVICES).then(|| &self.words[LAUNCHES + usize::from(device.0)])
    }

    /// Adds to a counter of the shim.
    #[inline]
    pub fn add(&self, counter: ShimCounter, by: u64) {
        self.words[COUNTERS + counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Takes from a counter of the shim (for those of live amounts).
    pub fn sub(&self, counter: ShimCounter, by: u64) {
        self.words[COUNTERS + counter as usize].fetch_sub(by, Ordering::Relaxed);
    }

    /// Reads a counter of the shim.
    pub fn get(&self, counter: ShimCounter) -> u64 {
        self.words[COUNTERS + counter as usize].load(Ordering::Relaxed)
    }
}
