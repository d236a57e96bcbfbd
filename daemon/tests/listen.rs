//! Where a daemon listens: files, permissions, one at a time.
//!
//! A process of its own: to open a place changes the umask for all threads, and other tests make folders.

use deepum_daemon::listen::Place;
use deepum_engine::packet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One test at a time, for the same reason.
static ALONE: Mutex<()> = Mutex::new(());

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn one_at_a_time_and_what_a_dead_one_left_is_replaced() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deepum/deepumd.sock");
    let first = Place::open(&path, false).unwrap();
    assert_eq!((mode(&path), mode(&path.with_extension("status"))), (0o600, 0o600));
    assert_eq!((mode(&path.with_extension("lock")), mode(path.parent().unwrap())), (0o600, 0o700));
    let error = Place::open(&path, false).unwrap_err().to_string();
    assert!(error.contains(&format!("another deepumd (process {})", std::process::id())), "{error}");
    drop(first);
    assert!(!path.exists() && !path.with_extension("status").exists());
    // As after kill -9: the files are there, nobody holds the lock.
    drop(UnixListener::bind(&path).unwrap());
    drop(UnixListener::bind(path.with_extension("status")).unwrap());
    let second = Place::open(&path, true).unwrap();
    assert_eq!((mode(&path), mode(&path.with_extension("status"))), (0o666, 0o666));
    packet::connect(second.path()).unwrap();
}

#[test]
fn what_is_no_socket_is_left_alone_and_bad_folders_are_named() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deepumd.sock");
    fs::write(&path, "precious").unwrap();
    assert!(Place::open(&path, false).unwrap_err().to_string().contains("is no socket"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let error = Place::open(&open.join("deepumd.sock"), false).unwrap_err().to_string();
    assert!(error.contains("can be written by others (mode 777)"), "{error}");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    Place::open(&open.join("deepumd.sock"), false).unwrap();
    assert!(Place::open(Path::new("deepumd.sock"), false).unwrap_err().to_string().contains("absolute"));
    assert!(Place::open(&dir.path().join("x.lock"), false).unwrap_err().to_string().contains("ending"));
    assert!(Place::open(&dir.path().join("none/none/x.sock"), false).unwrap_err().to_string().contains("cannot make"));
    let lock = dir.path().join("deepumd.lock");
    fs::remove_file(&path).unwrap();
    fs::remove_file(&lock).ok();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &lock).unwrap();
    assert!(Place::open(&path, false).unwrap_err().to_string().contains("cannot open"));
    assert!(!dir.path().join("elsewhere").exists());
}
