//! Prints a trace of bytes as lines: `cargo run --release -p deepum-trace --example lines -- run.trace`.

use deepum_trace::binary::Reader;
use deepum_trace::text::header;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Write, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("say which trace")?;
    let reader = Reader::new(BufReader::new(File::open(path)?))?;
    let mut out = stdout().lock();
    write!(out, "{}", header(reader.header()))?;
    for record in reader {
        writeln!(out, "{}", record?)?;
    }
    Ok(())
}
