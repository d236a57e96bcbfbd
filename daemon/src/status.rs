//! What the daemon tells of itself (`docs/daemon.md`): to root everything, to others what is theirs.

use crate::parent::Shared;
use deepum_protocol::programs::{Programs, SCHEMA};
use deepum_protocol::status::Wanted;
use nix::unistd::getuid;
use std::time::Instant;

impl Shared {
    /// The line for a request of user `uid`.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn answer(&self, wanted: Wanted, uid: u32, now: Instant) -> Result<String, String> {
        if wanted == Wanted::Status {
            return Err("deepumd lists programs, {\"get\":\"programs\"}; each program tells its own status".to_owned());
        }
        let all = uid == 0 || uid == getuid().as_raw();
        let told = Programs {
            schema: SCHEMA.to_owned(),
            pid: std::process::id(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            socket: self.socket.clone(),
            up_ms: u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX),
            programs: self.programs.told(|peer| all || peer.uid == uid, now),
            counters: self.counters.rows(),
        };
        told.to_line().map_err(|e| format!("the status cannot be written: {e}"))
    }
}
