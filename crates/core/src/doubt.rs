//! What is known is doubted now and then: a block is left out of the plan, to see whether it is used.
//!
//! Problem: of a block that is fetched ahead no fault tells whether it is used. Arguments name whole embedding tables of which a few blocks are
//! looked up, and fetching the rest in every iteration is slower than doing nothing. And what a program stopped using would be
//! fetched for ever.
//! Idea: leave a block out for one launch. If the GPU faults on it, it is used, and the fault costs little, for it happens seldom. If the launch ends
//! and the block was absent all the while, the launch does not use it. How seldom is for the execution ID's record to say
//! ([`crate::correlate::proof`]): hardly ever where what is known proves right, always where it does not; then faults
//! alone teach.
//!
//! A block that is on the GPU, or on its way for another launch, would tell nothing, and so is left out only where all are; it is then
//! nobody's business, and grows old. What one launch was found not to use since the GPU last faulted on it, others that know it from arguments
//! alone are not believed to use either, least of all an execution ID that never ran: so the second kernel that names a table costs no second
//! search.
//!
//! Where kernels are told apart, what came of it for a kernel stands in for what came of it in the whole program: a model that answers is dense but for the kernel that looks up its embedding.
//!
//! Which block it is follows from a count, so that the same events give the same commands. What is left out is not expected, and does not
//! close the gate. Where faults cannot be seen nothing is left out.
//! Not here: what a fault and its absence teach (`correlate/proof`).

use crate::correlate::proof::{Precision, Proof};
use crate::correlate::runs::Runs;
use crate::correlate::{StableBlock, Tables};
use crate::known::Known;
use crate::mix::{Map, Mix};
use crate::residency::{Ask, Handle};
use crate::units::{ExecId, KernelId, UmBlock};

/// Where the blocks of a planned launch are written.
pub enum Chain<'a> {
    /// In the table of its execution ID, with what is known about them.
    Learned(&'a Runs, &'a Proof),
    /// Nowhere yet: these its arguments reach.
    Reached(&'a [UmBlock]),
}

impl Chain<'_> {
    /// The block at `index`; nothing inside if the program has none of that number.
    pub fn get(&self, index: usize, known: &Known) -> Option<Option<UmBlock>> {
        match self {
            Self::Learned(chain, _) => chain.get(index).map(|number| known.places.block(number)),
            Self::Reached(blocks) => blocks.get(index).copied().map(Some),
        }
    }
    /// The number of the block at `index`, where it was learned by number.
    pub fn number(&self, index: usize) -> Option<StableBlock> {
        match self {
            Self::Learned(chain, _) => chain.get(index),
            Self::Reached(_) => None,
        }
    }
}

/// The first sample: so many blocks are left out often, before it is known what comes of it. The plan is far ahead of what is known.
const SAMPLE: u64 = 32;
/// And of each kernel.
const SAMPLE_OF_KERNEL: u64 = 4;

/// So many blocks found unused at once are worth a new plan: one call of the mover (facts 4.1).
const MANY: usize = 16;

/// Whether anything would be seen of the block if it were left out.
fn tells(at: Handle, known: &Known) -> bool {
    let block = known.residency.get(at);
    !block.on_device && !block.empty && block.ask() == Ask::None && !known.is_expected(block)
}

#[derive(Default, Debug)]
struct OfKernel {
    /// Blocks left out; not all of them tell.
    left_out: u64,
    came: Precision,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Doubt {
    /// Blocks that could have been left out.
    drawn: u64,
    /// How many were.
    left_out: u64,
    /// What came of it, whatever the execution ID.
    all: Precision,
    /// And by kernel.
    kernels: Map<KernelId, OfKernel>,
}

impl Doubt {
    /// Whether the block at `index` of a chain is to be left out this time.
    pub fn leaves_out(&mut self, chain: &Chain<'_>, index: usize, at: Handle, known: &Known) -> bool {
        match chain {
            Chain::Learned(chain, proof) => {
                chain.get(index).is_some_and(|number| self.leaves_out_known(number, proof, None, at, known))
            }
            Chain::Reached(_) => self.leaves_out_reached(at, known),
        }
    }

    /// Whether a block of which a table says so much is to be left out this time; of launches of this kernel, if it is known.
    pub fn leaves_out_known(
        &mut self,
        number: StableBlock,
        proof: &Proof,
        kernel: Option<KernelId>,
        at: Handle,
        known: &Known,
    ) -> bool {
        let (tells, others) = (tells(at, known), self.others(kernel));
        // Most blocks are there, and then it matters only whether all are left out.
        if !known.faults_visible || !proof.is_tried() || !tells && !proof.leaves_all_out(others) {
            return false;
        }
        let left_out = match proof.one_in(number, others) {
            1 => true,
            _ if known.residency.get(at).unused && !proof.is_proven(number) => tells,
            one_in => tells && self.draw(one_in),
        };
        self.left_out += u64::from(left_out);
        if let Some(kernel) = kernel.filter(|_| left_out) {
            self.kernels.entry(kernel).or_default().left_out += 1;
        }
        left_out
    }

    /// Which blocks of a table are left out each time; nothing if none are.
    pub fn leaves_out_always<'a>(
        &self,
        proof: &'a Proof,
        kernel: Option<KernelId>,
        faults_visible: bool,
    ) -> Option<impl Fn(StableBlock) -> bool + use<'a>> {
        let others = self.others(kernel);
        let are_any = faults_visible && proof.is_tried() && proof.leaves_all_out(others);
        are_any.then_some(move |number| proof.one_in(number, others) == 1)
    }

    /// Whether a block that only arguments name is to be left out.
    pub fn leaves_out_reached(&mut self, at: Handle, known: &Known) -> bool {
        let left_out = known.faults_visible && known.residency.get(at).unused && tells(at, known);
        self.left_out += u64::from(left_out);
        left_out
    }

    /// Whether a block that was expected, and has left the GPU before its use, is to be left out instead of being fetched again.
    pub fn lets_go(&mut self, at: Handle, exec: ExecId, known: &Known, tables: &Tables) -> bool {
        let number = known.places.number(known.residency.get(at).block);
        let (Some(table), Some(number)) =
            (tables.blocks(exec).filter(|table| table.is_settled() && table.proof().is_tried()), number)
        else {
            return false;
        };
        let left_out = known.faults_visible && self.draw(table.proof().one_in(number, self.others(None)));
        self.left_out += u64::from(left_out);
        left_out
    }

    /// What came of it for this kernel, or else in the whole program; nothing while a first sample is to be taken.
    fn others(&self, kernel: Option<KernelId>) -> Option<Precision> {
        let program = (self.left_out >= SAMPLE).then_some(self.all);
        let Some(kernel) = kernel else { return program };
        let of_kernel = self.kernels.get(&kernel).filter(|of| of.left_out >= SAMPLE_OF_KERNEL)?;
        if of_kernel.came.is_known() { Some(of_kernel.came) } else { program }
    }

    fn count(&mut self, kernel: Option<KernelId>, used: bool) {
        self.all.count(used);
        if let Some(kernel) = kernel {
            self.kernels.entry(kernel).or_default().came.count(used);
        }
    }

    fn draw(&mut self, one_in: u64) -> bool {
        self.drawn += 1;
        Mix::new().word(self.drawn).end().is_multiple_of(one_in)
    }

    /// A block that was left out was faulted on, by a launch of this kernel.
    pub fn used(&mut self, kernel: Option<KernelId>, known: &mut Known) {
        known.counters.doubted_used += 1;
        self.count(kernel, true);
    }

    /// A launch of this execution ID and kernel ran to its end as predicted. Of the blocks left out for it, those that are absent were not used.
    /// Returns whether they are so many that a plan with them is worth nothing.
    pub fn ended(
        &mut self,
        exec: ExecId,
        kernel: Option<KernelId>,
        left_out: &[UmBlock],
        known: &mut Known,
        tables: &mut Tables,
    ) -> bool {
        let Some(table) = tables.blocks_mut(exec).filter(|table| table.is_settled()) else { return false };
        let mut numbers = Vec::new();
        for &block in left_out {
            let Some(at) = known.residency.find(block) else { continue };
            let state = known.residency.get_mut(at);
            if !state.on_device {
                state.unused = true;
                self.count(kernel, false);
                numbers.extend(known.places.number(block));
            }
        }
        known.counters.doubted_unused += numbers.len() as u64;
        let gone = !numbers.is_empty() && table.unused(&numbers);
        tables.changes += u64::from(gone);
        gone && numbers.len() >= MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_sampled_by_itself_and_answers_for_itself() {
        let [dense, looks_up] = [Some(KernelId(1)), Some(KernelId(2))];
        let mut doubt = Doubt { left_out: SAMPLE, ..Doubt::default() };
        (0..16).for_each(|_| doubt.count(dense, true));
        let one_in = |doubt: &Doubt, kernel| {
            let proof = Proof::default();
            doubt.others(kernel).map(|others| proof.one_in(StableBlock(0), Some(others)))
        };
        assert_eq!((one_in(&doubt, None), one_in(&doubt, looks_up)), (Some(1024), None), "of it nothing is known yet");
        doubt.kernels.entry(KernelId(2)).or_default().left_out = SAMPLE_OF_KERNEL;
        assert_eq!(one_in(&doubt, looks_up), Some(1024), "four were left out, and nothing came of it: as the others");
        (0..4).for_each(|_| doubt.count(looks_up, false));
        assert_eq!(doubt.others(looks_up).map(|of| of.is_known()), Some(true));
        assert_ne!(doubt.others(looks_up), doubt.others(None));
    }
}
