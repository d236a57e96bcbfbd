//! Why a row differs from the paper's: the manifest's texts, each with conditions on what was measured that are evaluated here.
//!
//! A row whose ratio to the paper's figure is outside 0.9 to 1.1 must have a reason that holds. One that has none is called
//! unexplained, and the document says so among the limits.

use super::manifest::{Manifest, When, Why};

/// Ratios within these count as the same.
const SAME: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// What conditions may be about. A row that lacks a column has no reason that asks for it.
pub const COLUMNS: [&str; 9] = [
    // Shares of an iteration for which the busier direction of the link is busy: under `deepum`, under naive unified memory.
    "link",
    "demand_link",
    // How many times as fast as the paper's own algorithm `deepum` is on the same device.
    "over_as_in_paper",
    // What our program takes at our largest batch, and at the paper's, over the host's memory.
    "of_host",
    "paper_batch_of_host",
    // Block tables, and what they take in the paper's layout as a share of all tables.
    "tables",
    "tables_share",
    // Of the blocks that faulted under `deepum`: left out on purpose, and asked for but late.
    "left_out",
    "late",
];

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
    /// What was measured of it, by column.
    pub seen: &'a [(&'static str, Option<f64>)],
}

impl Compared<'_> {
    fn is_for(&self, why: &Why) -> bool {
        let begins = |prefix: &String| {
            self.row.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        why.rows.iter().any(begins)
    }

    fn holds(&self, why: &Why) -> bool {
        let ratio = self.ours / self.paper;
        let side = match why.when {
            When::Below => ratio < *SAME.start(),
            When::Above => ratio > *SAME.end(),
            When::Differs => !SAME.contains(&ratio),
        };
        let seen = |column: &str| self.seen.iter().find(|(name, _)| *name == column).and_then(|(_, value)| *value);
        side && why.at_least.iter().all(|(column, least)| seen(column).is_some_and(|value| value >= *least))
            && why.at_most.iter().all(|(column, most)| seen(column).is_some_and(|value| value <= *most))
    }
}

impl<'a> Reasons<'a> {
    pub fn new(manifest: &'a Manifest) -> Self {
        Self { manifest, used: Vec::new(), unexplained: Vec::new() }
    }

    /// The numbers of the notes that say why this row differs; empty if it does not.
    pub fn of(&mut self, compared: Compared<'_>) -> String {
        if SAME.contains(&(compared.ours / compared.paper)) {
            return String::new();
        }
        let whys = self.manifest.why.iter().enumerate();
        let found: Vec<usize> =
            whys.filter(|(_, why)| compared.is_for(why) && compared.holds(why)).map(|(n, _)| n).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn manifest() -> Manifest {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/paper/manifest.toml");
        let mut manifest = Manifest::read(&path).unwrap();
        let bounds = |list: &[(&str, f64)]| list.iter().map(|(c, v)| ((*c).to_owned(), *v)).collect::<BTreeMap<_, _>>();
        let why = |rows: &str, when, least: &[(&str, f64)], most: &[(&str, f64)], text: &str| Why {
            rows: vec![rows.to_owned()],
            when,
            at_least: bounds(least),
            at_most: bounds(most),
            text: text.to_owned(),
        };
        manifest.why = vec![
            why("tab5", When::Above, &[("left_out", 0.5)], &[], "on purpose"),
            why("fig9a", When::Below, &[("link", 0.8)], &[], "bytes"),
            why("fig9a", When::Differs, &[("link", 0.2)], &[("demand_link", 0.4)], "stalls"),
        ];
        manifest
    }

    fn ask(reasons: &mut Reasons<'_>, row: &str, ratio: f64, seen: &[(&'static str, Option<f64>)]) -> String {
        reasons.of(Compared { row, ours: 3.0 * ratio, paper: 3.0, seen })
    }

    #[test]
    fn a_row_that_differs_is_unexplained_unless_all_of_a_reason_holds() {
        let manifest = manifest();
        let of = |row: &str, ratio, seen: &[(&'static str, Option<f64>)]| {
            let mut reasons = Reasons::new(&manifest);
            let said = ask(&mut reasons, row, ratio, seen);
            assert_eq!(reasons.unexplained.is_empty(), said != "unexplained");
            (said, reasons.notes())
        };
        let unexplained = ("unexplained".to_owned(), String::new());
        assert_eq!(of("fig9a", 0.8, &[("link", Some(0.8))]), ("(1)".to_owned(), "1. bytes\n".to_owned()));
        assert_eq!(of("fig9a", 0.8, &[("link", Some(0.79))]), unexplained);
        assert_eq!(of("fig9a", 0.8, &[("link", None)]), unexplained);
        assert_eq!(of("fig9a", 0.8, &[("demand_link", Some(0.9))]), unexplained, "another column");
        assert_eq!(of("fig9a", 1.2, &[("link", Some(0.9))]), unexplained, "the other side");
        assert_eq!(of("fig9a", 1.2, &[("link", Some(0.9)), ("demand_link", Some(0.5))]), unexplained, "one of two");
        assert_eq!(of("fig9a", 1.2, &[("link", Some(0.9)), ("demand_link", Some(0.4))]).0, "(1)");
        assert_eq!(of("fig9", 0.8, &[("link", Some(0.9))]), unexplained, "another section");
        assert_eq!(of("tab5/dlrm/3", 2.0, &[("left_out", Some(0.6))]).0, "(1)");
        assert_eq!(of("fig9a", 1.05, &[]), (String::new(), String::new()), "the same");
    }

    #[test]
    fn notes_are_numbered_as_rows_call_for_them() {
        let manifest = manifest();
        let mut reasons = Reasons::new(&manifest);
        assert_eq!(ask(&mut reasons, "tab5/a", 2.0, &[("left_out", Some(1.0))]), "(1)");
        let both = [("link", Some(0.9)), ("demand_link", Some(0.1))];
        assert_eq!(ask(&mut reasons, "fig9a", 0.5, &both), "(2) (3)");
        assert_eq!(ask(&mut reasons, "tab5/b", 3.0, &[("left_out", Some(1.0))]), "(1)");
        assert_eq!(ask(&mut reasons, "tab5/c", 3.0, &[("left_out", Some(0.4))]), "unexplained");
        assert_eq!(reasons.notes(), "1. on purpose\n2. bytes\n3. stalls\n");
        assert_eq!(reasons.unexplained, ["tab5/c"]);
    }
}
