//! The descriptor objects of cuBLASLt and their attributes.
//!
//! An object is a fixed set of typed fields. An attribute number this library does not know, or a value it does not model, is
//! refused with a line on stderr that names it: a product computed under a setting that was silently dropped would be a wrong
//! product. Attribute numbers and sizes: cuBLAS documentation, `cublasLtMatmulDescAttributes_t` and its neighbours (12.8, 13.4).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicBool;

use crate::edge::{Outcome, Status, edge, put};
use crate::refusals::refuse;
use crate::types::{Compute, Elem};

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

/// Says once, naming the attribute, that it is not supported.
fn refused(name: &CStr, said: &AtomicBool) -> Outcome {
    refuse(name, said);
    Err(Status::NotSupported)
}

macro_rules! refused {
    ($name:literal) => {{
        static SAID: AtomicBool = AtomicBool::new(false);
        refused($name, &SAID)
    }};
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
    const GELU: u32 = 32;
    const DGELU: u32 = 64;
    const AUX: u32 = 128;
    const BGRAD_A: u32 = 256;
    const BGRAD_B: u32 = 512;

    /// The combinations that the documentation names; any other is refused.
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
    /// Whether there is anything to compute per element.
    pub const fn has_activation(self) -> bool {
        self.has(Self::RELU | Self::GELU | Self::DRELU | Self::DGELU)
    }
}

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub compute: Compute,
    pub scale: Elem,
    pub device_scalars: bool,
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
        let transposition = |v: c_int| crate::types::transposed(v);
        match attribute {
            0 => self.compute = Compute::new(value.int()?)?,
            1 => self.scale = Elem::new(value.int()?)?,
            2 => match value.int()? {
                mode @ 0..=1 => self.device_scalars = mode == 1,
                _ => return refused!(c"cublasLt device-vector pointer mode"),
            },
            3 => self.transposed[0] = transposition(value.int()?)?,
            4 => self.transposed[1] = transposition(value.int()?)?,
            5 if value.int()? == 0 => {}
            7 => self.epilogue = Epilogue::new(u32::from_le_bytes(value.bytes()?))?,
            8 => self.bias = value.pointer()?,
            10 => self.bias_batch_stride = value.long()?,
            11 => self.aux = value.pointer()?,
            12 => self.aux_ld = value.long()?,
            13 => self.aux_batch_stride = value.long()?,
            // How many multiprocessors to use, and whether fp8 sums may be less exact: neither changes what is touched.
            15 | 25 => {}
            17..=20 => {
                if let Some(slot) = usize::try_from(attribute - 17).ok().and_then(|i| self.scales.get_mut(i)) {
                    *slot = value.pointer()?;
                }
            }
            21 => self.amax = value.pointer()?,
            22 => self.aux_elem = Some(Elem::new(value.int()?)?),
            // -1 is the documented default: the type of D.
            26 => self.bias_elem = if value.int()? == -1 { None } else { Some(Elem::new(value.int()?)?) },
            31..=35 if value.int()? == 0 => {}
            31..=35 => return refused!(c"cublasLt block or vector scaling"),
            _ => return refused!(c"cublasLtMatmulDescSetAttribute with an unknown attribute"),
        }
        Ok(())
    }
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
            0 => self.elem = Elem::new(value.int()?)?,
            1 => match value.int()? {
                order @ 0..=1 => self.row_major = order == 1,
                _ => return refused!(c"cublasLt tiled matrix order"),
            },
            2 => self.rows = value.pointer()?,
            3 => self.cols = value.pointer()?,
            4 => self.ld = value.long()?,
            5 => self.batch = value.int()?,
            6 => self.stride = value.long()?,
            8 => match value.int()? {
                mode @ 0..=1 => self.pointers = mode == 1,
                _ => return refused!(c"cublasLt grouped batch mode"),
            },
            _ => return refused!(c"cublasLtMatrixLayoutSetAttribute with an unknown attribute"),
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
            _ => refused!(c"cublasLtMatmulPreferenceSetAttribute with an unknown attribute"),
        }
    }
}

/// # Safety
/// `object` is null or a live object; `value` is valid for reading `bytes` bytes.
unsafe fn set<T: Attributes>(object: *mut T, attribute: c_int, value: *const c_void, bytes: usize) -> c_int {
    edge(|| {
        if value.is_null() || bytes > 4096 {
            return Err(Status::InvalidValue);
        }
        // SAFETY: live or null by the caller's promise; C callers do not share an object between threads while setting.
        let object = unsafe { object.as_mut() }.ok_or(Status::InvalidValue)?;
        // SAFETY: the caller's promise.
        object.set(attribute, Value(unsafe { std::slice::from_raw_parts(value.cast(), bytes) }))
    })
}

/// # Safety
/// `out` is null or valid for writing a pointer.
unsafe fn create<T>(out: *mut *mut T, object: Result<T, Status>) -> c_int {
    edge(|| {
        if out.is_null() {
            return Err(Status::InvalidValue);
        }
        let object = Box::into_raw(Box::new(object?));
        // SAFETY: the caller's promise.
        unsafe { put(out, object) }
    })
}

/// # Safety
/// `object` is null or came from [`create`] and was not destroyed.
unsafe fn destroy<T>(object: *mut T) -> c_int {
    edge(|| {
        if !object.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    })
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
            scale: Elem::new(scale)?,
            device_scalars: false,
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
    unsafe { create(out, operation()) }
}

/// Creates the layout of a column-major matrix.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut *mut Layout,
    elem: c_int,
    rows: u64,
    cols: u64,
    ld: i64,
) -> c_int {
    let layout = Elem::new(elem).map(|elem| Layout {
        elem,
        rows,
        cols,
        ld,
        row_major: false,
        batch: 1,
        stride: 0,
        pointers: false,
    });
    // SAFETY: the same contract.
    unsafe { create(out, layout) }
}

/// Creates a preference.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut *mut Preference) -> c_int {
    // SAFETY: the same contract.
    unsafe { create(out, Ok(Preference)) }
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
            unsafe { set(object, attribute, value, bytes) }
        }
        /// Destroys the object.
        ///
        /// # Safety
        /// `object` is null or live, and not used again.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(object: *mut $object) -> c_int {
            // SAFETY: the same contract.
            unsafe { destroy(object) }
        }
    )*};
}

exported! {
    Operation: fn cublasLtMatmulDescSetAttribute, fn cublasLtMatmulDescDestroy;
    Layout: fn cublasLtMatrixLayoutSetAttribute, fn cublasLtMatrixLayoutDestroy;
    Preference: fn cublasLtMatmulPreferenceSetAttribute, fn cublasLtMatmulPreferenceDestroy;
}
