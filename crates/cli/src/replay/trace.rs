//! Where a trace comes from: one of G10's profiles, or a file.

use super::life::Placement;
use anyhow::{Context, Result, bail};
use deepum_core::units::Bytes;
use deepum_sim::replay::Script;
use deepum_trace::binary::{self, MAGIC, ReadError};
use deepum_trace::event::{Header, Record};
use deepum_trace::g10::{G10Name, Profile};
use deepum_trace::text;
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name of a trace, as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trace {
    /// `g10:DIR:MODEL:BATCH`.
    G10(G10Name),
    /// A file of bytes or lines.
    File(PathBuf),
}

impl FromStr for Trace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with("g10:") {
            true => text.parse().map(Self::G10).map_err(|error: deepum_trace::g10::NameError| error.to_string()),
            false => Ok(Self::File(text.into())),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::G10(name) => f.write_str(&name.point()),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Trace {
    /// Where its tensors lie if nothing is said.
    pub const fn placement(&self) -> Placement {
        match self {
            Self::G10(_) => Placement::Pytorch,
            Self::File(_) => Placement::Trace,
        }
    }

    /// Reads it as the profile that it must be.
    pub fn profile(&self) -> Result<Profile> {
        match self {
            Self::G10(name) => Ok(Profile::read(name)?),
            Self::File(path) => bail!("{}: g10-compat plays G10's profiles only, g10:DIR:MODEL:BATCH", path.display()),
        }
    }

    /// Reads it; a profile's iteration is repeated so often, on a GPU of which so much may be used.
    pub fn open(&self, iterations: u32, budget: Bytes) -> Result<Script> {
        match self {
            Self::G10(name) => {
                let profile = Profile::read(name)?;
                script(profile.header(budget), profile.records(iterations).collect())
            }
            Self::File(path) => read(path)
                .and_then(|(header, records)| script(header, records))
                .with_context(|| format!("cannot replay {}", path.display())),
        }
    }
}

fn script(header: Header, records: Vec<Record>) -> Result<Script> {
    Ok(Script::new(header, records.into_iter().map(Ok::<_, Infallible>))?)
}

fn read(path: &Path) -> Result<(Header, Vec<Record>)> {
    let mut file = BufReader::new(File::open(path)?);
    if !file.fill_buf()?.starts_with(&MAGIC) {
        let lines = text::Reader::new(file).context("it begins neither as a trace of bytes nor as one of lines")?;
        let header = lines.header().clone();
        return Ok((header, lines.collect::<Result<_, _>>()?));
    }
    let reader = binary::Reader::new(file)?;
    let header = reader.header().clone();
    let mut records = Vec::new();
    for record in reader {
        match record {
            Ok(record) => records.push(record),
            // The program was killed, or is still running.
            Err(cut @ ReadError::Cut { .. }) => {
                eprintln!("deepum: {}: {cut}", path.display());
                break;
            }
            Err(error) => bail!(error),
        }
    }
    Ok((header, records))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::Nanos;
    use deepum_trace::binary::Writer;
    use deepum_trace::event::Event;

    fn header() -> Header {
        Header { program: "p".into(), device: "d".into(), budget: Bytes::gib(1) }
    }

    #[test]
    fn a_name_is_a_profile_or_a_file() {
        let profile: Trace = "g10:/traces:BERT_Base:256".parse().unwrap();
        assert_eq!(profile.to_string(), "BERT_Base-256");
        assert_eq!("a.trace".parse(), Ok(Trace::File("a.trace".into())));
        assert!("g10:/traces:BERT_Base".parse::<Trace>().unwrap_err().contains("a field is missing"));
    }

    #[test]
    fn a_file_is_read_as_far_as_it_is_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = Writer::new(File::create(file.path()).unwrap(), &header()).unwrap();
        for at in 0..2 {
            writer.write(&Record { at: Nanos(at), event: Event::Iteration }).unwrap();
        }
        writer.flush().unwrap();
        let open = |path: &Path| Trace::File(path.into()).open(3, Bytes::gib(1));
        assert_eq!(open(file.path()).unwrap().iterations(), 1);

        std::fs::write(file.path(), "nothing of the kind").unwrap();
        let error = format!("{:#}", open(file.path()).unwrap_err());
        assert!(error.contains("neither as a trace of bytes nor as one of lines"), "{error}");
        assert!(open(Path::new("/nowhere")).is_err());
    }
}
