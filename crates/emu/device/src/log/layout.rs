//! Layout of the flight log: a header page, then one entry per launch. All words little-endian `u64`.

/// First eight bytes of a log.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DEEPUMFL");
/// Version of this layout; any change of an offset below is a new version.
pub const VERSION: u64 = 2;
/// Length of the header; entries start here.
pub const HEADER: usize = 4096;
/// Length of one entry.
pub const ENTRY: u64 = 64;
/// Words before the totals: magic, version, number of entries, process id, zeros.
pub const TOTALS_AT: usize = 8;
/// Where the configuration line is, and how much room it has (UTF-8, zero-filled).
pub const CONFIG_AT: usize = 2048;
/// Room for the configuration line.
pub const CONFIG_LEN: usize = 1024;
/// Word of the number of entries.
pub const ENTRIES_WORD: usize = 2;
/// Word of the process id.
pub const PID_WORD: usize = 3;

macro_rules! totals {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Sums over the whole run; word `TOTALS_AT + n` of the header holds the n-th field.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
        pub struct Totals { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Totals {
            /// Name and meaning of each word, in order.
            pub const WORDS: &[(&str, &str)] = &[$((stringify!($name), concat!($($doc),+)),)+];

            /// The words in order.
            #[must_use]
            pub fn words(&self) -> [u64; Self::WORDS.len()] {
                [$(self.$name,)+]
            }

            /// From words in order.
            #[must_use]
            pub fn from_words(words: &[u64; Self::WORDS.len()]) -> Self {
                let [$($name,)+] = *words;
                Self { $($name,)+ }
            }
        }
    };
}

totals! {
    /// Virtual time of the host clock, ns.
    virtual_ns,
    /// Kernel and graph launches accepted.
    launches,
    /// Kernel and graph launches finished.
    launches_done,
    /// Driver API calls made.
    calls,
    /// Driver API calls and stand-in library calls refused as not supported.
    refused,
    /// Allocations refused for want of device or host memory.
    out_of_memory,
    /// GPU fault entries, duplicates included.
    fault_entries,
    /// GPU fault batches.
    fault_batches,
    /// Managed bytes moved to a device by migrate and prefetch calls.
    h2d_user,
    /// Managed bytes moved to a device by faults.
    h2d_fault,
    /// Managed bytes moved to a device by the driver's tree prefetcher.
    h2d_tree,
    /// Managed bytes moved to the host by migrate and prefetch calls.
    d2h_user,
    /// Managed bytes moved to the host by eviction.
    d2h_eviction,
    /// Bytes copied to a device by copy calls.
    copied_h2d,
    /// Bytes copied to the host by copy calls.
    copied_d2h,
    /// Virtual time kernels stood still for faults, ns, over all devices.
    stall_ns,
    /// Most managed bytes on a device at one time, summed over devices.
    peak_resident,
    /// Device bytes allocated at the end, device memory proper.
    device_bytes,
    /// Managed bytes allocated at the end.
    managed_bytes,
    /// Most managed bytes allocated at one time.
    peak_managed,
    /// Launches, and kernels of CUDA graphs, of which the touched memory was decoded exactly.
    exact_launches,
    /// Bytes touched by those.
    exact_bytes,
    /// Launches, and kernels of CUDA graphs, of which the touched memory was found by the rule for unknown kernels.
    guessed_launches,
    /// Bytes touched by those.
    guessed_bytes,
    /// Launches for which the shim named an argument set.
    named_launches,
    /// Managed UM blocks touched by those launches.
    blocks_touched,
    /// UM blocks the shim named for them.
    blocks_named,
    /// Touched but not named.
    blocks_missed,
    /// Named but not touched.
    blocks_exceeding,
    /// Notices put into tools queues.
    notices,
    /// Notices dropped on request (`drop_notices`).
    notices_dropped,
    /// Times the device waited for the engine to settle.
    settles,
    /// Launches that found no room in this log.
    entries_dropped,
    /// Managed bytes on a device that were never copied out because their contents were given up.
    discarded,
}

/// One launch. Entries are in the order the host issued them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Hash of kernel name, grid and block; no pointers, so it repeats from run to run.
    pub identity: u64,
    /// Host clock when it was issued, ns.
    pub issued: u64,
    /// When the device began it, ns; 0 if it had not when the log ended.
    pub start: u64,
    /// When it finished, ns; 0 if it had not.
    pub end: u64,
    /// GPU fault entries of the whole run when it finished.
    pub fault_entries: u64,
    /// Managed bytes moved to devices in the whole run when it finished.
    pub h2d: u64,
    /// Managed bytes moved to the host in the whole run when it finished.
    pub d2h: u64,
    /// Device ordinal (low 32 bits) and stream number (high 32 bits).
    pub place: u64,
}

impl Entry {
    /// The words in order.
    #[must_use]
    pub const fn words(&self) -> [u64; 8] {
        [self.identity, self.issued, self.start, self.end, self.fault_entries, self.h2d, self.d2h, self.place]
    }

    /// From words in order.
    #[must_use]
    pub const fn from_words(words: [u64; 8]) -> Self {
        let [identity, issued, start, end, fault_entries, h2d, d2h, place] = words;
        Self { identity, issued, start, end, fault_entries, h2d, d2h, place }
    }
}

const _: () = assert!((TOTALS_AT + Totals::WORDS.len()) * 8 <= CONFIG_AT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_every_word() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/flight-log.md");
        let doc = std::fs::read_to_string(path).unwrap();
        for (n, (name, meaning)) in Totals::WORDS.iter().enumerate() {
            let row = format!("| {} | `{name}` | {} |", (TOTALS_AT + n) * 8, meaning.trim());
            assert!(doc.contains(&row), "docs/flight-log.md lacks the row\n{row}");
        }
    }
}
