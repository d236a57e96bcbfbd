//! One stable 64-bit mix, for launch keys and for every map of this crate.
//!
//! Problem: keys must be equal in every run and on every machine (tables are compared between
//! runs, traces outlive processes), and a launch has under 60 ns for its key. The standard and
//! `ahash` hashers are seeded or differ by processor.
//! Idea: multiply to 128 bits and fold the halves together, one multiplication a word, as the
//! wyhash family does. The constants are the first odd 64-bit pieces of the fractions of √2 and √3.
//! Not here: any defence against chosen input. Keys come from the program we help.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

const STEP: u64 = 0x6a09_e667_f3bc_c909;
const LAST: u64 = 0xbb67_ae85_84ca_a73b;

/// The low and the high half of `a * b`, exclusive-or.
const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128) * (b as u128);
    let [low, high] = [wide & u64::MAX as u128, wide >> 64];
    // Both halves are below 2^64 by construction.
    #[allow(clippy::cast_possible_truncation, reason = "the halves of a u128")]
    {
        (low as u64) ^ (high as u64)
    }
}

/// Mixes a sequence of words into one. The order of the words matters, and so does their number.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    state: u64,
    words: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Self::new()
    }
}

impl Mix {
    /// Nothing mixed in yet.
    pub const fn new() -> Self {
        Self { state: LAST, words: 0 }
    }
    /// Mixes in one word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u64) -> Self {
        // `rotate` keeps a zero product from forgetting how many words came before it.
        Self { state: fold(self.state ^ word, STEP).rotate_left(23) ^ self.state, words: self.words + 1 }
    }
    /// Mixes in bytes, eight to a word, and their number, so that `ab`,`c` differs from `a`,`bc`.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut mix = self;
        for word in words {
            mix = mix.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix.word(u64::from_le_bytes(last)).word(bytes.len() as u64)
    }
    /// The mixed word.
    #[inline]
    pub const fn end(self) -> u64 {
        fold(self.state ^ self.words, LAST)
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.end()
    }
    fn write(&mut self, bytes: &[u8]) {
        *self = self.bytes(bytes);
    }
    fn write_u64(&mut self, word: u64) {
        *self = self.word(word);
    }
    fn write_u32(&mut self, word: u32) {
        *self = self.word(u64::from(word));
    }
}

/// A hash map whose behaviour is the same in every run.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;
/// A hash set whose behaviour is the same in every run.
pub type Set<K> = HashSet<K, BuildHasherDefault<Mix>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_number_and_split_of_the_input_matter() {
        let [a, b] = [Mix::new().word(1).word(2), Mix::new().word(2).word(1)].map(Mix::end);
        assert_ne!(a, b);
        assert_ne!(Mix::new().word(0).end(), Mix::new().word(0).word(0).end());
        assert_ne!(Mix::new().bytes(b"ab").bytes(b"c").end(), Mix::new().bytes(b"a").bytes(b"bc").end());
    }

    #[test]
    fn a_million_near_keys_do_not_collide_and_fill_the_low_bits() {
        let mut seen = Set::default();
        let mut low = vec![0u32; 1024];
        for n in 0..1_000_000u64 {
            let key = Mix::new().word(n << 21).word(7).end();
            assert!(seen.insert(key), "collision at {n}");
            low[usize::try_from(key % 1024).unwrap()] += 1;
        }
        // 976 expected in each of 1,024 buckets, standard deviation 31: ten of them either way.
        assert!(low.iter().all(|&n| (666..1290).contains(&n)), "low bits are uneven");
    }

    #[test]
    fn one_flipped_bit_flips_about_half_of_the_result() {
        let mut flips = 0;
        for n in 0..1000u64 {
            for bit in 0..64 {
                flips += (Mix::new().word(n).end() ^ Mix::new().word(n ^ (1 << bit)).end()).count_ones();
            }
        }
        let mean = f64::from(flips) / 64_000.0;
        assert!((30.0..34.0).contains(&mean), "mean of flipped bits: {mean}");
    }
}
