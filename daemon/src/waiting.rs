//! Connections that have not said Hello: how many, how long, and who has to go.
//!
//! Problem: anybody who may connect may do so a thousand times and say nothing.
//! Idea: a bound for each user and one for all. Who is past a bound pushes out the oldest silent connection of the user with most: a
//! program says Hello the moment it connects, so what is old here is silent on purpose or dead. So a flood pushes out its own, and a
//! program of the same user still gets through.
//!
//! Pure: no clock, no sockets.

use std::time::{Duration, Instant};

/// Longest time from connection to Hello.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// One of them.
#[derive(Debug)]
pub struct Waiting<C> {
    /// The connection.
    pub connection: C,
    /// Whose.
    pub uid: u32,
    since: Instant,
}

/// All of them, oldest first.
#[derive(Debug)]
pub struct Line<C> {
    all: Vec<Waiting<C>>,
    of_user: usize,
    together: usize,
}

impl<C> Line<C> {
    /// At most so many of one user, and so many together; both 1 or more.
    pub const fn new(of_user: usize, together: usize) -> Self {
        Self { all: Vec::new(), of_user, together }
    }

    /// One more. Gives the one that has to go for it, if one has.
    pub fn join(&mut self, connection: C, uid: u32, now: Instant) -> Option<Waiting<C>> {
        let pushed = if self.of(uid) >= self.of_user {
            Some(uid)
        } else if self.all.len() >= self.together {
            self.all.iter().map(|one| one.uid).max_by_key(|uid| (self.of(*uid), *uid))
        } else {
            None
        };
        let at = pushed.and_then(|uid| self.all.iter().position(|one| one.uid == uid));
        let gone = at.map(|at| self.all.remove(at));
        self.all.push(Waiting { connection, uid, since: now });
        gone
    }

    fn of(&self, uid: u32) -> usize {
        self.all.iter().filter(|one| one.uid == uid).count()
    }

    /// Those that wait.
    pub fn all(&self) -> &[Waiting<C>] {
        &self.all
    }

    /// Takes out those for which `ready` says so, oldest first.
    pub fn take(&mut self, mut ready: impl FnMut(&Waiting<C>) -> bool) -> Vec<Waiting<C>> {
        self.all.extract_if(.., |one| ready(one)).collect()
    }

    /// Takes out those that have waited too long.
    pub fn late(&mut self, now: Instant) -> Vec<Waiting<C>> {
        self.take(|one| now.saturating_duration_since(one.since) >= PATIENCE)
    }

    /// When the next one has waited too long.
    pub fn deadline(&self) -> Option<Instant> {
        self.all.first().map(|one| one.since + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_pushes_out_its_own_and_nobody_elses() {
        let now = Instant::now();
        let mut line = Line::new(3, 100);
        assert!(line.join("quiet", 1, now).is_none());
        let gone: Vec<_> = (0..10).filter_map(|i| line.join(["a", "b", "c", "d"][i % 4], 2, now)).collect();
        assert!(gone.len() == 7 && gone.iter().all(|one| one.uid == 2));
        assert_eq!(line.all().len(), 4);
        assert_eq!(line.all()[0].connection, "quiet");
    }

    #[test]
    fn many_users_together_push_out_those_with_most() {
        let now = Instant::now();
        let mut line = Line::new(3, 6);
        for uid in [1, 2, 2, 2, 3, 4] {
            assert!(line.join(uid, uid, now).is_none());
        }
        assert_eq!(line.join(5, 5, now).unwrap().uid, 2);
        assert_eq!(line.join(6, 6, now).unwrap().uid, 2);
        assert_eq!(line.all().len(), 6);
    }

    #[test]
    fn who_waits_too_long_goes_and_the_deadline_is_the_oldest_ones() {
        let now = Instant::now();
        let mut line = Line::new(3, 6);
        assert_eq!(line.deadline(), None);
        line.join((), 1, now);
        line.join((), 2, now + PATIENCE / 2);
        assert_eq!(line.deadline(), Some(now + PATIENCE));
        assert_eq!(line.late(now + PATIENCE).iter().map(|one| one.uid).collect::<Vec<_>>(), [1]);
        assert_eq!(line.take(|one| one.uid == 2).len(), 1);
        assert!(line.all().is_empty());
    }
}
