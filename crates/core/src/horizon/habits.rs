//! What kernels do with what they are given: which of their operands they write.
//!
//! Problem: a block of which the host has a copy must be owned before it is written, and one that is written soon is not worth a copy; but no launch says what it
//! writes, and a write is seen only where it fills memory that was handed out, or faults.
//! Idea: a kernel does the same with the same operand wherever it is launched. What one launch was seen to write goes for all launches of its kernel with as many operands: in place
//! it has one operand less.
//!
//! What is not known to be written is taken to be read: where that is wrong a few faults tell.

use crate::mix::Map;
use crate::units::{AddrRange, KernelId, UmBlock};
use crate::window::Issued;

/// Kernels remembered at most: many times what a program has, and a few MiB.
const MOST: usize = 1 << 16;

/// Operands told apart.
const OPERANDS: usize = 64;

/// See the module.
#[derive(Default, Debug)]
pub struct Habits {
    /// By kernel and number of operands: a bit for each of the first [`OPERANDS`] that is written.
    written: Map<(KernelId, usize), u64>,
    /// Counts what was learned.
    version: u32,
}

impl Habits {
    /// A launch was seen to write this operand. Returns whether that is new.
    pub fn writes(&mut self, launch: &Issued, operand: usize) -> bool {
        let Some(key) = key(launch).filter(|_| operand < OPERANDS) else { return false };
        if self.written.len() >= MOST && !self.written.contains_key(&key) {
            return false;
        }
        let written = self.written.entry(key).or_default();
        let is_new = *written >> operand & 1 == 0;
        *written |= 1 << operand;
        self.version += u32::from(is_new);
        is_new
    }

    /// A launch was seen to write this block: which of its operands that is. Returns whether that is new.
    pub fn writes_block(&mut self, launch: &Issued, block: UmBlock) -> bool {
        let within = |range: &AddrRange| range.start < block.range().end() && range.end() > block.start();
        let mut operands = launch.reach.iter().enumerate().filter(|(_, range)| within(range));
        // Where several meet in a block nothing says which it was.
        match (operands.next(), operands.next()) {
            (Some((operand, _)), None) => self.writes(launch, operand),
            _ => false,
        }
    }

    /// What a launch writes, as far as is known.
    pub fn of<'a>(&self, launch: &'a Issued) -> impl Iterator<Item = AddrRange> + 'a {
        let written = key(launch).and_then(|key| self.written.get(&key)).copied().unwrap_or(0);
        launch
            .reach
            .iter()
            .enumerate()
            .filter(move |&(n, _)| n < OPERANDS && written >> n & 1 == 1)
            .map(|(_, &range)| range)
    }

    /// Rises with what is learned.
    pub fn version(&self) -> u32 {
        self.version
    }
}

fn key(launch: &Issued) -> Option<(KernelId, usize)> {
    launch.kernel.map(|kernel| (kernel, launch.reach.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Launch;
    use crate::pt_blocks::PtBlocks;
    use crate::units::{Bytes, ExecId, LaunchKey, LaunchSeq, StreamSlot};
    use crate::window::Window;

    /// Launches of a kernel on tensors of two blocks, each named by its number.
    fn launches(of: &[(u64, &[u64])]) -> Window {
        let (mut window, mut map) = (Window::default(), PtBlocks::default());
        let tensor = |number: u64| AddrRange::new(UmBlock(100 + 2 * number).start(), Bytes(2 * UmBlock::SIZE.get()));
        map.alloc(AddrRange::new(UmBlock(100).start(), Bytes(40 * UmBlock::SIZE.get())));
        (0..20).for_each(|number| map.report(tensor(number), true, LaunchSeq(0), LaunchSeq(0)));
        for (seq, (kernel, tensors)) in (1..).zip(of) {
            let pointers: Vec<_> = tensors.iter().map(|&number| tensor(number).start).collect();
            let (seq, key, kernel) = (LaunchSeq(seq), LaunchKey(seq), KernelId(*kernel));
            let launch = Launch { seq, stream: StreamSlot(0), key, kernel, pointers: &pointers };
            window.issue(&launch, Some(ExecId(0)), &map);
        }
        window
    }

    #[test]
    fn what_one_launch_writes_goes_for_all_of_its_kernel_with_as_many_operands() {
        let window = launches(&[(7, &[1, 2, 3]), (7, &[4, 5, 6]), (7, &[8, 9]), (9, &[4, 5, 6])]);
        let of: Vec<&Issued> = window.launches().collect();
        let mut habits = Habits::default();
        assert!(habits.writes_block(of[0], UmBlock(105)), "the second operand's second block");
        assert!(!habits.writes_block(of[1], UmBlock(110)), "that was known");
        let written = |launch| habits.of(launch).map(|range| UmBlock::containing(range.start).0).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(|n| written(of[n])), [vec![104], vec![110], vec![], vec![]]);
        assert_eq!(habits.version(), 1);
    }

    #[test]
    fn a_block_of_no_operand_teaches_nothing() {
        let window = launches(&[(7, &[1, 2])]);
        let launch = window.launches().next().unwrap();
        let mut habits = Habits::default();
        assert!(!habits.writes_block(launch, UmBlock(130)));
        assert_eq!((habits.of(launch).count(), habits.version()), (0, 0));
    }
}
