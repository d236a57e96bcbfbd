//! What a check found: what was seen, what that costs, and how to mend it.

use serde::Serialize;
use std::fmt::Write;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be found out.
    Unknown,
    /// DeepUM works, with a loss.
    Costs,
    /// DeepUM does not work.
    Stops,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "?",
            Self::Costs => "costs",
            Self::Stops => "STOPS",
        }
    }
}

/// One row.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Finding {
    /// The check's name, the same in every release.
    pub check: &'static str,
    pub verdict: Verdict,
    /// What is there.
    pub saw: String,
    /// What it costs; empty if nothing.
    pub cost: String,
    /// How to mend it; empty if there is nothing to mend.
    pub remedy: String,
}

impl Finding {
    pub fn ok(check: &'static str, saw: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, saw: saw.into(), cost: String::new(), remedy: String::new() }
    }
    pub fn unknown(check: &'static str, saw: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, ..Self::ok(check, saw) }
    }
    pub fn costs(
        check: &'static str,
        saw: impl Into<String>,
        cost: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Costs, cost: cost.into(), remedy: remedy.into(), ..Self::ok(check, saw) }
    }
    pub fn stops(
        check: &'static str,
        saw: impl Into<String>,
        cost: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Stops, ..Self::costs(check, saw, cost, remedy) }
    }
}

/// All of them for a person, and in one line what they come to.
pub fn page(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, verdict, saw, cost, remedy } in findings {
        let _ = writeln!(text, "{:<5}  {check:<width$}  {saw}", verdict.word());
        for (what, said) in [("cost", cost), ("mend", remedy)].into_iter().filter(|(_, said)| !said.is_empty()) {
            let _ = writeln!(text, "{:5}  {:width$}  {what}: {said}", "", "");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (stops, costs) = (count(Verdict::Stops), count(Verdict::Costs));
    let _ = match (stops, costs) {
        (0, 0) => writeln!(text, "\nNothing stands in DeepUM's way here."),
        (0, _) => writeln!(text, "\nDeepUM works here, with {costs} of the losses above."),
        _ => writeln!(text, "\nDeepUM does not work here: mend what says STOPS."),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_it_comes_to() {
        let ok = Finding::ok("driver", "580.95.05");
        let costs = Finding::costs("tools-node", "is missing", "faults stay unseen", "nvidia-modprobe -u -c 0");
        let stops = Finding::stops("driver", "none", "no GPU", "install it");
        let last = |findings: &[Finding]| page(findings).lines().last().unwrap_or_default().to_owned();
        assert!(last(std::slice::from_ref(&ok)).starts_with("Nothing stands"));
        assert!(last(&[ok.clone(), costs.clone()]).contains("with 1 of the losses"));
        assert!(last(&[ok.clone(), costs.clone(), stops]).contains("does not work"));
        let lines: Vec<String> = page(&[ok, costs]).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "ok     driver      580.95.05");
        assert_eq!(lines[2], "                   cost: faults stay unseen");
        assert_eq!(lines[3], "                   mend: nvidia-modprobe -u -c 0");
    }
}
