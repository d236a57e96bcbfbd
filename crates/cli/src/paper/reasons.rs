//! Why a row differs from the paper's: the manifest's texts, each with a condition that is evaluated here.
//!
//! A row whose ratio to the paper's figure is outside 0.9 to 1.1 must have a reason that holds. One that has none is called
//! unexplained, and the document says so among the limits.

use super::manifest::{Manifest, When};

/// Ratios within these count as the same.
const SAME: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// From this share of an iteration on, the link is what bounds it.
const LINK_BOUND: f64 = 0.8;

/// Collects the reasons that the document needs, in the order in which rows call for them.
#[derive(Debug)]
pub struct Reasons<'a> {
    manifest: &'a Manifest,
    /// Indexes into the manifest's.
    used: Vec<usize>,
    /// Rows that differ without a reason.
    pub unexplained: Vec<String>,
}

/// A row beside the paper's figure. More is better or worse, as the figure has it.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    pub row: &'a str,
    pub ours: f64,
    pub paper: f64,
    /// Share of the iteration for which the link is busy.
    pub link: Option<f64>,
}

impl<'a> Reasons<'a> {
    pub fn new(manifest: &'a Manifest) -> Self {
        Self { manifest, used: Vec::new(), unexplained: Vec::new() }
    }

    /// The numbers of the notes that say why this row differs; empty if it does not.
    pub fn of(&mut self, compared: Compared<'_>) -> String {
        let ratio = compared.ours / compared.paper;
        if SAME.contains(&ratio) {
            return String::new();
        }
        let holds = |when: When| match when {
            When::Below => ratio < *SAME.start(),
            When::Above => ratio > *SAME.end(),
            When::Differs => true,
            When::BelowAndLinkBound => ratio < *SAME.start() && compared.link.is_some_and(|share| share >= LINK_BOUND),
        };
        let concerns = |prefix: &String| {
            compared.row.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found: Vec<usize> = (0..self.manifest.why.len())
            .filter(|&n| self.manifest.why[n].rows.iter().any(concerns) && holds(self.manifest.why[n].when))
            .collect();
        if found.is_empty() {
            self.unexplained.push(compared.row.to_owned());
            return "unexplained".to_owned();
        }
        let marks: Vec<String> = found
            .into_iter()
            .map(|n| {
                let at = self.used.iter().position(|&used| used == n).unwrap_or_else(|| {
                    self.used.push(n);
                    self.used.len() - 1
                });
                format!("({})", at + 1)
            })
            .collect();
        marks.join(" ")
    }

    /// The notes that were called for.
    pub fn notes(&self) -> String {
        let lines = self.used.iter().enumerate();
        lines.map(|(at, &n)| format!("{}. {}\n", at + 1, self.manifest.why[n].text.trim())).collect()
    }
}
