//! A worker's first act: it takes on the rights of its program, for good.
//!
//! Problem: whoever has a process's user may stop it, look into it, and use what it holds, and the parent waits for a child until it
//! is executed. So a worker is executed with the parent's rights ([`crate::spawn`]), and gives them up here, before it looks at anything
//! that came from the program.
//! From then on it is not dumpable: it may have the program's user, but that user can neither trace it nor open its files in `/proc`.
//!
//! A change of user undoes the wish to be killed with the parent, so that is said again, and then looked whether the parent is still there.

use anyhow::{Context, Result, ensure};
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, getgroups, getppid, getresgid, getresuid, getuid, setgroups, setresgid, setresuid};

/// Takes on the rights that the command line names, `PARENT:USER:GROUP:DESCRIPTORS`. Gives the descriptors.
///
/// # Errors
/// What could not be given up or taken on.
pub(super) fn take_on(errand: &str) -> Result<&str> {
    let mut parts = errand.splitn(4, ':');
    let mut number = || parts.next()?.parse::<u32>().ok();
    let numbers = (number(), number(), number());
    let (Some(parent), Some(uid), Some(gid), Some(fds)) = (numbers.0, numbers.1, numbers.2, parts.next()) else {
        anyhow::bail!("--worker is for deepumd itself");
    };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if getuid() != uid {
        become_user(uid, gid).with_context(|| format!("cannot take on the rights of user {uid} and group {gid}"))?;
    }
    ensure!(getppid().as_raw().unsigned_abs() == parent, "deepumd ({parent}) is gone");
    Ok(fds)
}

fn become_user(uid: Uid, gid: Gid) -> Result<()> {
    setgroups(&[]).context("setgroups")?;
    setresgid(gid, gid, gid).context("setresgid")?;
    setresuid(uid, uid, uid).context("setresuid")?;
    set_dumpable(false).context("PR_SET_DUMPABLE")?;
    set_pdeathsig(Signal::SIGKILL).context("PR_SET_PDEATHSIG")?;
    let (users, groups, others) = (getresuid()?, getresgid()?, getgroups()?);
    ensure!(
        [users.real, users.effective, users.saved] == [uid; 3]
            && [groups.real, groups.effective, groups.saved] == [gid; 3]
            && others.is_empty(),
        "they are {users:?}, {groups:?}, other groups {others:?}"
    );
    ensure!(
        uid.is_root() || setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_err(),
        "root's come back"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_errand_or_of_another_parent_is_refused() {
        let (uid, gid, parent) = (getuid(), nix::unistd::getgid(), getppid());
        assert_eq!(take_on(&format!("{parent}:{uid}:{gid}:3,4")).unwrap(), "3,4");
        assert!(take_on(&format!("1{parent}:{uid}:{gid}:3")).unwrap_err().to_string().contains("is gone"));
        for bad in ["", "1", "3,4,5", "1:2:3", "1:2:x:3", "-1:2:3:4"] {
            assert!(take_on(bad).unwrap_err().to_string().contains("for deepumd itself"), "{bad}");
        }
    }
}
