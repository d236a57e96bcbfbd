//! The status survives its own line, and another version is refused by name.
#![cfg(not(loom))]

use deepum_protocol::status::{Request, SCHEMA, Source, State, Status, StatusError, Wanted};

#[test]
fn a_status_survives_its_line() {
    let mut status = Status::new(42);
    status.state = State::Awake;
    status.sources.tools_queue =
        Source { attached: false, reason: Some("cannot open /dev/nvidia-uvm-tools".to_owned()) };
    status.counters.insert("faults".to_owned(), u64::MAX);
    let line = status.to_line().unwrap();
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
    assert_eq!(Status::parse(&line).unwrap(), status);
}

#[test]
fn another_version_is_refused_by_name() {
    let error = Status::parse(r#"{"schema":"deepum-status/9"}"#).unwrap_err();
    assert!(matches!(&error, StatusError::Schema { have } if have == "deepum-status/9"));
    assert!(error.to_string().contains("deepum-status/9") && error.to_string().contains(SCHEMA));
    assert!(matches!(Status::parse("{"), Err(StatusError::Malformed(_))));
}

#[test]
fn fields_of_a_later_minor_version_do_not_hurt() {
    let mut value: serde_json::Value = serde_json::from_str(&Status::new(1).to_line().unwrap()).unwrap();
    value["something_new"] = 1.into();
    assert!(Status::parse(&value.to_string()).is_ok());
}

#[test]
fn a_request_is_exact() {
    let request: Request = serde_json::from_str(r#"{"get":"status"}"#).unwrap();
    assert_eq!(request.get, Wanted::Status);
    assert!(serde_json::from_str::<Request>(r#"{"get":"secrets"}"#).is_err());
    assert!(serde_json::from_str::<Request>(r#"{"get":"status","and":1}"#).is_err());
}

/// `docs/status.md` names every field that a full status has.
#[test]
fn the_documentation_lists_the_fields() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status.md")).unwrap();
    let mut status = Status::new(1);
    status.devices.push(Default::default());
    status.progress.push(Default::default());
    status.reason = Some(String::new());
    status.invalidation.less = Some(String::new());
    status.sources.driver = Some(String::new());
    status.sources.tools_queue.reason = Some(String::new());
    let mut missing = Vec::new();
    fields(&serde_json::to_value(&status).unwrap(), &mut |name| {
        // Documented as `name`, `name[]`, or as the last part of `group.name`.
        let shapes = [format!("`{name}`"), format!("`{name}[]`"), format!(".{name}`")];
        if name != "sources" && !shapes.iter().any(|shape| text.contains(shape)) {
            missing.push(name.to_owned());
        }
    });
    assert_eq!(missing, [""; 0]);
}

fn fields(value: &serde_json::Value, see: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(name, value)| {
            see(name);
            fields(value, see);
        }),
        serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, see)),
        _ => {}
    }
}
