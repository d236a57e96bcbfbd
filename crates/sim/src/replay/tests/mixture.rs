//! Experts that are drawn anew for each token.

use super::*;
use deepum_core::mix::Mix;

const LAYERS: usize = 8;
const EXPERTS: usize = 8;
const TOKENS: usize = 120;
/// The first ones, in which it is learned who is drawn how often, are not counted.
const LEARNED: usize = 60;

/// Of each token, two experts of each layer, the first ones more often: weights 1, 1/2, … 1/8.
fn draw() -> Vec<Vec<usize>> {
    let weights = (1..=EXPERTS).map(|n| 1.0 / n as f64);
    let all: f64 = weights.clone().sum();
    let mut random = (0u64..).map(|n| Mix::new().word(n).end() as f64 / u64::MAX as f64);
    let mut one = || {
        let mut left = all * random.next().expect("it never ends");
        let is_it = |weight: f64| {
            left -= weight;
            left < 0.0
        };
        weights.clone().position(is_it).unwrap_or(EXPERTS - 1)
    };
    let mut layer = |layer: usize| {
        let first = one();
        let second = std::iter::repeat_with(&mut one).find(|&other| other != first).expect("it never ends");
        [first.min(second), first.max(second)].map(|expert| layer * EXPERTS + expert)
    };
    (0..TOKENS).map(|_| (0..LAYERS).flat_map(&mut layer).collect()).collect()
}

/// Experts that are missing, where so many are kept: those that `last` says are needed last go.
fn missing(tokens: &[Vec<usize>], kept: usize, last: impl Fn(&[usize]) -> usize) -> usize {
    let (mut there, mut missing) = (Vec::new(), 0);
    for (token, experts) in tokens.iter().enumerate() {
        for &expert in experts {
            if let Some(at) = there.iter().position(|&other| other == expert) {
                there.remove(at);
            } else {
                missing += usize::from(token >= LEARNED);
                if there.len() == kept {
                    there.remove(last(&there));
                }
            }
            there.push(expert);
        }
    }
    missing
}

#[test]
fn of_experts_that_are_drawn_those_drawn_most_often_stay() {
    let tokens = draw();
    let mut does = vec![Does::Alloc(AddrRange::new(DevAddr(BASE), Bytes::mib(8 * 72)))];
    does.extend((0..72).map(|n| Does::PtBlock { range: tensor(n), active: true }));
    for experts in &tokens {
        does.push(Does::Iteration);
        for (layer, drawn) in experts.chunks(2).enumerate() {
            let common = 64 + layer as u64;
            let of_layer = |n: u32| short(launch(1000 + 100 * u32::try_from(layer).unwrap() + n, &[common]));
            does.extend((0..16).map(of_layer));
            for &expert in drawn {
                does.push(short(launch(u32::try_from(expert).unwrap(), &[expert as u64])));
                does.push(of_layer(20));
            }
        }
    }
    does.push(Does::Iteration);
    let replayed = run(&script(does), PolicyName::Horizon, Bytes::mib(8 * 40));
    let bytes: u64 = replayed.iterations[LEARNED..].iter().map(|iteration| iteration.totals.bytes_in.total().0).sum();
    let brought = usize::try_from(bytes / Bytes::mib(8).0).unwrap();
    // Beside what each token needs there is room for 32, and for 28 where 16 blocks are left free.
    let used_longest_ago = missing(&tokens, 32, |_| 0);
    let least_often = |there: &[usize]| (0..there.len()).max_by_key(|&at| there[at] % EXPERTS);
    let drawn_least_often = missing(&tokens, 28, |there| least_often(there).expect("it is full"));
    assert!(brought < used_longest_ago, "{brought}, {used_longest_ago}");
    assert!(brought * 10 < drawn_least_often * 11, "{brought}, {drawn_least_often}");
}
