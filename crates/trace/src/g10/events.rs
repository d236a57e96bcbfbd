//! A profile as a trace: what a program would have done that ran just so.
//!
//! Memory is what the profile says. Globals and intermediates have an allocation each, made once. A global is a PT block that stays; an
//! intermediate is one from the first kernel of an iteration that names it to the last, at its own address, which no other has. Before the first iteration each global
//! is copied from the host once, as a program's weights are made before it trains. Each kernel is a
//! launch into stream 0 whose pointers are its tensors, inputs first; it reads its inputs whole and writes its outputs whole.
//!
//! The host's clock stands still, since profiles have no host in them: launches wait for nothing but each other. Some intermediates are
//! read before they are written: token numbers, divisors, a dropout's mask, which no kernel of the profile makes. They come from nowhere here, too.

use super::Profile;
use crate::event::{Access, Event, Header, Launch, NameId, Record, Touch};
use crate::program::{Kernel, Life, TensorId};
use deepum_core::mix::Mix;
use deepum_core::units::{AddrRange, Bytes, LaunchKey, LaunchSeq, Nanos, StreamSlot};

impl Profile {
    /// What a trace of it is of, on a GPU of which so much may be used.
    #[must_use]
    pub fn header(&self, budget: Bytes) -> Header {
        let program = format!("G10 {}", self.name().point()).into();
        Header { program, device: "A100 of G10's profiles".into(), budget }
    }

    /// Preparation, so many iterations, and the mark behind the last.
    pub fn records(&self, iterations: u32) -> impl Iterator<Item = Record> + '_ {
        let names = Names::of(self.program().kernels());
        let [first, last] = self.program().ends();
        let prepared = self.preparation(&names);
        let kernels = self.program().kernels();
        let copies = self.all_globals().count() as u64;
        let launches = (0..iterations).flat_map(move |_| kernels.iter().enumerate()).zip(1 + copies..);
        let events = launches.flat_map(move |((number, kernel), place)| {
            let mark = (number == 0).then_some(Event::Iteration);
            let active = first[number].iter().map(|id| self.pt_block(*id, true));
            let launch = self.launch(kernel, &names, LaunchSeq(place));
            let inactive = last[number].iter().map(|id| self.pt_block(*id, false));
            mark.into_iter().chain(active).chain(launch).chain(inactive).collect::<Vec<_>>()
        });
        let events = prepared.into_iter().chain(events).chain(std::iter::once(Event::Iteration));
        events.map(|event| Record { at: Nanos::ZERO, event })
    }

    fn preparation(&self, names: &Names) -> Vec<Event> {
        let spaces = [self.globals(), self.intermediates()].into_iter().filter(|space| !space.is_empty());
        let mut events: Vec<Event> = spaces
            .map(|space| Event::Alloc { range: AddrRange::new(space.start, space.len.round_up_to_blocks()) })
            .collect();
        events.extend(self.all_globals().map(|id| self.pt_block(id, true)));
        events.extend(names.0.iter().map(|name| Event::Name { name: name.clone() }));
        let copy = |id| Event::Copy { stream: StreamSlot(0), from: None, to: Some(self.place(id)) };
        events.extend(self.all_globals().map(copy));
        events
    }

    fn all_globals(&self) -> impl Iterator<Item = TensorId> {
        self.program().ids().filter(|id| self.program().tensor(*id).life == Life::Global)
    }

    fn pt_block(&self, id: TensorId, active: bool) -> Event {
        Event::PtBlock { range: self.place(id), active }
    }

    fn launch(&self, kernel: &Kernel, names: &Names, place: LaunchSeq) -> [Event; 3] {
        let new = kernel.writes.iter().filter(|id| !kernel.reads.contains(id));
        let tensors = || kernel.reads.iter().chain(new.clone()).copied();
        let touches = tensors().map(|id| {
            let access = match (kernel.reads.contains(&id), kernel.writes.contains(&id)) {
                (true, true) => Access::ReadWrite,
                (true, false) => Access::Read,
                (false, _) => Access::Write,
            };
            Touch { range: self.place(id), access, phase: 0 }
        });
        let touches = touches.collect();
        let pointers: Vec<_> = tensors().map(|id| self.place(id).start).collect();
        let key = pointers.iter().fold(Mix::new().bytes(kernel.name.as_bytes()), |mix, pointer| mix.word(pointer.0));
        let key = LaunchKey(key.end());
        [
            Event::Launch(Launch { stream: StreamSlot(0), kernel: names.id(&kernel.name), key, pointers }),
            Event::Touched { launch: place, touches },
            Event::Time { launch: place, time: kernel.time },
        ]
    }
}

/// The kernels' names, each once, in the order of the alphabet.
struct Names(Vec<Box<str>>);

impl Names {
    fn of(kernels: &[Kernel]) -> Self {
        let mut names: Vec<_> = kernels.iter().map(|kernel| kernel.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Self(names)
    }
    fn id(&self, name: &str) -> NameId {
        let at = self.0.partition_point(|known| **known < *name);
        NameId(u32::try_from(at).unwrap_or(u32::MAX))
    }
}
