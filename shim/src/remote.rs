//! An engine in a daemon: what the link to it is handed (`deepum_engine::remote`).
//!
//! The shim works as with an engine of its own; ring and page are memory that can be passed on. Only where the system gives
//! no such memory there can be no engine elsewhere.

use crate::{link, log, opt, page, registry, stage};
use deepum_engine::remote::{self, Remote};
use deepum_engine::tables::workload::{self, Program};
use deepum_engine::{DeviceFacts, StartError};
use deepum_protocol::control;
use std::path::Path;

/// Starts the link to the daemon at `socket`, or at one of the usual places. Ring and page must be there.
pub fn start(socket: Option<&Path>, devices: Vec<DeviceFacts>) -> Result<(), StartError> {
    let (Some(ring), Some(page)) = (link::shared_ring(), page::shared()) else {
        return Err(StartError("the system has no memory that can be passed to deepumd (memfd_create)".to_owned()));
    };
    let config = opt::config();
    remote::start(Remote {
        ring,
        page,
        devices,
        sockets: socket.map_or_else(control::sockets, |socket| vec![socket.to_owned()]),
        variables: opt::variables().to_owned(),
        weight: config.weight,
        workload: workload::number(config, Program::this),
        replay: registry::tell_again,
        is_off: stage::is_off,
        say: log::error,
        info: log::info,
    })
}
