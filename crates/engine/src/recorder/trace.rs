//! One GPU's trace as it is written: kernels by their names, and what to do when it cannot be written any more, which is to say so once.

use deepum_core::units::{LaunchSeq, Nanos};
use deepum_trace::binary::{WriteError, Writer};
use deepum_trace::event::{Event, Header, NameId, Record};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// See the module.
pub(super) struct Trace {
    path: PathBuf,
    /// Gone once it cannot be written.
    writer: Option<Writer<File>>,
    names: HashMap<&'static str, NameId>,
    /// The newest time in it: when what is told later became known.
    at: Nanos,
    say: fn(&str),
}

impl Trace {
    /// Begins it in this file; says why not.
    pub(super) fn begin(file: File, path: PathBuf, header: &Header, say: fn(&str)) -> Self {
        let mut trace = Self::nowhere(path, say);
        match Writer::new(file, header) {
            Ok(writer) => trace.writer = Some(writer),
            Err(why) => trace.ends(&why),
        }
        trace
    }

    /// One that nobody writes down.
    pub(super) fn nowhere(path: PathBuf, say: fn(&str)) -> Self {
        Self { path, writer: None, names: HashMap::new(), at: Nanos::ZERO, say }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many launches and copies are in it.
    pub(super) fn places(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::places)
    }

    /// A launch or copy that was issued then. Answers its place, if it is in the trace.
    pub(super) fn issue(&mut self, at: Nanos, event: Event) -> Option<LaunchSeq> {
        let before = self.places();
        self.put(at, event);
        Some(self.places()).filter(|now| *now > before).map(LaunchSeq)
    }

    /// Something that happened then.
    pub(super) fn put(&mut self, at: Nanos, event: Event) {
        self.at = self.at.max(at);
        let Some(writer) = &mut self.writer else { return };
        let written = match writer.write(&Record { at, event }) {
            // What no trace may have, such as a launch that touches more pieces than can be listed, is missing in it.
            Err(WriteError::Event(_)) => writer.write(&Record { at, event: Event::Lost { events: 1 } }),
            written => written,
        };
        if let Err(why) = written {
            self.ends(&why);
        }
    }

    /// Something that is known only now.
    pub(super) fn know(&mut self, event: Event) {
        self.put(self.at, event);
    }

    /// The number of a kernel's name, which is written down if it is new.
    pub(super) fn name(&mut self, at: Nanos, name: &'static str) -> NameId {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let number = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.insert(name, number);
        self.put(at, Event::Name { name: name.into() });
        number
    }

    /// What was put survives whatever happens to the program.
    pub(super) fn flush(&mut self) {
        if let Some(Err(why)) = self.writer.as_mut().map(Writer::flush) {
            self.ends(&why);
        }
    }

    /// Makes it whole. Whether it is.
    pub(super) fn finish(&mut self) -> bool {
        let finished = self.writer.take().map(Writer::finish);
        if let Some(Err(why)) = &finished {
            self.ends(why);
        }
        matches!(finished, Some(Ok(_)))
    }

    fn ends(&mut self, why: &WriteError) {
        self.writer = None;
        (self.say)(&format!("{}: {why}; it ends here, the program goes on", self.path.display()));
    }
}
