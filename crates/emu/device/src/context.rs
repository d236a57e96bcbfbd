//! Contexts: which device a thread means, and whose NULL stream.
//!
//! All contexts of all devices share one address space. Each has its own legacy NULL stream, and one default stream
//! per thread that asks for one.

use std::collections::HashMap;
use std::thread::ThreadId;

use deepum_core::units::DeviceId;

use crate::error::{CuError, CuResult};
use crate::stream::{Flavour, StreamId, Streams};
use crate::work::Work;

/// A context of the process; never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ContextId(pub u32);

/// One context.
#[derive(Debug)]
pub struct Context {
    /// Its device.
    pub device: DeviceId,
    /// Flags it was made with.
    pub flags: u32,
    /// Its NULL stream.
    pub legacy: StreamId,
    /// Retains of a primary context; 1 for any other.
    pub users: u32,
    primary: bool,
    per_thread: HashMap<ThreadId, StreamId>,
}

/// Every context of the process. The primary ones exist from the start and are the first; they are *active* while
/// retained.
#[derive(Debug)]
pub struct Contexts {
    live: HashMap<ContextId, Context>,
    devices: u32,
    next: u32,
}

impl Contexts {
    /// One inactive primary context for each device.
    pub fn new(devices: impl Iterator<Item = DeviceId>, streams: &mut Streams<Work>) -> Self {
        let mut contexts = Self { live: HashMap::new(), devices: 0, next: 0 };
        for device in devices {
            let id = contexts.add(device, 0, streams);
            if let Some(context) = contexts.live.get_mut(&id) {
                (context.primary, context.users) = (true, 0);
            }
            contexts.devices += 1;
        }
        contexts
    }

    fn add(&mut self, device: DeviceId, flags: u32, streams: &mut Streams<Work>) -> ContextId {
        let id = ContextId(self.next);
        self.next += 1;
        let legacy = streams.create(device, Flavour::Legacy, 0);
        let per_thread = HashMap::new();
        self.live.insert(id, Context { device, flags, legacy, users: 1, primary: false, per_thread });
        id
    }

    /// The primary context of `device`.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn primary(&self, device: DeviceId) -> CuResult<ContextId> {
        if u32::from(device.0) < self.devices {
            Ok(ContextId(u32::from(device.0)))
        } else {
            Err(CuError::InvalidDevice)
        }
    }

    /// A new context of `device`.
    ///
    /// # Errors
    /// `InvalidDevice`.
    pub fn create(&mut self, device: DeviceId, flags: u32, streams: &mut Streams<Work>) -> CuResult<ContextId> {
        self.primary(device)?;
        Ok(self.add(device, flags, streams))
    }

    /// Ends a context made by [`Self::create`].
    ///
    /// # Errors
    /// `InvalidContext` for any other.
    pub fn destroy(&mut self, id: ContextId, streams: &mut Streams<Work>) -> CuResult {
        if self.get(id)?.primary {
            return Err(CuError::InvalidContext);
        }
        let gone = self.live.remove(&id).ok_or(CuError::InvalidContext)?;
        for stream in gone.per_thread.into_values().chain([gone.legacy]) {
            streams.destroy(stream);
        }
        Ok(())
    }

    /// The context.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn get(&self, id: ContextId) -> CuResult<&Context> {
        self.live.get(&id).ok_or(CuError::InvalidContext)
    }

    /// The context, to be changed.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn get_mut(&mut self, id: ContextId) -> CuResult<&mut Context> {
        self.live.get_mut(&id).ok_or(CuError::InvalidContext)
    }

    /// The default stream of the calling thread in `id`.
    ///
    /// # Errors
    /// `InvalidContext`.
    pub fn per_thread(&mut self, id: ContextId, streams: &mut Streams<Work>) -> CuResult<StreamId> {
        let context = self.live.get_mut(&id).ok_or(CuError::InvalidContext)?;
        let device = context.device;
        let thread = std::thread::current().id();
        Ok(*context.per_thread.entry(thread).or_insert_with(|| streams.create(device, Flavour::Blocking, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_contexts_are_there_and_cannot_be_destroyed() {
        let mut streams = Streams::default();
        let mut contexts = Contexts::new((0..2).map(DeviceId), &mut streams);
        let primary = contexts.primary(DeviceId(1)).unwrap();
        assert_eq!(contexts.get(primary).unwrap().users, 0, "not active before it is retained");
        assert_eq!(contexts.primary(DeviceId(2)), Err(CuError::InvalidDevice));
        assert_eq!(contexts.destroy(primary, &mut streams), Err(CuError::InvalidContext));
        let own = contexts.create(DeviceId(1), 0, &mut streams).unwrap();
        assert_ne!(contexts.get(own).unwrap().legacy, contexts.get(primary).unwrap().legacy);
        contexts.destroy(own, &mut streams).unwrap();
        assert_eq!(contexts.get(own).map(|c| c.users), Err(CuError::InvalidContext));
    }

    #[test]
    fn each_thread_has_its_default_stream() {
        let mut streams = Streams::default();
        let mut contexts = Contexts::new(std::iter::once(DeviceId(0)), &mut streams);
        let id = contexts.primary(DeviceId(0)).unwrap();
        let mine = contexts.per_thread(id, &mut streams).unwrap();
        assert_eq!(contexts.per_thread(id, &mut streams), Ok(mine));
        let other = std::thread::scope(|s| s.spawn(|| contexts.per_thread(id, &mut streams)).join().unwrap());
        assert_ne!(other, Ok(mine));
    }
}
