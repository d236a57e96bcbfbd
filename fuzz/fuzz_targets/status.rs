//! A line on the status socket, in either direction: it is refused, or what was understood is said again in the same words.
#![no_main]

use deepum_protocol::status::{Request, Status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(line) {
        let again = serde_json::to_vec(&request).expect("a request is JSON");
        assert_eq!(serde_json::from_slice::<Request>(&again).expect("our own"), request);
    }
    let Ok(text) = std::str::from_utf8(line) else { return };
    match Status::parse(text) {
        Ok(status) => {
            let again = status.to_line().expect("a status is JSON");
            assert_eq!(again.matches('\n').count(), 1, "one line");
            assert_eq!(Status::parse(&again).expect("our own"), status);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
