//! `deepum paper`: its smoke subset makes a whole document with real PyTorch, a second call finds everything measured, and what a
//! person may get wrong is said in one line.

use deepum_tests::{deepum, root};
use std::path::Path;
use std::process::{Command, Output};

/// What a caller may have set: each of these changes figures where it reaches a program: how far ahead, who decides, whether anybody makes room.
const SET: [(&str, &str); 4] =
    [("DEEPUM_DEGREE", "1"), ("DEEPUM_POLICY", "demand"), ("DEEPUM_PREEVICT", "0"), ("CUDA_VISIBLE_DEVICES", "")];

fn paper(args: &[&str]) -> Output {
    paper_with(&SET, args)
}

fn paper_with(callers: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(deepum());
    command.arg("paper").args(args).current_dir(root()).envs(callers.iter().copied());
    command.output().expect("the deepum executable starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails, says `wanted` in one line, and nothing else.
#[track_caller]
fn refused(args: &[&str], wanted: &[&str]) {
    let output = paper(args);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{args:?}");
    assert!(wanted.iter().all(|part| said.contains(part)), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
}

/// The cells of the table line that starts with `head`.
#[track_caller]
fn line<'a>(document: &'a str, section: &str, head: &str) -> Vec<&'a str> {
    let part = document.split("\n## ").find(|part| part.starts_with(section));
    let part = part.unwrap_or_else(|| panic!("no section {section}:\n{document}"));
    let line = part.lines().find(|line| line.starts_with(&format!("| {head} |")));
    let line = line.unwrap_or_else(|| panic!("no line {head} in:\n{part}"));
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_smoke_subset_makes_the_whole_document_and_is_kept() {
    let folder = tempfile::tempdir().expect("a folder for results");
    let out = folder.path().to_str().expect("temporary folders have plain names");
    let first = paper(&["--smoke", "--out", out]);
    let said = text(&first.stdout);
    assert!(first.status.success(), "{said}\n{}", text(&first.stderr));
    let document = std::fs::read_to_string(folder.path().join("deepum-paper.md")).expect("it writes the document");

    for section in [
        "Fig. 9a",
        "Table 7",
        "Table 4",
        "Table 5",
        "The same run twice",
        "Fig. 10",
        "Fig. 11",
        "Fig. 12",
        "What a PyTorch user",
        "What ±50 %",
    ] {
        assert!(document.contains(&format!("\n## {section}")), "{section} is missing:\n{document}");
    }
    assert!(document.contains("| every row was measured | held |"), "{document}");
    assert!(document.contains("    deepum paper --smoke\n") && document.contains("torch 2.15.0"), "{document}");
    let number = |cell: &str| cell.parse::<f64>().unwrap_or_else(|_| panic!("{cell} is no number:\n{document}"));
    let speed = line(&document, "Fig. 9a", "DLRM");
    let [demand, paper_s, deepum, ideal] = [3, 4, 5, 6].map(|n| number(speed[n]));
    assert!(ideal < deepum && ideal < demand && ideal < paper_s, "{speed:?}");
    let batches = line(&document, "Table 7", "MobileNet");
    assert!(number(batches[3]) > 0.0 && number(batches[3]) < number(batches[4]), "{batches:?}");
    let tables = line(&document, "Table 4", "MobileNet");
    assert!(number(tables[8]) < number(tables[5]), "compact tables are smaller than the paper's layout: {tables:?}");
    assert!(document.contains("the smallest at which naive unified memory moves anything | held |"), "{document}");

    let other = tempfile::tempdir().expect("a folder for results");
    let other_out = other.path().to_str().expect("temporary folders have plain names");
    let unset = paper_with(&[], &["--smoke", "--only", "fig11", "--out", other_out]);
    assert!(unset.status.success(), "{}", text(&unset.stderr));
    let unset = std::fs::read_to_string(other.path().join("deepum-paper.md")).expect("it writes the document");
    let figures = |document| line(document, "Fig. 11", "512 (ours)").join(" ");
    assert_eq!(figures(&document), figures(&unset), "what the caller has set reaches no run");

    let second = paper(&["--smoke", "--out", out]);
    assert!(second.status.success() && text(&second.stdout).contains("\n0 runs made,"), "{}", text(&second.stdout));
    let again = std::fs::read_to_string(folder.path().join("deepum-paper.md")).expect("it writes the document again");
    assert_eq!(again, document);
    assert!(
        !root().join("docs/results/deepum-paper.md").exists() || !is_newer(folder.path()),
        "a smoke run is not published"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (reader, pipe) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(deepum());
    let ended = command.args(["paper", "--list"]).current_dir(root()).stdout(pipe).output().expect("it starts");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}: {}", ended.status, text(&ended.stderr));
}

/// Whether the published document was written after `folder` was made.
fn is_newer(folder: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|meta| meta.created().or(meta.modified())).ok();
    let published = root().join("docs/results/deepum-paper.md").metadata().and_then(|meta| meta.modified()).ok();
    published > time(folder)
}

#[test]
fn rows_are_listed_and_unknown_ones_refused() {
    let listed = text(&paper(&["--list"]).stdout);
    for row in [
        "fig9a/gpt2-xl/3",
        "tab3/bert-large",
        "tab7/dcgan",
        "fig11/dlrm/32",
        "fig12/resnet-200/2048x2x4",
        "sensitivity/gpt2-l/as-is",
    ] {
        assert!(listed.lines().any(|line| line == row), "{row} is not in:\n{listed}");
    }
    let some = text(&paper(&["--list", "--only", "fig9a/gpt2-xl,tab7"]).stdout);
    assert!(
        some.lines().all(|l| l.starts_with("fig9a/gpt2-xl/") || l.starts_with("tab7/")) && some.lines().count() == 7,
        "{some}"
    );
    refused(&["--only", "fig9"], &["--only fig9: no such row", "fig9a", "sensitivity"]);
    refused(&["--list", "--only", ""], &["--only : no such row"]);
}

#[test]
fn wrong_places_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("the folder is ours");
    let file = file.to_str().expect("temporary folders have plain names");
    refused(&["--smoke", "--out", file], &["cannot make", file]);
    refused(&["--smoke", "--out", "/proc/nowhere"], &["cannot make /proc/nowhere"]);
    let out = folder.path().to_str().expect("temporary folders have plain names");
    refused(&["--smoke", "--out", out, "--python", "/no/such/python"], &["cannot start /no/such/python", "--python"]);
    refused(&["--smoke", "--out", out, "--python", "/bin/sh"], &["/bin/sh lacks torch or transformers"]);
    refused(&["--jobs", "0"], &["--jobs", "1..=64"]);
}
