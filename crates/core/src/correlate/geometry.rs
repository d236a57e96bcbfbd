//! The size of a UM-block table, and how people write it.

use std::fmt;
use std::str::FromStr;

/// Rows, ways and successors of each UM-block table.
///
/// Text form: `rows,ways,successors`, as in `2048,2,4`, which is the default and the configuration the
/// paper settles on (DeepUM, ASPLOS'23, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    rows: u32,
    ways: u32,
    successors: u32,
}

/// Why a geometry was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Not three numbers.
    #[error("`{0}` is not `rows,ways,successors`, such as 2048,2,4")]
    Form(String),
    /// Rows are found by the low bits of the block number.
    #[error("{0} rows: must be a power of two from 1 to 65536")]
    Rows(u32),
    /// Blocks that share a row.
    #[error("{0} ways: must be from 1 to 16")]
    Ways(u32),
    /// Successors kept of each block.
    #[error("{0} successors: must be from 1 to 16")]
    Successors(u32),
}

impl Geometry {
    /// A geometry within limits.
    ///
    /// # Errors
    /// Names the number that is out of its limits.
    pub const fn new(rows: u32, ways: u32, successors: u32) -> Result<Self, GeometryError> {
        if !rows.is_power_of_two() || rows > 65536 {
            return Err(GeometryError::Rows(rows));
        }
        if ways == 0 || ways > 16 {
            return Err(GeometryError::Ways(ways));
        }
        if successors == 0 || successors > 16 {
            return Err(GeometryError::Successors(successors));
        }
        Ok(Self { rows, ways, successors })
    }
    /// Rows: block numbers equal modulo this share one.
    pub const fn rows(self) -> u32 {
        self.rows
    }
    /// Blocks a row can hold.
    pub const fn ways(self) -> u32 {
        self.ways
    }
    /// Successors kept of each block, newest first.
    pub const fn successors(self) -> u32 {
        self.successors
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Self { rows: 2048, ways: 2, successors: 4 }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.rows, self.ways, self.successors)
    }
}

impl FromStr for Geometry {
    type Err = GeometryError;
    fn from_str(text: &str) -> Result<Self, GeometryError> {
        let numbers: Option<Vec<u32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[rows, ways, successors]) => Self::new(rows, ways, successors),
            _ => Err(GeometryError::Form(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways_and_bad_text_is_named() {
        let given: Geometry = "512, 4,8".parse().unwrap();
        assert_eq!((given.rows(), given.ways(), given.successors()), (512, 4, 8));
        assert_eq!(given.to_string().parse(), Ok(given));
        assert_eq!("2048,2".parse::<Geometry>(), Err(GeometryError::Form("2048,2".into())));
        assert_eq!("100,2,4".parse::<Geometry>(), Err(GeometryError::Rows(100)));
        assert_eq!("1024,0,4".parse::<Geometry>(), Err(GeometryError::Ways(0)));
        assert_eq!("1024,2,17".parse::<Geometry>(), Err(GeometryError::Successors(17)));
        assert!(GeometryError::Rows(100).to_string().contains("100 rows: must be a power of two"));
    }
}
