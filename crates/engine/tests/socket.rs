//! The status socket under bad manners.

use deepum_engine::socket::{CLIENTS, LINE, Socket};
use deepum_protocol::status::{Refusal, Status};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

static ASKED: AtomicU64 = AtomicU64::new(0);

fn status() -> Status {
    ASKED.fetch_add(1, Ordering::Relaxed);
    Status::new(4711)
}

/// A served socket in a folder of its own.
fn serve(folder: &Path) -> PathBuf {
    let socket = Socket::bind(&[folder.join("deepum")], 4711).unwrap();
    let path = socket.path().to_owned();
    thread::spawn(move || socket.serve(status));
    path
}

fn connect(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    BufReader::new(stream)
}

fn ask(client: &mut BufReader<UnixStream>, line: &str) -> String {
    client.get_mut().write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_line(&mut answer).unwrap();
    answer
}

fn refused(answer: &str) -> String {
    serde_json::from_str::<Refusal>(answer).unwrap().error
}

const GET: &str = "{\"get\":\"status\"}\n";

#[test]
fn a_client_asks_as_often_as_it_likes() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let mut client = connect(&path);
    for _ in 0..3 {
        assert_eq!(Status::parse(&ask(&mut client, GET)).unwrap().pid, 4711);
    }
    // Two in one write, and one in pieces.
    let first = ask(&mut client, &GET.repeat(2));
    let second = ask(&mut client, "");
    assert!(first == second && Status::parse(&first).is_ok());
    for piece in ["{\"get\":", "\"stat", "us\"}"] {
        client.get_mut().write_all(piece.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert!(Status::parse(&ask(&mut client, "\n")).is_ok());
}

#[test]
fn file_and_folder_are_the_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);

    // A folder that was too open is closed; a link or a file in its place is not used.
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let socket = Socket::bind(std::slice::from_ref(&open), 1).unwrap();
    assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
    drop(socket);
    assert!(fs::read_dir(&open).unwrap().next().is_none(), "the file is gone with the socket");

    let link = folder.path().join("link");
    symlink(&open, &link).unwrap();
    let why = Socket::bind(&[link], 1).unwrap_err();
    assert!(why.contains("is no folder"), "{why}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // The second choice is taken when the first will not do.
    let second = Socket::bind(&[file, open.clone()], 1).unwrap();
    assert_eq!(second.path().parent().unwrap(), open);
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("SKIPPED: only root can make a folder of another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let why = Socket::bind(&[theirs], 1).unwrap_err();
    assert!(why.contains("another user"), "{why}");
}

#[test]
fn what_dead_processes_left_is_replaced_and_swept_and_the_living_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join("d").join(name);
    fs::DirBuilder::new().create(folder.path().join("d")).unwrap();
    let us = std::process::id();
    let ours = format!("{us}.sock");
    drop(UnixListener::bind(at(&ours)).unwrap());
    // No process has this number: it is above the kernel's limit of 2^22.
    drop(UnixListener::bind(at("4999999.sock")).unwrap());
    drop(UnixListener::bind(at("1.sock")).unwrap());
    fs::write(at("notes.txt"), "").unwrap();
    let socket = Socket::bind(&[folder.path().join("d")], us).unwrap();
    assert!(!at("4999999.sock").exists());
    assert!(at("1.sock").exists() && at("notes.txt").exists());
    // One that answers is somebody's.
    let why = Socket::bind(&[folder.path().join("d")], us).unwrap_err();
    assert!(why.contains("in use"), "{why}");
    drop(socket);
}

#[test]
fn garbage_is_answered_with_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let mut client = connect(&path);
    for line in ["\n", "hello\n", "{\"get\":\"secrets\"}\n", "{\"get\":\"status\",\"x\":1}\n", "[]\n", "\u{0}\u{1}\n"] {
        let error = refused(&ask(&mut client, line));
        assert!(error.contains("{\"get\":\"status\"}"), "{line:?}: {error}");
    }
    client.get_mut().write_all(&[0xff, 0xfe, b'\n']).unwrap();
    let mut answer = String::new();
    client.read_line(&mut answer).unwrap();
    assert!(refused(&answer).contains("no request"));
    assert!(Status::parse(&ask(&mut client, GET)).is_ok(), "and the client may go on");
}

#[test]
fn a_line_without_end_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let mut client = connect(&path);
    let endless = vec![b'x'; 64 * LINE];
    // The other side may hang up in the middle.
    let _ = client.get_mut().write_all(&endless);
    let mut answer = String::new();
    let read = client.read_line(&mut answer);
    assert!(read.is_err() || refused(&answer).contains("one line of less than"), "{answer:?}");
    let mut rest = Vec::new();
    assert!(matches!(client.read_to_end(&mut rest), Ok(0) | Err(_)), "hung up");
    assert!(Status::parse(&ask(&mut connect(&path), GET)).is_ok());
}

#[test]
fn a_hundred_clients_and_half_open_ones_leave_room_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let mut full = 0;
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let mut client = connect(&path);
            // Those let in are silent, half a line or half closed; the rest is told why.
            let _ = client.get_mut().write_all(b"{\"get\":");
            client
        })
        .collect();
    for mut client in crowd {
        client.get_mut().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut answer = String::new();
        if client.read_line(&mut answer).is_ok_and(|n| n > 0) {
            assert!(refused(&answer).contains("clients are connected already"));
            full += 1;
        } else {
            let _ = client.get_mut().shutdown(std::net::Shutdown::Write);
        }
    }
    assert!(full >= 100 - CLIENTS, "{full} were refused");
    // All have hung up by now.
    let served = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        Status::parse(&ask(&mut connect(&path), GET)).is_ok()
    });
    assert!(served);
}

#[test]
fn one_that_never_reads_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let deaf = connect(&path);
    deaf.get_ref().set_nonblocking(true).unwrap();
    let mut sent = 0;
    // Until the answers it does not take have filled everything there is.
    for _ in 0..2000 {
        match (&mut deaf.get_ref()).write(GET.repeat(64).as_bytes()) {
            Ok(n) => sent += n,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    let asked = ASKED.load(Ordering::Relaxed);
    assert!(Status::parse(&ask(&mut connect(&path), GET)).is_ok());
    thread::sleep(Duration::from_millis(50));
    let more = ASKED.load(Ordering::Relaxed) - asked;
    assert!(more < 500, "{more} more questions of the deaf one were answered into the void after {sent} bytes");
}

#[test]
fn one_that_reads_late_gets_all_its_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = serve(folder.path());
    let mut late = connect(&path);
    let mut asks = late.get_ref().try_clone().unwrap();
    let (many, one) = (6000, ask(&mut connect(&path), GET));
    assert!(many * one.len() > 2 << 20, "more than may wait for it");
    // It stands still in the middle, until its answers are read.
    let asking = thread::spawn(move || asks.write_all(GET.repeat(many).as_bytes()).unwrap());
    thread::sleep(Duration::from_millis(50));
    for i in 0..many {
        assert!(ask(&mut late, "") == one, "answer {i} of {many}");
    }
    asking.join().unwrap();
}

#[test]
fn users_who_may_not_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = Socket::bind(&[folder.path().to_owned()], 4711).unwrap();
    let path = socket.path().to_owned();
    thread::spawn(move || socket.serve_users(status, |_| false));
    let mut client = connect(&path);
    let mut answer = String::new();
    client.read_line(&mut answer).unwrap();
    assert!(refused(&answer).contains("owner and root"));
    assert_eq!(client.read_line(&mut answer).unwrap(), 0, "hung up");
}
