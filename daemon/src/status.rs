//! What the daemon tells of itself (`docs/daemon.md`): to root everything, to others what is theirs.

use crate::parent::{Shared, lock};
use deepum_protocol::programs::{Programs, SCHEMA};
use deepum_protocol::status::Wanted;
use nix::unistd::getuid;
use std::sync::Mutex;
use std::time::Instant;

/// The line for a request of user `uid`.
///
/// # Errors
/// What is wrong with the request.
pub(crate) fn answer(shared: &Mutex<Shared>, wanted: Wanted, uid: u32) -> Result<String, String> {
    if wanted == Wanted::Status {
        return Err("deepumd lists programs, {\"get\":\"programs\"}; each program tells its own status".to_owned());
    }
    // The loop waits for the lock, so it is not held while the line is written.
    let told = lock(shared).told(uid, Instant::now());
    told.to_line().map_err(|e| format!("the status cannot be written: {e}"))
}

impl Shared {
    fn told(&self, uid: u32, now: Instant) -> Programs {
        let all = uid == 0 || uid == getuid().as_raw();
        Programs {
            schema: SCHEMA.to_owned(),
            pid: std::process::id(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            socket: self.socket.clone(),
            up_ms: u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX),
            programs: self.programs.told(|peer| all || peer.uid == uid, now),
            counters: self.counters.rows(),
        }
    }
}
