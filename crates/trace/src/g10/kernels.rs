//! `B-kernels.config`: the sequence of kernels, and what each reads and writes.

use super::lines::{Line, Lines, Text};
use super::tensors::{Entry, MOST_NUMBERS};
use super::{G10Error, G10Name};
use crate::program::TensorId;

/// Most cycles of a kernel: a quarter of an hour.
const MOST_CYCLES: u64 = 1 << 40;

/// A kernel as its record tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record<'a> {
    /// What kind of kernel it is, and of what.
    pub(super) name: &'a str,
    /// Its time in cycles of a 1.2 GHz clock, cut off.
    pub(super) cycles: u64,
    pub(super) reads: Vec<TensorId>,
    pub(super) writes: Vec<TensorId>,
}

/// The file, to be read by [`records`].
pub(super) fn text(name: &G10Name) -> Result<Text, G10Error> {
    Text::read(name.derived("kernels"))
}

/// All kernels, in the order of launches.
pub(super) fn records<'a>(text: &'a Text, tensors: &[Entry]) -> Result<Vec<Record<'a>>, G10Error> {
    let mut lines = text.lines();
    let mut records = Vec::new();
    while let Some(mut line) = lines.next() {
        let id = line.number("Kernel ID: ", MOST_NUMBERS)?;
        if id != records.len() as u64 {
            return Err(line.wrong(format!("kernel {id}"), format!("kernel {} here", records.len())));
        }
        line.literal(", Name: ")?;
        if line.rest().is_empty() {
            return Err(line.wrong(line.text(), "a kernel's name at its end"));
        }
        lines.expect("the line of its layer or operation")?.literal("Parent ")?;
        let mut time = lines.expect("the line of its time")?;
        let cycles = time.number("Execution Time: ", MOST_CYCLES)?;
        time.end()?;
        // The CNNs' records have the shape of the layer's input.
        lines.next_if("(");
        let reads = list(&mut lines, "Input Tensors:", tensors)?;
        let writes = list(&mut lines, "Output Tensors:", tensors)?;
        lines.expect("a line of underscores")?.literal("____")?;
        records.push(Record { name: line.rest(), cycles, reads, writes });
    }
    Ok(records)
}

fn list(lines: &mut Lines<'_>, head: &str, tensors: &[Entry]) -> Result<Vec<TensorId>, G10Error> {
    let mut line = lines.expect(head)?;
    line.literal(head)?;
    line.end()?;
    let mut ids = Vec::new();
    while let Some(line) = lines.next_if("tensor") {
        let id = known(line, tensors)?;
        if ids.contains(&id) {
            return Err(line.wrong(format!("tensor{}", id.0), "each tensor once in a list"));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// The tensor of a line, which must be the line of the file of tensors.
fn known(line: Line<'_>, tensors: &[Entry]) -> Result<TensorId, G10Error> {
    let entry = Entry::read(line)?;
    match tensors.get(entry.id.index()) {
        Some(known) if *known == entry => Ok(entry.id),
        Some(_) => Err(line.wrong(line.text(), "the same as in the file of tensors")),
        None => Err(line.wrong(format!("tensor{}", entry.id.0), format!("one of {} tensors", tensors.len()))),
    }
}
