//! How much of the truth is exact: launches and bytes, and the names of the rest.

use std::collections::HashMap;

use deepum_core::units::Bytes;

use super::Source;
use super::name::Signature;

/// Totals over all launches, and every kernel that was guessed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Launches decoded from parameter structs.
    pub exact_launches: u64,
    /// Launches whose touches were guessed.
    pub guessed_launches: u64,
    /// Traffic of the former.
    pub exact_bytes: Bytes,
    /// Traffic of the latter.
    pub guessed_bytes: Bytes,
    unknown: HashMap<Box<str>, Tally>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tally {
    launches: u64,
    bytes: Bytes,
    decoder: bool,
}

/// A kernel whose touches were guessed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// Demangled name.
    pub name: String,
    /// How often that happened.
    pub launches: u64,
    /// Guessed traffic.
    pub bytes: Bytes,
    /// Whether its family is known, but this launch's parameters did not fit.
    pub refuted: bool,
}

impl Coverage {
    pub(super) fn count(&mut self, name: &str, source: Source, bytes: Bytes, decoder: bool) {
        match source {
            Source::Exact => {
                self.exact_launches += 1;
                self.exact_bytes += bytes;
            }
            Source::Guessed => {
                self.guessed_launches += 1;
                self.guessed_bytes += bytes;
                if !self.unknown.contains_key(name) {
                    self.unknown.insert(name.into(), Tally::default());
                }
                if let Some(tally) = self.unknown.get_mut(name) {
                    tally.launches += 1;
                    tally.bytes += bytes;
                    tally.decoder = decoder;
                }
            }
        }
    }

    /// The kernels that were guessed, most bytes first, names breaking ties.
    #[must_use]
    pub fn unknown(&self) -> Vec<Unknown> {
        let mut all: Vec<Unknown> = self
            .unknown
            .iter()
            .map(|(name, t)| Unknown {
                name: Signature::of(name).text,
                launches: t.launches,
                bytes: t.bytes,
                refuted: t.decoder,
            })
            .collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        all
    }
}
