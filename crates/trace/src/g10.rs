//! G10's profiles of one training iteration on an A100: kernels with their times, with and without faults, and the tensors they touch.
//!
//! Source: the artifact of "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart Tensor Migrations" (Zhang, Zhou,
//! Xue, Liu, Huang; MICRO'23), `platformxlab/G10` at de2c8c6. A folder of it has for model `M` and batch size `B`
//!
//! | file | what | read by |
//! | --- | --- | --- |
//! | `results/M/cudnnB.txt`, `cudnnBInputPF.txt`, `cudnnBPF.txt` | kernel times | `figures` |
//! | `results/M/cudnnBWorkspace.txt` | workspace of each kernel | `figures` |
//! | `derived/M/B-tensors.config.gz` | what the artifact's front end takes the tensors to be | `tensors` |
//! | `derived/M/B-kernels.config.gz` | and what the kernels, and what they touch | `kernels` |
//!
//! What is to be known of them:
//! - `InputPF` is the time when the *outputs* fault and the inputs are there, `PF` when both fault. So `PF - InputPF` is what faulting the
//!   inputs in costs, and `InputPF` less the plain time what the outputs cost. Some kernels (2 to 11 % of a point's) were timed faster with
//!   faults than without; as in the artifact times are clamped to plain <= InputPF <= PF, and the cost is then zero.
//! - Times in cycles are the plain times cut off, so those in milliseconds are taken; the two must agree within a cycle.
//! - Times have no gap between kernels and no host in them.
//! - An intermediate is dead before the first kernel that names it and after the last ([`Program`]). In the artifact it is so one past the last
//!   kernel that reads it, and one that is never read lives in its one kernel.
//! - "Globals" of BERT and ViT are mostly data of the size of the batch: biases and constants expanded to the shape they are combined with. They are
//!   globals here, too.
//! - Only whole tensors are known to be touched.
//! - Many batch sizes were never measured: [`Origin`].
//!
//! Nothing is believed: numbers are consecutive, sizes agree with ranges, ranges are packed, a kernel's line of a tensor is the tensor's, a workspace
//! has the size that was measured; else [`G10Error`] tells file, line, what stands there and what is allowed.

mod events;
mod figures;
mod kernels;
mod lines;
mod name;
mod origin;
mod tensors;

pub use name::{G10Name, NameError};
pub use origin::Origin;

use crate::program::{Kernel, Life, Program, ProgramError, Tensor, TensorId};
use deepum_core::units::{AddrRange, Bytes, DevAddr, Nanos};
use lines::Line;
use std::io;
use std::path::PathBuf;

/// Where globals are put. A choice: far from zero and from the end of a processor's addresses, and the same always.
pub const BASE: DevAddr = DevAddr(0x7000_0000_0000);

/// A profile that was not read.
#[derive(Debug, thiserror::Error)]
pub enum G10Error {
    /// A file that cannot be read.
    #[error("{}: {why}", file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// A line that is not as it should be.
    #[error("{}:{line}: {value}: allowed is {allowed}", file.display())]
    Line {
        /// In which file.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What stands there.
        value: String,
        /// What may.
        allowed: String,
    },
    /// All lines are good, and what they say is no program.
    #[error("{name}: {why}")]
    Program {
        /// Which profile.
        name: G10Name,
        /// Why.
        why: ProgramError,
    },
}

/// What faults add to a kernel's time, as they were measured.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FaultCost {
    /// If all inputs fault: `PF - InputPF`.
    pub input: Nanos,
    /// If all outputs fault: `InputPF` less the time without faults.
    pub output: Nanos,
}

/// One of G10's profiles. See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    name: G10Name,
    program: Program,
    faults: Vec<FaultCost>,
    workspaces: Vec<Option<TensorId>>,
    places: Vec<AddrRange>,
    globals: AddrRange,
    intermediates: AddrRange,
}

impl Profile {
    /// Reads a profile's files.
    ///
    /// # Errors
    /// [`G10Error`].
    pub fn read(name: &G10Name) -> Result<Self, G10Error> {
        let (entries, [globals, intermediates]) = tensors::read(name)?;
        let text = kernels::text(name)?;
        let records = kernels::records(&text, &entries)?;
        let tensors: Vec<Tensor> = entries.iter().map(|entry| entry.tensor).collect();

        let [plain, outputs, both] =
            [figures::text(name, "")?, figures::text(name, "InputPF")?, figures::text(name, "PF")?];
        let times = |text| figures::times(text, records.len());
        let (plain, outputs, both) = (times(&plain)?, times(&outputs)?, times(&both)?);
        let mut kernels = Vec::with_capacity(records.len());
        let mut faults = Vec::with_capacity(records.len());
        for (record, ((time, line), (&(outputs, _), &(both, _)))) in
            records.iter().zip(plain.iter().zip(outputs.iter().zip(&both)))
        {
            agree(*time, record.cycles, line)?;
            faults.push(FaultCost {
                input: both.max(outputs).max(*time) - outputs.max(*time),
                output: outputs.saturating_sub(*time),
            });
            let (reads, writes) = (record.reads.clone(), record.writes.clone());
            kernels.push(Kernel { name: record.name.into(), time: *time, reads, writes });
        }

        let program = Program::new(kernels, tensors).map_err(|why| G10Error::Program { name: name.clone(), why })?;
        let text = figures::text(name, "Workspace")?;
        let workspaces = workspaces(&program, &figures::workspaces(&text, program.kernels().len())?)?;
        let globals = AddrRange::new(BASE, globals);
        let intermediates = AddrRange::new(BASE.offset(globals.len.round_up_to_blocks()), intermediates);
        let place = |entry: &tensors::Entry| {
            let space = if entry.tensor.life == Life::Global { globals } else { intermediates };
            AddrRange::new(space.start.offset(Bytes(entry.low)), entry.tensor.size)
        };
        let places = entries.iter().map(place).collect();
        Ok(Self { name: name.clone(), program, faults, workspaces, places, globals, intermediates })
    }

    /// Which one it is.
    #[must_use]
    pub const fn name(&self) -> &G10Name {
        &self.name
    }
    /// The iteration.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }
    /// What faults cost, kernel by kernel.
    #[must_use]
    pub fn faults(&self) -> &[FaultCost] {
        &self.faults
    }
    /// Each kernel's workspace, if it has one: an intermediate that it alone touches, and only writes.
    #[must_use]
    pub fn workspaces(&self) -> &[Option<TensorId>] {
        &self.workspaces
    }
    /// Where globals lie: packed, in the order of their numbers, from [`BASE`].
    #[must_use]
    pub const fn globals(&self) -> AddrRange {
        self.globals
    }
    /// Where intermediates lie: packed, in the order of their numbers, from the next UM block on; no address is used twice in an
    /// iteration. In the artifact they follow the globals without the gap.
    #[must_use]
    pub const fn intermediates(&self) -> AddrRange {
        self.intermediates
    }
    /// Where a tensor lies.
    ///
    /// # Panics
    /// If it is of another program.
    #[must_use]
    pub fn place(&self, id: TensorId) -> AddrRange {
        self.places[id.index()]
    }
}

/// Refuses a time that is not that in cycles of 1.2 GHz: cut off, and one less where the artifact's arithmetic rounded.
fn agree(time: Nanos, cycles: u64, line: &Line<'_>) -> Result<(), G10Error> {
    let exact = time.0 * 6 / 5;
    if exact.abs_diff(cycles) <= 1 {
        return Ok(());
    }
    Err(line.wrong(
        format!("{} ns, which are {exact} cycles", time.0),
        format!("{cycles} cycles, as in the file of kernels"),
    ))
}

/// The workspaces: the last tensors, one for each kernel that has one, in the order of kernels.
fn workspaces(program: &Program, sizes: &[(Bytes, Line<'_>)]) -> Result<Vec<Option<TensorId>>, G10Error> {
    let some = sizes.iter().filter(|(size, _)| *size > Bytes::ZERO).count();
    let mut last = program.ids().skip(program.tensors().len().saturating_sub(some));
    let mut found = Vec::with_capacity(sizes.len());
    for ((kernel, (size, line)), number) in program.kernels().iter().zip(sizes).zip(0u32..) {
        if *size == Bytes::ZERO {
            found.push(None);
            continue;
        }
        let is_it = |id: &TensorId| {
            let (tensor, alone) = (program.tensor(*id), program.uses(*id) == [number]);
            let fits = tensor.size.0 == size.0.next_multiple_of(4096) && tensor.life == Life::Intermediate;
            fits && alone && kernel.writes.contains(id) && !kernel.reads.contains(id)
        };
        let workspace = last.next().filter(is_it);
        let allowed =
            "the page-rounded size of the next of the last tensors, which this kernel alone names, as an output";
        found.push(Some(workspace.ok_or_else(|| line.wrong(format!("workspace of {} bytes", size.0), allowed))?));
    }
    Ok(found)
}
