//! How the simulator that G10 was published with differs from life, one switch each (`docs/results/g10-traces.md`).
//!
//! Source: G10's artifact, commit de2c8c6f, `src/simulationEvents.cc`. That memory is never used again, and dead contents are copied like any others, is
//! no switch: it follows from `--placement trace` under policies that throw nothing away.

use clap::ValueEnum;
use deepum_core::units::Nanos;
use deepum_model::Profile;

/// One difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Published {
    /// A fault costs what its bytes take on the link, all of a kernel's come at once, and calls and launches cost nothing
    Faults,
    /// Pages that never had contents come over the link
    NewPages,
    /// The fastest iteration counts, not the last
    Fastest,
}

impl Published {
    /// Changes what of it is in the profile.
    pub fn apply(self, profile: &mut Profile) {
        if self != Self::Faults {
            return;
        }
        let costs = [
            &mut profile.per_transfer,
            &mut profile.batch_cost,
            &mut profile.entry_cost,
            &mut profile.block_cost,
            &mut profile.evict_cost,
            &mut profile.host_unmap_cost,
            &mut profile.ioctl_cost,
            &mut profile.call_cost,
            &mut profile.launch_cost,
            &mut profile.kernel_gap,
            &mut profile.stream_write_cost,
            &mut profile.engine_reaction,
        ];
        costs.into_iter().for_each(|cost| *cost = Nanos::ZERO);
        // No page comes that was not asked for, and no batch ends before all of a kernel's are in it: 1 TiB.
        profile.prefetch_threshold_percent = 100;
        (profile.entries_per_page_percent, profile.batch_entries, profile.front_pages) = (100, 1 << 25, 1 << 28);
    }
}
