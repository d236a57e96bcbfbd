//! Contexts: which device a thread means, and whose NULL stream.
//!
//! All contexts of all devices share one address space. Each has its own legacy NULL stream, and one default stream
//! per thread that asks for one. There are only primary contexts; a program cannot make others.

use std::collections::HashMap;
use std::thread::ThreadId;

use deepum_core::units::DeviceId;

use crate::error::{CuError, CuResult};
use crate::stream::{Flavour, StreamId, Streams};
use crate::work::Work;

/// A context of the process: the primary one of the device of this number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextId(pub u32);

/// One context.
#[derive(Debug)]
pub struct Context {
    /// Its device.
    pub device: DeviceId,
    /// Flags it was given.
    pub flags: u32,
    /// Its NULL stream.
    pub legacy: StreamId,
    /// How often it is retained. It is *active* while it is.
    pub users: u32,
    per_thread: HashMap<ThreadId, StreamId>,
}

/// Every context of the process.
#[derive(Debug)]
pub struct Contexts(Vec<Context>);

impl Contexts {
    /// One inactive context for each device.
    pub fn new(devices: impl Iterator<Item = DeviceId>, streams: &mut Streams<Work>) -> Self {
        let context = |device| {
            let legacy = streams.create(device, Flavour::Legacy, 0);
            Context { device, flags: 0, legacy, users: 0, per_thread: HashMap::new() }
        };
        Self(devices.map(context).collect())
    }

    /// The context of `device`, active or not.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn primary(&mut self, device: DeviceId) -> CuResult<&mut Context> {
        self.0.get_mut(usize::from(device.0)).ok_or(CuError::InvalidDevice)
    }

    /// The context of `device`, with one more user.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn retain(&mut self, device: DeviceId) -> CuResult<ContextId> {
        self.primary(device)?.users += 1;
        Ok(ContextId(u32::from(device.0)))
    }

    /// The context, which must be active.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn get(&mut self, id: ContextId) -> CuResult<&mut Context> {
        let found = usize::try_from(id.0).ok().and_then(|n| self.0.get_mut(n));
        found.filter(|context| context.users > 0).ok_or(CuError::InvalidContext)
    }

    /// Ends the streams of `device` that a program made or asked for. Their work must be done.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn end_streams(&mut self, device: DeviceId, streams: &mut Streams<Work>) -> CuResult {
        self.primary(device)?.per_thread.clear();
        streams.end_all(device);
        Ok(())
    }

    /// The default stream of the calling thread in `id`.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn per_thread(&mut self, id: ContextId, streams: &mut Streams<Work>) -> CuResult<StreamId> {
        let context = self.get(id)?;
        let device = context.device;
        let thread = std::thread::current().id();
        Ok(*context.per_thread.entry(thread).or_insert_with(|| streams.create(device, Flavour::Blocking, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_there_for_every_device_and_usable_while_retained() {
        let mut streams = Streams::default();
        let mut contexts = Contexts::new((0..2).map(DeviceId), &mut streams);
        assert_eq!(contexts.get(ContextId(1)).map(|c| c.users), Err(CuError::InvalidContext));
        let id = contexts.retain(DeviceId(1)).unwrap();
        assert_eq!(contexts.get(id).map(|c| (c.device, c.users)), Ok((DeviceId(1), 1)));
        assert_eq!(contexts.retain(DeviceId(2)), Err(CuError::InvalidDevice));
    }

    #[test]
    fn each_thread_has_its_default_stream_until_the_context_is_emptied() {
        let mut streams = Streams::default();
        let mut contexts = Contexts::new(std::iter::once(DeviceId(0)), &mut streams);
        let id = contexts.retain(DeviceId(0)).unwrap();
        let mine = contexts.per_thread(id, &mut streams).unwrap();
        assert_eq!(contexts.per_thread(id, &mut streams), Ok(mine));
        let other = std::thread::scope(|s| s.spawn(|| contexts.per_thread(id, &mut streams)).join().unwrap());
        assert_ne!(other, Ok(mine));
        contexts.end_streams(DeviceId(0), &mut streams).unwrap();
        assert!(streams.get(mine).is_none() && streams.get(contexts.get(id).unwrap().legacy).is_some());
        assert_ne!(contexts.per_thread(id, &mut streams), Ok(mine));
    }
}
