//! What the daemon counts of itself. Names and meanings in `docs/daemon.md`.

use deepum_protocol::control::Reason;
use std::collections::BTreeMap;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// The counters.
        #[derive(Clone, PartialEq, Eq, Default, Debug)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)*
            /// Hellos refused, by [`Reason::name`].
            pub refused: BTreeMap<&'static str, u64>,
        }

        impl Counters {
            /// By the names they have in the status.
            pub fn rows(&self) -> BTreeMap<String, u64> {
                let mut rows = BTreeMap::from([$((stringify!($name).to_owned(), self.$name)),*]);
                for reason in Reason::ALL {
                    let count = self.refused.get(reason.name()).copied().unwrap_or(0);
                    rows.insert(format!("refused_{}", reason.name()), count);
                }
                rows
            }
        }
    };
}

counters! {
    /// Accepted.
    connections,
    /// Of these hung up because of a bound.
    connections_full,
    /// Of these hung up because no Hello came in time.
    connections_late,
    /// Processes.
    workers_started,
    /// Of these over, with their program.
    workers_ended,
    /// Of these over in any other way.
    workers_failed,
    /// Shares told to workers.
    budgets_sent,
    /// From workers.
    reports,
    /// Of these senseless.
    reports_bad,
}
