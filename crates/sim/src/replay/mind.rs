//! Who thinks in a replay: the real core or a plan that is carried out, its queues, and the hands that move.
//!
//! As in the programs we are loaded into (`crates/engine`): one hand off the GPU, two onto it and one that gives up, a batch at a time, and nothing learns of a
//! migration after the call that made it returned. But there are no threads: what the engine does takes no time of its own, except that a hand that
//! was idle begins the device profile's reaction time later. What is carried out at one instant goes outwards before inwards.
//!
//! Contents are given up only where nobody holds the block and whoever held it last is finished, which the words of the shared page see to in life
//! (`deepum_protocol::handout`).

use super::ReplayError;
use super::job::{Job, Leaves};
use deepum_core::command::Commands;
use deepum_core::engine::Engine;
use deepum_core::event::{DiscardOutcome, Event, Fault, Migration};
use deepum_core::mix::Map;
use deepum_core::queues::{BATCH, Batch, Direction, Hand, Lane, Queues};
use deepum_core::steps::Step;
use deepum_core::trial::Trial;
use deepum_core::units::{AddrRange, Bytes, DeviceId, LaunchSeq, Nanos, Place, UmBlock};
use deepum_model::{Group, Notice, UnifiedMemory};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The one GPU there is.
pub(super) const GPU: DeviceId = DeviceId(0);

/// What decides.
pub(super) trait Thinks {
    /// Takes in one event; what is to be done about it is appended to `out`.
    fn on(&mut self, event: &Event<'_>, out: &mut Commands);
    /// Puts that into `queues`. `free`: blocks that may still come to the GPU.
    fn hand_over(&mut self, out: &mut Commands, queues: &mut Queues, free: usize);
    /// The first launch that shall not start yet. `moving`: whether a hand has something in it.
    fn gate(&mut self, moving: bool) -> Option<LaunchSeq>;
    /// How many launches and copies the program shall be ahead of the GPU at most.
    fn lead(&self) -> Option<u64> {
        None
    }
    /// Launches before this one do not look at the gate.
    fn clear_until(&self) -> LaunchSeq {
        LaunchSeq(0)
    }
    /// Whether it would be of use to know what is over of launches that it was not told of.
    fn doubts(&self) -> bool {
        false
    }
    /// Whether it asks for each block that the GPU faults on.
    fn brings_faults(&self) -> bool {
        false
    }
    /// Whether it wants to be told of launches.
    fn awake(&self) -> bool;
}

impl Thinks for Engine {
    fn on(&mut self, event: &Event<'_>, out: &mut Commands) {
        Self::on(self, event, out);
    }
    fn hand_over(&mut self, out: &mut Commands, queues: &mut Queues, _free: usize) {
        Self::hand_over(self, out, queues);
    }
    fn gate(&mut self, _moving: bool) -> Option<LaunchSeq> {
        Self::gate(self)
    }
    fn lead(&self) -> Option<u64> {
        Self::lead(self)
    }
    fn clear_until(&self) -> LaunchSeq {
        Self::clear_until(self)
    }
    fn doubts(&self) -> bool {
        Self::doubts(self).is_some()
    }
    fn brings_faults(&self) -> bool {
        Self::brings_faults(self)
    }
    fn awake(&self) -> bool {
        Self::awake(self)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mind<'a, T> {
    pub(super) thinks: T,
    /// What it is still to hear of what the program and the GPU did, and when; and how much later than it happened.
    unheard: VecDeque<(Nanos, Event<'a>)>,
    late: Nanos,
    queues: Queues,
    commands: Commands,
    /// By [`Hand`].
    hands: [Mover; Hand::ALL.len()],
    held: Map<UmBlock, Held>,
    notices: Vec<Notice>,
    /// How blocks had better leave.
    trial: Trial,
    /// What leaves unmapped passes through it; made for the first that does.
    stay: Option<Group>,
    /// Real time that thinking took.
    pub(super) thought: Duration,
}

/// One hand.
#[derive(Clone, Default, Debug)]
struct Mover {
    job: Option<Job>,
    /// When its last call returned: it is awake at that instant.
    let_go: Option<Nanos>,
}

/// Who has a block.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    /// PT blocks in it that hold a tensor.
    tensors: u32,
    /// Not by PyTorch, or not known to be.
    reported: bool,
    /// All that may use what was there was issued by then.
    released: LaunchSeq,
}

impl<'a, T: Thinks> Mind<'a, T> {
    /// It hears that much later of what the program and the GPU do.
    pub(super) fn new(thinks: T, late: Nanos) -> Self {
        Self {
            trial: Trial::measured(thinks.brings_faults()),
            thinks,
            unheard: VecDeque::new(),
            late,
            queues: Queues::default(),
            commands: Commands::new(),
            hands: Default::default(),
            held: Map::default(),
            notices: Vec::new(),
            stay: None,
            thought: Duration::ZERO,
        }
    }

    /// What it thinks counts.
    fn thinking<R>(&mut self, think: impl FnOnce(&mut T, &mut Commands, &mut Queues) -> R) -> R {
        let begun = Instant::now();
        let thought = think(&mut self.thinks, &mut self.commands, &mut self.queues);
        self.thought += begun.elapsed();
        thought
    }

    /// Tells it.
    pub(super) fn tell(&mut self, event: &Event<'_>) {
        self.tell_all([*event]);
    }

    /// Tells it, when it is to hear of it.
    pub(super) fn reaches(&mut self, event: Event<'a>, now: Nanos) {
        if self.late == Nanos::ZERO {
            self.tell(&event);
        } else {
            self.unheard.push_back((now + self.late, event));
        }
    }

    /// When it hears of something next.
    pub(super) fn hears(&self) -> Option<Nanos> {
        self.unheard.front().map(|(at, _)| *at)
    }

    /// Tells it what it has heard of by now.
    pub(super) fn hear(&mut self, now: Nanos) {
        while let Some((_, event)) = self.unheard.pop_front_if(|(at, _)| *at <= now) {
            self.tell(&event);
        }
    }

    /// Tells it one after the other: to ask for the time costs as much as some events.
    fn tell_all<'b>(&mut self, events: impl IntoIterator<Item = Event<'b>>) {
        self.thinking(|thinks, out, _| events.into_iter().for_each(|event| thinks.on(&event, out)));
    }

    /// A PT block is handed out or taken back, everything up to `issued` being under way.
    pub(super) fn pt_block(&mut self, range: AddrRange, active: bool, issued: LaunchSeq, now: Nanos) {
        for block in range.blocks() {
            let held = self.held.entry(block).or_default();
            held.reported = true;
            if active {
                held.tensors += 1;
            } else {
                held.tensors = held.tensors.saturating_sub(1);
                held.released = issued;
            }
        }
        if !active {
            self.reaches(Event::Issued { seq: issued }, now);
        }
        self.reaches(Event::PtBlock { range, active }, now);
    }

    pub(super) fn freed(&mut self, range: AddrRange, now: Nanos) {
        for block in range.blocks() {
            self.held.remove(&block);
        }
        self.reaches(Event::Free { range }, now);
    }

    /// Tells what the driver reports by now.
    pub(super) fn look(&mut self, memory: &mut UnifiedMemory, now: Nanos) {
        let mut notices = std::mem::take(&mut self.notices);
        memory.take_notices(now, &mut notices);
        self.tell_all(notices.drain(..).filter_map(|notice| match notice {
            Notice::GpuFault { block, pages, duplicates, access, batch, at, .. } => {
                let entries = pages.count() + duplicates;
                Some(Event::Fault(Fault { block, batch, entries, write: access.write, at }))
            }
            Notice::Migration { range, from, to, cause, end, .. } => {
                let block = UmBlock::containing(range.start);
                Some(Event::Migrated(Migration { block, bytes: range.len, from, to, cause, at: end }))
            }
            Notice::GpuFaultReplay { .. } => None,
        }));
        self.notices = notices;
    }

    /// When the next call of a hand returns, and whose.
    pub(super) fn next(&self) -> Option<(Nanos, Hand)> {
        let done = |hand: Hand| Some((self.hands[hand as usize].job.as_ref()?.done, hand));
        Hand::ALL.into_iter().filter_map(done).min()
    }

    /// A hand's call returns. Whether that ends what it had in hand: of a call in between nobody learns anything.
    ///
    /// # Errors
    /// As [`Self::act`].
    pub(super) fn returns(&mut self, hand: Hand, memory: &mut UnifiedMemory, now: Nanos) -> Result<bool, ReplayError> {
        let mover = &mut self.hands[hand as usize];
        mover.let_go = Some(now);
        let Some(mut job) = mover.job.take() else { return Ok(false) };
        if !job.is_over() {
            job.step(memory, now)?;
            mover.job = Some(job);
            return Ok(false);
        }
        self.look(memory, now);
        if job.batch.steps() == [Step::Leave] && job.moved.iter().all(|(_, ok)| *ok) {
            self.trial.note(job.leaves != Leaves::Mapped, job.batch.count.into(), now.saturating_sub(job.begun));
        }
        for &(block, _) in job.moved.iter().filter(|(_, ok)| *ok) {
            self.queues.moved(hand, block);
        }
        self.queues.done(hand);
        self.tell_all(job.given_up.into_iter().map(|(block, outcome)| Event::Discarded { block, outcome }));
        self.tell_all(job.moved.into_iter().map(|(block, ok)| match job.batch.lane {
            Lane::Save => Event::Saved { block, ok },
            _ => Event::MoveDone { block, to: place(hand), ok },
        }));
        Ok(true)
    }

    /// Hands over what was asked for, and begins what idle hands can take. Answers where the gate stands then.
    ///
    /// # Errors
    /// [`ReplayError::OutOfMemory`] if what leaves has nowhere to go.
    pub(super) fn act(
        &mut self,
        memory: &mut UnifiedMemory,
        now: Nanos,
        finished: LaunchSeq,
    ) -> Result<Option<LaunchSeq>, ReplayError> {
        loop {
            let free = usize::try_from(memory.room_on_device(GPU)).unwrap_or(usize::MAX);
            self.thinking(|thinks, out, queues| thinks.hand_over(out, queues, free));
            // What comes is taken first, as by the engine, and carried out last.
            let mut batches = Hand::ALL.map(|hand| (hand, None));
            for (hand, batch) in batches.iter_mut().rev() {
                if self.hands[*hand as usize].job.is_none() {
                    *batch = self.queues.pop_batch(*hand, BATCH);
                }
            }
            if batches.iter().all(|(_, batch)| batch.is_none()) {
                let moving = self.hands.iter().any(|hand| hand.job.is_some());
                return Ok(self.thinking(|thinks, _, _| thinks.gate(moving)));
            }
            // Of the two that come the one that was taken first.
            let [give_up, out, second, first] = batches;
            for (hand, batch) in [give_up, out, first, second] {
                if let Some(batch) = batch {
                    self.begin(hand, batch, memory, now, finished)?;
                }
            }
        }
    }

    fn begin(
        &mut self,
        hand: Hand,
        batch: Batch,
        memory: &mut UnifiedMemory,
        now: Nanos,
        finished: LaunchSeq,
    ) -> Result<(), ReplayError> {
        let awake = self.hands[hand as usize].let_go == Some(now);
        let start = if awake { now } else { now + memory.profile().engine_reaction };
        if batch.lane == Lane::Discard {
            let (given_up, done) = self.discard(batch, memory, start, finished);
            self.hands[hand as usize].job = Some(Job::given_up(batch, given_up, done));
            return Ok(());
        }
        let stay = *self.stay.get_or_insert_with(|| {
            let stay = memory.make_group();
            let told = memory.set_migratable(stay, false);
            debug_assert!(told.is_ok(), "it is there");
            stay
        });
        let leaves = match self.trial.is_unmapped() {
            false => Leaves::Mapped,
            true if self.thinks.brings_faults() => Leaves::Preferred,
            true => Leaves::Unmapped,
        };
        let mut job = Job::new(batch, stay, leaves, start);
        job.step(memory, start)?;
        self.hands[hand as usize].job = Some(job);
        Ok(())
    }

    /// Gives up the blocks of a batch that nobody has. Answers what became of each, and when the calls have returned.
    fn discard(
        &self,
        batch: Batch,
        memory: &mut UnifiedMemory,
        start: Nanos,
        finished: LaunchSeq,
    ) -> (Vec<(UmBlock, DiscardOutcome)>, Nanos) {
        let mut done = start;
        let mut run = 0u64;
        let mut run_from = batch.first;
        let mut outcomes = Vec::new();
        let mut give_up = |from: UmBlock, count: u64, done: &mut Nanos| {
            if count == 0 {
                return;
            }
            let range = AddrRange::new(from.start(), Bytes(UmBlock::SIZE.get() * count));
            let given_up = memory.discard(range, true, *done);
            *done = given_up.unwrap_or(*done);
            let outcome = if given_up.is_ok() { DiscardOutcome::Done } else { DiscardOutcome::Failed };
            outcomes.extend((from.0..from.0 + count).map(|block| (UmBlock(block), outcome)));
        };
        let mut handed_out = Vec::new();
        for block in batch.blocks() {
            if self.may_discard(block, finished) {
                run += 1;
                continue;
            }
            give_up(run_from, run, &mut done);
            (run, run_from) = (0, UmBlock(block.0 + 1));
            handed_out.push((block, DiscardOutcome::HandedOut));
        }
        give_up(run_from, run, &mut done);
        outcomes.append(&mut handed_out);
        (outcomes, done)
    }

    fn may_discard(&self, block: UmBlock, finished: LaunchSeq) -> bool {
        let held = self.held.get(&block).copied().unwrap_or_default();
        held.reported && held.tensors == 0 && held.released <= finished
    }
}

/// Where what it has moved is then.
fn place(hand: Hand) -> Place {
    match hand.direction() {
        Direction::Out => Place::Host,
        Direction::In => Place::Device(GPU),
    }
}
