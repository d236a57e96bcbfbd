//! One client of the status socket: lines in, lines out, both bounded.
//!
//! Problem: a client may ask again and again and read nothing. One read brings hundreds of requests, and their answers may be megabytes.
//! Idea: one request a turn, and none while more than [`UNSENT`] bytes of answers wait. Requests that were read stay where they
//! are until then, and nothing more is read while there is one. So a client holds no more than a line of requests, and of answers that
//! much and one, and gets all of them once it reads.

use deepum_protocol::status::{Refusal, Request, SCHEMA};
use nix::poll::PollFlags;
use nix::unistd::Uid;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::{LINE, PATIENCE};

/// Bytes of answers waiting for one client beyond which it gets no more of them.
const UNSENT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    pub(super) uid: Uid,
    /// What was read and is not answered; at most [`LINE`].
    unread: Vec<u8>,
    unsent: VecDeque<u8>,
    /// Nothing more is taken from it; it goes once it has read what waits for it.
    closing: bool,
    alive: Instant,
}

impl Client {
    pub(super) fn new(stream: UnixStream, uid: Uid) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let (unread, unsent) = (Vec::new(), VecDeque::new());
        Some(Self { stream, uid, unread, unsent, closing: false, alive: Instant::now() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What to poll for.
    pub(super) fn wants(&self) -> PollFlags {
        let mut wants = PollFlags::empty();
        wants.set(PollFlags::POLLIN, self.may_read());
        wants.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        wants
    }

    /// Whether it is to be served though nothing happens: a request of it waits here.
    pub(super) fn is_due(&self) -> bool {
        self.takes_more() && self.has_request()
    }

    pub(super) fn expires(&self) -> Instant {
        self.alive + PATIENCE
    }

    fn takes_more(&self) -> bool {
        !self.closing && self.unsent.len() <= UNSENT
    }

    fn has_request(&self) -> bool {
        self.unread.contains(&b'\n')
    }

    fn may_read(&self) -> bool {
        self.takes_more() && !self.has_request()
    }

    /// Reads what is there, and answers one request. An error ends the client.
    pub(super) fn serve(&mut self, answer: &impl Fn(Request, Uid) -> Result<String, String>) -> io::Result<()> {
        self.flush()?;
        if self.may_read() {
            self.read()?;
        }
        if self.is_due() {
            self.take(answer);
        }
        self.flush()?;
        if self.closing && self.unsent.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; LINE];
        let room = LINE - self.unread.len();
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) => self.closing = true,
            Ok(n) => {
                self.alive = Instant::now();
                self.unread.extend_from_slice(&buffer[..n]);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if self.unread.len() == LINE && !self.has_request() {
            self.say(&refusal(&format!("a request is one line of less than {LINE} bytes")));
            self.closing = true;
        }
        Ok(())
    }

    fn take(&mut self, answer: &impl Fn(Request, Uid) -> Result<String, String>) {
        let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') else { return };
        let request = serde_json::from_slice::<Request>(&self.unread[..end])
            .map_err(|e| format!("no request: {e}; allowed is {{\"get\":\"status\"}} or {{\"get\":\"programs\"}}"));
        self.unread.drain(..=end);
        let line = request.and_then(|request| answer(request, self.uid));
        self.say(&line.unwrap_or_else(|error| refusal(&error)));
    }

    pub(super) fn say(&mut self, line: &str) {
        self.unsent.extend(line.as_bytes());
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent.as_slices().0) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.alive = Instant::now();
                    self.unsent.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

pub(super) fn refusal(error: &str) -> String {
    let refusal = Refusal { schema: SCHEMA.to_owned(), error: error.to_owned() };
    let mut line = serde_json::to_string(&refusal).unwrap_or_default();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Bytes of an answer, which ends with its number.
    const ANSWER: usize = 20_000;

    /// A request, with blanks: few fill what the system keeps for a reader.
    fn get() -> String {
        format!("{:<1000}\n", "{\"get\":\"status\"}")
    }

    #[test]
    fn one_that_asks_and_does_not_read_holds_little_and_gets_all_once_it_reads() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut client = Client::new(ours, Uid::from_raw(1)).unwrap();
        let answered = Cell::new(0);
        let answer = |_: Request, _: Uid| {
            answered.set(answered.get() + 1);
            Ok(format!("{:>1$}\n", answered.get(), ANSWER - 1))
        };
        // Until the system takes no more requests either.
        let (request, requests) = (get().len(), get().repeat(100));
        let mut asked = 0;
        let mut idle = 0;
        while idle < 100 {
            let sent = theirs.write(&requests.as_bytes()[asked % request..]).unwrap_or(0);
            asked += sent;
            idle = if sent == 0 { idle + 1 } else { 0 };
            client.serve(&answer).unwrap();
            assert!(client.unsent.len() <= UNSENT + ANSWER && client.unread.len() <= LINE);
        }
        assert!(
            !client.is_due() && client.wants() == PollFlags::POLLOUT,
            "neither served nor read while it does not read"
        );
        // The last request may have been cut.
        let (at_first, all) = (answered.get(), asked / request);
        assert!(at_first > UNSENT / ANSWER && all > at_first + LINE / request, "{at_first} of {all} answered");
        let mut heard = Vec::new();
        for _ in 0..10 * all {
            let mut buffer = [0; 1 << 16];
            let got = theirs.read(&mut buffer).unwrap_or(0);
            heard.extend_from_slice(&buffer[..got]);
            // As it is polled.
            if client.is_due() || !client.wants().is_empty() {
                client.serve(&answer).unwrap();
            }
            assert!(client.unsent.len() <= UNSENT + ANSWER && client.unread.len() <= LINE);
        }
        let numbers: Vec<usize> = heard
            .split(|byte| *byte == b'\n')
            .filter_map(|line| str::from_utf8(line).ok()?.trim().parse().ok())
            .collect();
        assert_eq!(numbers, (1..=all).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_has_said_all_still_gets_its_answers() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours, Uid::from_raw(1)).unwrap();
        theirs.write_all(get().repeat(3).as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        // More than the system takes at once.
        let long = "x".repeat(300_000) + "\n";
        let answered = Cell::new(0);
        let answer = |_: Request, _: Uid| {
            answered.set(answered.get() + 1);
            Ok(long.clone())
        };
        for turn in 1..=4 {
            client.serve(&answer).unwrap();
            assert_eq!(answered.get(), turn.min(3), "one request a turn, and then the end");
        }
        assert!(client.closing && !client.unsent.is_empty());
        theirs.set_nonblocking(true).unwrap();
        let (mut heard, mut buffer) = (0, [0; 1 << 16]);
        for _ in 0..100 {
            heard += theirs.read(&mut buffer).unwrap_or(0);
            if client.serve(&answer).is_err() {
                break;
            }
        }
        drop(client);
        while let Ok(more @ 1..) = theirs.read(&mut buffer) {
            heard += more;
        }
        assert_eq!(heard, 3 * long.len());
    }
}
