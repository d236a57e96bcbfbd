//! What a stream can be given to do.

use std::ffi::c_void;
use std::sync::Arc;

use deepum_core::units::{AddrRange, Bytes, DevAddr, Place};

use crate::kernel::Kernel;

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What runs.
    pub kernel: Arc<Kernel>,
    /// Packed parameters.
    pub params: Arc<[u8]>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared: Bytes,
    /// Its place among its device's launches; a kernel inside a graph has none, its graph's launch has.
    pub counted: Option<Counted>,
}

/// The place of a launch, of a kernel or of a graph, among those of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// What it is, the same in every run.
    pub identity: u64,
    /// Its number on its device, from 1.
    pub seq: u64,
    /// Its entry in the flight log, if there is one.
    pub entry: Option<u64>,
    /// Host clock when it was issued.
    pub issued: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Host memory to device or managed memory.
    ToDevice,
    /// Device or managed memory to host memory.
    ToHost,
    /// Between device or managed memories.
    OnDevice,
    /// Between host memories.
    OnHost,
}

/// A copy of `height` rows of `width` bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// First byte written.
    pub dst: DevAddr,
    /// From row to row.
    pub dst_pitch: u64,
    /// First byte read.
    pub src: DevAddr,
    /// From row to row.
    pub src_pitch: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Which way.
    pub direction: Direction,
    /// Bytes of the source taken when the copy was issued (pageable host memory), rows without gaps.
    pub staged: Option<Vec<u8>>,
}

impl Copy {
    /// Bytes copied.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.width.saturating_mul(self.height))
    }
    /// From the first byte read to the last.
    #[must_use]
    pub fn source(&self) -> AddrRange {
        AddrRange::new(self.src, span(self.src_pitch, self.width, self.height))
    }
    /// From the first byte written to the last.
    #[must_use]
    pub fn target(&self) -> AddrRange {
        AddrRange::new(self.dst, span(self.dst_pitch, self.width, self.height))
    }
}

/// A pattern written over `height` rows of `width` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// First byte written.
    pub dst: DevAddr,
    /// From row to row.
    pub pitch: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// The pattern, of which the first `unit` bytes count.
    pub value: u32,
    /// 1, 2 or 4.
    pub unit: u8,
}

impl Fill {
    /// From the first byte written to the last.
    #[must_use]
    pub fn target(&self) -> AddrRange {
        AddrRange::new(self.dst, span(self.pitch, self.width, self.height))
    }
}

fn span(pitch: u64, width: u64, height: u64) -> Bytes {
    let rows = height.saturating_sub(1).saturating_mul(pitch);
    Bytes(if height == 0 { 0 } else { rows.saturating_add(width) })
}

/// A function of the program, to be called in stream order.
#[derive(Clone, Copy, Debug)]
pub struct HostFn {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub argument: *mut c_void,
}
// SAFETY: the program hands over function and argument for use on any thread of the driver's choice (CUDA driver API,
// cuLaunchHostFunc).
unsafe impl Send for HostFn {}

/// A word a stream writes or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Where.
    pub addr: DevAddr,
    /// What.
    pub value: u64,
    /// Whether it has 8 bytes and not 4.
    pub wide: bool,
}

/// When a waiting stream goes on (CUDA driver API, `CUstreamWaitValue_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// `(signed)(word - value) >= 0`.
    GreaterEqual,
    /// `word == value`.
    Equal,
    /// `(word & value) != 0`.
    And,
    /// `~(word | value) != 0`.
    Nor,
}

impl Condition {
    /// Whether `word` satisfies it.
    #[must_use]
    pub fn holds(self, word: u64, value: u64, wide: bool) -> bool {
        match self {
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::GreaterEqual if wide => word.wrapping_sub(value).cast_signed() >= 0,
            Self::GreaterEqual => low(word).wrapping_sub(low(value)).cast_signed() >= 0,
            Self::Nor if wide => !(word | value) != 0,
            Self::Nor => !(low(word) | low(value)) != 0,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a narrow word has only its low half")]
fn low(word: u64) -> u32 {
    word as u32
}

/// One piece of work.
#[derive(Clone, Debug)]
pub enum Work {
    /// A kernel.
    Launch(Box<Launch>),
    /// A graph's launch: all up to its end is the graph's.
    Begin(Counted),
    /// The end of a graph's launch.
    End(Counted),
    /// A copy.
    Copy(Box<Copy>),
    /// A memset.
    Fill(Fill),
    /// The event takes its time.
    Record(u32),
    /// Nothing: what stands before or waits is the point.
    Nothing,
    /// A function of the program.
    Host(HostFn),
    /// A stream write.
    Write(Word),
    /// A stream wait.
    Wait(Word, Condition),
    /// A prefetch of managed memory.
    Prefetch(AddrRange, Place),
    /// Managed memory given up (`cuMemDiscardBatchAsync`).
    Discard(AddrRange),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_conditions_are_those_of_the_driver_api() {
        use Condition::{And, Equal, GreaterEqual, Nor};
        assert!(GreaterEqual.holds(5, 5, true) && !GreaterEqual.holds(4, 5, true));
        assert!(GreaterEqual.holds(1, 0xffff_ffff, false), "narrow words wrap around");
        assert!(!GreaterEqual.holds(1, 2, false));
        assert!(Equal.holds(3, 3, false) && And.holds(6, 2, true) && !And.holds(6, 1, true));
        assert!(Nor.holds(0, 0, false) && !Nor.holds(0xffff_0000, 0xffff, false) && Nor.holds(0xffff_ffff, 0, true));
    }

    #[test]
    fn a_pitched_copy_spans_from_its_first_to_its_last_byte() {
        let fill = Fill { dst: DevAddr(100), pitch: 50, width: 10, height: 3, value: 0, unit: 1 };
        assert_eq!(fill.target(), AddrRange::new(DevAddr(100), Bytes(110)));
        assert!(Fill { height: 0, ..fill }.target().is_empty());
    }
}
