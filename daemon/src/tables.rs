//! Where a user's tables are: a folder that is this user's alone, made when the user's first program comes.
//!
//! It is made, then given away. Whoever is killed between leaves a folder of our own in its place; the next one gives it away.

use crate::peer::Peer;
use nix::unistd::getuid;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use tracing::warn;

/// The folder of `peer`'s user below `folder`, or nothing, with a line in the log, if there is none that will do.
pub fn of_user(folder: &Path, peer: Peer) -> Option<PathBuf> {
    let own = folder.join(peer.uid.to_string());
    match make(folder, &own, peer) {
        Ok(()) => Some(own),
        Err(e) => {
            warn!(folder = %own.display(), "no tables are kept for user {}: {e}", peer.uid);
            None
        }
    }
}

fn make(folder: &Path, own: &Path, peer: Peer) -> io::Result<()> {
    let refuse = |path: &Path, what: &str| {
        Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} {what}", path.display())))
    };
    // Others may pass through to theirs, not look around.
    fs::DirBuilder::new().recursive(true).mode(0o711).create(folder)?;
    let above = fs::metadata(folder)?;
    if above.uid() != getuid().as_raw() || above.mode() & 0o022 != 0 {
        return refuse(folder, "can be written by others");
    }
    match fs::DirBuilder::new().mode(0o700).create(own) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Not following links: though nobody else can write above it, an administrator may have put one there.
    let found = fs::symlink_metadata(own)?;
    let alone = |found: &fs::Metadata, uid| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0;
    if alone(&found, peer.uid) {
        return Ok(());
    }
    if alone(&found, getuid().as_raw()) {
        let opened = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(own)?;
        if alone(&opened.metadata()?, getuid().as_raw()) {
            return fchown(&opened, Some(peer.uid), Some(peer.gid));
        }
    }
    refuse(own, "is not a folder of this user's alone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_users_folder_is_the_users_alone_and_others_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/tables");
        let me = Peer { uid: getuid().as_raw(), gid: nix::unistd::getgid().as_raw(), pid: 1 };
        let own = of_user(&folder, me).unwrap();
        assert_eq!(own, folder.join(me.uid.to_string()));
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(of_user(&folder, me), Some(own.clone()), "a second time, too");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(of_user(&folder, me), None);
        if getuid().is_root() {
            let other = Peer { uid: 54_321, gid: 54_322, pid: 1 };
            let own = of_user(&folder, other).unwrap();
            let found = fs::metadata(&own).unwrap();
            assert_eq!((found.uid(), found.gid()), (54_321, 54_322));
            // A folder of a third user's is nobody else's.
            std::os::unix::fs::chown(&own, Some(54_323), None).unwrap();
            assert_eq!(of_user(&folder, other), None);
            assert_eq!(fs::metadata(&own).unwrap().uid(), 54_323);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(of_user(&folder, Peer { uid: 77, ..me }), None);
    }

    #[test]
    fn a_folder_that_a_killed_daemon_did_not_give_away_is_given_away() {
        if !getuid().is_root() {
            eprintln!("SKIPPED: only root can give a folder away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let left = |uid: u32, mode| {
            let own = dir.path().join(uid.to_string());
            fs::DirBuilder::new().mode(mode).create(&own).unwrap();
            (own, Peer { uid, gid: uid, pid: 1 })
        };
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        let (own, peer) = left(54_321, 0o700);
        assert_eq!((of_user(dir.path(), peer), owner(&own)), (Some(own.clone()), 54_321));
        // Not one that others may look into, which we do not make, nor what a link leads to.
        let (open, peer) = left(54_322, 0o755);
        assert_eq!((of_user(dir.path(), peer), owner(&open)), (None, 0));
        let (root, _) = left(0, 0o700);
        let link = dir.path().join("54323");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        let peer = Peer { uid: 54_323, ..peer };
        assert_eq!((of_user(dir.path(), peer), owner(&root), owner(&link)), (None, 0, 0));
    }
}
