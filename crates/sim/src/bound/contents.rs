//! What has to be somewhere, and from when to when: the contents of tensors, by kernels.
//!
//! *Contents* are what a tensor holds from a use that needs nothing of what was there before, to the last use before the next such. An
//! intermediate begins anew in each iteration; a kernel that overwrites a tensor without reading it begins anew, too; in between all is
//! needed, on the GPU or on the host. A global that nothing overwrites is needed for ever: one iteration of it is looked at, from a use to the
//! same use one iteration later. What an intermediate holds last is kept after its last use, too, for as long as the program holds it; nobody needs it back on
//! the GPU then.
//!
//! Contents that need one copy on the host, however often they leave, are a *version*. With copies kept that is from a kernel that
//! writes the tensor to the next that does; with moves alone, from any use to the next. What no kernel ever writes has had its copy since
//! before the first iteration.
//!
//! Kernels are numbered on through the following iteration: kernel `k` of `n` is kernel `k + n` there.

use deepum_core::units::Bytes;
use deepum_trace::program::{Life, Program, TensorId};
use std::ops::RangeInclusive;

/// A kernel touches a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub kernel: usize,
    reads: bool,
    pub writes: bool,
}

/// What a tensor holds from one use to another.
#[derive(Debug)]
pub(super) struct Contents {
    pub uses: Vec<Use>,
    /// The last use is the first one, an iteration later.
    forever: bool,
    /// The last kernel while which it has to be kept, if that is after the last use.
    held: Option<usize>,
}

/// From a use to the next one: two kernels.
pub(super) type Pair = (usize, usize);

/// What one copy serves.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Served {
    /// Whether the copy was always there.
    pub always: bool,
    /// Its idle times.
    pub idles: Vec<Pair>,
    /// After those: from the last use to the first kernel for which it need not be kept.
    pub end: Option<Pair>,
}

impl Contents {
    /// All that this tensor holds in one iteration.
    pub fn of(program: &Program, id: TensorId) -> Vec<Self> {
        let kernels = program.kernels();
        let one = |&kernel: &u32| {
            let kernel = kernel as usize;
            Use { kernel, reads: kernels[kernel].reads.contains(&id), writes: kernels[kernel].writes.contains(&id) }
        };
        let overwrites = |one: &Use| one.writes && !one.reads;
        let mut uses: Vec<Use> = program.uses(id).iter().map(one).collect();
        let mut forever = false;
        if program.tensor(id).life == Life::Global && !uses.is_empty() {
            // Begins where something new begins: contents if that can be, else a version.
            let begin =
                uses.iter().position(overwrites).or_else(|| uses.iter().position(|one| one.writes)).unwrap_or(0);
            uses.rotate_left(begin);
            let next_iteration = uses.len() - begin;
            for one in &mut uses[next_iteration..] {
                one.kernel += kernels.len();
            }
            forever = !overwrites(&uses[0]);
            if forever {
                uses.push(Use { kernel: uses[0].kernel + kernels.len(), ..uses[0] });
            }
        }
        let chunks = uses.chunk_by(|_, next| !overwrites(next));
        let mut all: Vec<_> = chunks.map(|uses| Self { uses: uses.to_vec(), forever, held: None }).collect();
        if let Some(last) = all.last_mut().filter(|_| program.tensor(id).life == Life::Intermediate) {
            last.held = program.hold(id).map(|hold| hold as usize).filter(|&hold| hold > last.last());
        }
        all
    }

    /// The kernel that uses it last.
    fn last(&self) -> usize {
        self.uses[self.uses.len() - 1].kernel
    }
    /// From the first kernel that uses it to the last while which it is kept.
    pub fn kept(&self) -> RangeInclusive<usize> {
        self.uses[0].kernel..=self.held.unwrap_or(self.last())
    }

    /// Its versions.
    pub fn versions(&self, copies_kept: bool) -> Vec<Served> {
        let always = copies_kept && self.forever && !self.uses.iter().any(|one| one.writes);
        let mut versions: Vec<Served> = Vec::new();
        for (at, one) in self.uses.iter().enumerate() {
            let next = self.uses.get(at + 1).map(|next| (one.kernel, next.kernel));
            let end = self.held.filter(|_| next.is_none()).map(|held| (one.kernel, held + 1));
            match versions.last_mut() {
                _ if next.is_none() && end.is_none() => {}
                Some(version) if copies_kept && !one.writes => {
                    version.idles.extend(next);
                    version.end = end;
                }
                _ => versions.push(Served { always, idles: next.into_iter().collect(), end }),
            }
        }
        versions
    }
}

/// What is kept while each kernel runs, on the GPU or on the host: what it touches, what is needed later, and what is held.
pub(super) fn live(program: &Program) -> Vec<Bytes> {
    by_kernel(program, |contents| *contents.kept().end())
}

/// The same without what is only held.
pub(super) fn needed(program: &Program) -> Vec<Bytes> {
    by_kernel(program, Contents::last)
}

/// All contents from their first use to the last kernel that counts.
fn by_kernel(program: &Program, last: impl Fn(&Contents) -> usize) -> Vec<Bytes> {
    let kernels = program.kernels().len();
    let mut change = vec![0i128; 2 * kernels + 1];
    for id in program.ids() {
        let bytes = i128::from(program.tensor(id).size.0);
        for contents in Contents::of(program, id) {
            change[contents.uses[0].kernel] += bytes;
            change[last(&contents) + usize::from(!contents.forever)] -= bytes;
        }
    }
    let mut now = 0;
    let mut live = vec![0; kernels];
    for (kernel, change) in change[..2 * kernels].iter().enumerate() {
        now += change;
        live[kernel % kernels] += now;
    }
    live.into_iter().map(|live| Bytes(u64::try_from(live).unwrap_or(u64::MAX))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::Nanos;
    use deepum_trace::program::{Kernel, Tensor};

    /// One tensor of 8 bytes; each kernel reads it (`r`), writes it (`w`), does both (`b`), or neither.
    fn program(life: Life, kernels: &str) -> Program {
        let one = |holds: bool| if holds { vec![TensorId(0)] } else { Vec::new() };
        let kernel = |how: char| Kernel {
            name: "k".into(),
            time: Nanos(1),
            reads: one("rb".contains(how)),
            writes: one("wb".contains(how)),
        };
        Program::new(kernels.chars().map(kernel).collect(), vec![Tensor { size: Bytes(8), life }]).unwrap()
    }

    fn served(program: &Program, copies_kept: bool) -> Vec<Served> {
        let contents = Contents::of(program, TensorId(0));
        contents.iter().flat_map(|contents| contents.versions(copies_kept)).collect()
    }

    fn versions(life: Life, kernels: &str, copies_kept: bool) -> Vec<(bool, Vec<Pair>)> {
        let served = served(&program(life, kernels), copies_kept);
        assert!(served.iter().all(|version| version.end.is_none()));
        served.into_iter().map(|version| (version.always, version.idles)).collect()
    }

    #[test]
    fn moves_alone_need_a_copy_each_time() {
        assert_eq!(versions(Life::Intermediate, ".w.r.r", false), [(false, vec![(1, 3)]), (false, vec![(3, 5)])]);
        assert_eq!(versions(Life::Global, ".r.r", false), [(false, vec![(1, 3)]), (false, vec![(3, 5)])]);
    }

    #[test]
    fn kept_copies_last_from_one_writer_to_the_next() {
        assert_eq!(
            versions(Life::Intermediate, ".w.r.b.r", true),
            [(false, vec![(1, 3), (3, 5)]), (false, vec![(5, 7)])]
        );
        // From the update in kernel 3 over the end of the iteration.
        assert_eq!(versions(Life::Global, ".r.b", true), [(false, vec![(3, 5), (5, 7)])]);
        assert_eq!(versions(Life::Global, ".r.r", true), [(true, vec![(1, 3), (3, 5)])]);
    }

    #[test]
    fn what_is_overwritten_unread_need_not_be_anywhere() {
        assert_eq!(versions(Life::Intermediate, "wr.w.r", true), [(false, vec![(0, 1)]), (false, vec![(3, 5)])]);
        assert_eq!(live(&program(Life::Intermediate, "wr.w.r.")), [8, 8, 0, 8, 8, 8, 0].map(Bytes));
        // Needed from kernel 2 on, and at the beginning of the next iteration; not between kernels 0 and 2.
        assert_eq!(live(&program(Life::Global, "r.w.")), [8, 0, 8, 8].map(Bytes));
        assert_eq!(live(&program(Life::Global, "..b.")), [8; 4].map(Bytes));
        assert_eq!(live(&program(Life::Global, "....")), [0; 4].map(Bytes));
    }

    #[test]
    fn what_is_held_is_kept_after_the_last_use() {
        let held = |kernels, hold| program(Life::Intermediate, kernels).with_holds([Some(hold)]);
        let version = |idles: &[Pair], end| Served { always: false, idles: idles.to_vec(), end };
        // The copy that serves the idle time serves the end, too, unless the last use writes.
        assert_eq!(served(&held(".w.r..", 4), true), [version(&[(1, 3)], Some((3, 5)))]);
        assert_eq!(served(&held(".w.b..", 4), true), [version(&[(1, 3)], None), version(&[], Some((3, 5)))]);
        assert_eq!(served(&held(".w.r..", 4), false), [version(&[(1, 3)], None), version(&[], Some((3, 5)))]);
        assert_eq!(served(&held(".w....", 2), true), [version(&[], Some((1, 3)))]);
        assert_eq!(live(&held(".w.r..", 4)), [0, 8, 8, 8, 8, 0].map(Bytes));
        // No longer than to the last use is not at all; into the next iteration it is up to where it is made anew.
        assert_eq!(served(&held(".w.r..", 3), true), [version(&[(1, 3)], None)]);
        assert_eq!(served(&held("..r...", 99), true), [version(&[], Some((2, 8)))]);
        assert_eq!(live(&held("..r...", 7)), [8, 8, 8, 8, 8, 8].map(Bytes));
        assert_eq!(live(&held("..r...", 6)), [8, 0, 8, 8, 8, 8].map(Bytes));
    }
}
