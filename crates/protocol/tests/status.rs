//! The status survives its own line, and another version is refused by name.
#![cfg(not(loom))]

use deepum_protocol::status::{Request, SCHEMA, Source, State, Status, StatusError, Wanted};

#[test]
fn a_status_survives_its_line() {
    let mut status = Status::new(42);
    status.state = State::Awake;
    status.sources.tools_queue = Source {
        attached: false,
        reason: Some("cannot open /dev/nvidia-uvm-tools".to_owned()),
    };
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
    let mut value: serde_json::Value =
        serde_json::from_str(&Status::new(1).to_line().unwrap()).unwrap();
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
