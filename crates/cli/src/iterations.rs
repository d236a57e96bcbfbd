//! Where a run's iterations begin and end in its launch log.
//!
//! Nobody marks them. Where it is not known how many there were, the stream's own period tells (`deepum_core::period`). Where it is
//! known, a *mark* is a launch that happens exactly once in each: one identity as often as there are iterations, at equal distances where
//! warm-up is over. Most marks' distance is the length of an iteration, and the first of those is the one that counts.
//!
//! ```text
//! set-up |  a . . M . . b  |  a . . M . . b  |  a . . M . . b |      the mark may lie anywhere in an iteration
//!         <-head->            <-head->          <-head-> <tail>
//! ```
//!
//! The last iteration ends where the stream does, so what lies behind its mark is its tail, and the rest of its length comes before each mark: its
//! head. What a first iteration does more (a lazy optimizer) lies behind its mark and moves nothing.

use deepum_core::period;

/// Positions at which iterations begin, and the end of the last: one more than there are iterations, or none if they cannot be told
/// apart. `known`: how many there were.
pub fn bounds(stream: &[u64], known: Option<usize>) -> Vec<usize> {
    match known {
        Some(count) => marked(stream, count).unwrap_or_default(),
        None => periodic(stream),
    }
}

fn periodic(stream: &[u64]) -> Vec<usize> {
    let Some(period) = period::find(stream) else { return Vec::new() };
    let mut bounds = period.boundaries;
    // The last iteration counts if the run did not break off in it.
    if bounds.last().is_some_and(|last| (stream.len() - last) * 10 >= period.length * 9) {
        bounds.push(stream.len());
    }
    bounds
}

/// The same but for a few launches more or less.
fn near(distance: usize, length: usize) -> bool {
    distance.abs_diff(length) * 10 <= length
}

fn marked(stream: &[u64], count: usize) -> Option<Vec<usize>> {
    let mut places: Vec<(u64, usize)> = stream.iter().enumerate().map(|(at, &launch)| (launch, at)).collect();
    places.sort_unstable();
    let mut marks: Vec<(usize, Vec<usize>)> = places
        .chunk_by(|one, other| one.0 == other.0)
        .filter(|same| same.len() == count)
        .map(|same| same.iter().map(|(_, at)| *at).collect())
        .filter_map(|places: Vec<usize>| Some((length(&places)?, places)))
        .collect();
    marks.sort_unstable_by_key(|(length, places)| (places[0], *length));
    let agreeing = |length: usize| marks.iter().filter(|(other, _)| near(*other, length)).count();
    let most = marks.iter().map(|(length, _)| agreeing(*length)).max()?;
    let (length, places) = marks.iter().find(|(length, _)| agreeing(*length) == most)?;
    let tail = stream.len() - places[count - 1];
    // A mark in front may be followed by a little more than others are; one with much more behind it marks no iterations.
    if tail > length + length / 10 {
        return None;
    }
    let head = length.saturating_sub(tail);
    let begins: Option<Vec<usize>> = places.iter().map(|mark| mark.checked_sub(head)).collect();
    Some(begins?.into_iter().chain([stream.len()]).collect())
}

/// How far marks at `places` are apart: the last distance, if those of the second half, where warm-up is over, are all near it. A stream
/// of one iteration has none.
fn length(places: &[usize]) -> Option<usize> {
    let distances: Vec<usize> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let last = *distances.last()?;
    distances[(distances.len() - 1) / 2..].iter().all(|distance| near(*distance, last)).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An iteration of ten launches, of which only the fifth happens once in it.
    const STEP: [u64; 10] = [1, 2, 1, 2, 50, 3, 4, 3, 4, 3];

    fn stream(set_up: u64, iterations: usize) -> Vec<u64> {
        (100..100 + set_up).chain(STEP.repeat(iterations)).collect()
    }

    #[test]
    fn a_mark_in_the_middle_tells_all_iterations_where_their_number_is_known() {
        let stream = stream(7, 6);
        assert_eq!(bounds(&stream, Some(6)), [7, 17, 27, 37, 47, 57, 67]);
        assert_eq!(bounds(&stream, None).len(), 6, "by itself it tells five, from mark to mark");
        assert_eq!(bounds(&stream[..27], Some(2)), [7, 17, 27]);
    }

    #[test]
    fn another_number_than_there_were_is_not_told() {
        let stream = stream(7, 6);
        for wrong in [0, 1, 2, 4, 5, 7] {
            assert_eq!(bounds(&stream, Some(wrong)), Vec::<usize>::new(), "{wrong}");
        }
        assert_eq!(bounds(&[], Some(6)), Vec::<usize>::new());
    }

    #[test]
    fn what_a_first_iteration_does_more_behind_its_mark_moves_no_beginning() {
        let mut stream = stream(0, 5);
        stream.splice(8..8, 200..206);
        assert_eq!(bounds(&stream, Some(5)), [0, 16, 26, 36, 46, 56]);
    }

    #[test]
    fn launches_that_only_happen_as_often_do_not_outvote_the_marks() {
        // Twice each, but in set-up, or not as far apart as iterations are.
        let mut stream = vec![60, 61, 60, 61, 9, 9];
        let marked = [70, 1, 1, 71, 2, 2, 72, 3, 3, 73];
        stream.extend(marked.repeat(2));
        assert_eq!(bounds(&stream, Some(2)), [6, 16, 26]);
    }

    #[test]
    fn a_stream_that_goes_on_long_after_its_last_mark_is_not_told() {
        let mut stream = stream(7, 6);
        stream.extend(300..320);
        assert_eq!(bounds(&stream, Some(6)), Vec::<usize>::new());
    }
}
