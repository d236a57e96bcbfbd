//! On request, a text line for every launch: what the device takes it to touch. For people who wonder why.
//!
//!     exact   12000  0  A+4000w B+4000r …  1x1x1  128x1x1  at::native::vectorized_elementwise_kernel<…>(…)
//!
//! Fields, separated by tabs: `exact`, `guess` (family unknown) or `misfit` (family known, parameters did not fit), bytes of
//! traffic, floating-point operations, touches in hexadecimal, grid, block, demangled name. Written line by line, so nothing is lost
//! when the process ends at once; into `FILE.PID`, since programs start others (compiler workers) that use the device too.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use super::{KernelCall, Source, Work};

/// An open trace.
#[derive(Debug)]
pub(super) struct Trace(File);

impl Trace {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        File::create(name).map(Self)
    }

    /// Adds a line. A full disk loses lines, not the run.
    pub(super) fn line(&mut self, call: &KernelCall<'_>, work: &Work, text: &str, known: bool) {
        let how = match (work.source, known) {
            (Source::Exact, _) => "exact",
            (Source::Guessed, true) => "misfit",
            (Source::Guessed, false) => "guess",
        };
        let mut touches = String::new();
        for t in &work.touches {
            let mode = if t.access.writes() { 'w' } else { 'r' };
            let _ = write!(touches, "{:x}+{}{mode} ", t.range.start.0, t.range.len.0);
        }
        let shape = |s: [u32; 3]| format!("{}x{}x{}", s[0], s[1], s[2]);
        let (grid, block) = (shape(call.grid), shape(call.block));
        let line =
            format!("{how}\t{}\t{}\t{}\t{grid}\t{block}\t{text}\n", work.traffic.0, work.flops, touches.trim_end());
        let _ = self.0.write_all(line.as_bytes());
    }
}
