//! Programs that behave: attached, served, shared with, ended; and what is left when one side dies.

mod common;

use common::{Daemon, Parts, Program, alive, as_another_user, ask, files, open_files, others_can_be_played, until};
use deepum_protocol::control::Packet;
use deepum_protocol::shared::Mode;
use deepum_protocol::status::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Child;

const MIB: u64 = 1 << 20;

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

#[test]
fn a_program_is_served_from_hello_to_bye() {
    let daemon = Daemon::start(&[]);
    let program = Program::new(&daemon);
    assert_eq!(program.parts.ring.shared().mode(), Mode::Dormant);
    program.parts.alloc(0, 100);
    until("it is reported", || (daemon.programs().programs[0].devices[0].managed_bytes == 200 * MIB).then_some(()));
    let told = daemon.programs();
    let one = &told.programs[0];
    assert_eq!((one.pid, one.uid, one.worker), (std::process::id(), getuid().as_raw(), program.welcome.worker));
    assert_eq!((told.pid, told.counters["workers_started"]), (daemon.pid(), 1));
    assert_eq!((one.devices[0].share_bytes, one.devices[0].wanted_bytes), (1 << 30, 1 << 30));
    // Also where the status of any program is looked for.
    let status = Status::parse(&ask(&daemon.status_socket(std::process::id()), "{\"get\":\"status\"}\n")).unwrap();
    assert_eq!((status.pid, status.devices[0].allocated_bytes), (std::process::id(), 200 * MIB));
    let worker = program.welcome.worker;
    let parts = program.bye();
    until("the worker ends", || (!alive(worker)).then_some(()));
    until("it is counted", || (daemon.counter("workers_ended") == 1).then_some(()));
    assert!(daemon.programs().programs.is_empty() && !daemon.status_socket(std::process::id()).exists());
    assert_eq!(daemon.counter("workers_failed"), 0);
    // The same ring and page once more, as after a daemon's death.
    let mut parts = parts;
    parts.hello.attachment = 2;
    let program = parts.attach(&daemon);
    program.is_served();
    assert_eq!(daemon.programs().programs[0].attachment, 2);
}

#[test]
fn what_does_not_fit_wakes_the_engine() {
    let daemon = Daemon::start(&[]);
    let program = Program::new(&daemon);
    program.parts.alloc(0, 1000);
    until("it wakes", || (program.parts.ring.shared().mode() == Mode::Awake).then_some(()));
}

#[test]
fn programs_on_one_gpu_share_it_and_others_are_not_concerned() {
    let daemon = Daemon::start(&[]);
    let first = Parts::new(1).attach(&daemon);
    let elsewhere = Parts::new(2).attach(&daemon);
    first.parts.alloc(0, 1000);
    until("it is reported", || (daemon.programs().programs[0].devices[0].managed_bytes == 2000 * MIB).then_some(()));
    let mut parts = Parts::new(1);
    parts.hello.weight = 3;
    let second = parts.attach(&daemon);
    second.parts.alloc(0, 1000);
    until("three quarters", || (second.budget() == 768 * MIB).then_some(()));
    until("the core of the first knows", || (core_budget(&daemon) == 256 * MIB).then_some(()));
    let shares: Vec<u64> = daemon.programs().programs.iter().map(|p| p.devices[0].share_bytes).collect();
    assert_eq!(shares, [256 * MIB, 1024 * MIB, 768 * MIB]);
    let _ = second.bye();
    until("all of it again", || (first.budget() == 1 << 30).then_some(()));
    until("the core knows", || (core_budget(&daemon) == 1 << 30).then_some(()));
    signal(elsewhere.welcome.worker, Signal::SIGKILL);
    while let Some(packet) = common::hear(&elsewhere.connection) {
        assert!(!matches!(packet, Packet::Budget(_)), "{packet:?}");
    }
}

/// What the core of the first program takes for its budget, by the status that its worker gives. All programs here are this process, and the
/// first one has the socket of that name.
fn core_budget(daemon: &Daemon) -> u64 {
    let line = ask(&daemon.status_socket(std::process::id()), "{\"get\":\"status\"}\n");
    Status::parse(&line).unwrap().devices[0].budget_bytes
}

#[test]
fn a_program_that_is_killed_leaves_nothing() {
    let daemon = Daemon::start(&[]);
    let quiet = Program::new(&daemon);
    let before = files(&daemon);
    for _ in 0..3 {
        let (mut child, worker) = attached_child(&daemon, |_| ());
        assert!(alive(worker));
        child.kill().unwrap();
        child.wait().unwrap();
        until("the worker ends", || (!alive(worker)).then_some(()));
    }
    until("the daemon knows", || (daemon.programs().programs.len() == 1).then_some(()));
    assert_eq!(files(&daemon), before);
    assert_eq!((daemon.counter("workers_ended"), daemon.counter("workers_failed")), (3, 0));
    quiet.is_served();
}

/// A program that is forked by another and holds its connection open does not keep the worker alive.
#[test]
fn a_connection_that_outlives_its_program_does_not_keep_the_worker() {
    let daemon = Daemon::start(&[]);
    let (mut child, worker) = attached_child(&daemon, |command| {
        command.env("HOLDS_ON", "1");
    });
    // Its own child holds all its descriptors, and ends when we hang up its input.
    let input = child.stdin.take();
    child.kill().unwrap();
    child.wait().unwrap();
    if std::fs::metadata("/proc/self/ns/pid").is_ok() {
        until("the worker ends", || (!alive(worker)).then_some(()));
    }
    drop(input);
}

/// Starts a process that attaches, and gives it with its worker's number.
fn attached_child(daemon: &Daemon, with: impl FnOnce(&mut std::process::Command)) -> (Child, u32) {
    let mut command = daemon.child("child_attaches");
    with(&mut command);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let worker = lines.find_map(|line| line.unwrap().split("attached ").nth(1).and_then(|pid| pid.trim().parse().ok()));
    (child, worker.expect("the child attaches"))
}

#[test]
#[ignore = "a part of other tests: a program in a process of its own"]
fn child_attaches() {
    let socket = std::env::var_os("DAEMON_SOCKET").unwrap();
    let connection = deepum_engine::packet::connect(socket.as_ref()).unwrap();
    let parts = Parts::new(1);
    parts.send(&connection);
    match common::hear(&connection) {
        Some(Packet::Welcome(welcome)) => println!("attached {}", welcome.worker),
        other => println!("not attached: {other:?}"),
    }
    let holder = std::env::var_os("HOLDS_ON").map(|_| {
        // All descriptors open on exec, too.
        let mut command = std::process::Command::new("cat");
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for fd in 3..64 {
                    libc::fcntl(fd, libc::F_SETFD, 0);
                }
                Ok(())
            })
        };
        command.spawn().unwrap()
    });
    let _ = std::io::stdin().read(&mut [0]);
    drop(holder);
}

#[test]
fn another_user_is_served_with_that_users_rights_and_sees_only_its_own() {
    if !others_can_be_played() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let own = Program::new(&daemon);
    let (mut child, worker) = attached_child(&daemon, as_another_user);
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    let line = |name: &str| {
        status.lines().find_map(|l| l.strip_prefix(name)).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("Uid:"), "54321 54321 54321 54321");
    assert_eq!(line("Gid:"), "54322 54322 54322 54322");
    assert_eq!(
        (line("Groups:"), line("NoNewPrivs:"), line("CapEff:")),
        (String::new(), "1".into(), "0000000000000000".into())
    );
    // Nothing of ours: its three ways and null, the program's connection, process and four descriptors, and what its threads opened.
    let files = open_files(worker);
    let count = |kind: &str| files.iter().filter(|f| f.contains(kind)).count();
    assert!(count("socket:") <= 4 && count("memfd:") <= 2 && count("pipe:") == 2, "{files:?}");
    assert!(count("signalfd") == 0 && count(".lock") == 0 && count("/log") == 0, "{files:?}");
    // Its user cannot look into it, and it has no part of our session.
    let environ = format!("/proc/{worker}/environ");
    assert_eq!(std::fs::metadata(&environ).unwrap().uid(), 0, "not dumpable");
    assert!(
        !std::process::Command::new("cat").arg(&environ).uid(54_321).gid(54_322).output().unwrap().status.success()
    );
    let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap();
    let of_stat: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!((of_stat[3], of_stat[4]), (worker.to_string().as_str(), "0"), "session and terminal");
    let seen = daemon.programs().programs;
    assert_eq!(seen.iter().map(|p| p.uid).collect::<Vec<_>>(), [0, 54_321], "root sees both");
    let asked = daemon.child("child_asks").uid(54_321).output().unwrap();
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(text.contains("sees [54321]"), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
    own.is_served();
}

#[test]
#[ignore = "a part of other tests: asks as another user"]
fn child_asks() {
    let socket = std::path::PathBuf::from(std::env::var_os("DAEMON_SOCKET").unwrap());
    let line = ask(&socket.with_extension("status"), "{\"get\":\"programs\"}\n");
    let programs = deepum_protocol::programs::Programs::parse(&line).unwrap().programs;
    println!("sees {:?}", programs.iter().map(|p| p.uid).collect::<Vec<_>>());
}

#[test]
fn the_status_takes_no_descriptors() {
    let daemon = Daemon::start(&[]);
    let client = UnixStream::connect(daemon.socket().with_extension("status")).unwrap();
    let sent = deepum_engine::packet::send(client.as_fd(), b"{\"get\":", &[client.as_fd()]);
    // SO_PASSRIGHTS, as the daemon has it.
    let (mut on, mut len) = (0 as libc::c_int, size_of::<libc::c_int>().try_into().unwrap());
    // SAFETY: room for one number.
    let rc = unsafe { libc::getsockopt(client.as_raw_fd(), libc::SOL_SOCKET, 83, (&raw mut on).cast(), &raw mut len) };
    assert_eq!(sent.is_err(), rc == 0, "refused where the system can do so (Linux 6.16)");
    daemon.programs();
}

#[test]
fn a_worker_that_is_killed_hurts_its_program_alone() {
    let daemon = Daemon::start(&[]);
    let (one, other) = (Program::new(&daemon), Parts::new(2).attach(&daemon));
    signal(one.welcome.worker, Signal::SIGKILL);
    one.wait_for_hang_up();
    until("it is counted", || (daemon.counter("workers_failed") == 1).then_some(()));
    other.is_served();
    let mut parts = one.parts;
    parts.hello.attachment = 2;
    let again = parts.attach(&daemon);
    again.is_served();
    assert_eq!(daemon.programs().programs.len(), 2);
}

#[test]
fn a_daemon_that_is_killed_takes_its_workers_along_and_the_next_one_takes_over() {
    let mut daemon = Daemon::start(&[]);
    let mut programs = vec![Program::new(&daemon), Parts::new(2).attach(&daemon)];
    for round in 2..5 {
        daemon.kill();
        for program in &programs {
            program.wait_for_hang_up();
            until("the worker ends", || (!alive(program.welcome.worker)).then_some(()));
        }
        daemon.again();
        programs = programs
            .into_iter()
            .map(|program| {
                let mut parts = program.parts;
                parts.hello.attachment = round;
                parts.attach(&daemon)
            })
            .collect();
        programs.iter().for_each(Program::is_served);
    }
}

/// What another user does to its worker, which has that user's rights, is nothing to anybody else.
#[test]
fn a_worker_that_its_user_stops_stops_nobody_else() {
    if !others_can_be_played() {
        return;
    }
    let daemon = Daemon::start(&[]);
    let (mut child, worker) = attached_child(&daemon, as_another_user);
    let stops = std::process::Command::new("kill").args(["-STOP", &worker.to_string()]).uid(54_321).status().unwrap();
    assert!(stops.success());
    Program::new(&daemon).is_served();
    child.kill().unwrap();
    child.wait().unwrap();
    until("one is left", || (daemon.programs().programs.iter().filter(|p| p.uid == 0).count() <= 1).then_some(()));
    signal(worker, Signal::SIGCONT);
    until("the worker ends", || (!alive(worker)).then_some(()));
}

#[test]
fn what_a_worker_logs_is_in_the_log_of_the_daemon() {
    let daemon = Daemon::start(&[]);
    let program = Program::new(&daemon);
    program.parts.ring_words[8].store(1 << 12, std::sync::atomic::Ordering::Release);
    for word in &program.parts.ring_words[deepum_protocol::ring::HEADER_WORDS..] {
        word.store(0xdead_beef_dead_beef, std::sync::atomic::Ordering::Release);
    }
    let mark = format!("program {}: ", std::process::id());
    let said = until("it is logged", || {
        let log = daemon.log();
        log.lines().find(|line| line.contains(&mark) && line.contains("record ring")).map(str::to_owned)
    });
    assert!(said.contains(" WARN "), "{said}");
    let words = open_files(program.welcome.worker);
    assert!(!words.iter().any(|f| f.ends_with("/log")), "{words:?}");
}

#[test]
fn a_terminal_that_is_gone_does_not_end_it() {
    let mut daemon = Daemon::start(&[]);
    let program = Program::new(&daemon);
    signal(daemon.pid(), Signal::SIGHUP);
    // The status thread does not read signals; a new program is served by the thread that does.
    Program::new(&daemon).is_served();
    program.is_served();
    assert!(daemon.child.try_wait().unwrap().is_none());
}

#[test]
fn a_signal_ends_it_in_order() {
    let mut daemon = Daemon::start(&[]);
    let program = Program::new(&daemon);
    signal(daemon.pid(), Signal::SIGTERM);
    program.wait_for_hang_up();
    assert!(daemon.child.wait().unwrap().success());
    let left: Vec<_> = std::fs::read_dir(daemon.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "deepumd.sock" || name == "deepumd.status"), "{left:?}");
    assert!(!daemon.status_socket(std::process::id()).exists());
}

#[test]
fn comings_and_goings_leave_no_descriptor_and_no_process() {
    let daemon = Daemon::start(&[]);
    Program::new(&daemon).bye();
    until("it is quiet", || (daemon.counter("workers_ended") == 1).then_some(()));
    let before = files(&daemon);
    for _ in 0..40 {
        let _ = Program::new(&daemon).bye();
    }
    until("all are gone", || (daemon.counter("workers_ended") == 41).then_some(()));
    assert_eq!(files(&daemon), before);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).unwrap();
    assert_eq!(children, "");
}

#[test]
fn a_user_has_so_many_programs_and_no_more() {
    let daemon = Daemon::start(&["--programs", "2"]);
    let (_one, two) = (Program::new(&daemon), Program::new(&daemon));
    let connection = daemon.connect();
    Parts::new(1).send(&connection);
    let refusal = common::refused(&connection);
    assert!(refusal.text.contains("2 programs of this user") && !refusal.reason.is_final(), "{refusal:?}");
    let _ = two.bye();
    until("there is room", || (daemon.programs().programs.len() == 1).then_some(()));
    Program::new(&daemon).is_served();
}
