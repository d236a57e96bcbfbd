//! `deepum compare` on real PyTorch: a model that does not fit, every row, and the same figures again.

use deepum_tests::{Torch, deepum, on_this_driver, python, root};
use serde_json::Value;
use std::process::Command;

/// Small GPT-2 needs about 600 MiB with AdamW at this batch; the device has 400.
fn compare() -> (String, Value) {
    let output = Command::new(deepum())
        .args([
            "compare",
            "--json",
            "--gpu",
            &on_this_driver("emu:v100-32g:memory=400MiB"),
            "--policies",
            "demand,next_block,deepum",
            "--",
        ])
        .args([&python(Torch::Cu13), &root().join("tests/train/language_model.py")])
        .args(["gpt2", "--iterations", "6"])
        .env("HF_HUB_OFFLINE", "1")
        // Each run says for itself whether it has the shim.
        .env("DEEPUM", "0")
        .output()
        .expect("the deepum executable starts");
    let stdout = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let json = serde_json::from_str(&stdout).expect("one JSON object");
    (stdout, json)
}

fn row<'a>(json: &'a Value, policy: &str) -> &'a Value {
    let rows = json["rows"].as_array().expect("rows is a list");
    rows.iter().find(|row| row["policy"] == policy).unwrap_or_else(|| panic!("no row {policy}"))
}

/// What a row has, whatever became of the run; figures it did not get to are null.
const FIELDS: [&str; 10] = [
    "policy",
    "outcome",
    "virtual_seconds",
    "steady_seconds_per_iteration",
    "faults_first_iteration",
    "faults_per_steady_iteration",
    "bytes_h2d",
    "bytes_d2h",
    "launches",
    "share_of_ideal",
];

#[test]
fn every_way_is_run_once_and_figures_repeat() {
    let (text, json) = compare();
    assert_eq!(json["schema"], "deepum-compare/1");
    let rows = json["rows"].as_array().expect("rows is a list");
    assert_eq!(rows.len(), 5);
    for (row, field) in rows.iter().flat_map(|row| FIELDS.map(|field| (row, field))) {
        assert!(row.get(field).is_some(), "{} has no {field}", row["policy"]);
    }
    assert_eq!(row(&json, "plain")["outcome"], "out_of_memory");
    for policy in ["demand", "next_block", "deepum", "unlimited"] {
        assert_eq!(row(&json, policy)["outcome"], "ok", "{policy}");
    }
    let number = |policy: &str, field: &str| {
        row(&json, policy)[field].as_f64().unwrap_or_else(|| panic!("{policy} has no {field}: {text}"))
    };
    assert_eq!(number("unlimited", "faults_per_steady_iteration"), 0.0);
    assert_eq!(number("unlimited", "share_of_ideal"), 1.0);
    assert_eq!(number("unlimited", "iterations"), 6.0);
    for policy in ["demand", "deepum"] {
        assert!(number(policy, "bytes_h2d") > 0.0 && number(policy, "bytes_d2h") > 0.0);
        assert_eq!(number(policy, "launches"), number("unlimited", "launches"), "the shim adds no launch");
    }
    assert!(number("deepum", "steady_seconds_per_iteration") < number("demand", "steady_seconds_per_iteration"));
    assert!(number("deepum", "faults_per_steady_iteration") < number("demand", "faults_per_steady_iteration"));

    assert_eq!(compare().0, text, "virtual time repeats exactly");
}
