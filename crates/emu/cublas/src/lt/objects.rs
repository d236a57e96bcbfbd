//! The descriptor objects of cuBLASLt and their attributes.
//!
//! An object is a fixed set of typed fields. An attribute number this library does not know, or a value it does not model, is
//! refused with a line on stderr that names it: a product computed under a setting that was silently dropped would be a wrong
//! product. Attribute numbers and sizes: cuBLAS documentation, `cublasLtMatmulDescAttributes_t` and its neighbours (12.8, 13.4).

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::refused;

use crate::status::{Outcome, Status};
use crate::types::{Compute, PointerMode, elem, transposed};

/// An attribute value as bytes from the program.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

impl Value<'_> {
    fn bytes<const N: usize>(self) -> Result<[u8; N], Status> {
        self.0.try_into().map_err(|_| Status::InvalidValue)
    }
    fn int(self) -> Result<c_int, Status> {
        Ok(c_int::from_le_bytes(self.bytes()?))
    }
    fn long(self) -> Result<i64, Status> {
        Ok(i64::from_le_bytes(self.bytes()?))
    }
    fn pointer(self) -> Result<u64, Status> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }
}

/// An object whose attributes are set by number.
trait Attributes {
    fn set(&mut self, attribute: c_int, value: Value<'_>) -> Outcome;
}

/// What the product computes beside the product: bits of `cublasLtEpilogue_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epilogue(u32);

impl Epilogue {
    const RELU: u32 = 2;
    const BIAS: u32 = 4;
    const DRELU: u32 = 8;
    const BGRAD: u32 = 16;
    const DGELU: u32 = 64;
    const AUX: u32 = 128;
    const BGRAD_A: u32 = 256;
    const BGRAD_B: u32 = 512;

    /// The combinations that the documentation names; any other is invalid.
    fn new(bits: u32) -> Result<Self, Status> {
        let known = [1, 2, 130, 4, 6, 134, 136, 152, 32, 160, 36, 164, 192, 208, 256, 512];
        if known.contains(&bits) { Ok(Self(bits)) } else { Err(Status::InvalidValue) }
    }
    const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
    /// Whether a bias vector of m elements is added.
    pub const fn adds_bias(self) -> bool {
        self.has(Self::BIAS)
    }
    /// Whether a bias gradient is written to the bias pointer; with `true` inside, one of n elements, else of m.
    pub const fn bias_gradient(self) -> Option<bool> {
        match self.0 {
            bits if bits & (Self::BGRAD | Self::BGRAD_A) != 0 => Some(false),
            bits if bits & Self::BGRAD_B != 0 => Some(true),
            _ => None,
        }
    }
    /// Whether the auxiliary matrix is written (`Some(true)`), read, or not there.
    pub const fn auxiliary(self) -> Option<bool> {
        if !self.has(Self::AUX) {
            return None;
        }
        Some(!self.has(Self::DRELU | Self::DGELU))
    }
    /// Whether the auxiliary matrix is a bit mask: that of ReLU is, that of GELU holds values.
    pub const fn auxiliary_is_mask(self) -> bool {
        self.has(Self::RELU | Self::DRELU)
    }
}

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub compute: Compute,
    pub scale: Elem,
    pub pointer_mode: PointerMode,
    pub transposed: [bool; 2],
    pub epilogue: Epilogue,
    pub bias: u64,
    pub bias_elem: Option<Elem>,
    pub bias_batch_stride: i64,
    pub aux: u64,
    pub aux_ld: i64,
    pub aux_batch_stride: i64,
    pub aux_elem: Option<Elem>,
    /// Scalar factors in device memory of A, B, C, D, and the maximum of D.
    pub scales: [u64; 4],
    pub amax: u64,
}

impl Attributes for Operation {
    fn set(&mut self, attribute: c_int, value: Value<'_>) -> Outcome {
        match attribute {
            0 => self.compute = Compute::new(value.int()?)?,
            1 => self.scale = elem(value.int()?)?,
            2 => match value.int()? {
                mode @ 0..=1 => self.pointer_mode = PointerMode::new(mode)?,
                mode => return Err(refused!(Status::NotSupported, "cublasLt pointer mode {mode}")),
            },
            3 => self.transposed[0] = transposed(value.int()?)?,
            4 => self.transposed[1] = transposed(value.int()?)?,
            7 => self.epilogue = Epilogue::new(u32::from_le_bytes(value.bytes()?))?,
            8 => self.bias = value.pointer()?,
            10 => self.bias_batch_stride = value.long()?,
            11 => self.aux = value.pointer()?,
            12 => self.aux_ld = value.long()?,
            13 => self.aux_batch_stride = value.long()?,
            // How many multiprocessors to use, and whether fp8 sums may be less exact: neither changes what is touched.
            15 | 25 => {}
            17 => self.scales[0] = value.pointer()?,
            18 => self.scales[1] = value.pointer()?,
            19 => self.scales[2] = value.pointer()?,
            20 => self.scales[3] = value.pointer()?,
            21 => self.amax = value.pointer()?,
            22 => self.aux_elem = own_type(value.int()?)?,
            26 => self.bias_elem = own_type(value.int()?)?,
            // C not transposed; one scale for a whole matrix.
            5 | 31..=35 => match value.int()? {
                0 => {}
                v => {
                    return Err(refused!(
                        Status::NotSupported,
                        "cublasLt operation attribute {attribute} of value {v}"
                    ));
                }
            },
            _ => return Err(refused!(Status::NotSupported, "cublasLt operation attribute {attribute}")),
        }
        Ok(())
    }
}

/// A type, or the documented default (-1) of following another one.
fn own_type(value: c_int) -> Result<Option<Elem>, Status> {
    if value == -1 { Ok(None) } else { elem(value).map(Some) }
}

/// `cublasLtMatrixLayout_t`.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub elem: Elem,
    pub rows: u64,
    pub cols: u64,
    pub ld: i64,
    pub row_major: bool,
    pub batch: c_int,
    pub stride: i64,
    /// Whether the address given is that of an array of addresses.
    pub pointers: bool,
}

impl Attributes for Layout {
    fn set(&mut self, attribute: c_int, value: Value<'_>) -> Outcome {
        match attribute {
            0 => self.elem = elem(value.int()?)?,
            1 => match value.int()? {
                order @ 0..=1 => self.row_major = order == 1,
                order => return Err(refused!(Status::NotSupported, "cublasLt matrix order {order}")),
            },
            2 => self.rows = value.pointer()?,
            3 => self.cols = value.pointer()?,
            4 => self.ld = value.long()?,
            5 => self.batch = value.int()?,
            6 => self.stride = value.long()?,
            8 => match value.int()? {
                mode @ 0..=1 => self.pointers = mode == 1,
                mode => return Err(refused!(Status::NotSupported, "cublasLt batch mode {mode}")),
            },
            _ => return Err(refused!(Status::NotSupported, "cublasLt layout attribute {attribute}")),
        }
        Ok(())
    }
}

/// `cublasLtMatmulPreference_t`. The one algorithm there is needs no workspace and no alignment, so all that a preference can say
/// is satisfied by it; an attribute that is unknown is refused all the same.
#[derive(Clone, Copy, Debug)]
pub struct Preference;

impl Attributes for Preference {
    fn set(&mut self, attribute: c_int, _value: Value<'_>) -> Outcome {
        match attribute {
            0..=13 => Ok(()),
            _ => Err(refused!(Status::NotSupported, "cublasLt preference attribute {attribute}")),
        }
    }
}

/// # Safety
/// `object` is null or a live object nobody else is using; `value` is valid for reading `bytes` bytes.
unsafe fn set<T: Attributes>(object: *mut T, attribute: c_int, value: *const c_void, bytes: usize) -> Outcome {
    if value.is_null() || bytes > 4096 {
        return Err(Status::InvalidValue);
    }
    // SAFETY: the caller's promise.
    let (object, value) = unsafe { (Status::get_mut(object)?, std::slice::from_raw_parts(value.cast(), bytes)) };
    object.set(attribute, Value(value))
}

/// Creates the description of an operation: compute type, type of alpha and beta.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(out: *mut *mut Operation, compute: c_int, scale: c_int) -> c_int {
    let operation = || {
        Ok(Operation {
            compute: Compute::new(compute)?,
            scale: elem(scale)?,
            pointer_mode: PointerMode::Host,
            transposed: [false; 2],
            epilogue: Epilogue(1),
            bias: 0,
            bias_elem: None,
            bias_batch_stride: 0,
            aux: 0,
            aux_ld: 0,
            aux_batch_stride: 0,
            aux_elem: None,
            scales: [0; 4],
            amax: 0,
        })
    };
    // SAFETY: the same contract.
    Status::edge(|| unsafe { Status::create(out, operation) })
}

/// Creates the layout of a column-major matrix.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut *mut Layout,
    kind: c_int,
    rows: u64,
    cols: u64,
    ld: i64,
) -> c_int {
    let layout =
        || Ok(Layout { elem: elem(kind)?, rows, cols, ld, row_major: false, batch: 1, stride: 0, pointers: false });
    // SAFETY: the same contract.
    Status::edge(|| unsafe { Status::create(out, layout) })
}

/// Creates a preference.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut *mut Preference) -> c_int {
    // SAFETY: the same contract.
    Status::edge(|| unsafe { Status::create(out, || Ok(Preference)) })
}

macro_rules! exported {
    ($($object:ident: fn $set:ident, fn $destroy:ident;)*) => {$(
        /// Sets an attribute by number.
        ///
        /// # Safety
        /// `object` is null or live; `value` is null or valid for reading `bytes` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            object: *mut $object, attribute: c_int, value: *const c_void, bytes: usize,
        ) -> c_int {
            // SAFETY: the same contract.
            Status::edge(|| unsafe { set(object, attribute, value, bytes) })
        }
        /// Destroys the object.
        ///
        /// # Safety
        /// `object` is null or live, and not used again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(object: *mut $object) -> c_int {
            // SAFETY: the same contract.
            Status::edge(|| unsafe { Status::destroy(object) })
        }
    )*};
}

exported! {
    Operation: fn cublasLtMatmulDescSetAttribute, fn cublasLtMatmulDescDestroy;
    Layout: fn cublasLtMatrixLayoutSetAttribute, fn cublasLtMatrixLayoutDestroy;
    Preference: fn cublasLtMatmulPreferenceSetAttribute, fn cublasLtMatmulPreferenceDestroy;
}
