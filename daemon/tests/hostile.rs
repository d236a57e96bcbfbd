//! Programs that do not behave: refused by name, and nothing changes for anybody else.

mod common;

use common::{
    Daemon, Parts, Program, SEALED, emulated, files, hear, memory, open_files, others_can_be_played, refused, until,
};
use deepum_core::units::Bytes;
use deepum_engine::packet;
use deepum_protocol::control::{Packet, Reason};
use deepum_protocol::ring::HEADER_WORDS;
use deepum_protocol::shared::Mode;
use nix::fcntl::SealFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

fn null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

/// Sends what `change` makes of a good program, and gives the refusal.
fn refusal(daemon: &Daemon, change: impl FnOnce(&mut Parts)) -> (Reason, String) {
    let connection = daemon.connect();
    let mut parts = Parts::new(1);
    change(&mut parts);
    parts.send(&connection);
    let refused = refused(&connection);
    (refused.reason, refused.text)
}

#[track_caller]
fn assert_refused((have, why): (Reason, String), reason: Reason, text: &str) {
    assert!(have == reason && why.contains(text), "{have:?} {why}, not {reason:?} {text}");
}

/// Sends these bytes in place of a Hello.
fn refusal_of(daemon: &Daemon, bytes: &[u8]) -> (Reason, String) {
    let connection = daemon.connect();
    Parts::new(1).send_bytes(&connection, bytes);
    let refused = refused(&connection);
    (refused.reason, refused.text)
}

#[test]
fn what_is_no_hello_is_refused_by_name() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    let before = files(&daemon);
    let hello = Packet::Hello(Parts::new(1).hello).to_bytes();
    let cut = |len: usize| {
        let mut bytes = hello[..len].to_vec();
        bytes[16..24].copy_from_slice(&(len as u64).to_le_bytes());
        bytes
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = hello.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let huge = [&hello[..], &[0; 20_000]].concat();
    let cases: [(&[u8], Reason, &str); 9] = [
        (b"GET / HTTP/1.1\r\n\r\n", Reason::Malformed, "do not begin as a packet of deepumd does"),
        (&hello[..30], Reason::Malformed, "length is"),
        (&cut(40), Reason::Malformed, "cut off after"),
        (&with(16, &u64::MAX.to_le_bytes()), Reason::Malformed, "length is 18446744073709551615"),
        (&with(8, &7u32.to_le_bytes()), Reason::Version, "version 7; this program reads version 1"),
        (&with(12, &99u32.to_le_bytes()), Reason::Malformed, "kind is 99"),
        (&with(24, &u64::MAX.to_le_bytes()), Reason::Malformed, "ring bytes is 18446744073709551615"),
        (&Packet::Bye.to_bytes(), Reason::Malformed, "allowed is a Hello"),
        (&huge, Reason::Malformed, "longer than 16384 bytes"),
    ];
    for (bytes, reason, text) in cases {
        assert_refused(refusal_of(&daemon, bytes), reason, text);
    }
    assert_eq!(files(&daemon), before, "what came along was closed");
    assert_eq!((daemon.counter("refused_malformed"), daemon.counter("refused_version")), (8, 1));
    good.is_served();
}

#[test]
fn descriptors_of_the_wrong_number_or_kind_are_refused_by_name() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    let before = files(&daemon);
    let words = common::RING_WORDS;
    type Change<'a> = &'a dyn Fn(&mut Parts);
    let cases: [(Change<'_>, &str); 15] = [
        (&|p| p.fds.clear(), "descriptors are 0; allowed is 4"),
        (&|p| p.fds.truncate(3), "descriptors are 3; allowed is 4"),
        (&|p| p.fds.extend((0..249).map(|_| null())), "descriptors are 253; allowed is 4"),
        (&|p| p.fds[0] = null(), "descriptor 0 (record ring) is /dev/null"),
        (
            &|p| p.fds[0] = memory(words, SealFlag::empty()),
            "descriptor 0 (record ring) is a memfd that may change its size",
        ),
        (&|p| p.fds[0] = memory(words, SealFlag::F_SEAL_GROW), "a memfd that may change its size"),
        (&|p| p.fds[0] = memory(words - 1, SEALED), "descriptor 0 (record ring) is a memfd of"),
        (&|p| p.fds[0] = memory(words, SEALED | SealFlag::F_SEAL_WRITE), "a memfd that cannot be written"),
        (&|p| p.fds[0] = tempfile::tempfile().unwrap().into(), "descriptor 0 (record ring) is /"),
        (&|p| p.fds.swap(0, 1), "descriptor 0 (record ring) is a memfd of"),
        (&|p| p.fds[2] = null(), "descriptor 2 (UVM address space) is /dev/null; allowed is /dev/nvidia-uvm"),
        (&|p| p.fds[2] = packet::pair().unwrap().0, "descriptor 2 (UVM address space) is socket:"),
        (&|p| p.fds[2] = emulated("nvidia-uvm-tools").0, "descriptor 2 (UVM address space) is socket:"),
        (&|p| p.fds[3] = null(), "descriptor 3 (nudge) is /dev/null; allowed is an eventfd"),
        (
            &|p| p.hello.tools = Ok(deepum_protocol::control::ToolsQueue { entries: 4, memory: Bytes(8192) }),
            "descriptors are 4; allowed is 6",
        ),
    ];
    for (change, text) in cases {
        assert_refused(refusal(&daemon, change), Reason::Descriptors, text);
    }
    assert_eq!(files(&daemon), before, "what came along was closed");
    assert_eq!((daemon.counter("refused_descriptors"), daemon.counter("workers_started")), (15, 1));
    good.is_served();
}

/// What is behind the descriptors only the worker looks at; so a worker is started, refuses, and ends.
#[test]
fn memory_that_is_no_ring_or_no_page_is_refused_by_name() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    let before = files(&daemon);
    let store = |word: &deepum_protocol::AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
    type Change<'a> = &'a dyn Fn(&mut Parts);
    let odd = |p: &mut Parts| {
        p.fds[0] = memory(HEADER_WORDS + 100, SEALED);
        p.hello.ring = Bytes((HEADER_WORDS as u64 + 100) * 8);
    };
    let cases: [(Change<'_>, Reason, &str); 6] = [
        (&|p| store(&p.ring_words[0], 0), Reason::Malformed, "record ring: starts with 0x0"),
        (&|p| store(&p.ring_words[1], 99), Reason::Version, "record ring: version 99"),
        (&|p| store(&p.ring_words[2], 1 << 40), Reason::Malformed, "record ring: header says"),
        (&odd, Reason::Malformed, "record ring: 228 words given"),
        (&|p| store(&p.page_words[1025], 7), Reason::Version, "shared page: version 7"),
        (&|p| store(&p.ring_words[16], 1 << 50), Reason::Internal, "record ring:"),
    ];
    for (i, (change, reason, text)) in (1..).zip(cases) {
        assert_refused(refusal(&daemon, change), reason, text);
        until("its worker ends", || (daemon.counter("workers_ended") == i).then_some(()));
    }
    let small = refusal(&daemon, |p| {
        p.fds[1] = memory(8, SEALED);
        p.hello.page = Bytes(64);
    });
    assert_refused(small, Reason::Malformed, "shared page: 8 words given");
    until("all end", || (daemon.counter("workers_ended") == 7).then_some(()));
    assert_eq!(files(&daemon), before);
    assert_eq!(daemon.counter("workers_failed"), 0);
    good.is_served();
}

#[test]
fn nonsense_in_ring_and_page_while_served_hurts_nobody_else() {
    let daemon = Daemon::start(&[]);
    let (good, bad) = (Program::new(&daemon), Parts::new(2).attach(&daemon));
    bad.parts.alloc(0, 10);
    // A record that nobody writes, all counters of the page, work that was never counted, budgets of everything.
    for word in &bad.parts.page_words[..2560] {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    for word in &bad.parts.ring_words[HEADER_WORDS..] {
        word.store(0xdead_beef_dead_beef, Ordering::Release);
    }
    bad.parts.ring_words[8].store(1 << 12, Ordering::Release);
    let line = bad.wait_for("line", |packet| match packet {
        Packet::Say(line) if line.contains("record ring") => Some(line),
        _ => None,
    });
    assert!(line.contains("DeepUM is off"), "{line}");
    until("its engine is off", || (bad.parts.ring.shared().mode() == Mode::Off).then_some(()));
    good.is_served();
    assert_eq!(daemon.programs().programs.len(), 2);
}

#[test]
fn a_packet_that_is_no_bye_ends_a_program_alone() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    for bytes in
        [Packet::Say("x".to_owned()).to_bytes(), vec![7; 16_000], Packet::Hello(Parts::new(1).hello).to_bytes()]
    {
        let bad = Program::new(&daemon);
        let extra: Vec<OwnedFd> = (0..200).map(|_| null()).collect();
        let extra: Vec<_> = extra.iter().map(AsFd::as_fd).collect();
        packet::send(bad.connection.as_fd(), &bytes, &extra).unwrap();
        bad.wait_for_hang_up();
    }
    good.is_served();
    until("they are gone", || (daemon.programs().programs.len() == 1).then_some(()));
}

#[test]
fn a_thousand_silent_and_lying_connections_keep_nobody_else_out() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    let before = files(&daemon);
    let mut crowd = Vec::new();
    for i in 0..1000 {
        let connection = daemon.connect();
        match i % 4 {
            0 => {}
            1 => drop(packet::send(connection.as_fd(), b"nonsense", &[null().as_fd(); 250])),
            2 => drop(packet::send(connection.as_fd(), &[0; 8000], &[])),
            _ => drop(packet::send(connection.as_fd(), b"", &[null().as_fd()])),
        }
        crowd.push(connection);
        if i % 100 == 99 {
            good.is_served();
        }
    }
    // Among them, of the same user: one that says Hello at once.
    let late = Program::new(&daemon);
    late.is_served();
    assert!(open_files(daemon.pid()).len() <= before.len() + 32, "{}", open_files(daemon.pid()).len());
    // One program more: orders, reports, log.
    until("the silent are hung up on", || (files(&daemon).len() == before.len() + 3).then_some(()));
    assert!(daemon.counter("connections_full") > 0 && daemon.counter("connections_late") > 0);
    assert_eq!(daemon.counter("connections"), 1002);
    good.is_served();
    // Each of them hears that it is over.
    for connection in crowd {
        while hear(&connection).is_some() {}
    }
}

#[test]
fn a_liar_about_memory_and_weight_takes_nothing_from_others() {
    let daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    good.parts.alloc(0, 600);
    let mut parts = Parts::new(1);
    parts.hello.devices[0].memory = Bytes(1 << 50);
    parts.hello.devices[0].budget = Bytes(1 << 50);
    let liar = parts.attach(&daemon);
    liar.parts.alloc(0, 5000);
    until("the good one has half", || (good.budget() == 512 * MIB).then_some(()));
}

#[test]
fn a_user_who_is_not_named_is_refused_and_one_who_is_is_served() {
    if !others_can_be_played() {
        return;
    }
    let daemon = Daemon::start(&["--allow-user", "54321", "--allow-group", "54400"]);
    let good = Program::new(&daemon);
    let asked = |uid: u32, gid: u32| {
        let output = daemon.child("child_asks_to_be_served").uid(uid).gid(gid).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let refused = asked(54_322, 54_322);
    assert!(refused.contains("refused: user 54322 is not served by this daemon"), "{refused}");
    assert!(asked(54_321, 54_322).contains("welcome"));
    assert!(asked(54_323, 54_400).contains("welcome"));
    assert_eq!(daemon.counter("refused_user"), 1);
    good.is_served();
}

#[test]
#[ignore = "a part of another test: a program of another user"]
fn child_asks_to_be_served() {
    let socket = std::env::var_os("DAEMON_SOCKET").unwrap();
    let connection = packet::connect(socket.as_ref()).unwrap();
    Parts::new(1).send(&connection);
    match hear(&connection) {
        Some(Packet::Welcome(_)) => println!("welcome"),
        Some(Packet::Refused(refused)) => println!("refused: {}", refused.text),
        other => println!("{other:?}"),
    }
}

/// A crowd of another user's, as large as it can be made, does not keep this one's programs out.
#[test]
fn another_users_crowd_is_bounded_by_itself() {
    if !others_can_be_played() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let mut crowd = daemon.child("child_crowds").uid(54_321).spawn().unwrap();
    let mut out = crowd.stdout.take().unwrap();
    let mut text = String::new();
    while !text.contains("crowded") {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).unwrap(), 1, "{text}");
        text.push(byte[0].into());
    }
    assert!(daemon.counter("connections_full") > 0, "it is larger than its part of the line");
    let good = Program::new(&daemon);
    good.is_served();
    drop(crowd.stdin.take());
    let _ = crowd.kill();
    let _ = crowd.wait();
}

#[test]
#[ignore = "a part of another test: another user's crowd"]
fn child_crowds() {
    let socket = std::env::var_os("DAEMON_SOCKET").unwrap();
    let crowd: Vec<_> = (0..900).map_while(|_| packet::connect(socket.as_ref()).ok()).collect();
    println!("{} crowded", crowd.len());
    let _ = std::io::stdin().read(&mut [0]);
}

/// A socket that its last owner closes only after an hour, or when the other end goes; and that end, which takes nothing.
fn lingering() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    setsockopt(&listener, sockopt::RcvBuf, &4096).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    setsockopt(&socket, sockopt::SndBuf, &4096).unwrap();
    setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 3600 }).unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 4096]).is_ok() {}
    (socket.into(), other.into())
}

/// Starts another user's program that sends a hundred such sockets, each on a connection of its own. It has closed its own before the daemon
/// sees them: or the last to close would be the program.
fn lingerer(daemon: &Daemon) -> Child {
    signal(daemon, Signal::SIGSTOP);
    let mut child = daemon.child("child_lingers").uid(54_321).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("sent")));
    signal(daemon, Signal::SIGCONT);
    child
}

fn signal(daemon: &Daemon, signal: Signal) {
    kill(Pid::from_raw(daemon.pid().cast_signed()), signal).unwrap();
}

/// What a user sends may take as long to close as that user likes; then nothing more is taken from this user, and others are served.
#[test]
fn what_takes_for_ever_to_close_stops_nobody_else() {
    if !others_can_be_played() {
        return;
    }
    let mut daemon = Daemon::start(&[]);
    let good = Program::new(&daemon);
    let (before, threads) = (files(&daemon), daemon.threads());
    let mut other = lingerer(&daemon);
    good.is_served();
    let late = Program::new(&daemon);
    late.is_served();
    // Those that are pushed out of the line, and the late, are closed at once: the end of a thread does not linger.
    until("all but one are hung up on", || {
        (daemon.counter("connections_full") + daemon.counter("connections_late") == 99).then_some(())
    });
    until("only the one lingers", || (daemon.threads() == threads + 1).then_some(()));
    assert_eq!(daemon.counter("refused_malformed"), 1, "nothing more was taken from this user");
    Program::new(&daemon).is_served();
    drop(other.stdin.take());
    other.wait().unwrap();
    until("all is closed", || (files(&daemon).len() == before.len() + 3).then_some(()));
    assert_eq!(daemon.threads(), threads);
    let mut again = lingerer(&daemon);
    until("this user is heard again", || (daemon.counter("refused_malformed") == 2).then_some(()));
    // Nor does it hold up the end.
    signal(&daemon, Signal::SIGTERM);
    good.wait_for_hang_up();
    assert!(daemon.child.wait().unwrap().success());
    drop(again.stdin.take());
    again.wait().unwrap();
}

#[test]
#[ignore = "a part of another test: another user's sockets that linger"]
fn child_lingers() {
    let socket = std::env::var_os("DAEMON_SOCKET").unwrap();
    let send = |_| {
        let connection = packet::connect(socket.as_ref()).unwrap();
        let (lingers, other) = lingering();
        packet::send(connection.as_fd(), b"nonsense", &[lingers.as_fd()]).unwrap();
        (connection, other)
    };
    let _all: Vec<_> = (0..100).map(send).collect();
    println!("sent");
    let _ = std::io::stdin().read(&mut [0]);
}
