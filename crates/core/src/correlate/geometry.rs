//! The size of a UM-block table, how it is laid out in memory, and how people write both.

use std::fmt;
use std::str::FromStr;

/// How a UM-block table lies in memory. Both hold, and forget, exactly the same (`docs/tables.md`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Layout {
    /// Room for what is in it.
    #[default]
    Compact,
    /// Room for every row, way and successor from the start, as in the paper.
    Paper,
}

impl Layout {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Paper => "paper",
        }
    }
}

/// Rows, ways and successors of each UM-block table, and its layout.
///
/// Text form: `rows,ways,successors`, as in `2048,2,4`, the configuration the paper settles on (DeepUM, ASPLOS'23, section 6); `,paper` or
/// `,compact` may follow. The default has more ways, which take no memory while nothing is in them: an optimizer's kernels
/// reach thousands of blocks in several tensors, and what finds no way is forgotten in every iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    rows: u32,
    ways: u32,
    successors: u32,
    layout: Layout,
}

/// Why a geometry was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Not three numbers.
    #[error("`{0}` is not `rows,ways,successors`, such as 2048,8,4, or that with `,paper` or `,compact` behind it")]
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

/// Most successors of a block in any geometry.
pub(super) const MOST_SUCCESSORS: usize = 16;

impl Geometry {
    /// A geometry within limits, compact.
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
        if successors == 0 || successors as usize > MOST_SUCCESSORS {
            return Err(GeometryError::Successors(successors));
        }
        Ok(Self { rows, ways, successors, layout: Layout::Compact })
    }
    /// The same in this layout.
    #[must_use]
    pub const fn laid_out(self, layout: Layout) -> Self {
        Self { layout, ..self }
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
    /// How tables lie in memory.
    pub const fn layout(self) -> Layout {
        self.layout
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Self { rows: 2048, ways: 8, successors: 4, layout: Layout::Compact }
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.rows, self.ways, self.successors)?;
        match self.layout {
            Layout::Compact => Ok(()),
            Layout::Paper => write!(f, ",{}", self.layout.as_str()),
        }
    }
}

impl FromStr for Geometry {
    type Err = GeometryError;
    fn from_str(text: &str) -> Result<Self, GeometryError> {
        let form = || GeometryError::Form(text.to_owned());
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (&[rows, ways, successors], rest) = parts.split_first_chunk().ok_or_else(form)?;
        let layout = match rest {
            [] => Layout::default(),
            [word] => {
                let mut known = [Layout::Compact, Layout::Paper].into_iter();
                known.find(|layout| layout.as_str() == *word).ok_or_else(form)?
            }
            _ => return Err(form()),
        };
        let number = |text: &str| text.parse().map_err(|_| form());
        Ok(Self::new(number(rows)?, number(ways)?, number(successors)?)?.laid_out(layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways_and_bad_text_is_named() {
        let given: Geometry = "512, 4,8".parse().unwrap();
        assert_eq!((given.rows(), given.ways(), given.successors()), (512, 4, 8));
        assert_eq!(given.layout(), Layout::Compact);
        assert_eq!(given.to_string().parse(), Ok(given));
        let paper: Geometry = "2048,8,4, paper".parse().unwrap();
        assert_eq!(paper, Geometry::default().laid_out(Layout::Paper));
        assert_eq!(paper.to_string().parse(), Ok(paper));
        assert_eq!("2048,8,4,compact".parse(), Ok(Geometry::default()));
        for bad in ["2048,2", "2048,2,4,wide", "2048,2,4,paper,1", "a,2,4", "", "2048,2,-4"] {
            assert_eq!(bad.parse::<Geometry>(), Err(GeometryError::Form(bad.into())));
        }
        assert_eq!("100,2,4".parse::<Geometry>(), Err(GeometryError::Rows(100)));
        assert_eq!("1024,0,4".parse::<Geometry>(), Err(GeometryError::Ways(0)));
        assert_eq!("1024,2,17".parse::<Geometry>(), Err(GeometryError::Successors(17)));
        assert!(GeometryError::Rows(100).to_string().contains("100 rows: must be a power of two"));
    }
}
