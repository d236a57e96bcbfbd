//! What the environment may say, and what is said back.

use deepum_config::schema::VARIABLES;
use deepum_config::{
    Await, Budget, Config, EngineIn, ExecIdMode, Geometry, Leave, LogLevel, MemInfo, PolicyName, TablesIn, Times, help,
};
use deepum_core::invalidate::Invalidate;
use deepum_core::units::Bytes;

fn read(vars: &[(&str, &str)]) -> (Config, Vec<String>) {
    let reading = Config::read(vars.iter().copied());
    (reading.config, reading.lines)
}

#[test]
fn every_variable_that_is_parsed_changes_the_configuration() {
    let (config, lines) = read(&[
        ("DEEPUM", "0"),
        ("DEEPUM_POLICY", "next_block"),
        ("DEEPUM_GPU_BUDGET", "50%"),
        ("DEEPUM_MAX_OVERSUBSCRIPTION", "2.5"),
        ("DEEPUM_HOST_BUDGET", "64GiB"),
        ("DEEPUM_DEGREE", "8"),
        ("DEEPUM_GATE", "0"),
        ("DEEPUM_PREEVICT", "0"),
        ("DEEPUM_INVALIDATE", "evict"),
        ("DEEPUM_COPIES", "2"),
        ("DEEPUM_LEAVE", "unmapped"),
        ("DEEPUM_AWAIT", "call"),
        ("DEEPUM_TABLE", "512,4,2"),
        ("DEEPUM_ENGINE", "daemon:/tmp/deepumd.sock"),
        ("DEEPUM_WEIGHT", "7"),
        ("DEEPUM_TABLES", "/var/tmp/tables"),
        ("DEEPUM_WORKLOAD", "bert-large_16"),
        ("DEEPUM_RECORD", "run of today.trace"),
        ("DEEPUM_EXEC_ID", "raw"),
        ("DEEPUM_MEMINFO", "physical"),
        ("DEEPUM_LOG", "debug"),
    ]);
    assert_eq!(
        lines,
        [
            "DEEPUM_DEGREE=8 has no say under DEEPUM_POLICY=next_block; deepum and deepum_paper heed it",
            "DEEPUM_COPIES=2 has no say under DEEPUM_POLICY=next_block; horizon and restless heed it",
        ]
    );
    let want = Config {
        enabled: false,
        policy: PolicyName::NextBlock,
        gpu_budget: Budget::Percent(50),
        most: Times::parse("2.5").unwrap(),
        host_budget: Some(Budget::Fixed(Bytes::gib(64))),
        degree: 8,
        gate: false,
        preevict: false,
        invalidate: Invalidate::EvictFirst,
        two_copies: true,
        leave: Leave::Unmapped,
        await_by: Await::Call,
        table: Geometry::new(512, 4, 2).unwrap(),
        engine: EngineIn::Daemon(Some("/tmp/deepumd.sock".into())),
        weight: 7,
        tables: TablesIn::Folder("/var/tmp/tables".into()),
        workload: Some("bert-large_16".to_owned()),
        record: Some("run of today.trace".into()),
        exec_id: ExecIdMode::Raw,
        meminfo: MemInfo::Physical,
        log: LogLevel::Debug,
    };
    assert_eq!(config, want);
}

#[test]
fn a_bad_value_names_variable_value_and_what_is_allowed_and_the_default_holds() {
    for (name, value, part) in [
        ("DEEPUM", "yes", "one of 0, 1; using 1"),
        ("DEEPUM_POLICY", "lru", "one of demand, next_block, deepum, horizon, deepum_paper, restless; using horizon"),
        ("DEEPUM_GPU_BUDGET", "16Gb", "GiB"),
        ("DEEPUM_GPU_BUDGET", "0", "bytes"),
        ("DEEPUM_GPU_BUDGET", "101%", "1% to 100%"),
        ("DEEPUM_GPU_BUDGET", "99999999999TiB", "bytes"),
        ("DEEPUM_HOST_BUDGET", "-1", "bytes"),
        ("DEEPUM_GATE", "closed", "one of 0, 1; using 1"),
        ("DEEPUM_PREEVICT", "yes", "one of 0, 1; using 1"),
        ("DEEPUM_INVALIDATE", "1", "one of no, evict, discard; using discard"),
        ("DEEPUM_DEGREE", "0", "1 to 4096"),
        ("DEEPUM_COPIES", "3", "1 or 2; using 1"),
        ("DEEPUM_COPIES", "two", "1 or 2; using 1"),
        ("DEEPUM_LEAVE", "1", "one of measured, mapped, unmapped; using measured"),
        ("DEEPUM_AWAIT", "no", "one of word, call; using word"),
        ("DEEPUM_TABLE", "2000,2,4", "power of two"),
        ("DEEPUM_TABLE", "2048,2", "rows,ways,successors"),
        ("DEEPUM_ENGINE", "daemon:deepumd.sock", "embedded, daemon, or daemon:PATH"),
        ("DEEPUM_ENGINE", "embedded:/x", "embedded, daemon, or daemon:PATH"),
        ("DEEPUM_WEIGHT", "0", "1 to 100"),
        ("DEEPUM_WEIGHT", "101", "1 to 100"),
        ("DEEPUM_TABLES", "tables", "off, or a folder by its whole path"),
        ("DEEPUM_WORKLOAD", "a/b", "letters, digits"),
        ("DEEPUM_EXEC_ID", "hash", "one of pointers, raw"),
        ("DEEPUM_MEMINFO", "both", "one of virtual, physical"),
        ("DEEPUM_LOG", "trace", "one of off, error, info, debug"),
    ] {
        let (config, lines) = read(&[(name, value)]);
        assert_eq!(config, Config::default(), "{name}={value}");
        assert_eq!(lines.len(), 1, "{name}={value}");
        assert!(lines[0].starts_with(&format!("{name}={value} is not allowed: ")), "{}", lines[0]);
        assert!(lines[0].contains(part), "{} lacks {part:?}", lines[0]);
    }
}

#[test]
fn a_misspelt_name_is_answered_with_the_closest() {
    for (name, meant) in [
        ("DEEPUM_POLCY", "DEEPUM_POLICY"),
        ("DEEPUM_BUDGET", "DEEPUM_GPU_BUDGET"),
        ("DEEPUM_MEM_INFO", "DEEPUM_MEMINFO"),
        ("DEEPUM_EXECID", "DEEPUM_EXEC_ID"),
    ] {
        let (config, lines) = read(&[(name, "1")]);
        assert_eq!(config, Config::default());
        assert_eq!(lines, [format!("{name} is no variable of DeepUM; did you mean {meant}?")]);
    }
    assert!(read(&[("DEEPUMP", "1"), ("deepum_policy", "x"), ("PATH", "/bin")]).1.is_empty());
}

#[test]
fn an_empty_value_counts_as_none() {
    assert_eq!(read(&[("DEEPUM_POLICY", ""), ("DEEPUM", " ")]), (Config::default(), vec![]));
}

#[test]
fn budgets_are_exact() {
    let bytes = |text: &str| Budget::parse(text).unwrap();
    assert_eq!(bytes("17179869184"), Budget::Fixed(Bytes::gib(16)));
    assert_eq!(bytes(" 16 GiB "), Budget::Fixed(Bytes::gib(16)));
    assert_eq!(bytes("1.5gib"), Budget::Fixed(Bytes::mib(1536)));
    assert_eq!(bytes("512KiB"), Budget::Fixed(Bytes::kib(512)));
    assert_eq!(Budget::Percent(50).of(Bytes(7)), Bytes(3));
    assert_eq!(Budget::Percent(100).of(Bytes(u64::MAX)), Bytes(u64::MAX));
    assert_eq!(Budget::Fixed(Bytes::gib(16)).of(Bytes::gib(8)), Bytes::gib(8));
    for bad in ["", "GiB", ".", "1.5", "16 G", "1e9", "%", "0x10", "1.2.3GiB"] {
        assert!(Budget::parse(bad).is_err(), "{bad}");
    }
}

/// `docs/configuration.md` says what the code does. `BLESS=1` rewrites it.
#[test]
fn the_documentation_is_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
        std::fs::write(path, help::markdown()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), help::markdown(), "BLESS=1 rewrites docs/configuration.md");
    for variable in VARIABLES {
        assert!(help::text().contains(&format!("  {}=", variable.name)));
    }
}
