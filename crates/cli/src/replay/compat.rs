//! A replay in the world that G10 was published with (`deepum_sim::published`).

use super::life::planned;
use super::policy::{DEGREE, Planner, Policy, turn};
use super::row::Row;
use crate::rows::Outcome;
use clap::ValueEnum;
use deepum_core::policy::PolicyName;
use deepum_core::units::{Bytes, Nanos};
use deepum_sim::published::g10::{self, Direct};
use deepum_sim::published::whole::{direct, flashneuron};
use deepum_sim::published::{Guide, Right, World, play, play_core};
use deepum_sim::tiers::{Duplex, Pipe, Tiers};
use deepum_trace::g10::Profile;

/// Iterations that are played.
const ITERATIONS: u32 = 2;

/// Iterations before, from which a policy of the core learns: it is told nothing in advance, and the planners are given the profile of a whole one.
const LEARNING: u32 = 3;

/// A model that has a line of its own.
const VIT: &str = "VIT";

/// What of that world can be put right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mistake {
    /// Measured fault times are cut to whole seconds, so that most faults cost just their bytes
    Faults,
    /// Without a plan what is dead stays, and leaves like all else
    Dead,
    /// What is new costs as much as a transfer
    New,
    /// The faster of two iterations counts, not the second
    Fastest,
}

/// The world, and what of it is put right.
#[derive(Clone, Copy, Debug)]
pub struct Compat {
    world: World,
    fastest: bool,
}

impl Compat {
    /// This world with these put right.
    pub fn new(world: &World, put_right: &[Mistake]) -> Self {
        let is = |mistake| put_right.contains(&mistake);
        let right = Right { faults: is(Mistake::Faults), dead: is(Mistake::Dead), new: is(Mistake::New) };
        Self { world: World { right, ..*world }, fastest: !is(Mistake::Fastest) }
    }

    /// Whether a policy is played there. Of the core's, `deepum` has a stand-in of the artifact's own, and others are not of interest.
    pub const fn has(policy: Policy) -> bool {
        !matches!(policy, Policy::Core(name) if !matches!(name, PolicyName::Demand | PolicyName::Horizon))
    }

    /// Plays a profile.
    pub fn row(&self, profile: &Profile, policy: Policy) -> Row {
        let played = self.played(profile, policy);
        played.unwrap_or_else(|why| Row::failed(&profile.name().point(), &policy.to_string(), why))
    }

    fn played(&self, profile: &Profile, policy: Policy) -> Result<Row, String> {
        let (program, world) = (profile.program(), &self.world);
        let said = |why: &dyn std::fmt::Display| why.to_string();
        let played = |guide| play(program, profile.faults(), world, guide, ITERATIONS).map_err(|why| said(&why));
        let played = match policy {
            Policy::Core(PolicyName::Demand) => played(Guide::Demand)?,
            Policy::Core(name) => {
                let iterations = LEARNING + ITERATIONS;
                play_core(program, profile.faults(), world, name, iterations).map_err(|why| said(&why))?
            }
            Policy::DeepumPlus => played(Guide::Window(DEGREE))?,
            // These the artifact plays by whole tensors; to FlashNeuron's plan all of the GPU's memory is its own.
            Policy::Planner(planner @ Planner::FlashNeuron) => {
                let plan = planner.plan(program, &self.tiers(world.gpu))?;
                let turn = turn(program)?;
                vec![flashneuron::play(program, world, &plan.schedule, turn).map_err(|why| said(&why))?]
            }
            Policy::Planner(Planner::G10) => {
                let plan = g10::plan(program, world).map_err(|why| said(&why))?;
                played(Guide::Plan(&plan.schedule))?
            }
            Policy::Planner(planner @ (Planner::G10Gds | Planner::G10Host)) => {
                let host = planner == Planner::G10Host;
                let line = if host && profile.name().model() == VIT { Direct::VIT } else { Direct::LINE };
                let moves = g10::plan_direct(program, world, Direct { host, line }).map_err(|why| said(&why))?;
                vec![direct::play(program, world, &moves).map_err(|why| said(&why))?]
            }
            Policy::Planner(planner) => {
                let plan = planner.plan(program, &self.tiers(planned(world.gpu)))?;
                played(Guide::Plan(&plan.schedule))?
            }
        };
        let counted = &played[played.len().saturating_sub(ITERATIONS as usize)..];
        let counts = if self.fastest { counted.iter().min_by_key(|one| one.time) } else { counted.last() };
        let one = counts.ok_or("no iteration was played")?;
        let [host_out, ssd_out] = one.out.map(Bytes::get);
        let [host_back, ssd_back] = one.back.map(Bytes::get);
        Ok(Row {
            seconds: Some(one.time.0 as f64 / 1e9),
            iterations: played.iter().map(|one| one.time.0 as f64 / 1e9).collect(),
            share_of_ideal: Some(program.ideal().0 as f64 / one.time.0.max(1) as f64),
            bytes_h2d: Some(host_back + ssd_back),
            bytes_d2h: Some(host_out + ssd_out),
            bytes_ssd_read: Some(ssd_back),
            bytes_ssd_write: Some(ssd_out),
            peak_bytes: Some(one.peak.get()),
            ..Row::broken(&profile.name().point(), &policy.to_string(), Outcome::Ok)
        })
    }

    /// What a planner of ours is told, with so much of the GPU to plan for.
    fn tiers(&self, gpu: Bytes) -> Tiers {
        let way = |rate| {
            let pipe = Pipe { rate, latency: Nanos::ZERO };
            Duplex { out: pipe, back: pipe }
        };
        let World { host, link, ssd, .. } = self.world;
        Tiers { gpu, host, link: way(link), ssd: Some(way(ssd)) }
    }
}
