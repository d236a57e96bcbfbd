//! `cudnnB*.txt`: a figure for each kernel; times in milliseconds to the nanosecond, workspaces in bytes.

use super::lines::{Line, Text};
use super::tensors::MOST_NUMBERS;
use super::{G10Error, G10Name};
use deepum_core::units::{Bytes, Nanos};

/// Most milliseconds of a kernel: a quarter of an hour.
const MOST_MILLIS: u64 = 1_000_000;
/// Most bytes of a workspace.
const MOST_BYTES: u64 = 1 << 44;

/// A file of times: lines of `ID TIME ms`. With each time comes where it stands.
pub(super) fn times(text: &Text, kernels: usize) -> Result<Vec<(Nanos, Line<'_>)>, G10Error> {
    figures(text, kernels, |line| {
        let whole = line.number(" ", MOST_MILLIS)?;
        line.literal(".")?;
        // Cut off behind six places, a fraction would not be the one that was printed.
        let digits = line.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits != 6 {
            return Err(line.wrong(line.rest(), "six places behind the point"));
        }
        let nanos = line.number("", 999_999)?;
        line.literal(" ms")?;
        Ok(Nanos(whole * 1_000_000 + nanos))
    })
}

/// The file of workspaces: lines of `ID SIZE B`.
pub(super) fn workspaces(text: &Text, kernels: usize) -> Result<Vec<(Bytes, Line<'_>)>, G10Error> {
    figures(text, kernels, |line| {
        let bytes = line.number(" ", MOST_BYTES)?;
        line.literal(" B")?;
        Ok(Bytes(bytes))
    })
}

/// The file of figures that `what` names.
pub(super) fn text(name: &G10Name, what: &str) -> Result<Text, G10Error> {
    Text::read(name.results(what))
}

fn figures<'a, T>(
    text: &'a Text,
    kernels: usize,
    figure: impl Fn(&mut Line<'a>) -> Result<T, G10Error>,
) -> Result<Vec<(T, Line<'a>)>, G10Error> {
    let mut lines = text.lines();
    let mut figures = Vec::with_capacity(kernels);
    for kernel in 0..kernels {
        let mut line = lines.expect(&format!("a line for each of {kernels} kernels"))?;
        let id = line.number("", MOST_NUMBERS)?;
        if id != kernel as u64 {
            return Err(line.wrong(format!("kernel {id}"), format!("kernel {kernel} here")));
        }
        figures.push((figure(&mut line)?, line));
        line.end()?;
    }
    match lines.next() {
        Some(line) => Err(line.wrong(line.text(), format!("nothing behind the last of {kernels} kernels"))),
        None => Ok(figures),
    }
}
