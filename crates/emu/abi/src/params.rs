//! The parameter struct of every kernel inside the stand-in cuBLAS, cuBLASLt and cuDNN.
//!
//! One kernel parameter, [`Params`]: a header with the arithmetic, then operands. An operand is a strided box of elements in
//! device memory, which covers matrices with a leading dimension (dims `[rows, cols]`, strides `[1, ld]`), batches of
//! them at a fixed distance (a third dimension), and image tensors (five dimensions). Batches given as an array of pointers in
//! device memory are one operand with [`INDIRECT`]: the box then lies behind each of the pointers.
//!
//! The library that fills this in knows the exact shapes from its own API; the device reads the exact ranges out of it.
//! Unused operands are all zero. Layout: little-endian, `repr(C)`, no padding.

/// The kernel reads the operand.
pub const READ: u32 = 1;
/// The kernel writes the operand.
pub const WRITE: u32 = 2;
/// `ptr` points to an array of pointers in device memory, one per batch; see [`Operand::batch`].
pub const INDIRECT: u32 = 4;

/// The arithmetic units that bound a kernel, as [`Header::class`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Class {
    /// Single precision, or bound by bytes alone.
    Fp32 = 0,
    /// Double precision.
    Fp64 = 1,
    /// Single precision with TF32 operands on tensor cores.
    Tf32 = 2,
    /// 16-bit or 8-bit floating point on tensor cores.
    Half = 3,
}

/// What the kernel computes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
pub struct Header {
    /// Floating-point operations; 0 where bytes bound the time.
    pub flops: f64,
    /// A [`Class`].
    pub class: u32,
    /// How many of the operands that follow are in use.
    pub operands: u32,
}

/// A strided box of elements in device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Operand {
    /// Address of the element with all indices 0, or of the pointer array if [`INDIRECT`].
    pub ptr: u64,
    /// Extent of each dimension; unused dimensions are 1. Never 0: an empty operand is left out.
    pub dims: [u64; 5],
    /// Distance of neighbours in each dimension, in elements; 0 means that all indices are the same element.
    pub strides: [u64; 5],
    /// Size of an element.
    pub elem_bytes: u32,
    /// [`READ`], [`WRITE`], [`INDIRECT`].
    pub access: u32,
    /// Number of pointers behind `ptr` if [`INDIRECT`], else 0.
    pub batch: u64,
}

/// The parameter of a kernel with room for `N` operands.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub struct Params<const N: usize> {
    /// The arithmetic.
    pub header: Header,
    /// The memory.
    pub operands: [Operand; N],
}

/// Size of [`Params<N>`] for `n` operands, in bytes.
#[must_use]
pub const fn params_size(n: usize) -> usize {
    size_of::<Header>() + n * size_of::<Operand>()
}

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<Operand>() == 104);
    assert!(size_of::<Params<3>>() == params_size(3));
};

impl Operand {
    /// A box read by the kernel. `shape` lists (extent, stride in elements), innermost first, at most five.
    #[must_use]
    pub fn read(ptr: u64, elem_bytes: u32, shape: &[(u64, u64)]) -> Self {
        Self::new(ptr, elem_bytes, shape, READ)
    }
    /// A box written by the kernel without looking at it.
    #[must_use]
    pub fn write(ptr: u64, elem_bytes: u32, shape: &[(u64, u64)]) -> Self {
        Self::new(ptr, elem_bytes, shape, WRITE)
    }
    /// A box read and written.
    #[must_use]
    pub fn update(ptr: u64, elem_bytes: u32, shape: &[(u64, u64)]) -> Self {
        Self::new(ptr, elem_bytes, shape, READ | WRITE)
    }
    /// A box with the given access bits. More than five dimensions cannot be said; the outermost are then folded into
    /// one that spans them.
    #[must_use]
    pub fn new(ptr: u64, elem_bytes: u32, shape: &[(u64, u64)], access: u32) -> Self {
        let mut operand = Self { ptr, dims: [1; 5], strides: [0; 5], elem_bytes, access, batch: 0 };
        for (i, &(extent, stride)) in shape.iter().enumerate() {
            if i < 5 {
                (operand.dims[i], operand.strides[i]) = (extent, stride);
            } else {
                // Spanning: as many steps of the fifth dimension as reach the last element of this one.
                let step = operand.strides[4].max(1);
                operand.strides[4] = step;
                operand.dims[4] += extent.saturating_sub(1) * stride / step;
            }
        }
        operand
    }
    /// The same box behind each of `batch` pointers at `ptr`.
    #[must_use]
    pub fn behind(mut self, batch: u64) -> Self {
        self.access |= INDIRECT;
        self.batch = batch;
        self
    }
    /// Whether no element is inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0) || (self.access & INDIRECT != 0 && self.batch == 0)
    }
}

impl<const N: usize> Params<N> {
    /// Packs the operands, leaving out null and empty ones. Operands past the `N`th are refused with `None`.
    #[must_use]
    pub fn new(flops: f64, class: Class, operands: &[Operand]) -> Option<Self> {
        let mut params =
            Self { header: Header { flops, class: class as u32, operands: 0 }, operands: [Operand::default(); N] };
        for operand in operands.iter().filter(|o| o.ptr != 0 && !o.is_empty()) {
            *params.operands.get_mut(params.header.operands as usize)? = *operand;
            params.header.operands += 1;
        }
        Some(params)
    }
}

/// Reads a parameter buffer back: header, and the operands in use. `None` if the length is not that of a [`Params`], or
/// the header counts more operands than there are.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(Header, impl Iterator<Item = Operand> + '_)> {
    let (head, rest) = bytes.split_first_chunk::<{ size_of::<Header>() }>()?;
    let header = Header { flops: f64::from_bits(word(head, 0)), class: half(head, 8), operands: half(head, 12) };
    let used = header.operands as usize;
    if rest.len() % size_of::<Operand>() != 0 || used > rest.len() / size_of::<Operand>() {
        return None;
    }
    let operands = rest.chunks_exact(size_of::<Operand>()).take(used).map(|raw| Operand {
        ptr: word(raw, 0),
        dims: std::array::from_fn(|i| word(raw, 8 + 8 * i)),
        strides: std::array::from_fn(|i| word(raw, 48 + 8 * i)),
        elem_bytes: half(raw, 88),
        access: half(raw, 92),
        batch: word(raw, 96),
    });
    Some((header, operands))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(params: &Params<N>) -> &[u8] {
        // SAFETY: repr(C) without padding (asserted above): every byte is initialised.
        unsafe { std::slice::from_raw_parts((&raw const *params).cast(), size_of::<Params<N>>()) }
    }

    #[test]
    fn what_is_packed_is_read_back_and_empty_operands_are_left_out() {
        let a = Operand::read(0x1000, 4, &[(64, 1), (32, 128)]);
        let none = Operand::read(0, 4, &[(64, 1)]);
        let empty = Operand::read(0x2000, 4, &[(0, 1)]);
        let c = Operand::update(0x3000, 2, &[(8, 1), (8, 8)]).behind(12);
        let params = Params::<4>::new(5e9, Class::Half, &[a, none, empty, c]).expect("two fit in four");
        let (header, operands) = decode(bytes(&params)).expect("well formed");
        assert_eq!((header.flops, header.class, header.operands), (5e9, 3, 2));
        assert_eq!(operands.collect::<Vec<_>>(), [a, c]);
    }

    #[test]
    fn too_many_operands_and_wrong_lengths_are_refused() {
        let a = Operand::read(0x1000, 4, &[(64, 1)]);
        assert_eq!(Params::<1>::new(0.0, Class::Fp32, &[a, a]), None);
        let mut params = Params::<1>::new(0.0, Class::Fp32, &[a]).expect("one fits");
        assert!(decode(&bytes(&params)[..100]).is_none());
        assert!(decode(&[]).is_none());
        params.header.operands = 2;
        assert!(decode(bytes(&params)).is_none());
    }

    #[test]
    fn a_sixth_dimension_widens_the_fifth() {
        let o = Operand::read(8, 4, &[(2, 1), (2, 2), (2, 4), (2, 8), (2, 16), (3, 32)]);
        // Elements up to 1 + 2 + 4 + 8 + 16 + 2*32 = 95: the last of dimension five must reach 16 + 64.
        assert_eq!((o.dims[4] - 1) * o.strides[4], 80);
    }
}
