//! Under which policies a trace can be replayed: the core's own, one that knows the next kernels, and planners that are told the whole iteration.

use deepum_core::policy::PolicyName;
use deepum_sim::planner::g10::{G10, Targets};
use deepum_sim::planner::schedule::Plan;
use deepum_sim::planner::{flashneuron, most::Most, oracle};
use deepum_sim::tiers::{Tier, Tiers};
use deepum_trace::program::Program;
use std::fmt;

/// Kernels that DeepUM+ looks ahead: as in G10's evaluation.
pub const DEGREE: u32 = 8;

const DEEPUM_PLUS: &str = "deepum_plus";

/// The kernel with which the backward pass begins, in G10's profiles.
const TURN: &str = "makeLoss";

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The core's: what programs can run under.
    Core(PolicyName),
    /// DeepUM as G10's authors simulate it: in their world only.
    DeepumPlus,
    /// One that must know the iteration in advance.
    Planner(Planner),
}

/// One that must know the iteration in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planner {
    /// FAST'21.
    FlashNeuron,
    /// G10, MICRO'23.
    G10,
    /// The same, to the SSD alone.
    G10Gds,
    /// The same without unified memory, as its authors simulate it: in their world only.
    G10Host,
    /// MOST, IEEE CAL 2025.
    Most,
    /// Furthest next use, with all that can be known.
    Oracle,
}

impl Planner {
    const ALL: [Self; 6] = [Self::FlashNeuron, Self::G10, Self::G10Gds, Self::G10Host, Self::Most, Self::Oracle];

    const fn name(self) -> &'static str {
        match self {
            Self::FlashNeuron => "flashneuron",
            Self::G10 => "g10",
            Self::G10Gds => "g10_gds",
            Self::G10Host => "g10_host",
            Self::Most => "most",
            Self::Oracle => "oracle",
        }
    }

    /// Plans an iteration.
    ///
    /// # Errors
    /// Why there is no plan.
    pub fn plan(self, program: &Program, tiers: &Tiers) -> Result<Plan, String> {
        let plan = match self {
            Self::FlashNeuron => flashneuron::plan(program, tiers, turn(program)?),
            Self::G10 | Self::G10Host => G10::PAPER.plan(program, tiers),
            Self::G10Gds => G10 { targets: Targets::Ssd }.plan(program, tiers),
            Self::Most => {
                let (fault_back, fault_out) = (tiers.link.back.rate, tiers.link.out.rate);
                Most { tiers: &[Tier::Host, Tier::Ssd], fault_back, fault_out }.plan(program, tiers)
            }
            Self::Oracle => oracle::plan(program, tiers),
        };
        plan.map_err(|why| why.to_string())
    }
}

/// The kernel with which the backward pass begins.
///
/// # Errors
/// If there is none that is called so.
pub fn turn(program: &Program) -> Result<u32, String> {
    let turn = program.kernels().iter().position(|kernel| &*kernel.name == TURN);
    let turn = turn.and_then(|turn| u32::try_from(turn).ok());
    turn.ok_or_else(|| format!("no kernel is called {TURN}: where the backward pass begins is not known"))
}

impl Policy {
    /// All of them by name, the core's first.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let core = PolicyName::ALL.into_iter().map(|name| (name.as_str(), Self::Core(name)));
        let planners = Planner::ALL.into_iter().map(|planner| (planner.name(), Self::Planner(planner)));
        core.chain([(DEEPUM_PLUS, Self::DeepumPlus)]).chain(planners)
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
            Self::DeepumPlus => DEEPUM_PLUS,
            Self::Planner(planner) => planner.name(),
        })
    }
}
