//! Cells in columns, for people.

/// One line for each row; the first `left` columns begin where they begin, all others end where they end.
pub fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column < left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_and_figures_end_in_one_line() {
        let rows = [["", "s"], ["a", "10.0"], ["longer", "µ"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows, 1), "           s\na       10.0\nlonger     µ\n");
        assert_eq!(columns(&[], 1), "");
    }
}
