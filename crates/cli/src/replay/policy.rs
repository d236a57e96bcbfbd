//! Under which policies a trace can be replayed: the core's own, and planners that are told the whole iteration.

use deepum_core::policy::PolicyName;
use deepum_sim::planner::schedule::Outcome;
use deepum_sim::planner::{g10::G10, most::Most, oracle};
use deepum_sim::tiers::{Tier, Tiers};
use deepum_trace::program::Program;
use std::fmt;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The core's: what programs can run under.
    Core(PolicyName),
    /// One that must know the iteration in advance.
    Planner(Planner),
}

/// One that must know the iteration in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planner {
    /// G10, MICRO'23.
    G10,
    /// MOST, IEEE CAL 2025.
    Most,
    /// Furthest next use, with all that can be known.
    Oracle,
}

impl Planner {
    const ALL: [Self; 3] = [Self::G10, Self::Most, Self::Oracle];

    const fn name(self) -> &'static str {
        match self {
            Self::G10 => "g10",
            Self::Most => "most",
            Self::Oracle => "oracle",
        }
    }

    /// Plans an iteration.
    pub fn plan(self, program: &Program, tiers: &Tiers) -> Outcome {
        match self {
            Self::G10 => G10::PAPER.plan(program, tiers),
            Self::Most => Most { tier: Tier::Host, fault_back: tiers.link.back.rate, fault_out: tiers.link.out.rate }
                .plan(program, tiers),
            Self::Oracle => oracle::plan(program, tiers),
        }
    }
}

impl Policy {
    /// All of them by name, the core's first.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let core = PolicyName::ALL.into_iter().map(|name| (name.as_str(), Self::Core(name)));
        core.chain(Planner::ALL.into_iter().map(|planner| (planner.name(), Self::Planner(planner))))
    }
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find_map(|(known, policy)| (known == name).then_some(policy))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core(name) => name.as_str(),
            Self::Planner(planner) => planner.name(),
        })
    }
}
