//! Bytes to records. `encode` is the other half, and keeps the same lists.

use super::MOST_KNOWN;
use super::bytes::{Cursor, Wrong};
use super::encode::tag;
use crate::event::{Access, Event, Header, Launch, NameId, Record, Touch};
use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Nanos, StreamSlot};

/// What was told before; number 1 is the first.
#[derive(Debug)]
struct Known<T>(Vec<T>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Known<T> {
    /// What the next bytes tell, by its number or, behind a 0, as something new.
    fn read(
        &mut self,
        what: &'static str,
        bytes: &mut Cursor<'_>,
        new: impl FnOnce(&mut Cursor<'_>) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        let number = bytes.number(what)?;
        if let Some(index) = number.checked_sub(1) {
            let thing = usize::try_from(index).ok().and_then(|index| self.0.get(index));
            return thing.copied().ok_or(Wrong { what, value: number, allowed: "none is known by this number" });
        }
        let thing = new(bytes)?;
        if self.0.len() == MOST_KNOWN {
            self.0.clear();
        }
        self.0.push(thing);
        Ok(thing)
    }
}

/// What the bytes before make the next ones mean.
#[derive(Default, Debug)]
pub(super) struct Decoder {
    at: u64,
    places: u64,
    keys: Known<LaunchKey>,
    ranges: Known<AddrRange>,
    range_end: u64,
    addresses: Known<DevAddr>,
    address: u64,
}

/// A header, which is all there is.
pub(super) fn header(bytes: &[u8]) -> Result<Header, Wrong> {
    let mut bytes = Cursor::new(bytes, 0);
    let (program, device) = (bytes.string("program's name")?, bytes.string("device's name")?);
    let budget = Bytes(bytes.number("budget")?);
    match bytes.left() {
        0 => Ok(Header { program, device, budget }),
        left => Err(Wrong { what: "bytes behind the header:", value: left as u64, allowed: "must be none" }),
    }
}

impl Decoder {
    /// The next record.
    pub(super) fn record(&mut self, bytes: &mut Cursor<'_>) -> Result<Record, Wrong> {
        let tag = bytes.take("kind of a record", 1)?.first().copied().unwrap_or(u8::MAX);
        let at = bytes.difference("time of a record", self.at)?;
        self.at = at;
        let event = match tag {
            tag::NAME => Event::Name { name: bytes.string("kernel's name")? },
            tag::ALLOC => Event::Alloc { range: self.range(bytes)? },
            tag::FREE => Event::Free { range: self.range(bytes)? },
            tag::ACTIVE => Event::PtBlock { range: self.range(bytes)?, active: true },
            tag::INACTIVE => Event::PtBlock { range: self.range(bytes)?, active: false },
            tag::LAUNCH => Event::Launch(self.launch(bytes)?),
            tag::COPY => self.copy(bytes)?,
            tag::TOUCHED => {
                let launch = self.place(bytes)?;
                let count = bytes.count("touches")?;
                Event::Touched { launch, touches: (0..count).map(|_| self.touch(bytes)).collect::<Result<_, _>>()? }
            }
            tag::TIME => Event::Time { launch: self.place(bytes)?, time: Nanos(bytes.number("time of a launch")?) },
            tag::WAIT => {
                let stream = bytes.at_most("stream that is waited for", 1 << 16, "at most 2^16, or 0 for all")?;
                let stream = stream.checked_sub(1).and_then(|stream| u16::try_from(stream).ok()).map(StreamSlot);
                Event::Wait { stream, waited: Nanos(bytes.number("wait")?) }
            }
            tag::ITERATION => Event::Iteration,
            tag::LOST => Event::Lost { events: bytes.number("lost events")? },
            _ => return Err(Wrong { what: "record of kind", value: tag.into(), allowed: "at most 11" }),
        };
        Ok(Record { at: Nanos(at), event })
    }

    fn launch(&mut self, bytes: &mut Cursor<'_>) -> Result<Launch, Wrong> {
        self.places += 1;
        let stream = stream(bytes)?;
        let kernel = bytes.number("kernel")?;
        let wrong = |_| Wrong { what: "kernel", value: kernel, allowed: "below 2^32" };
        let kernel = NameId(u32::try_from(kernel).map_err(wrong)?);
        let key = self.keys.read("launch key", bytes, |bytes| {
            let word = bytes.take("bytes of a launch key:", 8)?.first_chunk().copied().unwrap_or_default();
            Ok(LaunchKey(u64::from_le_bytes(word)))
        })?;
        let count = bytes.count("pointers")?;
        let last = &mut self.address;
        let addresses = &mut self.addresses;
        let pointer = |_| {
            addresses.read("pointer", bytes, |bytes| {
                *last = bytes.difference("address", *last)?;
                Ok(DevAddr(*last))
            })
        };
        Ok(Launch { stream, kernel, key, pointers: (0..count).map(pointer).collect::<Result<_, _>>()? })
    }

    fn copy(&mut self, bytes: &mut Cursor<'_>) -> Result<Event, Wrong> {
        self.places += 1;
        let stream = stream(bytes)?;
        let sides = bytes.at_most("sides of a copy", 3, "bits 0 and 1 alone")?;
        let mut side = |bit| if sides & bit == 0 { Ok(None) } else { self.range(bytes).map(Some) };
        Ok(Event::Copy { stream, from: side(1)?, to: side(2)? })
    }

    fn touch(&mut self, bytes: &mut Cursor<'_>) -> Result<Touch, Wrong> {
        let range = self.range(bytes)?;
        let how = bytes.number("access")?;
        let wrong = |allowed| Wrong { what: "access", value: how, allowed };
        let phase = u32::try_from(how >> 2).map_err(|_| wrong("its phase is below 2^32"))?;
        let access = match how & 3 {
            0 => Access::Read,
            1 => Access::Write,
            2 => Access::ReadWrite,
            _ => return Err(wrong("0 reads, 1 writes, 2 does both, in its lowest two bits")),
        };
        Ok(Touch { range, access, phase })
    }

    fn range(&mut self, bytes: &mut Cursor<'_>) -> Result<AddrRange, Wrong> {
        let last = &mut self.range_end;
        self.ranges.read("range", bytes, |bytes| {
            let start = bytes.difference("address of a range", *last)?;
            let len = bytes.number("length of a range")?;
            *last = start.wrapping_add(len);
            Ok(AddrRange::new(DevAddr(start), Bytes(len)))
        })
    }

    fn place(&self, bytes: &mut Cursor<'_>) -> Result<LaunchSeq, Wrong> {
        let back = bytes.number("places back")?;
        let place = self.places.checked_sub(back).filter(|&place| place > 0);
        let allowed = "fewer than there are launches and copies before";
        place.map(LaunchSeq).ok_or(Wrong { what: "places back", value: back, allowed })
    }
}

fn stream(bytes: &mut Cursor<'_>) -> Result<StreamSlot, Wrong> {
    let stream = bytes.number("stream")?;
    let wrong = |_| Wrong { what: "stream", value: stream, allowed: "below 2^16" };
    u16::try_from(stream).map(StreamSlot).map_err(wrong)
}
