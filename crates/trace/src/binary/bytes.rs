//! Numbers and strings as bytes, and back.
//!
//! A number is seven bits a byte, lowest first, with the top bit set in all but the last byte; the last is not 0 unless it is the
//! only one, so that each number has one form. A difference modulo 2^64 is a number with the sign in its lowest bit.

/// What bytes must not say.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {value}: {allowed}")]
pub struct Wrong {
    /// Of what.
    pub what: &'static str,
    /// What they say.
    pub value: u64,
    /// What is allowed.
    pub allowed: &'static str,
}

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

const fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

/// Appends `to - from`.
pub(super) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

/// Appends a string: its length, and its bytes.
pub(super) fn put_string(out: &mut Vec<u8>, string: &str) {
    put(out, string.len() as u64);
    out.extend(string.as_bytes());
}

/// Bytes that are read from their front.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// From byte `at` of `bytes`.
    pub(super) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }
    /// How many bytes were read.
    pub(super) const fn at(&self) -> usize {
        self.at
    }
    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// The next bytes.
    pub(super) fn take(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], Wrong> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count));
        let allowed = "there are not so many bytes in the chunk";
        let taken = taken.ok_or(Wrong { what, value: count as u64, allowed })?;
        self.at += count;
        Ok(taken)
    }
    /// A number.
    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, Wrong> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(what, 1)? else { break };
            let bits = u64::from(byte & 0x7f);
            let fits = bits << shift >> shift == bits;
            number |= bits << shift;
            if byte & 0x80 == 0 && fits && (bits != 0 || shift == 0) {
                return Ok(number);
            }
            if byte & 0x80 == 0 || !fits {
                break;
            }
        }
        Err(Wrong { what, value: number, allowed: "a number is below 2^64 and as short as it can be" })
    }
    /// A number that is at most `most`.
    pub(super) fn at_most(&mut self, what: &'static str, most: u64, allowed: &'static str) -> Result<u64, Wrong> {
        let value = self.number(what)?;
        if value > most { Err(Wrong { what, value, allowed }) } else { Ok(value) }
    }
    /// The number that differs from `from` by what is there.
    pub(super) fn difference(&mut self, what: &'static str, from: u64) -> Result<u64, Wrong> {
        let number = self.number(what)?;
        Ok(from.wrapping_add((number >> 1) ^ (number & 1).wrapping_neg()))
    }
    /// How many things follow, each of at least one byte.
    pub(super) fn count(&mut self, what: &'static str) -> Result<usize, Wrong> {
        let count = self.number(what)?;
        let fits = usize::try_from(count).ok().filter(|&count| count <= self.left());
        fits.ok_or(Wrong { what, value: count, allowed: "there are not so many bytes in the chunk" })
    }
    /// A string.
    pub(super) fn string(&mut self, what: &'static str) -> Result<Box<str>, Wrong> {
        let count = self.count(what)?;
        let bytes = self.take(what, count)?;
        let wrong = |_| Wrong { what, value: count as u64, allowed: "its bytes must be UTF-8" };
        std::str::from_utf8(bytes).map(Box::from).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, number);
        out
    }

    #[test]
    fn a_number_has_seven_bits_a_byte_and_one_form() {
        let forms: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            // 300 = 2 * 128 + 44.
            (300, &[0x80 | 44, 2]),
            (1 << 63, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ];
        for (number, form) in forms {
            assert_eq!(bytes_of(number), form);
            assert_eq!(Cursor::new(form, 0).number("n"), Ok(number));
        }
        let wrong: [&[u8]; 5] =
            [&[], &[0x80], &[0x80, 0], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]];
        for form in wrong {
            assert!(Cursor::new(form, 0).number("n").is_err(), "{form:?}");
        }
    }

    #[test]
    fn a_difference_has_its_sign_in_the_lowest_bit_and_wraps() {
        for (from, to, form) in
            [(5, 5, 0), (5, 4, 1), (5, 6, 2), (0, u64::MAX, 1), (u64::MAX, 0, 2), (0, 1 << 63, u64::MAX)]
        {
            let mut out = Vec::new();
            put_difference(&mut out, from, to);
            assert_eq!(out, bytes_of(form));
            assert_eq!(Cursor::new(&out, 0).difference("d", from), Ok(to));
        }
    }

    #[test]
    fn no_length_is_believed() {
        let long = bytes_of(u64::MAX);
        assert!(Cursor::new(&long, 0).string("s").is_err() && Cursor::new(&long, 0).count("c").is_err());
        assert!(Cursor::new(&[2, b'a'], 0).string("s").is_err());
        assert!(Cursor::new(&[1, 0xff], 0).string("s").is_err());
        assert_eq!(Cursor::new(&[9, 2, b'a', b'b'], 1).string("s"), Ok("ab".into()));
    }
}
