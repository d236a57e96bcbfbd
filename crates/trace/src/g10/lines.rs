//! A file's lines, and a line's numbers: what the readers of G10's files have in common.
//!
//! A file is read whole, unpacked if it is packed, up to [`LIMIT`]; what a line should be and is not is told with file, number and text.

use super::G10Error;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a file that are read, unpacked. A choice: fifty times the largest that we know.
const LIMIT: u64 = 64 << 20;

/// A file's text.
#[derive(Debug)]
pub(super) struct Text {
    file: PathBuf,
    body: String,
}

impl Text {
    /// Reads a file; one that ends in `.gz` is unpacked.
    pub(super) fn read(file: PathBuf) -> Result<Self, G10Error> {
        let mut body = String::new();
        let read = File::open(&file).and_then(|open| {
            let packed = file.extension().is_some_and(|end| end == "gz");
            let bytes: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(open)) } else { Box::new(open) };
            let len = bytes.take(LIMIT + 1).read_to_string(&mut body)?;
            let fits = len as u64 <= LIMIT;
            if fits { Ok(()) } else { Err(io::Error::other(format!("more than {} MiB", LIMIT >> 20))) }
        });
        match read {
            Ok(()) => Ok(Self { file, body }),
            Err(why) => Err(G10Error::File { file, why }),
        }
    }
    /// Its lines, from the first.
    pub(super) fn lines(&self) -> Lines<'_> {
        Lines { file: &self.file, rest: self.body.lines(), number: 0 }
    }
}

/// The lines of a file that were not read yet.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    file: &'a Path,
    rest: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Lines<'a> {
    /// The next line, which is `wanted`.
    pub(super) fn expect(&mut self, wanted: &str) -> Result<Line<'a>, G10Error> {
        let (file, number) = (self.file, self.number + 1);
        self.next().ok_or_else(|| Line { file, number, text: "", rest: "" }.wrong("the end of the file", wanted))
    }
    /// The next line, if it begins with this.
    pub(super) fn next_if(&mut self, begin: &str) -> Option<Line<'a>> {
        let begins = self.rest.clone().next().is_some_and(|text| text.starts_with(begin));
        if begins { self.next() } else { None }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let text = self.rest.next()?;
        self.number += 1;
        Some(Line { file: self.file, number: self.number, text, rest: text })
    }
}

/// One line, read from its front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    file: &'a Path,
    number: usize,
    text: &'a str,
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// An error about this line.
    pub(super) fn wrong(&self, value: impl ToString, allowed: impl ToString) -> G10Error {
        let (value, allowed) = (value.to_string(), allowed.to_string());
        G10Error::Line { file: self.file.to_owned(), line: self.number, value, allowed }
    }
    /// All of it.
    pub(super) const fn text(&self) -> &'a str {
        self.text
    }
    /// What was not read yet.
    pub(super) const fn rest(&self) -> &'a str {
        self.rest
    }
    /// Reads just these characters.
    pub(super) fn literal(&mut self, wanted: &str) -> Result<(), G10Error> {
        self.rest = self.rest.strip_prefix(wanted).ok_or_else(|| self.wrong(self.rest, format!("{wanted:?} here")))?;
        Ok(())
    }
    /// Reads these characters and the decimal number behind them, at most `most`.
    pub(super) fn number(&mut self, before: &str, most: u64) -> Result<u64, G10Error> {
        self.literal(before)?;
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits.parse().ok().filter(|&number| number <= most);
        let number = number.ok_or_else(|| self.wrong(self.rest, format!("a number from 0 to {most} here")))?;
        self.rest = rest;
        Ok(number)
    }
    /// Nothing else may be behind.
    pub(super) fn end(&self) -> Result<(), G10Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong(self.rest, "the end of the line here")) }
    }
}
