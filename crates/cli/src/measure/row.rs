//! What came out: figures, and whether things hold.

use crate::columns::columns;
use serde::Serialize;

/// A figure, over several tries.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Figure {
    /// Its name; the last word is the unit.
    pub name: &'static str,
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
    /// What it is.
    pub what: &'static str,
}

/// Whether something holds.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Check {
    pub name: &'static str,
    /// Nothing where it could not be tried.
    pub holds: Option<bool>,
    pub detail: String,
}

#[derive(Default, Debug)]
pub struct Rows {
    pub figures: Vec<Figure>,
    pub checks: Vec<Check>,
}

impl Rows {
    /// A figure of these tries; none if there were none.
    pub fn figure(&mut self, name: &'static str, what: &'static str, mut tries: Vec<f64>) {
        tries.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (tries.first(), tries.last()) else { return };
        self.figures.push(Figure { name, median: tries[tries.len() / 2], least, most, count: tries.len(), what });
    }

    pub fn check(&mut self, name: &'static str, holds: bool, detail: impl Into<String>) {
        self.checks.push(Check { name, holds: Some(holds), detail: detail.into() });
    }

    pub fn untried(&mut self, name: &'static str, why: impl Into<String>) {
        self.checks.push(Check { name, holds: None, detail: why.into() });
    }

    /// For a person.
    pub fn page(&self) -> String {
        let head = ["figure", "median", "least", "most", "tries", ""].map(str::to_owned).to_vec();
        let number = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        let row = |f: &Figure| {
            vec![
                f.name.to_owned(),
                number(f.median),
                number(f.least),
                number(f.most),
                f.count.to_string(),
                f.what.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(self.figures.iter().map(row)).collect();
        // The last column is text: it begins where it begins.
        let width = rows.iter().map(|row| row.last().map_or(0, |text| text.chars().count())).max().unwrap_or(0);
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|mut row| {
                if let Some(text) = row.last_mut() {
                    *text = format!("{text:<width$}");
                }
                row
            })
            .collect();
        let mut page = columns(&rows, 1).lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n\n";
        for Check { name, holds, detail } in &self.checks {
            let word = match holds {
                Some(true) => "holds",
                Some(false) => "FAILS",
                None => "-",
            };
            page.push_str(&format!("{word:<5}  {name}: {detail}\n"));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_middle_of_its_tries() {
        let mut rows = Rows::default();
        rows.figure("touch_ns", "a call", vec![5.0, 1.0, 3.0]);
        rows.figure("none_ns", "nothing", vec![]);
        let Figure { median, least, most, count, .. } = rows.figures[0];
        assert_eq!((rows.figures.len(), median, least, most, count), (1, 3.0, 1.0, 5.0, 3));
        rows.check("discard", false, "block 3");
        rows.untried("notices", "no node");
        assert_eq!(
            rows.page(),
            "figure    median  least  most  tries\ntouch_ns    3.00   1.00  5.00      3  a call\n\nFAILS  discard: block 3\n-      notices: no node\n"
        );
    }
}
