//! What a worker has from its parent: descriptors by number, instructions by a socket; and how that becomes an engine's inputs.
//!
//! The parent has looked at the descriptors' kinds. What is in the memory behind them is believed as little here: ring and page are
//! opened as what they claim to be or refused, and the file sizes cannot change (seals), so no access can fall outside.

use crate::report::{self, Start};
use anyhow::{Context, Result, bail, ensure};
use deepum_config::{Config, TablesIn};
use deepum_core::units::Bytes;
use deepum_engine::adopted::Passed;
use deepum_engine::mapping::Mapping;
use deepum_engine::{DeviceFacts, Inputs, packet};
use deepum_kmod_bridge::adopt::{Adopted, Handed, HandedQueue};
use deepum_kmod_bridge::{DriverVersion, Gpu, Linux, Uuid};
use deepum_protocol::AtomicU64;
use deepum_protocol::control::{Descriptor, Hello, PACKET_BYTES, Packet, Reason};
use deepum_protocol::page::{Page, PageError};
use deepum_protocol::ring::{Ring, RingError};
use nix::fcntl::{FcntlArg, fcntl};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// The descriptors, in the order of the command line.
#[derive(Debug)]
pub(super) struct Inherited {
    /// From the parent.
    pub orders: OwnedFd,
    /// To the parent.
    pub reports: OwnedFd,
    /// The program's.
    pub connection: OwnedFd,
    /// Readable when the program has ended; the connection once more where the system has no such thing.
    pub program: OwnedFd,
    /// In the order of [`Descriptor`].
    pub passed: Vec<OwnedFd>,
}

impl Inherited {
    /// Takes what the command line names.
    pub(super) fn take(list: &str) -> Result<Self> {
        let numbers: Vec<RawFd> =
            list.split(',').map(str::parse).collect::<Result<_, _>>().context("--worker is for deepumd itself")?;
        let mut different = numbers.clone();
        different.sort_unstable();
        different.dedup();
        ensure!(different.len() == numbers.len() && different.first() >= Some(&3), "--worker is for deepumd itself");
        let mut fds = Vec::new();
        for number in numbers {
            // SAFETY: only asks, and refuses what is not open.
            let open =
                fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
            open.with_context(|| format!("--worker names descriptor {number}, which is not open"))?;
            // SAFETY: open, named once, and nothing else in this young process owns a descriptor from 3 on.
            fds.push(unsafe { OwnedFd::from_raw_fd(number) });
        }
        let mut fds = fds.into_iter();
        let mut next = || fds.next().context("--worker names too few descriptors");
        Ok(Self { orders: next()?, reports: next()?, connection: next()?, program: next()?, passed: fds.collect() })
    }

    /// The two packets that a worker begins with.
    pub(super) fn instructions(&self) -> Result<(Hello, Start)> {
        let mut buffer = [0; PACKET_BYTES];
        let got = packet::receive(self.orders.as_fd(), &mut buffer).context("no Hello from the parent")?;
        let Ok(Packet::Hello(hello)) = Packet::parse(&buffer[..got.len]) else { bail!("the parent sent no Hello") };
        let start: Start = report::hear(self.orders.as_fd())?.context("the parent gave no start")?;
        ensure!(start.budgets.len() == hello.devices.len(), "the parent gave budgets for other GPUs");
        // From here on it is polled.
        for fd in [&self.orders, &self.connection] {
            fcntl(fd, FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        }
        Ok((hello, start))
    }
}

/// What the engine needs, out of what was passed on.
pub(super) fn adopt(
    hello: &Hello,
    start: &Start,
    passed: Vec<OwnedFd>,
    say: fn(&str),
) -> Result<(Inputs, Passed), (Reason, String)> {
    let mut fds: Vec<Option<OwnedFd>> = passed.into_iter().map(Some).collect();
    let mut take = |which: Descriptor| {
        let fd = fds.get_mut(which as usize).and_then(Option::take);
        fd.ok_or_else(|| (Reason::Descriptors, format!("the {} did not come", which.name())))
    };
    let ring = Ring::open(map(&take(Descriptor::Ring)?, hello.ring)?).map_err(|e| (of_ring(e), e.to_string()))?;
    let page = Page::open(map(&take(Descriptor::Page)?, hello.page)?).map_err(|e| (of_page(e), e.to_string()))?;
    let uvm = take(Descriptor::Uvm)?;
    let bell = take(Descriptor::Nudge)?;
    let queue = match &hello.tools {
        Ok(queue) => Ok(HandedQueue {
            memory: take(Descriptor::ToolsMemory)?,
            tracker: take(Descriptor::Tools)?,
            entries: queue.entries,
        }),
        Err(why) => Err(why.clone()),
    };
    let gpus = hello.devices.iter().map(|device| Gpu { id: device.id, uuid: Uuid(device.uuid) }).collect();
    let handed = Handed { driver: DriverVersion::parse(&hello.driver), uvm, gpus, queue };
    let adopted = Adopted::open(Arc::new(Linux), handed).map_err(|e| (Reason::Internal, e.to_string()))?;
    let facts = |(device, budget): (&deepum_protocol::control::Device, &u64)| DeviceFacts {
        id: device.id,
        uuid: device.uuid,
        memory: device.memory,
        budget: Bytes(*budget),
    };
    // What is wrong with a variable the program has said itself.
    let mut config = Config::read(hello.config.lines().filter_map(|line| line.split_once('='))).config;
    config.tables = tables(config.tables, start.tables.as_deref(), hello.driven);
    let inputs =
        Inputs { ring, page, devices: hello.devices.iter().zip(&start.budgets).map(facts).collect(), config, say };
    Ok((inputs, Passed { adopted, bell: hello.driven.then_some(bell), workload: hello.workload }))
}

/// Where tables are kept: a folder that the program names goes before that of the daemon. The usual place is never that of the
/// worker, which has no home.
fn tables(named: TablesIn, kept: Option<&Path>, driven: bool) -> TablesIn {
    match (named, kept) {
        (TablesIn::Usual, Some(folder)) if !driven => TablesIn::Folder(folder.to_owned()),
        (TablesIn::Usual, None) => TablesIn::Off,
        (as_it_says, _) => as_it_says,
    }
}

const fn of_ring(error: RingError) -> Reason {
    if matches!(error, RingError::Version { .. }) { Reason::Version } else { Reason::Malformed }
}

const fn of_page(error: PageError) -> Reason {
    if matches!(error, PageError::Version { .. }) { Reason::Version } else { Reason::Malformed }
}

/// The words of a memfd, until the process ends.
fn map(fd: &OwnedFd, bytes: Bytes) -> Result<&'static [AtomicU64], (Reason, String)> {
    let words = usize::try_from(bytes.get() / 8).unwrap_or(usize::MAX);
    Mapping::adopt(fd, words).map_err(|e| (Reason::Descriptors, format!("memory of the program: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_the_program_names_goes_before_the_daemons() {
        let named = || TablesIn::Folder("/home/me/tables".into());
        let kept = Path::new("/var/lib/deepum/tables/7");
        for driven in [false, true] {
            for kept in [None, Some(kept)] {
                assert_eq!(tables(named(), kept, driven), named());
                assert_eq!(tables(TablesIn::Off, kept, driven), TablesIn::Off);
            }
            assert_eq!(tables(TablesIn::Usual, None, driven), TablesIn::Off);
        }
        assert_eq!(tables(TablesIn::Usual, Some(kept), false), TablesIn::Folder(kept.to_owned()));
        assert_eq!(tables(TablesIn::Usual, Some(kept), true), TablesIn::Usual, "which is none on an emulated device");
    }
}
