//! `deepum replay` on an excerpt of one of G10's profiles, and on a trace of lines.

use deepum_tests::{deepum, root};
use serde_json::Value;
use std::process::{Command, Output};

fn replay(words: &[&str]) -> Output {
    let output = Command::new(deepum()).arg("replay").args(words).output();
    output.expect("the deepum executable starts")
}

fn excerpt() -> String {
    format!("g10:{}:ResNet152:256", root().join("crates/trace/tests/data/g10-excerpt").display())
}

fn rows(words: &[&str]) -> Vec<Value> {
    let output = replay(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["schema"], "deepum-replay/1");
    json["rows"].as_array().expect("rows is a list").clone()
}

#[test]
fn all_policies_are_replayed_side_by_side_and_none_is_faster_than_can_be() {
    let trace = excerpt();
    let rows = rows(&[
        &trace,
        "--json",
        "--gpu",
        "a100-40g:memory=6GiB",
        "--policy",
        "demand,next_block,deepum,g10,most,oracle",
    ]);
    let policies: Vec<_> = rows.iter().map(|row| row["policy"].as_str().expect("a name")).collect();
    assert_eq!(policies, ["demand", "next_block", "deepum", "g10", "most", "oracle"]);
    for row in &rows {
        assert_eq!((&row["trace"], &row["outcome"]), (&"ResNet152-256".into(), &"ok".into()), "{row}");
        for share in ["share_of_ideal", "share_of_bound"] {
            assert!((0.0..=1.0).contains(&row[share].as_f64().expect("a share")), "{row}");
        }
        let stalls = &row["stall_seconds"];
        let stalled: f64 =
            ["fault", "eviction", "late", "link", "ssd"].iter().map(|of| stalls[of].as_f64().expect("s")).sum();
        assert!(stalled < row["seconds"].as_f64().expect("seconds"), "{row}");
    }
    let of = |policy: &str, figure: &str| {
        let row = rows.iter().find(|row| row["policy"] == policy).expect("a row");
        row[figure].as_f64().expect("a figure")
    };
    // The point of it all: nearly nothing faults, and it is nearly as fast as if there were room.
    assert!(of("deepum", "seconds") < of("demand", "seconds") && of("deepum", "share_of_ideal") > 0.95);
    assert!(of("deepum", "faults") * 100.0 < of("demand", "faults"));
}

#[test]
fn a_first_iteration_is_compared_with_the_ideal_of_a_later_one() {
    let trace = excerpt();
    let row = |iterations| {
        let gpu = "a100-40g:memory=6GiB";
        let options = ["--gpu", gpu, "--policy", "deepum", "--iterations", iterations, "--no-bound"];
        let row = rows(&[&[trace.as_str(), "--json"], &options[..]].concat()).remove(0);
        assert!(row["share_of_bound"].is_null(), "{row}");
        row
    };
    let ideal = |row: &Value| row["seconds"].as_f64().expect("s") * row["share_of_ideal"].as_f64().expect("a share");
    let (first, later) = (row("1"), row("4"));
    assert!((ideal(&first) / ideal(&later) - 1.0).abs() < 0.01, "{first} {later}");
}

#[test]
fn a_trace_of_lines_is_replayed_and_a_host_that_is_full_is_an_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cycle.txt");
    let mut lines =
        "deepum trace 1\nprogram \"p\"\ndevice \"d\"\nbudget 1\n0 alloc 0x40000000+67108864\n0 name \"k\"\n".to_owned();
    // Four kernels, each with 16 MiB of its own, on 32 MiB.
    for place in 1..=12u64 {
        let kernel = (place - 1) % 4;
        if kernel == 0 {
            lines += "0 iteration\n";
        }
        let start = 0x4000_0000 + (kernel << 24);
        lines += &format!("0 launch stream 0 kernel #0 key {kernel:016x} {start:#x}\n");
        lines += &format!("0 touched @{place} rw:{start:#x}+16777216\n0 time @{place} 20000000\n");
    }
    lines += "0 iteration\n";
    std::fs::write(&file, lines).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let all = ["--json", "--policy", "demand", "--gpu", "a100-40g:memory=32MiB", "--link", "16"];
    let row = &rows(&[&[file][..], &all].concat())[0];
    // All of it goes round, on demand.
    assert_eq!((&row["bytes_h2d"], &row["bytes_d2h"]), (&(64 << 20).into(), &(64 << 20).into()), "{row}");
    let row = &rows(&[&[file, "--host", "8MiB"][..], &all].concat())[0];
    assert_eq!((&row["outcome"], &row["seconds"]), (&"out_of_memory".into(), &Value::Null), "{row}");
}

#[test]
fn mistakes_are_named_with_what_is_allowed() {
    let trace = excerpt();
    for (words, parts) in [
        (&["/no/such/trace"][..], &["/no/such/trace", "No such file"][..]),
        (&["/dev/null"], &["neither as a trace of bytes nor as one of lines"]),
        (&["g10:/x:BERT_Base"], &["a field is missing", "g10:DIR:MODEL:BATCH"]),
        (&["g10:/x:BERT_Base:256"], &["/x/derived/BERT_Base/256-tensors.config.gz"]),
        (&[&trace, "--policy", "magic"], &["magic", "demand", "oracle"]),
        (&[&trace, "--gpu", "gtx-9999"], &["gtx-9999", "a100-40g"]),
        (&[&trace, "--gpu", "a100-40g:driver=550"], &["a100-40g:driver=550", "memory, host and scale"]),
        (&[&trace, "--link", "0"], &["GB/s, from 0.1 to 2000"]),
        (&[&trace, "--host", "50%"], &["50%", "allowed: 0", "GiB"]),
        (&[&trace, "--iterations", "0"], &["0", "1..=1000"]),
        (&[&trace, "--lost", "0"], &["--lost", "zero"]),
        (&[&trace, "--vary", "100%"], &["--vary", "from 0 % to less than 100 %"]),
        (&[&trace, "--put-right", "dead"], &["--put-right", "--gpu g10-compat only"]),
        (&[&trace, "--gpu", "g10-compat", "--one-copy"], &["g10-compat has its own", "copies"]),
        (&[&trace, "--gpu", "g10-compat", "--ssd", "r3,w2"], &["g10-compat reads as fast as it writes"]),
        (&[&trace, "--gpu", "g10-compat", "--ssd", "r3,w3,cached"], &["no cache on g10-compat"]),
        (&[&trace, "--ssd", "r3,w3,cache"], &["r3,w3,cache", "rRATE,wRATE,cached"]),
        (
            &[&trace, "--gpu", "g10-compat", "--policy", "deepum"],
            &["deepum", "allowed are demand, horizon, deepum_plus"],
        ),
        (&["/dev/null", "--gpu", "g10-compat"], &["/dev/null", "G10's profiles only"]),
        // Two profiles are read at a time: either may be missed first.
        (&["--table", "/no/such"], &["/no/such/derived/SENet154/", "-tensors.config.gz", "No such file"]),
        (&["--table", "/no/such", &trace], &["--table", "cannot be used with"]),
        (&[], &["TRACE"]),
        (&[&trace, "--policy", "deepum_plus"], &["deepum_plus", "allowed are demand"]),
        // A kernel of it touches 2.3 GiB at once.
        (
            &[&trace, "--policy", "oracle", "--gpu", "a100-40g:memory=2GiB"],
            &["no bound: kernel 2", "oracle: kernel 2 touches"],
        ),
    ] {
        let output = replay(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?} was accepted");
        for part in parts {
            assert!(said.contains(part), "{words:?}: no {part:?} in:\n{said}");
        }
    }
}

#[test]
fn an_ssd_takes_in_what_a_full_host_does_not_and_wrong_rates_are_named() {
    let trace = excerpt();
    let words = |more: &[&'static str]| {
        let mut words = vec![trace.as_str(), "--json", "--gpu", "a100-40g:memory=6GiB", "--host", "1GiB"];
        words.extend(["--policy", "demand"].iter().chain(more));
        rows(&words)[0].clone()
    };
    assert_eq!(words(&[])["outcome"], "out_of_memory");
    let row = words(&["--ssd", "r3.2,w3.0"]);
    assert_eq!(row["outcome"], "ok");
    assert!(row["bytes_ssd_write"].as_u64() > Some(0) && row["bytes_ssd_write"].as_u64() < row["bytes_d2h"].as_u64());

    // Without host memory all goes there.
    let none = [&trace, "--json", "--gpu", "a100-40g:memory=6GiB", "--host", "0", "--policy", "demand"];
    let row = rows(&[&none[..], &["--ssd", "r3.2,w3.0"]].concat())[0].clone();
    assert!(row["bytes_d2h"].as_u64() > Some(0) && row["bytes_ssd_write"] == row["bytes_d2h"], "{row}");

    for wrong in ["3.2", "r3.2", "r3.2,w0"] {
        let output = replay(&[&trace, "--ssd", wrong]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wrong) && said.contains("allowed:"), "{said}");
    }
}

#[test]
fn in_the_published_world_what_is_put_right_makes_demand_faster_one_by_one() {
    let trace = excerpt();
    let seconds = |policy: &str, put_right: &[&str]| {
        let mut words = vec![trace.as_str(), "--json", "--gpu", "g10-compat:memory=6GiB", "--policy", policy];
        words.extend(put_right);
        let row = rows(&words)[0].clone();
        assert_eq!(row["outcome"], "ok", "{row}");
        row["seconds"].as_f64().expect("seconds")
    };
    let published = seconds("demand", &[]);
    // The dead are not written out any more, and new memory costs its room only.
    let dead = seconds("demand", &["--put-right", "dead"]);
    let new = seconds("demand", &["--put-right", "dead,new"]);
    assert!(new < dead && dead < published, "{new} {dead} {published}");
    // As they were measured faults cost more than their bytes.
    assert!(seconds("demand", &["--put-right", "faults"]) > published);
    // The second iteration may be slower.
    assert!(seconds("demand", &["--put-right", "fastest"]) >= published);
    assert!(seconds("g10", &[]) < seconds("deepum_plus", &[]) && seconds("deepum_plus", &[]) < published);
}

#[test]
fn in_the_published_world_horizon_learns_before_it_is_counted() {
    let trace = excerpt();
    let words = [&trace, "--json", "--gpu", "g10-compat:memory=6GiB", "--policy", "demand,horizon"];
    let [demand, horizon] = [0, 1].map(|row| rows(&words)[row].clone());
    let iterations = |row: &serde_json::Value| -> Vec<f64> {
        let all = row["iterations"].as_array().expect("iterations");
        all.iter().filter_map(serde_json::Value::as_f64).collect()
    };
    let all = iterations(&horizon);
    assert_eq!((iterations(&demand).len(), all.len()), (2, 5));
    assert_eq!(horizon["seconds"].as_f64(), all[3..].iter().copied().reduce(f64::min));
    assert!(horizon["seconds"].as_f64() < demand["seconds"].as_f64(), "{horizon} {demand}");
}
