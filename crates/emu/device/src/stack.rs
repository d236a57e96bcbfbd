//! What the device leaves on the stack of the program's threads: nothing.
//!
//! Problem: PyTorch hands structures to kernels of which it has not written every word (unused places of arrays, padding). Such a word is
//! what some earlier call left on the stack; where that is a pointer into managed memory, the launch seems to name that memory. Here
//! the engine's hooks run on the program's threads, and so does the waiting for the engine and for the device's locks, and the
//! waking of whoever waits: in more or fewer frames by where the engine lives and how fast this machine is. What they
//! overwrite, and what they spare, would decide which memory a launch seems to name, and so what the engine fetches and when
//! the launch starts.
//!
//! Idea: when a call into the device is over, the stack below it is zeros, as far down as calls go ([`clean`]). What a driver leaves there
//! is arbitrary, and zeros are the same in every run.

use std::hint::black_box;
use std::mem::MaybeUninit;

/// How deep a call may go; what lies deeper is not wiped. In training runs of BERT and DLRM, with the engine's turns on the program's
/// thread, 25,664 bytes were the deepest, in one of the first launches; of 100,000 calls all but 130 stayed above 4,096.
const DEPTH: usize = 32 << 10;

/// Does `f`, and wipes the stack below the caller.
#[inline(always)]
pub fn clean<R>(f: impl FnOnce() -> R) -> R {
    let result = below(f);
    wipe();
    result
}

/// A frame of its own, so that all of `f` is below the caller's.
#[inline(never)]
fn below<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Its frame lies where the last call's did.
#[inline(never)]
fn wipe() {
    let mut frame = MaybeUninit::<[u8; DEPTH]>::zeroed();
    // The compiler is not to know that nobody reads it.
    black_box(&mut frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: usize = DEPTH / 16;

    /// Writes `mark` all over the stack, to half the depth.
    #[inline(never)]
    fn litter(mark: u64) {
        let mut frame = [mark; WORDS];
        black_box(&mut frame);
    }

    /// How many words of the stack are `mark`, which nobody here wrote.
    #[inline(never)]
    fn found(mark: u64) -> usize {
        let mut frame = MaybeUninit::<[u64; WORDS]>::uninit();
        let at = black_box(frame.as_mut_ptr()).cast::<u64>();
        // SAFETY: inside the array, which is on the stack and so readable; a volatile read takes what lies there.
        (0..WORDS).filter(|&i| unsafe { at.add(i).read_volatile() } == mark).count()
    }

    #[test]
    fn neither_what_a_call_wrote_nor_what_lay_there_is_found_afterwards() {
        let (before, ours) = (black_box(0x7131_033c_0800), black_box(0x7131_0320_0000));
        // A few words more or less are the frames of those who do it.
        const FEW: usize = 100;
        litter(before);
        assert!(found(before) > WORDS - FEW, "what is on the stack stays there");
        clean(|| litter(ours));
        assert!(found(before) < FEW && found(ours) < FEW && found(0) > WORDS - FEW);
        below(|| litter(ours));
        assert!(found(ours) > WORDS - FEW, "it would have been seen");
    }
}
