//! Records to lines. `parse` is the other half.

use super::FIRST;
use crate::event::{Access, Event, Header, Launch, Record, Touch};
use deepum_core::units::AddrRange;
use std::fmt;

/// The lines that a trace begins with.
#[must_use]
pub fn header(header: &Header) -> String {
    let Header { program, device, budget } = header;
    format!("{FIRST}\nprogram {}\ndevice {}\nbudget {}\n", Quoted(program), Quoted(device), budget.0)
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

struct Range(AddrRange);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{}", self.0.start.0, self.0.len.0)
    }
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "r",
            Access::Write => "w",
            Access::ReadWrite => "rw",
        };
        write!(f, "{access}:{}", Range(self.range))?;
        if self.phase > 0 { write!(f, ":{}", self.phase) } else { Ok(()) }
    }
}

/// The record's line, without its end.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at.0)?;
        match &self.event {
            Event::Alloc { range } => write!(f, "alloc {}", Range(*range)),
            Event::Free { range } => write!(f, "free {}", Range(*range)),
            Event::PtBlock { range, active: true } => write!(f, "active {}", Range(*range)),
            Event::PtBlock { range, active: false } => write!(f, "inactive {}", Range(*range)),
            Event::Name { name } => write!(f, "name {}", Quoted(name)),
            Event::Launch(Launch { stream, kernel, key, pointers }) => {
                write!(f, "launch stream {} kernel #{} key {:016x}", stream.0, kernel.0, key.0)?;
                pointers.iter().try_for_each(|pointer| write!(f, " {:#x}", pointer.0))
            }
            Event::Copy { stream, from, to } => {
                write!(f, "copy stream {}", stream.0)?;
                from.iter().try_for_each(|range| write!(f, " from {}", Range(*range)))?;
                to.iter().try_for_each(|range| write!(f, " to {}", Range(*range)))
            }
            Event::Touched { launch, touches } => {
                write!(f, "touched @{}", launch.0)?;
                touches.iter().try_for_each(|touch| write!(f, " {touch}"))
            }
            Event::Time { launch, time } => write!(f, "time @{} {}", launch.0, time.0),
            Event::Wait { stream: Some(stream), waited } => write!(f, "wait stream {} {}", stream.0, waited.0),
            Event::Wait { stream: None, waited } => write!(f, "wait all {}", waited.0),
            Event::Iteration => f.write_str("iteration"),
            Event::Lost { events } => write!(f, "lost {events}"),
        }
    }
}
