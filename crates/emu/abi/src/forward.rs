//! What passes between a process that was handed a file of the emulated driver and the device it belongs to.
//!
//! A file of `/dev/nvidia-uvm` or `/dev/nvidia-uvm-tools` is one end of a socket pair whose other end the device has; the
//! file's end is bound to a name ([`Node::name`]), by which any process knows it, however it came by it. A thread
//! of another process that makes a request on such a file first sends the device one end of a fresh socket pair through it
//! ([`CONNECT`]); on that *line* it then sends a [`Request`] and takes a [`Reply`], one after the other. One line per thread
//! and file: so the device has one thread for each thread that asks, and can hold it as a driver would.
//!
//! Every message is one packet (`SOCK_SEQPACKET`), little-endian. The device says what it writes into the caller's memory, address
//! by address; so only the device knows what a request looks like. Not carried over: descriptor numbers inside
//! parameters, and memory to be pinned; requests that need these are refused by the device.

/// Which file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// `/dev/nvidia-uvm`.
    Uvm = 0,
    /// `/dev/nvidia-uvm-tools`.
    Tools = 1,
}

/// First message on a file, with the device's end of a new line.
pub const CONNECT: [u8; 8] = *b"DPMLINE1";

/// Most bytes of parameters: more than any request has.
pub const PARAMS: usize = 288;

/// Most bytes of a reply: the longest table (4,112 bytes), the parameters, and their headers.
pub const REPLY: usize = 8192;

/// A request number that asks whether a poll finds the file readable; the driver has none of this size.
pub const POLL: u64 = u64::MAX;

/// A request number that asks for the device's clock: eight bytes of virtual nanoseconds, written to the argument.
pub const NOW: u64 = u64::MAX - 1;

/// A request number by which the calling thread, of an engine, stays until all is over that it gave up.
pub const REST: u64 = u64::MAX - 2;

const NAMES: [(&[u8], Node); 2] =
    [(b"\0deepum-emu/nvidia-uvm/", Node::Uvm), (b"\0deepum-emu/nvidia-uvm-tools/", Node::Tools)];

impl Node {
    /// The start of the abstract socket name of such a file; a number that makes it unique follows.
    #[must_use]
    pub const fn name(self) -> &'static [u8] {
        NAMES[self as usize].0
    }

    /// What a socket of this name is.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        NAMES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, node)| *node)
    }
}

/// A request: its number, the address of its parameters in the caller, and as many bytes from there as can be read, at
/// most [`PARAMS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// The caller's pointer.
    pub argument: u64,
}

impl Request {
    /// Bytes before the parameters.
    pub const HEADER: usize = 16;

    /// As it is sent.
    #[must_use]
    pub fn header(self) -> [u8; Self::HEADER] {
        let mut bytes = [0; Self::HEADER];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.argument.to_le_bytes());
        bytes
    }

    /// A request and its parameters, out of a packet.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (header, params) = packet.split_at_checked(Self::HEADER)?;
        let (number, argument) = (u64_at(header, 0)?, u64_at(header, 8)?);
        (params.len() <= PARAMS).then_some((Self { number, argument }, params))
    }
}

/// The answer: what `ioctl` returns (0 or more, or an error number below 0), and what is written where.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The outcome.
    pub outcome: i32,
    rest: &'a [u8],
}

impl<'a> Reply<'a> {
    /// An empty answer, to be [`write`](Self::write)n to.
    pub fn start(outcome: i32, packet: &mut Vec<u8>) {
        packet.clear();
        packet.extend_from_slice(&outcome.to_le_bytes());
    }

    /// Adds bytes to be written at an address of the caller; false if that does not fit.
    pub fn write(packet: &mut Vec<u8>, at: u64, bytes: &[u8]) -> bool {
        let Ok(len) = u32::try_from(bytes.len()) else { return false };
        if packet.len() + 12 + bytes.len() > REPLY {
            return false;
        }
        packet.extend_from_slice(&at.to_le_bytes());
        packet.extend_from_slice(&len.to_le_bytes());
        packet.extend_from_slice(bytes);
        true
    }

    /// An answer out of a packet; nothing if it is none.
    #[must_use]
    pub fn parse(packet: &'a [u8]) -> Option<Self> {
        let (outcome, rest) = packet.split_at_checked(4)?;
        let outcome = i32::from_le_bytes(outcome.try_into().ok()?);
        let mut reply = Self { outcome, rest };
        while !reply.rest.is_empty() {
            reply.next()?;
        }
        Some(Self { outcome, rest })
    }
}

impl<'a> Iterator for Reply<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.rest.split_at_checked(12)?;
        let len = u32::from_le_bytes(header[8..].try_into().ok()?);
        let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some((u64_at(header, 0)?, bytes))
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_name() {
        for node in [Node::Uvm, Node::Tools] {
            assert_eq!(Node::named(&[node.name(), b"12.3"].concat()), Some(node));
        }
        assert_eq!(Node::named(b"\0deepum-emu/other/1"), None);
        assert_eq!(Node::named(b""), None);
    }

    #[test]
    fn what_is_sent_is_what_arrives_and_anything_else_is_refused() {
        let request = Request { number: 51, argument: 0x7fff_0000_1234 };
        let packet = [&request.header()[..], &[7; PARAMS]].concat();
        assert_eq!(Request::parse(&packet), Some((request, &[7; PARAMS][..])));
        assert_eq!(Request::parse(&[&packet[..], &[7]].concat()), None, "too long");
        assert_eq!(Request::parse(&packet[..15]), None, "too short");

        let mut packet = Vec::new();
        Reply::start(-22, &mut packet);
        assert!(Reply::write(&mut packet, 0x1000, b"abc") && Reply::write(&mut packet, 0x2000, b""));
        assert!(!Reply::write(&mut packet, 0x3000, &[0; REPLY]), "no room");
        let reply = Reply::parse(&packet).unwrap();
        assert_eq!(reply.outcome, -22);
        assert_eq!(reply.collect::<Vec<_>>(), [(0x1000, &b"abc"[..]), (0x2000, b"")]);
        for cut in [0, 3, 5, packet.len() - 1, packet.len() - 13] {
            assert!(Reply::parse(&packet[..cut]).is_none(), "{cut}");
        }
        let lie = [&0i32.to_le_bytes()[..], &1u64.to_le_bytes(), &u32::MAX.to_le_bytes(), b"ab"].concat();
        assert!(Reply::parse(&lie).is_none());
    }
}
