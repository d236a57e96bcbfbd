//! What a worker writes to its standard error, cut into lines for the parent's log.
//!
//! A worker is believed as little as its program, so a line is bounded and cannot pass for another: what is longer than [`LONGEST`] comes in
//! pieces, and control characters become spaces.

/// Longest line, in bytes as they were written.
pub const LONGEST: usize = 1000;

/// What was written and is no line yet.
#[derive(Default, Debug)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Takes what was written, and gives each line that is complete.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for byte in bytes {
            if *byte != b'\n' {
                self.begun.push(*byte);
            }
            if *byte == b'\n' || self.begun.len() >= LONGEST {
                self.end(&mut line);
            }
        }
    }

    /// Gives what is there, as nothing more comes.
    pub fn end(&mut self, mut line: impl FnMut(&str)) {
        let text: String = String::from_utf8_lossy(&std::mem::take(&mut self.begun))
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if !text.trim().is_empty() {
            line(text.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_written() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for bytes in [&b" INFO on"[..], b"e\n\n", b"two\r\nthree\x1b[31m", b"\xff"] {
            lines.push(bytes, |line| all.push(line.to_owned()));
        }
        assert_eq!(all, ["INFO one", "two"]);
        lines.end(|line| all.push(line.to_owned()));
        lines.end(|line| all.push(line.to_owned()));
        assert_eq!(all[2..], ["three [31m\u{fffd}"]);
    }

    #[test]
    fn what_has_no_end_comes_in_pieces() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        lines.push(&[b'x'; 2 * LONGEST + 1], |line| all.push(line.len()));
        assert_eq!(all, [LONGEST, LONGEST]);
        assert_eq!(lines.begun.len(), 1);
    }
}
