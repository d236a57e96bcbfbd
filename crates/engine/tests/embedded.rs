//! The engine started inside a process that has no driver: a process of its own for each case, so no test harness.

mod common;

use common::{RING, config, page, words};
use deepum_core::units::{Bytes, DeviceId};
use deepum_engine::{DeviceFacts, Inputs};
use deepum_protocol::ring::Ring;
use deepum_protocol::shared::Mode;
use deepum_protocol::status::{State, Status};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const CASE: &str = "ENGINE_TEST_CASE";

fn main() {
    if let Ok(case) = std::env::var(CASE) {
        child(&case);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    without_a_driver_the_engine_is_off_and_says_why(folder.path());
    a_forked_child_has_no_engine_and_leaves_ours_alone(folder.path());
    without_a_runtime_folder_the_socket_is_in_tmp(folder.path());
    println!("embedded: 3 cases passed");
}

/// The program under test: starts the engine, and ends when told to.
fn child(case: &str) {
    let ring = Ring::format(words(RING)).unwrap();
    let page = page();
    let inputs = || Inputs {
        ring,
        page,
        devices: vec![DeviceFacts { id: DeviceId(0), uuid: [1; 16], memory: Bytes::gib(1), budget: Bytes::gib(1) }],
        config: config("deepum"),
        say: |line| eprintln!("deepum: {line}"),
    };
    deepum_engine::start(inputs()).unwrap();
    assert!(deepum_engine::start(inputs()).is_err(), "it starts once");
    assert_eq!(ring.shared().mode(), Mode::Off);
    if case == "fork" {
        // SAFETY: the child does nothing but leave, through the exit handlers.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe { libc::exit(7) },
            pid => {
                let mut status = 0;
                // SAFETY: our own child; the result is ours.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
            }
        }
    }
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

struct Program {
    child: Child,
    socket: PathBuf,
}

impl Program {
    fn start(case: &str, runtime: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CASE, case)
            .env("XDG_RUNTIME_DIR", runtime)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{case}: {line:?} {why}");
        }
        let socket = runtime.join("deepum").join(format!("{}.sock", child.id()));
        Self { child, socket }
    }

    /// Lets it end; gives what it said.
    fn end(mut self) -> String {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

fn without_a_driver_the_engine_is_off_and_says_why(runtime: &Path) {
    let program = Program::start("plain", runtime);
    let mut client = BufReader::new(UnixStream::connect(&program.socket).unwrap());
    client.get_mut().write_all(b"{\"get\":\"status\"}\n").unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    let status = Status::parse(&line).unwrap();
    assert_eq!((status.pid, status.state), (program.child.id(), State::Off));
    assert!(status.reason.unwrap().contains("/dev/nvidia-uvm"));
    let socket = program.socket.clone();
    let said = program.end();
    assert!(said.lines().count() == 1 && said.contains("/dev/nvidia-uvm") && said.contains("goes on"), "{said}");
    assert!(!socket.exists(), "the socket is gone with its program");
}

fn a_forked_child_has_no_engine_and_leaves_ours_alone(runtime: &Path) {
    let program = Program::start("fork", runtime);
    assert!(UnixStream::connect(&program.socket).is_ok(), "the child's exit took the socket away");
    program.end();
}

fn without_a_runtime_folder_the_socket_is_in_tmp(runtime: &Path) {
    // A file where the folder should be.
    let file = runtime.join("file");
    std::fs::write(&file, "").unwrap();
    let program = Program::start("plain", &file);
    let name = program.socket.file_name().unwrap();
    let other = PathBuf::from(format!("/tmp/deepum-{}", nix::unistd::getuid())).join(name);
    assert!(UnixStream::connect(&other).is_ok(), "{} does not answer", other.display());
    let said = program.end();
    assert!(!said.contains("status"), "{said}");
    assert!(!other.exists());
}
