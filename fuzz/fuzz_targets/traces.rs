//! A trace, as bytes and as lines: it is refused by name, or what is read is written and read again as the same.
//!
//! No mutation hits a checksum. So the first byte of the input says whether the rest is lines, a file, or what a chunk with right checksums holds.
#![no_main]

use deepum_trace::binary::{Reader, Writer};
use deepum_trace::event::{Header, Record};
use deepum_trace::text;
use libfuzzer_sys::fuzz_target;

/// Bytes of a chunk's head, and so of the end mark (`docs/trace.md`).
const HEAD: usize = 16;

fn header() -> Header {
    Header { program: "fuzz".into(), device: "none".into(), budget: Default::default() }
}

fn written(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).expect("memory takes all");
    for record in records {
        writer.write(record).expect("what was read may be written");
    }
    writer.finish().expect("memory takes all")
}

/// A file with these bytes for records, not packed.
fn behind_checksums(bytes: &[u8]) -> Vec<u8> {
    let empty = written(&header(), &[]);
    let (start, end) = empty.split_at(empty.len() - HEAD);
    let len = u32::try_from(bytes.len()).expect("inputs are short");
    let mut head: Vec<u8> = [len, len, crc32fast::hash(bytes)].into_iter().flat_map(u32::to_le_bytes).collect();
    head.extend(crc32fast::hash(&head).to_le_bytes());
    [start, &head, bytes, end].concat()
}

fn file(bytes: &[u8]) -> (Header, Vec<Record>) {
    let Ok(reader) = Reader::new(bytes) else { return (header(), Vec::new()) };
    let header = reader.header().clone();
    (header, reader.map_while(Result::ok).collect())
}

fn lines(bytes: &[u8]) -> (Header, Vec<Record>) {
    let Ok(reader) = text::Reader::new(bytes) else { return (header(), Vec::new()) };
    let header = reader.header().clone();
    (header, reader.map_while(Result::ok).collect())
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let read = match how % 3 {
        0 => lines(bytes),
        1 => file(bytes),
        _ => file(&behind_checksums(bytes)),
    };
    let (header, records) = &read;
    assert!(file(&written(header, records)) == read, "bytes are not what was written");
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    assert!(lines((text::header(header) + &text).as_bytes()) == read, "lines are not what was written");
});
