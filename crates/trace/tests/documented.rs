//! The example in `docs/trace.md`: its lines and its bytes are the same trace, to the byte.

use deepum_trace::binary::{Reader, Writer};
use deepum_trace::event::Record;
use deepum_trace::text;

/// The indented lines of the example, without their indentation: those of the text, and those of the dump.
fn example() -> (Vec<&'static str>, Vec<&'static str>) {
    let page = include_str!("../../../docs/trace.md").split("## Example").nth(1).unwrap();
    let mut lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let text = lines.by_ref().take_while(|line| !line.starts_with("0000 ")).collect::<Vec<_>>();
    let dump = page.lines().filter_map(|line| line.strip_prefix("    ")).skip(text.len()).collect();
    (text, dump)
}

#[test]
fn the_lines_and_the_bytes_are_the_same_trace() {
    let (lines, dump) = example();
    let joined = lines.join("\n");
    let reader = text::Reader::new(joined.as_bytes()).unwrap();
    let header = reader.header().clone();
    let records: Vec<Record> = reader.map(Result::unwrap).collect();
    let again: Vec<String> =
        text::header(&header).lines().map(str::to_owned).chain(records.iter().map(ToString::to_string)).collect();
    assert_eq!(again, lines, "each line is as it is printed");

    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    let written = writer.finish().unwrap();

    // The offset is behind the indentation, then at most sixteen bytes in 48 places, then what they mean.
    let mut bytes = Vec::new();
    for line in dump {
        assert_eq!(usize::from_str_radix(&line[..4], 16), Ok(bytes.len()), "{line}");
        let hex = line[6..].chars().take(48).collect::<String>();
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    assert_eq!(written, bytes);
    let reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.header(), &header);
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), records);
}
