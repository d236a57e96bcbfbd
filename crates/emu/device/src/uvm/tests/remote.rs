//! Requests of other processes. The other process is played: it is what sends the messages.

use super::*;
use crate::uvm::remote;
use deepum_emu_abi::forward::{CONNECT, NOW, POLL, REPLY, REST, Reply, Request};
use std::sync::Condvar;
use std::time::Duration;

/// A machine that can be made to stand still.
#[derive(Default)]
struct Slow {
    moves: Moves,
    stands: Mutex<bool>,
    bell: Condvar,
    served: Mutex<Vec<bool>>,
}

impl Backend for Slow {
    fn now(&self) -> Nanos {
        self.moves.now()
    }
    fn rest(&self) {
        self.moves.rest();
    }
    fn migrate(&self, range: AddrRange, to: Place, wait: Wait) -> Result<(), NvStatus> {
        self.served.lock().unwrap().push(remote::serves());
        drop(self.bell.wait_while(self.stands.lock().unwrap(), |stands| *stands).unwrap());
        self.moves.migrate(range, to, wait)
    }
    fn advise(&self, range: AddrRange, advice: Advice) -> Result<(), NvStatus> {
        self.moves.advise(range, advice)
    }
    fn discard(&self, range: AddrRange, unmap: bool) -> Result<(), NvStatus> {
        self.moves.discard(range, unmap)
    }
    fn make_pool(&self) -> Result<(), NvStatus> {
        self.moves.make_pool()
    }
    fn make_group(&self) -> Result<Group, NvStatus> {
        self.moves.make_group()
    }
    fn end_group(&self, group: Group) -> Result<(), NvStatus> {
        self.moves.end_group(group)
    }
    fn set_migratable(&self, groups: &[Group], migratable: bool) -> Result<(), NvStatus> {
        self.moves.set_migratable(groups, migratable)
    }
    fn join(&self, range: AddrRange, group: Group) -> Result<(), NvStatus> {
        self.moves.join(range, group)
    }
    fn drain(&self) {
        self.moves.drain();
    }
    fn flush(&self) {
        self.moves.flush();
    }
}

impl Slow {
    fn stand(&self, stands: bool) {
        *self.stands.lock().unwrap() = stands;
        self.bell.notify_all();
    }
    fn moved(&self) -> usize {
        self.moves.0.lock().unwrap().len()
    }
}

fn world(branch: u16) -> (World, &'static Slow) {
    let (world, slow) = (World::new(branch), &*Box::leak(Box::<Slow>::default()));
    remote::serve(&world.uvm, slow).unwrap();
    // Only files that are opened from now on are watched.
    let (space, tools) = (file(&world.uvm, Node::Uvm), file(&world.uvm, Node::Tools));
    let world = World { space, tools, ..world };
    world.initialise();
    (world, slow)
}

fn connect(file: &OwnedFd) -> OwnedFd {
    let (ours, theirs) = pair();
    send_fd(file, &CONNECT, Some(&theirs));
    ours
}

fn send_fd(file: &OwnedFd, bytes: &[u8], fd: Option<&OwnedFd>) {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 3];
    // SAFETY: a message whose parts live here, with room for a header and one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        if let Some(fd) = fd {
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), libc::CMSG_SPACE(4) as usize);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        }
        assert_eq!(libc::sendmsg(file.as_raw_fd(), &raw const message, 0), isize::try_from(bytes.len()).unwrap());
    }
}

fn send(line: &OwnedFd, number: u64, argument: u64, params: &[u8]) {
    send_fd(line, &[&Request { number, argument }.header()[..], params].concat(), None);
}

/// The outcome, and what is to be written where.
type Answer = (i32, Vec<(u64, Vec<u8>)>);

/// The answer; nothing if the line has ended.
fn receive(line: &OwnedFd) -> Option<Answer> {
    let mut packet = [0u8; REPLY];
    // SAFETY: a buffer of ours.
    let len = unsafe { libc::recv(line.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
    let reply = Reply::parse(packet.get(..usize::try_from(len).ok()?)?)?;
    let outcome = reply.outcome;
    Some((outcome, reply.map(|(at, bytes)| (at, bytes.to_vec())).collect()))
}

fn ask(line: &OwnedFd, number: u64, argument: u64, params: &[u8]) -> Answer {
    send(line, number, argument, params);
    receive(line).expect("an answer")
}

fn migrate(block: u64) -> [u8; PARAMS] {
    with(&[(0, &(block << 21).to_le_bytes()), (8, &(2u64 << 20).to_le_bytes()), (16, &sys::CPU_UUID)])
}

#[test]
fn the_devices_clock_is_told_elsewhere() {
    let (world, _) = world(580);
    let line = connect(&world.space);
    assert_eq!(ask(&line, NOW, 0x5000, &[]), (0, vec![(0x5000, 0x0102_0304_0506u64.to_le_bytes().to_vec())]));
}

#[test]
fn a_thread_elsewhere_rests_until_all_is_over_that_it_gave_up() {
    let (world, slow) = world(580);
    let line = connect(&world.space);
    assert_eq!(ask(&line, REST, 0, &[]), (0, vec![]));
    assert_eq!(*slow.moves.0.lock().unwrap(), ["rest"]);
}

#[test]
fn a_request_from_elsewhere_is_answered_as_one_from_here() {
    for branch in DRIVERS {
        let (world, slow) = world(branch);
        let line = connect(&world.space);
        let (outcome, writes) = ask(&line, 51, 0x5000, &migrate(7));
        assert_eq!((outcome, writes.len(), writes[0].0, writes[0].1.len()), (0, 1, 0x5000, 80));
        assert_eq!(u32_at(&writes[0].1, 72), 0);
        assert_eq!(*slow.moves.0.lock().unwrap(), ["migrate 0xe00000+200000 Host Here"]);
        assert_eq!(*slow.served.lock().unwrap(), [true], "its thread stands in for another");
        // The table lies where the parameters say.
        let version = [u8::from(branch == 560)];
        let (outcome, writes) = ask(&line, 64, 0x5000, &with(&[(0, &0x9000u64.to_le_bytes()), (8, &version)]));
        assert_eq!((outcome, writes.len(), writes[0].0, writes[1].0), (0, 2, 0x9000, 0x5000), "driver {branch}");
        assert_eq!(writes[0].1[16..32], gpu_uuid(DeviceId(0)));
        // Parameters that could not be read, a number nobody knows, a shorter struct.
        assert_eq!(ask(&line, 51, 0x5000, &[0; 40]), (-libc::EFAULT, vec![]));
        assert_eq!(ask(&line, 12345, 0, &[]), (-libc::EINVAL, vec![]));
        assert_eq!(ask(&line, 67, 0x5000, &[9; 4]), (0, vec![(0x5000, vec![0; 4])]));
    }
}

#[test]
fn what_names_the_callers_memory_or_descriptors_is_refused() {
    let (world, _slow) = world(580);
    let line = connect(&world.tools);
    let params = with(&[(0, &[0, 16]), (8, &64u64.to_le_bytes()), (16, &[0, 32])]);
    let (outcome, writes) = ask(&line, 56, 0x5000, &params);
    assert_eq!((outcome, u32_at(&writes[0].1, 48)), (0, NvStatus::NOT_SUPPORTED.0));
    let mm = file(&world.uvm, Node::Uvm);
    let (outcome, writes) = ask(&connect(&mm), 75, 0x5000, &[0; 8]);
    assert_eq!((outcome, u32_at(&writes[0].1, 4)), (0, NvStatus::NOT_SUPPORTED.0));
}

#[test]
fn a_queue_is_commanded_and_polled_from_elsewhere() {
    let (world, _slow) = world(580);
    let (ring, control) = (Pages::new(4096, true), Pages::new(4096, true));
    assert_eq!(world.attach(&ring, &control, 64, world.space.as_raw_fd()), 0);
    let line = connect(&world.tools);
    assert_eq!(ask(&line, 57, 0x5000, &[1, 0, 0, 0, 0, 0, 0, 0]).0, 0);
    assert_eq!(ask(&line, 58, 0x5000, &with(&[(0, &0x7ffeu64.to_le_bytes())])).0, 0);
    assert_eq!(ask(&line, POLL, 0, &[]), (0, vec![]));
    world.sink().put(&fault(1, PageMask::span(0, 1), 0));
    assert!(world.readable());
    assert_eq!((ask(&line, POLL, 0, &[]), ring.bytes(0, 1)[0]), ((1, vec![]), 3));
}

#[test]
fn threads_are_held_apart_and_a_caller_that_is_gone_is_waited_for() {
    let (world, slow) = world(580);
    slow.stand(true);
    let (one, two) = (connect(&world.space), connect(&world.space));
    send(&one, 51, 0x5000, &migrate(1));
    assert_eq!(ask(&two, 67, 0x5000, &[0; 4]).0, 0, "another thread is not held up");
    // Killed, with one request under way and one behind it that nobody has taken.
    send(&one, 80, 0x5000, &with(&[(0, &(4u64 << 20).to_le_bytes()), (8, &(2u64 << 20).to_le_bytes())]));
    let third = connect(&world.space);
    send(&third, 51, 0x5000, &migrate(9));
    drop((one, third));
    assert_eq!(slow.moved(), 1, "the flush");
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| {
            remote::quiesce(&world.uvm);
            slow.moved()
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!quiet.is_finished(), "one is under way");
        slow.stand(false);
        assert_eq!(quiet.join().unwrap(), 4);
    });
    remote::quiesce(&world.uvm);
}

#[test]
fn nonsense_ends_the_line_and_nothing_else() {
    let (world, _slow) = world(580);
    for bytes in [&[1; 15][..], &[2; Request::HEADER + PARAMS + 1]] {
        let line = connect(&world.space);
        send_fd(&line, bytes, None);
        assert_eq!(receive(&line), None, "{} bytes", bytes.len());
    }
    let (stray, _far) = pair();
    send_fd(&world.space, b"whatever", Some(&stray));
    send_fd(&world.space, &CONNECT, None);
    send_fd(&world.space, b"", Some(&stray));
    assert_eq!(ask(&connect(&world.space), 67, 0x5000, &[0; 4]).0, 0);
}

#[test]
fn a_file_is_forgotten_when_its_last_descriptor_is_closed() {
    let (world, _slow) = world(580);
    let held = file(&world.uvm, Node::Uvm);
    let (known, copy) = (key(&held), held.try_clone().unwrap());
    let line = connect(&held);
    drop(held);
    assert_eq!(ask(&line, 0x3000_0001, 0x5000, &[0; 16]).0, 0);
    assert!(world.uvm.has(known), "a duplicate holds it");
    drop(copy);
    for _ in 0..1000 {
        if !world.uvm.has(known) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!world.uvm.has(known));
    assert_eq!(ask(&line, 67, 0x5000, &[0; 4]).0, -libc::ENOTTY);
}
