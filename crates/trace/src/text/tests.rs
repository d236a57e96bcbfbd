use super::*;
use crate::event::Record;

fn read(lines: &str) -> Result<Vec<Record>, String> {
    let text = format!("{FIRST}\nprogram \"p\"\ndevice \"d\"\nbudget 1\n{lines}");
    let reader = Reader::new(text.as_bytes()).map_err(|why| why.to_string())?;
    reader.map(|record| record.map_err(|why| why.to_string())).collect()
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_what_is_allowed() {
    let name = "0 name \"k\"\n";
    let wrong = [
        ("0 alloc 0x10+x", r#"line 5: "0x10+x" where a range, START+LENGTH should be"#),
        ("0 alloc 10+1", r#"line 5: "10+1" where a range, START+LENGTH should be"#),
        ("0 alloc 0x10+1 2", r#"line 5: "2" where the end of the line should be"#),
        ("\n; a note\n0 allot 0x10+1", r#"line 7: "allot" where a kind of record should be"#),
        ("x iteration", r#"line 5: "x iteration" where a time in ns should be"#),
        ("-1 iteration", r#"line 5: "-1 iteration" where a time in ns should be"#),
        ("18446744073709551616 iteration", r#"line 5: "18446744073709551616 iteration" where a time in ns should be"#),
        ("0 name k", r#"line 5: "k" where a string should be"#),
        (
            "0 launch stream 65536 kernel #0 key 0000000000000000",
            r#"line 5: "65536 kernel #0 key 0000000000000000" where a stream's number should be"#,
        ),
        ("0 launch stream 0 kernel 0", r#"line 5: "0" where a kernel's #number should be"#),
        ("0 launch stream 0 kernel #0 key 0", r#"line 5: "0" where a launch key, 16 hexadecimal digits should be"#),
        ("0 touched @1 x:0x0+1", r#"line 5: "x:0x0+1" where a touch should be"#),
        ("0 touched 1", r#"line 5: "1" where a place, @number should be"#),
        ("0 wait 1", r#"line 5: "1" where a stream's number should be"#),
        ("0 launch stream 0 kernel #0 key 0000000000000000", "line 5: a launch of kernel 0, and 0 kernels have names"),
        ("0 time @1 5", "line 5: something about place 1, and places 1 to 0 are taken"),
        ("0 free 0xffffffffffffffff+1", "line 5: 1 bytes from 0xffffffffffffffff: addresses end at 2^64"),
    ];
    for (line, said) in wrong {
        assert_eq!(read(&format!("{line}\n{name}")), Err(said.to_owned()), "{line}");
    }
    assert_eq!(
        Reader::new(&b"deepum trace 2\n"[..]).unwrap_err().to_string(),
        r#"no trace: the first line is not "deepum trace 1""#
    );
    let cut = Reader::new(&b"deepum trace 1\nprogram \"a\"\n"[..]).unwrap_err();
    assert_eq!(cut.to_string(), r#"line 3: "" where device and a string should be"#);
}

#[test]
fn notes_and_empty_lines_are_left_out_and_the_last_line_may_have_no_end() {
    let records = read("; a note\n\n0 name \"k\"\n7 launch stream 0 kernel #0 key 00000000000000ff 0x10").unwrap();
    let lines: Vec<String> = records.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["0 name \"k\"", "7 launch stream 0 kernel #0 key 00000000000000ff 0x10"]);
}
