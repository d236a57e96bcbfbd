//! What the device leaves on the stack of the program's threads: nothing.
//!
//! Problem: PyTorch hands structures to kernels of which it has not written every word (unused places of arrays, padding). Such a word is
//! what some earlier call left on the stack; where that is a pointer into managed memory, the launch seems to name that memory. Here
//! the engine's hooks run on the program's threads, and so does the waiting for the engine and for the device's locks, and the
//! waking of whoever waits: in more or fewer frames by where the engine lives and how fast this machine is. What they
//! overwrite, and what they spare, would decide which memory a launch seems to name, and so what the engine fetches and when
//! the launch starts.
//!
//! Idea: what lay on the stack below a call into the device is kept aside meanwhile, and put back ([`untouched`]). All of the call, for
//! which of its parts wait or wake is not to be seen from outside.

use std::cell::Cell;
use std::hint::black_box;
use std::mem::{self, MaybeUninit};

/// How deep a call may go; what lies deeper is not kept. With either engine they went 3,312 bytes deep in a training
/// run, in the first of its turns.
const DEPTH: usize = 16 << 10;

type Kept = MaybeUninit<[u8; DEPTH]>;

thread_local! {
    /// Not on the stack, where it would lie between the caller and what is kept; nor made each time, since how deep the allocator goes
    /// differs from time to time.
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// Does `f`, and leaves the stack below the caller as it was.
#[inline(always)]
pub fn untouched<R>(f: impl FnOnce() -> R) -> R {
    // A program that ends calls from destructors, when there may be nowhere to keep anything.
    let mut kept = KEPT.try_with(Cell::take).ok().flatten().unwrap_or_else(Box::new_uninit);
    exchange(&mut kept);
    let result = below(f);
    exchange(&mut kept);
    let _ = KEPT.try_with(|place| place.set(Some(kept)));
    result
}

/// A frame of its own, so that all of `f` is below the caller's.
#[inline(never)]
fn below<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Exchanges what is kept with what lies on the stack. Both times in the same frame, so it is the same piece of the stack.
#[inline(never)]
fn exchange(kept: &mut Kept) {
    let mut frame = Kept::uninit();
    // The compiler is not to know that nothing was written here, nor that nobody reads it.
    mem::swap(kept, black_box(&mut frame));
    black_box(&mut frame);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

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
    fn what_lay_below_the_caller_lies_there_afterwards() {
        let (before, ours) = (black_box(0x7131_033c_0800), black_box(0x7131_0320_0000));
        // A few words more or less are the frames of those who do it.
        const FEW: usize = 100;
        litter(before);
        let all = found(before);
        assert!(all > WORDS - FEW, "what is on the stack stays there: {all}");
        untouched(|| ());
        litter(before);
        untouched(|| litter(ours));
        let kept = found(before);
        assert!(kept > all - FEW, "{kept} of {all}");
        litter(before);
        untouched(|| litter(ours));
        assert!(found(ours) < FEW);
        below(|| litter(ours));
        assert!(found(ours) > WORDS - FEW, "it would have been seen");
    }

    #[test]
    fn destructors_of_a_thread_that_ends_may_call() {
        struct Calls(mpsc::Sender<bool>);
        impl Drop for Calls {
            fn drop(&mut self) {
                let gone = untouched(|| KEPT.try_with(|_| ()).is_err());
                self.0.send(gone).unwrap();
            }
        }
        thread_local!(static CALLS: Cell<Option<Calls>> = const { Cell::new(None) });
        let (done, ended) = mpsc::channel();
        let thread = std::thread::spawn(|| {
            CALLS.set(Some(Calls(done)));
            // Known later, so gone sooner.
            untouched(|| ());
        });
        thread.join().unwrap();
        assert!(ended.recv().unwrap(), "there is nowhere to keep anything");
    }
}
