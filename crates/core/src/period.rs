//! Where the iterations of a training run begin, from the stream of launches alone.
//!
//! Problem: nobody marks iterations. The stream starts with set-up and a first iteration unlike the others
//! (lazy initialisation), and later ones may have a few launches more or less (a skipped optimizer step, a loss
//! read now and then). Inside an iteration layers repeat too, dozens of times.
//! Idea: some launches happen once in each iteration: the embedding, the loss. They come *regularly*: their
//! distances in the second half of the stream, where warm-up is over, are nearly equal and cover it. A layer's
//! launches do not (many short distances and a long one), nor does what happens now and then (its distances
//! are regular, but few launches share them).
//!
//! ```text
//! a b b b c d d d a b b b c d d d a b b b c d d d      a and c come every 8, b and d do not come regularly
//! ```
//!
//! The distance that most launches agree on is the period, and how often they come is the number of iterations (some
//! come in set-up, too). Of those that agree on both, the one that comes first marks where each iteration begins.
//!
//! Invariants: boundaries rise; the same stream gives the same answer. Cost: a sort of the stream.
//! Limits: a stream without any launch that comes once in each iteration has no answer; micro-batches of equal
//! length with little between them are taken for iterations.
//! Not here: what an iteration cost. Boundaries are positions in the caller's list.

use std::collections::BTreeMap;

/// The iterations of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Period {
    /// Launches of one iteration.
    pub length: usize,
    /// Position of the first launch of each iteration. What comes before the first is set-up; the last
    /// iteration reaches to the end of the stream, and may be cut off.
    pub boundaries: Vec<usize>,
}

/// Whether two distances are the same but for a few launches more or less.
fn near(distance: usize, length: usize) -> bool {
    distance.abs_diff(length) * 10 <= length
}

/// Finds the iterations of a stream of launches, each given by what it is. Nothing if the stream does not repeat.
pub fn find(stream: &[u64]) -> Option<Period> {
    let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, &launch) in stream.iter().enumerate() {
        places.entry(launch).or_default().push(at);
    }
    let mut regular: Vec<(usize, Vec<usize>)> = places
        .into_values()
        .filter_map(|places| regular_distance(&places, stream.len()).map(|distance| (distance, places)))
        .collect();
    regular.sort_unstable();

    // The distance that most share; of equals the shortest. A window over the sorted distances counts.
    let (mut from, mut best) = (0, 0..0);
    for to in 0..regular.len() {
        while !near(regular[from].0, regular[to].0) {
            from += 1;
        }
        if to + 1 - from > best.len() {
            best = from..to + 1;
        }
    }
    // What also happens during set-up does not mark an iteration there.
    let marks = |(length, places): &(usize, Vec<usize>)| Period {
        length: *length,
        boundaries: (0..places.len())
            .filter(|n| places.get(n + 1).is_none_or(|next| (next - places[*n]) * 2 >= *length))
            .map(|n| places[n])
            .collect(),
    };
    let found: Vec<Period> = regular[best].iter().map(marks).collect();
    let mut agreeing: BTreeMap<usize, usize> = BTreeMap::new();
    for period in &found {
        *agreeing.entry(period.boundaries.len()).or_default() += 1;
    }
    let (iterations, _) = agreeing.into_iter().max_by_key(|&(iterations, launches)| (launches, iterations))?;
    found.into_iter().filter(|period| period.boundaries.len() == iterations).min_by_key(|period| period.boundaries[0])
}

/// The distance at which a launch comes back, if it does so regularly in the second half of a stream of `len`.
fn regular_distance(places: &[usize], len: usize) -> Option<usize> {
    let half = len / 2;
    let first = places.partition_point(|&at| at < half).max(1);
    let mut distances: Vec<usize> = (first..places.len()).map(|n| places[n] - places[n - 1]).collect();
    distances.sort_unstable();
    let total: usize = distances.iter().sum();
    // The distance in the middle of what all of them cover, so that many short ones do not outweigh a long one.
    let mut covered = 0;
    let middle = *distances.iter().find(|&&distance| {
        covered += distance;
        covered * 2 >= total
    })?;
    let (mut count, mut cover) = (0, 0);
    for &distance in distances.iter().filter(|&&distance| near(distance, middle)) {
        count += 1;
        cover += distance;
    }
    // Nearly all of its returns, and most of what there is to cover. A disturbed iteration is mostly still near;
    // only one without the launch, or with two, counts against it.
    let most = |part: usize, whole: usize, tenths: usize| part * 10 >= whole * tenths;
    (most(count, distances.len(), 8) && most(cover, total, 6) && most(total, len - half, 6)).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A step of a network: layers of equal launches, each layer's first telling them apart only every `layers`.
    fn step(layers: u64, optimizer: u64) -> Vec<u64> {
        let mut launches = vec![1000];
        launches.extend((0..layers).flat_map(|_| [1, 2, 3, 2, 4]));
        launches.push(1001);
        launches.extend((0..layers).flat_map(|_| [5, 6, 6, 7]));
        launches.extend((0..optimizer).map(|_| 8));
        launches
    }

    #[test]
    fn layers_and_a_tail_of_equal_launches_are_not_the_period() {
        let step = step(12, 40);
        let stream = step.repeat(5);
        let expected: Vec<usize> = (0..5).map(|n| n * step.len()).collect();
        assert_eq!(find(&stream), Some(Period { length: step.len(), boundaries: expected }));
    }

    #[test]
    fn set_up_and_a_first_iteration_with_more_in_it_come_before_the_steady_ones() {
        let step = step(6, 10);
        let mut stream: Vec<u64> = (5000..5100).collect();
        let first = stream.len();
        stream.extend(&step[..20]);
        stream.extend([6000, 6001, 6002]);
        stream.extend(&step[20..]);
        let second = stream.len();
        stream.extend(step.repeat(4));
        let found = find(&stream).unwrap();
        assert_eq!(found.length, step.len());
        assert_eq!(found.boundaries[..2], [first, second]);
        assert_eq!(found.boundaries.len(), 5);
    }

    #[test]
    fn a_skipped_optimizer_and_launches_now_and_then_are_borne() {
        let step = step(8, 16);
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for n in 0..12 {
            expected.push(stream.len());
            let kept = if n == 5 { step.len() - 16 } else { step.len() };
            stream.extend(&step[..kept]);
            if n % 5 == 4 {
                stream.push(7777);
            }
        }
        assert_eq!(find(&stream), Some(Period { length: step.len(), boundaries: expected }));
    }

    #[test]
    fn a_launch_that_set_up_makes_too_is_no_better_mark_for_it() {
        let step = step(8, 16);
        // The loss, the second mark of a step, also comes three times before the first.
        let mut stream = vec![5000, 1001, 5001, 1001, 5002, 1001, 5003];
        let expected: Vec<usize> = (0..6).map(|n| stream.len() + n * step.len()).collect();
        stream.extend(step.repeat(6));
        assert_eq!(find(&stream), Some(Period { length: step.len(), boundaries: expected }));
    }

    #[test]
    fn a_last_iteration_that_is_cut_off_still_begins() {
        let step = step(8, 4);
        let mut stream = step.repeat(4);
        stream.extend(&step[..10]);
        assert_eq!(find(&stream).unwrap().boundaries.len(), 5);
    }

    #[test]
    fn what_does_not_repeat_has_no_period() {
        assert_eq!(find(&(0..1000).collect::<Vec<u64>>()), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[1]), None);
    }

    /// Launches that come once in each iteration: more than there are others (12), so that others which happen to come twice
    /// at about half the distance are never the most.
    const MARKS: usize = 13;

    /// The shortest length at which the whole stream repeats, by trying each.
    fn oracle(stream: &[u64]) -> usize {
        (1..stream.len()).find(|&length| stream[length..] == stream[..stream.len() - length]).unwrap_or(stream.len())
    }

    proptest! {
        /// Against trying every length.
        #[test]
        fn the_period_is_the_one_found_by_trying_every_length(
            step in prop::collection::vec(0u64..12, 5..60),
            marks in prop::collection::btree_set(0usize..60, MARKS..20),
            iterations in 3usize..10,
        ) {
            let mut step = step;
            for (n, at) in marks.into_iter().enumerate() {
                step.insert(at % (step.len() + 1), 500 + n as u64);
            }
            let stream = step.repeat(iterations);
            prop_assert_eq!(find(&stream).map(|found| found.length), Some(oracle(&stream)));
        }

        /// Set-up before, and launches put in anywhere, do not hide the iterations.
        #[test]
        fn disturbed_streams_keep_their_iterations(
            step in prop::collection::vec(0u64..12, 20..60),
            warm_up in prop::collection::vec(900u64..940, 0..80),
            extra in prop::collection::vec((0usize..10_000, 100u64..110), 0..4),
            iterations in 5usize..12,
        ) {
            let mut marked: Vec<u64> = (500..).take(MARKS).collect();
            marked.extend(step);
            let (length, set_up) = (marked.len(), warm_up.len());
            let mut stream = warm_up;
            stream.extend(marked.repeat(iterations));
            for (at, launch) in extra {
                stream.insert(set_up + at % (stream.len() + 1 - set_up), launch);
            }
            let found = find(&stream);
            let found = found.as_ref().expect("each iteration is marked");
            prop_assert!(near(found.length, length), "{} for {}", found.length, length);
            let expected: Vec<usize> = (0..stream.len()).filter(|&at| stream[at] == stream[found.boundaries[0]]).collect();
            prop_assert_eq!(&found.boundaries, &expected);
            prop_assert_eq!(expected.len(), iterations);
        }

        /// With a launch of its own in each iteration, the iterations are found.
        #[test]
        fn a_marked_step_is_found_with_its_boundaries(
            step in prop::collection::vec(0u64..12, 5..60),
            iterations in 3usize..10,
        ) {
            let mut marked: Vec<u64> = (500..).take(MARKS).collect();
            marked.extend(step);
            let stream = marked.repeat(iterations);
            let expected: Vec<usize> = (0..iterations).map(|n| n * marked.len()).collect();
            prop_assert_eq!(find(&stream), Some(Period { length: marked.len(), boundaries: expected }));
        }
    }
}
