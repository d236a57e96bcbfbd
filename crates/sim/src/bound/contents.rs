//! What has to be somewhere, and from when to when: the contents of tensors, by kernels.
//!
//! *Contents* are what a tensor holds from a use that needs nothing of what was there before, to the last use before the next such. An
//! intermediate begins anew in each iteration; a kernel that overwrites a tensor without reading it begins anew, too; in between all is
//! needed, on the GPU or on the host. A global that nothing overwrites is needed for ever: one iteration of it is looked at, from a use to the
//! same use one iteration later.
//!
//! Contents that need one copy on the host, however often they leave, are a *version*. With copies kept that is from a kernel that
//! writes the tensor to the next that does; with moves alone, from any use to the next. What no kernel ever writes has had its copy since
//! before the first iteration.
//!
//! Kernels are numbered on through the following iteration: kernel `k` of `n` is kernel `k + n` there.

use deepum_core::units::Bytes;
use deepum_trace::program::{Life, Program, TensorId};

/// A kernel touches a tensor.
#[derive(Clone, Copy, Debug)]
struct Use {
    kernel: usize,
    reads: bool,
    writes: bool,
}

/// What a tensor holds from one use to another.
#[derive(Debug)]
pub(super) struct Contents {
    uses: Vec<Use>,
    /// The last use is the first one, an iteration later.
    forever: bool,
}

/// From a use to the next one: two kernels.
pub(super) type Pair = (usize, usize);

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
        uses.chunk_by(|_, next| !overwrites(next)).map(|uses| Self { uses: uses.to_vec(), forever }).collect()
    }

    /// Its versions, each by its idle times; and whether a copy was always there.
    pub fn versions(&self, copies_kept: bool) -> Vec<(bool, Vec<Pair>)> {
        let always = copies_kept && self.forever && !self.uses.iter().any(|one| one.writes);
        let mut versions: Vec<(bool, Vec<Pair>)> = Vec::new();
        for pair in self.uses.windows(2) {
            let kernels = (pair[0].kernel, pair[1].kernel);
            match versions.last_mut() {
                Some((_, idles)) if copies_kept && !pair[0].writes => idles.push(kernels),
                _ => versions.push((always, vec![kernels])),
            }
        }
        versions
    }
}

/// What is needed while each kernel runs, on the GPU or on the host: what it touches, and what is needed later.
pub(super) fn live(program: &Program) -> Vec<Bytes> {
    let kernels = program.kernels().len();
    let mut change = vec![0i128; 2 * kernels + 1];
    for id in program.ids() {
        let bytes = i128::from(program.tensor(id).size.0);
        for Contents { uses, forever } in Contents::of(program, id) {
            let (first, last) = (uses[0].kernel, uses[uses.len() - 1].kernel);
            change[first] += bytes;
            change[last + usize::from(!forever)] -= bytes;
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

    fn versions(life: Life, kernels: &str, copies_kept: bool) -> Vec<(bool, Vec<Pair>)> {
        let contents = Contents::of(&program(life, kernels), TensorId(0));
        contents.iter().flat_map(|contents| contents.versions(copies_kept)).collect()
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
}
