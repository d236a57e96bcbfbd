//! What goes to stdout, by one function: a reader that has seen enough (`| head`) is no error.

use anyhow::Result;
use std::io::{ErrorKind, Write};

/// Prints `text` as it stands.
pub fn say(text: &str) -> Result<()> {
    write(&mut std::io::stdout().lock(), text)
}

fn write(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_left_is_no_error_and_a_full_disk_is() {
        let (reader, mut pipe) = std::io::pipe().unwrap();
        drop(reader);
        assert!(write(&mut pipe, "row\n").is_ok());
        let mut full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert!(write(&mut full, "row\n").is_err());
    }
}
