//! Words that the driver writes once what was asked for is over.
//!
//! Problem: whoever waits for a move in a call of the driver holds the address space's lock until the copies are over, and whoever wants it for writing waits that long, as each call about
//! blocks that leave does; and each such call wakes a thread of the kernel twice. Idea: a call that does not wait takes a *semaphore*, a word in a pool, which the GPU writes behind the
//! copies. CUDA has such a pool of its own in the same address space; this is another one, of a page (facts 4.11).

use crate::migrate::{MigrateError, VaSpace};
use crate::raw::{self, Params, PoolMemory, RequestError, Reserved};
use crate::sys::{self, request};
use deepum_core::units::{AddrRange, DeviceId, Place};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A pool of one address space.
#[derive(Debug)]
pub struct Semaphores {
    words: PoolMemory,
    /// Calls that took one.
    taken: AtomicU64,
}

/// The word of a call that was begun.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    word: &'a AtomicU32,
    payload: u32,
}

impl Word<'_> {
    /// Whether what was asked for is over.
    pub fn is_written(&self) -> bool {
        self.word.load(Ordering::Acquire) == self.payload
    }

    /// Waits until it is over, two seconds at most; whether it is. Copies take 40 us a block, and a sleep twice that: the thread keeps its processor, unless somebody else wants it.
    pub fn wait(&self) -> bool {
        let since = Instant::now();
        while !self.is_written() && since.elapsed() < LOST {
            std::thread::yield_now();
        }
        self.is_written()
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.word.as_ptr() as u64
    }
}

/// A word that is not written by then, of a move of some MiB, never will be.
const LOST: Duration = Duration::from_secs(2);

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum NoSemaphores {
    /// Nobody knows the driver.
    #[error("a driver that is not known is not asked for words")]
    Unknown,
    /// It did not make one.
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// What a driver never answers.
const UNANSWERED: u32 = u32::MAX;

impl VaSpace {
    /// Makes a pool, which is the address space's until that ends. Only in the process whose address space it is. A driver that is not known is not asked: its struct might be
    /// longer than what it is handed.
    ///
    /// # Errors
    /// [`NoSemaphores`].
    pub fn semaphores(&self) -> Result<Semaphores, NoSemaphores> {
        if self.known.is_err() {
            return Err(NoSemaphores::Unknown);
        }
        let system = |source: io::Error| RequestError::System { request: request::ALLOC_SEMAPHORE_POOL, source };
        let reserved = Reserved::page().map_err(system)?;
        self.make_pool(&reserved)?;
        let words = reserved.map(&*self.kernel, self.descriptor()).map_err(system)?;
        Ok(Semaphores { words, taken: AtomicU64::new(0) })
    }

    fn make_pool(&self, at: &Reserved) -> Result<(), RequestError> {
        type Old = sys::AllocSemaphorePool<32>;
        type New = sys::AllocSemaphorePool<256>;
        let mut params = Params::default();
        params.put_u64(offset_of!(New, base), at.address());
        params.put_u64(offset_of!(New, length), at.length());
        // No rows: every GPU has it mapped. So an older driver's status is among rows that a newer one does not look at.
        let (old, new) = (offset_of!(Old, rm_status), offset_of!(New, rm_status));
        params.put_u32(new, UNANSWERED);
        // SAFETY: the driver maps memory of its own at addresses that nothing else has while `at` lives.
        unsafe {
            raw::call(&*self.kernel, self.descriptor(), request::ALLOC_SEMAPHORE_POOL, &mut params, |p| {
                match p.u32(new) {
                    UNANSWERED => p.u32(old),
                    answer => answer,
                }
            })
        }
    }

    /// As [`VaSpace::migrate`] to a GPU, but that nobody waits in the driver: `wait` keeps the calling thread until the word is written, and says whether it was. Where it was not the driver's own
    /// call waits, and the answer is false: words are better not relied on any more. The driver tells of such moves, and of what it evicted for them, when it is asked to, which it is behind
    /// the word, if anybody hears it (`told`).
    ///
    /// # Errors
    /// As [`VaSpace::migrate`].
    pub fn migrate_with(
        &self,
        range: AddrRange,
        to: DeviceId,
        pool: &Semaphores,
        told: bool,
        wait: impl Fn(Word<'_>) -> bool,
    ) -> Result<bool, MigrateError> {
        let word = pool.take();
        let begun = self.move_all(range, Place::Device(to), sys::MIGRATE_ASYNC, Some((word.address(), word.payload)));
        let written = begun.map(|()| wait(word));
        if told {
            // If this fails, that is told late.
            let _ = self.flush();
        }
        match written {
            Ok(true) => Ok(true),
            // The call that waits says why, or mends it.
            _ => self.migrate(range, Place::Device(to)).map(|()| written.is_err()),
        }
    }
}

impl Semaphores {
    /// Words are taken in turn: far more of them than calls are ever under way. What a page begins with is 0, which is nobody's.
    fn take(&self) -> Word<'_> {
        let nth = self.taken.fetch_add(1, Ordering::Relaxed) % u64::from(u32::MAX);
        let payload = u32::try_from(nth).unwrap_or_default() + 1;
        Word { word: self.words.word(payload as usize % self.words.count()), payload }
    }
}
