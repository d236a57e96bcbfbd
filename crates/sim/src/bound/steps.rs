//! The iteration cut into steps, and what its bytes may do in them.
//!
//! Kernel `k` starts at *moment* `2k` and ends at `2k + 1`. A *step* begins at a moment and goes on to where the next one begins. Contents that
//! are idle between kernels `u` and `v` can be away at the moments in between; so their bytes leave in the step of moment `2u + 1`
//! at the earliest, and are back in that of `2v - 1` at the latest. What is only held has not to be back; it is away up to the moment `2h + 1` at which the last kernel
//! ends while which it is held. Cut at all moments nothing is lost; cut at fewer of them, order within a step is.
//!
//! Steps are numbered on through the following iteration, as kernels are: step `s` of `n` is step `s + n` there. Versions with the same
//! steps are one: what is proven of a byte adds up.

use super::contents::{Contents, Pair, Served, live, needed};
use deepum_core::units::{Bytes, Nanos};
use deepum_trace::program::{Kernel, Program};
use std::collections::BTreeMap;

/// When the bytes of some contents can cross the link, between two uses or after the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Idle {
    /// The first step.
    pub from: usize,
    /// The last step, after `from`. Bytes can be away at the beginnings of `from + 1..=to`.
    pub to: usize,
    /// Whether they have to come back by the end of it.
    pub returns: bool,
}

/// Contents that need at most one copy on the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Version {
    /// The first step in which they can be copied; none if the copy was always there.
    pub copied: Option<usize>,
    /// When they are idle, ascending; the step in which one ends may be that in which the next begins. They come back from all but the last.
    pub idles: Vec<Idle>,
}

/// What a byte of a version does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Story {
    /// The step in which it is copied to the host, if it has to be.
    pub copied: Option<usize>,
    /// When it is away.
    pub away: Vec<Away>,
}

/// Away at the beginnings of some steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Away {
    /// The first of them.
    pub first: usize,
    /// The last of them.
    pub last: usize,
    /// Whether it is fetched in that last one.
    pub returns: bool,
}

impl Version {
    /// Of these idle times; none if they are too short for these steps.
    fn new(Served { always, idles, end }: &Served, step: impl Fn(usize) -> usize) -> Option<Self> {
        let idle = |returns| {
            let step = &step;
            move |&(before, after): &Pair| Idle { from: step(2 * before + 1), to: step(2 * after - 1), returns }
        };
        let (first, _) = idles.first().or(end.as_ref())?;
        let copied = (!always).then(|| step(2 * first + 1));
        let idles = idles.iter().map(idle(true)).chain(end.iter().map(idle(false)));
        let idles: Vec<_> = idles.filter(|idle| idle.from < idle.to).collect();
        (!idles.is_empty()).then_some(Self { copied, idles })
    }
    /// Away as much as can be: copied at once, fetched as late as possible, every time.
    pub fn widest(&self) -> Story {
        let away = |idle: &Idle| Away { first: idle.from + 1, last: idle.to, returns: idle.returns };
        Story { copied: self.copied, away: self.idles.iter().map(away).collect() }
    }
}

/// An iteration in steps.
#[derive(Debug)]
pub(super) struct Steps {
    /// How long the kernels of each take.
    pub times: Vec<Nanos>,
    /// What is kept at the beginning of each, on the GPU or on the host.
    pub live: Vec<Bytes>,
    /// The versions that can be away at the beginning of a step, and how many bytes have them.
    pub versions: Vec<(Version, Bytes)>,
}

impl Steps {
    /// Those that begin at these moments, ascending; the first is moment 0.
    pub fn new(program: &Program, copies_kept: bool, moments: &[usize]) -> Self {
        let all = 2 * program.kernels().len();
        let step =
            |moment: usize| moments.partition_point(|&begin| begin <= moment % all) - 1 + moment / all * moments.len();
        let mut times = vec![Nanos::ZERO; moments.len()];
        for (number, kernel) in program.kernels().iter().enumerate() {
            times[step(2 * number)] += kernel.time;
        }
        let mut versions = BTreeMap::new();
        for id in program.ids() {
            let contents = Contents::of(program, id);
            for served in contents.iter().flat_map(|contents| contents.versions(copies_kept)) {
                if let Some(version) = Version::new(&served, step) {
                    *versions.entry(version).or_insert(Bytes::ZERO) += program.tensor(id).size;
                }
            }
        }
        let live = live(program);
        let live = moments.iter().map(|&moment| live[moment / 2]).collect();
        Self { times, live, versions: versions.into_iter().collect() }
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.times.len()
    }
}

/// At most this many moments to cut at. All, if they are so few. Else the iteration is shared out evenly by what its kernels take and touch, and of
/// each share it is the start and the end of the kernel while which most is needed. What is only held does not count: it is easily away, and room is seldom short for it.
pub(super) fn cuts(program: &Program, most: usize) -> Vec<usize> {
    let kernels = program.kernels();
    if 2 * kernels.len() <= most {
        return (0..2 * kernels.len()).collect();
    }
    let touches = |kernel: &Kernel| kernel.touches().into_iter().map(|id| u128::from(program.tensor(id).size.0)).sum();
    let touches: Vec<u128> = kernels.iter().map(touches).collect();
    let (time, touched) = (u128::from(program.ideal().0).max(1), touches.iter().sum::<u128>().max(1));
    let (needed, shares) = (needed(program), (most - 1) / 2);
    let share = 2 * time * touched / shares as u128 + 1;
    let mut peaks = vec![None; shares];
    let mut passed = 0u128;
    for (number, kernel) in kernels.iter().enumerate() {
        let share = usize::try_from(passed / share).unwrap_or(usize::MAX).min(shares - 1);
        if peaks[share].is_none_or(|peak: usize| needed[number] > needed[peak]) {
            peaks[share] = Some(number);
        }
        passed += u128::from(kernel.time.0) * touched + touches[number] * time;
    }
    let peaks = peaks.into_iter().flatten().flat_map(|peak| [2 * peak, 2 * peak + 1]);
    [0].into_iter().chain(peaks.filter(|&moment| moment > 0)).collect()
}
