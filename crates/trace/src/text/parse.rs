//! Lines to records. `print` is the other half.

use super::FIRST;
use crate::event::{Access, Event, EventError, Header, Launch, NameId, Order, Record, Touch};
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Nanos, StreamSlot};
use std::io::{self, BufRead, Read};
use std::str::FromStr;

/// Most bytes of a line: more than the longest record takes.
const MOST_LINE: u64 = 32 << 20;

/// A piece of a line that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} where {wanted} should be")]
pub struct Unreadable {
    /// What stands there.
    pub found: String,
    /// What is allowed.
    pub wanted: &'static str,
}

/// Why there is no further record.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// Reading failed, or it is no text.
    #[error("the trace cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Not ours, or of another version.
    #[error("no trace: the first line is not {FIRST:?}")]
    First,
    /// A line that is no record, or no line of the header.
    #[error("line {line}: {why}")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong.
        why: Unreadable,
    },
    /// A record that must not be in a trace, or not here.
    #[error("line {line}: {why}")]
    Event {
        /// Which one, from 1.
        line: usize,
        /// What is wrong.
        why: EventError,
    },
}

/// Reads a trace: an iterator over its records, which ends behind the last one or behind the first error.
#[derive(Debug)]
pub struct Reader<B> {
    from: B,
    header: Header,
    order: Order,
    line: usize,
    over: bool,
}

impl<B: BufRead> Reader<B> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`TextError`].
    pub fn new(from: B) -> Result<Self, TextError> {
        let header = Header { program: "".into(), device: "".into(), budget: Bytes::ZERO };
        let mut reader = Self { from, header, order: Order::default(), line: 0, over: false };
        if reader.next_line()?.as_deref() != Some(FIRST) {
            return Err(TextError::First);
        }
        let program = reader.field("program ", "program and a string", string)?;
        let device = reader.field("device ", "device and a string", string)?;
        let budget = reader.field("budget ", "budget and bytes", |rest| number(rest).map(Bytes))?;
        reader.header = Header { program, device, budget };
        Order::header(&reader.header).map_err(|why| TextError::Event { line: reader.line, why })?;
        Ok(reader)
    }

    /// What the trace is of.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    fn field<T>(
        &mut self,
        name: &str,
        wanted: &'static str,
        value: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TextError> {
        let found = self.next_line()?.unwrap_or_default();
        let value = found.strip_prefix(name).and_then(value);
        value.ok_or(TextError::Line { line: self.line, why: Unreadable { found, wanted } })
    }

    /// The next line, without its end.
    fn next_line(&mut self) -> Result<Option<String>, TextError> {
        let mut line = String::new();
        let len = (&mut self.from).take(MOST_LINE).read_line(&mut line)?;
        self.line += 1;
        if len as u64 == MOST_LINE {
            line.truncate(line.floor_char_boundary(40));
            let why = Unreadable { found: line, wanted: "a line of less than 32 MiB" };
            return Err(TextError::Line { line: self.line, why });
        }
        line.truncate(line.trim_end().len());
        Ok((len > 0).then_some(line))
    }

    fn record(&mut self) -> Result<Option<Record>, TextError> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() || line.starts_with(';') {
                continue;
            }
            let number = self.line;
            let record: Record = line.parse().map_err(|why| TextError::Line { line: number, why })?;
            self.order.take(&record.event).map_err(|why| TextError::Event { line: number, why })?;
            return Ok(Some(record));
        }
        Ok(None)
    }
}

impl<B: BufRead> Iterator for Reader<B> {
    type Item = Result<Record, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let record = self.record().transpose();
        self.over = !matches!(record, Some(Ok(_)));
        record
    }
}

impl<B: BufRead> std::iter::FusedIterator for Reader<B> {}

impl FromStr for Record {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Self, Unreadable> {
        let mut words = Words { rest: line };
        let at = words.next("a time in ns", |word| number(word).map(Nanos))?;
        let kind = words.next("a kind of record", Some)?;
        let event = match kind {
            "alloc" => Event::Alloc { range: words.range()? },
            "free" => Event::Free { range: words.range()? },
            "active" => Event::PtBlock { range: words.range()?, active: true },
            "inactive" => Event::PtBlock { range: words.range()?, active: false },
            "name" => Event::Name { name: words.all("a string", string)? },
            "launch" => Event::Launch(Launch {
                stream: words.stream()?,
                kernel: words
                    .after("kernel", "a kernel's #number", |word| number(word.strip_prefix('#')?).map(NameId))?,
                key: words.after("key", "a launch key, 16 hexadecimal digits", key)?,
                pointers: words.list("an address", |word| hex(word).map(DevAddr))?,
            }),
            "copy" => Event::Copy { stream: words.stream()?, from: words.side("from")?, to: words.side("to")? },
            "touched" => Event::Touched { launch: words.place()?, touches: words.list("a touch", touch)? },
            "time" => Event::Time { launch: words.place()?, time: words.nanos()? },
            "wait" if words.skip("all") => Event::Wait { stream: None, waited: words.nanos()? },
            "wait" => Event::Wait { stream: Some(words.stream()?), waited: words.nanos()? },
            "iteration" => Event::Iteration,
            "lost" => Event::Lost { events: words.next("how many events", number)? },
            _ => return Err(Unreadable { found: kind.to_owned(), wanted: "a kind of record" }),
        };
        if words.rest.is_empty() { Ok(Self { at, event }) } else { words.wrong("the end of the line") }
    }
}

/// A line that is read word by word; words have one space between them.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn wrong<T>(&self, wanted: &'static str) -> Result<T, Unreadable> {
        let found = &self.rest[..self.rest.floor_char_boundary(60)];
        Err(Unreadable { found: found.to_owned(), wanted })
    }
    fn next<T>(&mut self, wanted: &'static str, read: impl FnOnce(&'a str) -> Option<T>) -> Result<T, Unreadable> {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        let Some(value) = read(word) else { return self.wrong(wanted) };
        self.rest = rest;
        Ok(value)
    }
    fn all<T>(&mut self, wanted: &'static str, read: impl FnOnce(&'a str) -> Option<T>) -> Result<T, Unreadable> {
        let Some(value) = read(self.rest) else { return self.wrong(wanted) };
        self.rest = "";
        Ok(value)
    }
    fn list<T>(&mut self, wanted: &'static str, read: impl Fn(&'a str) -> Option<T>) -> Result<Vec<T>, Unreadable> {
        let mut list = Vec::new();
        while !self.rest.is_empty() {
            list.push(self.next(wanted, &read)?);
        }
        Ok(list)
    }
    /// Whether this is the next word, which is then read.
    fn skip(&mut self, word: &str) -> bool {
        self.next("", |found| (found == word).then_some(())).is_ok()
    }
    fn after<T>(
        &mut self,
        name: &str,
        wanted: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, Unreadable> {
        if self.skip(name) { self.next(wanted, read) } else { self.wrong(wanted) }
    }
    fn range(&mut self) -> Result<AddrRange, Unreadable> {
        self.next("a range, START+LENGTH", range)
    }
    fn side(&mut self, name: &str) -> Result<Option<AddrRange>, Unreadable> {
        if self.skip(name) { self.range().map(Some) } else { Ok(None) }
    }
    fn stream(&mut self) -> Result<StreamSlot, Unreadable> {
        self.after("stream", "a stream's number", |word| number(word).map(StreamSlot))
    }
    fn place(&mut self) -> Result<LaunchSeq, Unreadable> {
        self.next("a place, @number", |word| number(word.strip_prefix('@')?).map(LaunchSeq))
    }
    fn nanos(&mut self) -> Result<Nanos, Unreadable> {
        self.next("ns", |word| number(word).map(Nanos))
    }
}

fn number<T: FromStr>(word: &str) -> Option<T> {
    word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

fn hex(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x")?;
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn key(word: &str) -> Option<LaunchKey> {
    let digits = word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(word, 16).ok()).flatten().map(LaunchKey)
}

fn range(word: &str) -> Option<AddrRange> {
    let (start, len) = word.split_once('+')?;
    Some(AddrRange::new(DevAddr(hex(start)?), Bytes(number(len)?)))
}

fn touch(word: &str) -> Option<Touch> {
    let (access, rest) = word.split_once(':')?;
    let access = match access {
        "r" => Access::Read,
        "w" => Access::Write,
        "rw" => Access::ReadWrite,
        _ => return None,
    };
    let (place, phase) = rest.split_once(':').unwrap_or((rest, "0"));
    Some(Touch { range: range(place)?, access, phase: number(phase)? })
}

fn string(text: &str) -> Option<Box<str>> {
    serde_json::from_str::<String>(text).ok().map(String::into_boxed_str)
}
