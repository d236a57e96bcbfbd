//! Where a user's tables are: a folder that is this user's alone, made when the user's first program comes.

use crate::peer::Peer;
use nix::unistd::{Gid, Uid, chown, getuid};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
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
        Ok(()) if getuid().as_raw() != peer.uid => {
            chown(own, Some(Uid::from_raw(peer.uid)), Some(Gid::from_raw(peer.gid)))?;
        }
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    // Not following links: though nobody else can write above it, an administrator may have put one there.
    let found = fs::symlink_metadata(own)?;
    if !found.is_dir() || found.uid() != peer.uid || found.mode() & 0o077 != 0 {
        return refuse(own, "is not a folder of this user's alone");
    }
    Ok(())
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
            let other = Peer { uid: 54_321, gid: 54_321, pid: 1 };
            let own = of_user(&folder, other).unwrap();
            assert_eq!(fs::metadata(&own).unwrap().uid(), 54_321);
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(of_user(&folder, Peer { uid: 77, ..me }), None);
    }
}
