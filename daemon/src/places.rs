//! Whether there is a place for one more program.
//!
//! Problem: few users with all the programs they may have would take all places of a system's daemon.
//! Idea: the last places are for users who have none yet. One who has many user numbers (`/etc/subuid`) is many users here.

/// Programs of all users together.
pub const ALL: usize = 256;
/// Of these the last, for users who have none.
pub const RESERVE: usize = 64;

/// Checks that a user who has `own` of `all` programs may have one more; `most` are allowed to each. `shared` says that there
/// may be other users.
///
/// # Errors
/// What there is and what is allowed.
pub fn check(own: usize, all: usize, most: usize, shared: bool) -> Result<(), String> {
    let room = if shared && own > 0 { ALL - RESERVE } else { ALL };
    if own < most && all < room {
        return Ok(());
    }
    Err(format!(
        "{own} programs of this user and {all} together are served; allowed are {most} and {room}{}",
        if room < ALL { format!(", and {ALL} where the user has none") } else { String::new() }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_and_all_together_so_many() {
        assert_eq!(check(1, 1, 2, true), Ok(()));
        let error = check(2, 2, 2, true).unwrap_err();
        assert!(error.contains("2 programs of this user and 2 together are served; allowed are 2 and 192"), "{error}");
        assert!(
            check(0, 256, 2, true)
                .unwrap_err()
                .ends_with("0 programs of this user and 256 together are served; allowed are 2 and 256")
        );
    }

    #[test]
    fn four_users_leave_places_for_others() {
        let mut programs = [0usize; 20];
        for user in 0..4 {
            while check(programs[user], programs.iter().sum(), 64, true).is_ok() {
                programs[user] += 1;
            }
        }
        assert_eq!(programs[..4], [64, 64, 64, 1]);
        for user in 4..20 {
            assert_eq!(check(0, programs.iter().sum(), 64, true), Ok(()));
            programs[user] += 1;
            assert!(
                check(1, programs.iter().sum(), 64, true)
                    .unwrap_err()
                    .ends_with("192, and 256 where the user has none")
            );
        }
    }

    #[test]
    fn a_daemon_of_one_user_keeps_no_places() {
        assert_eq!(check(255, 255, 256, false), Ok(()));
        assert!(check(256, 256, 256, false).is_err());
    }
}
