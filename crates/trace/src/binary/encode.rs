//! Records to bytes. `decode` is the other half, and keeps the same lists.

use super::MOST_KNOWN;
use super::bytes::{put, put_difference, put_string};
use crate::event::{Access, Event, Header, Launch, Record, Touch};
use deepum_core::mix::Map;
use deepum_core::units::{AddrRange, DevAddr, LaunchKey};
use std::hash::Hash;

/// What a record begins with.
pub(super) mod tag {
    pub(in super::super) const NAME: u8 = 0;
    pub(in super::super) const ALLOC: u8 = 1;
    pub(in super::super) const FREE: u8 = 2;
    pub(in super::super) const ACTIVE: u8 = 3;
    pub(in super::super) const INACTIVE: u8 = 4;
    pub(in super::super) const LAUNCH: u8 = 5;
    pub(in super::super) const COPY: u8 = 6;
    pub(in super::super) const TOUCHED: u8 = 7;
    pub(in super::super) const TIME: u8 = 8;
    pub(in super::super) const WAIT: u8 = 9;
    pub(in super::super) const ITERATION: u8 = 10;
    pub(in super::super) const LOST: u8 = 11;
}

/// What was told before, by its number from 1 on.
#[derive(Debug)]
struct Known<T>(Map<T, u64>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Map::default())
    }
}

impl<T: Copy + Eq + Hash> Known<T> {
    /// The number of something known; 0 for something new, which is known from now on.
    fn number(&mut self, thing: T) -> u64 {
        if let Some(number) = self.0.get(&thing) {
            return *number;
        }
        if self.0.len() == MOST_KNOWN {
            self.0.clear();
        }
        self.0.insert(thing, self.0.len() as u64 + 1);
        0
    }
}

/// What the bytes before make the next ones mean.
#[derive(Default, Debug)]
pub(super) struct Encoder {
    at: u64,
    places: u64,
    keys: Known<LaunchKey>,
    ranges: Known<AddrRange>,
    /// Where the range ends that was new last.
    range_end: u64,
    addresses: Known<DevAddr>,
    /// The address that was new last.
    address: u64,
}

/// Appends a header.
pub(super) fn header(header: &Header, out: &mut Vec<u8>) {
    put_string(out, &header.program);
    put_string(out, &header.device);
    put(out, header.budget.0);
}

impl Encoder {
    /// Appends a record that [`Order`](crate::event::Order) took.
    pub(super) fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        out.push(tag_of(&record.event));
        put_difference(out, self.at, record.at.0);
        self.at = record.at.0;
        match &record.event {
            Event::Name { name } => put_string(out, name),
            Event::Alloc { range } | Event::Free { range } | Event::PtBlock { range, .. } => self.range(*range, out),
            Event::Launch(launch) => self.launch(launch, out),
            Event::Copy { stream, from, to } => {
                self.places += 1;
                put(out, stream.0.into());
                put(out, u64::from(from.is_some()) | u64::from(to.is_some()) << 1);
                from.iter().chain(to).for_each(|range| self.range(*range, out));
            }
            Event::Touched { launch, touches } => {
                put(out, self.places - launch.0);
                put(out, touches.len() as u64);
                touches.iter().for_each(|touch| self.touch(*touch, out));
            }
            Event::Time { launch, time } => {
                put(out, self.places - launch.0);
                put(out, time.0);
            }
            Event::Wait { stream, waited } => {
                put(out, stream.map_or(0, |stream| u64::from(stream.0) + 1));
                put(out, waited.0);
            }
            Event::Iteration => {}
            Event::Lost { events } => put(out, *events),
        }
    }

    fn launch(&mut self, launch: &Launch, out: &mut Vec<u8>) {
        self.places += 1;
        put(out, launch.stream.0.into());
        put(out, launch.kernel.0.into());
        let number = self.keys.number(launch.key);
        put(out, number);
        if number == 0 {
            out.extend(launch.key.0.to_le_bytes());
        }
        put(out, launch.pointers.len() as u64);
        for pointer in &launch.pointers {
            let number = self.addresses.number(*pointer);
            put(out, number);
            if number == 0 {
                put_difference(out, self.address, pointer.0);
                self.address = pointer.0;
            }
        }
    }

    fn touch(&mut self, touch: Touch, out: &mut Vec<u8>) {
        self.range(touch.range, out);
        let access = match touch.access {
            Access::Read => 0,
            Access::Write => 1,
            Access::ReadWrite => 2,
        };
        put(out, u64::from(touch.phase) << 2 | access);
    }

    fn range(&mut self, range: AddrRange, out: &mut Vec<u8>) {
        let number = self.ranges.number(range);
        put(out, number);
        if number == 0 {
            put_difference(out, self.range_end, range.start.0);
            put(out, range.len.0);
            self.range_end = range.start.0.wrapping_add(range.len.0);
        }
    }
}

const fn tag_of(event: &Event) -> u8 {
    match event {
        Event::Name { .. } => tag::NAME,
        Event::Alloc { .. } => tag::ALLOC,
        Event::Free { .. } => tag::FREE,
        Event::PtBlock { active: true, .. } => tag::ACTIVE,
        Event::PtBlock { active: false, .. } => tag::INACTIVE,
        Event::Launch(_) => tag::LAUNCH,
        Event::Copy { .. } => tag::COPY,
        Event::Touched { .. } => tag::TOUCHED,
        Event::Time { .. } => tag::TIME,
        Event::Wait { .. } => tag::WAIT,
        Event::Iteration => tag::ITERATION,
        Event::Lost { .. } => tag::LOST,
    }
}
