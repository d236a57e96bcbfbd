//! Matrix products: every form of `C = alpha op(A) op(B) + beta C` in cuBLAS, one at a time or batched.
//!
//! All forms end in [`Product`]. Matrices are column-major: element (i, j) lies at `i + j * ld`.
//! As documented, A and B are not read when alpha is zero, and C is not read when beta is zero; with alpha and beta on the
//! device nobody here knows, and all are read.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::GEMM;
use deepum_emu_abi::params::{Operand, READ};
use deepum_emu_abi::refused;

use crate::handle::Handle;
use crate::status::{Outcome, Status, count};
use crate::types::{Compute, elem, transposed};

/// A matrix argument as passed: address (of the matrix, or of an array of addresses), element type, leading dimension, and
/// distance to the next of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub at: *const c_void,
    pub elem: Elem,
    pub ld: i64,
    pub stride: i64,
}

/// How many matrices an argument stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// So many, each at its stride from the one before.
    Strided(c_int),
    /// So many, each behind a pointer in an array in device memory.
    Pointers(c_int),
}

impl Batch {
    /// Not a batch.
    pub const ONE: Self = Self::Strided(1);

    pub fn count(self) -> Result<u64, Status> {
        let (Self::Strided(n) | Self::Pointers(n)) = self;
        count(n)
    }
}

/// Products as passed by the caller.
#[derive(Clone, Copy, Debug)]
struct Product {
    ops: [c_int; 2],
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    beta: *const c_void,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    compute: Compute,
    batch: Batch,
}

/// A column-major matrix of `rows` × `cols` as an operand, batched as `batch` says.
pub fn operand(matrix: Matrix, rows: u64, cols: u64, batch: Batch, access: u32) -> Result<Operand, Status> {
    let ld = count(matrix.ld)?;
    if ld < rows.max(1) {
        return Err(Status::InvalidValue);
    }
    let (ptr, bytes) = (matrix.at.addr() as u64, matrix.elem.bytes());
    let (n, one) = (batch.count()?, [(rows, 1), (cols, ld)]);
    Ok(match batch {
        Batch::Strided(_) => Operand::new(ptr, bytes, &[one[0], one[1], (n, count(matrix.stride)?)], access),
        Batch::Pointers(_) => Operand::new(ptr, bytes, &one, access).behind(n),
    })
}

/// Factors of different types are supported nowhere (tables of types of `cublasGemmEx` and `cublasLtMatmul`).
pub fn same_type(a: Elem, b: Elem) -> Outcome {
    if a == b { Ok(()) } else { Err(refused!(Status::NotSupported, "cuBLAS product of {a:?} and {b:?}")) }
}

/// Blocks of a product with 128 × 128 tiles; a grid's y and z end at 65535.
pub fn tiles(m: u64, n: u64, batch: u64) -> [u32; 3] {
    let blocks = |n: u64, most: u32| u32::try_from(n).unwrap_or(most).clamp(1, most);
    [blocks(m.div_ceil(128), i32::MAX as u32), blocks(n.div_ceil(128), 65_535), blocks(batch, 65_535)]
}

impl Product {
    /// Checks, describes and launches.
    ///
    /// # Safety
    /// `handle` is null or live. In host pointer mode alpha and beta point to scalars of the compute type.
    unsafe fn run(self, handle: *const Handle) -> Outcome {
        // SAFETY: the caller's promise.
        let handle = unsafe { Handle::get(handle) }?;
        let (m, n, k, batch) = (count(self.m)?, count(self.n)?, count(self.k)?, self.batch.count()?);
        same_type(self.a.elem, self.b.elem)?;
        let scalar = self.compute.scalar(self.a.elem);
        // SAFETY: the caller's promise.
        let (alpha, beta) = unsafe { (handle.scalar(self.alpha, scalar)?, handle.scalar(self.beta, scalar)?) };
        let shape = |op, rows, cols| Ok::<_, Status>(if transposed(op)? { (cols, rows) } else { (rows, cols) });
        let (a_rows, a_cols) = shape(self.ops[0], m, k)?;
        let (b_rows, b_cols) = shape(self.ops[1], k, n)?;
        let operands = [
            alpha.times(operand(self.a, a_rows, a_cols, self.batch, READ)?),
            alpha.times(operand(self.b, b_rows, b_cols, self.batch, READ)?),
            operand(self.c, m, n, self.batch, beta.blend())?,
            alpha.operand,
            beta.operand,
        ];
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        if self.c.at.is_null() {
            return Err(Status::InvalidValue);
        }
        let per_result = if alpha.is_zero { 0.0 } else { self.a.elem.multiply_add() * k as f64 };
        let flops = per_result * m as f64 * n as f64 * batch as f64;
        let class = self.compute.class(self.a.elem, handle.settings().math_mode, handle.capability());
        handle.launch::<{ GEMM.operands }>(GEMM, tiles(m, n, batch), flops, class, &operands)
    }
}

/// Products of matrices at fixed strides, with a type for each matrix and for the computation.
///
/// # Safety
/// As documented by cuBLAS.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasGemmStridedBatchedEx(
    handle: *mut Handle,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    stride_a: i64,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    stride_b: i64,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
    stride_c: i64,
    batch: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> c_int {
    Status::edge(|| {
        let a = Matrix { at: a, elem: elem(a_type)?, ld: lda.into(), stride: stride_a };
        let b = Matrix { at: b, elem: elem(b_type)?, ld: ldb.into(), stride: stride_b };
        let c = Matrix { at: c, elem: elem(c_type)?, ld: ldc.into(), stride: stride_c };
        let compute = Compute::new(compute)?;
        let product = Product { ops: [ta, tb], m, n, k, alpha, beta, a, b, c, compute, batch: Batch::Strided(batch) };
        // SAFETY: the caller's promise.
        unsafe { product.run(handle) }
    })
}

/// The same for matrices behind pointer arrays in device memory.
///
/// # Safety
/// As documented by cuBLAS.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasGemmBatchedEx(
    handle: *mut Handle,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *const c_void,
    c_type: c_int,
    ldc: c_int,
    batch: c_int,
    compute: c_int,
    _algorithm: c_int,
) -> c_int {
    Status::edge(|| {
        let matrix = |at, kind, ld: c_int| Ok::<_, Status>(Matrix { at, elem: elem(kind)?, ld: ld.into(), stride: 0 });
        let (a, b, c) = (matrix(a, a_type, lda)?, matrix(b, b_type, ldb)?, matrix(c, c_type, ldc)?);
        let compute = Compute::new(compute)?;
        let product = Product { ops: [ta, tb], m, n, k, alpha, beta, a, b, c, compute, batch: Batch::Pointers(batch) };
        // SAFETY: the caller's promise.
        unsafe { product.run(handle) }
    })
}

/// One product.
///
/// # Safety
/// As documented by cuBLAS.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasGemmEx(
    handle: *mut Handle,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
    compute: c_int,
    algorithm: c_int,
) -> c_int {
    // SAFETY: the same contract, with a batch of one.
    unsafe {
        cublasGemmStridedBatchedEx(
            handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute,
            algorithm,
        )
    }
}

/// One product in single precision on matrices of other types.
///
/// # Safety
/// As documented by cuBLAS.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasSgemmEx(
    handle: *mut Handle,
    ta: c_int,
    tb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: *const c_void,
    a_type: c_int,
    lda: c_int,
    b: *const c_void,
    b_type: c_int,
    ldb: c_int,
    beta: *const c_void,
    c: *mut c_void,
    c_type: c_int,
    ldc: c_int,
) -> c_int {
    // SAFETY: the same contract; 68 is CUBLAS_COMPUTE_32F.
    unsafe {
        cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, 68, -1)
    }
}

/// The forms with one `cudaDataType` for all matrices and the `cublasComputeType_t` of the same name.
macro_rules! typed {
    ($($elem:literal $compute:literal: fn $gemm:ident, fn $strided:ident, fn $batched:ident;)*) => {$(
        /// [`cublasGemmEx`] for one type.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $gemm(
            handle: *mut Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
        ) -> c_int {
            // SAFETY: the same contract.
            unsafe {
                cublasGemmEx(
                    handle, ta, tb, m, n, k, alpha, a, $elem, lda, b, $elem, ldb, beta, c, $elem, ldc, $compute, -1,
                )
            }
        }
        /// [`cublasGemmStridedBatchedEx`] for one type.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $strided(
            handle: *mut Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, stride_a: i64, b: *const c_void, ldb: c_int, stride_b: i64,
            beta: *const c_void, c: *mut c_void, ldc: c_int, stride_c: i64, batch: c_int,
        ) -> c_int {
            // SAFETY: the same contract.
            unsafe {
                cublasGemmStridedBatchedEx(
                    handle, ta, tb, m, n, k, alpha, a, $elem, lda, stride_a, b, $elem, ldb, stride_b, beta, c, $elem, ldc,
                    stride_c, batch, $compute, -1,
                )
            }
        }
        /// [`cublasGemmBatchedEx`] for one type.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $batched(
            handle: *mut Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *const c_void, ldc: c_int,
            batch: c_int,
        ) -> c_int {
            // SAFETY: the same contract.
            unsafe {
                cublasGemmBatchedEx(
                    handle, ta, tb, m, n, k, alpha, a, $elem, lda, b, $elem, ldb, beta, c, $elem, ldc, batch, $compute, -1,
                )
            }
        }
    )*};
}

typed! {
    0 68: fn cublasSgemm_v2, fn cublasSgemmStridedBatched, fn cublasSgemmBatched;
    1 70: fn cublasDgemm_v2, fn cublasDgemmStridedBatched, fn cublasDgemmBatched;
    4 68: fn cublasCgemm_v2, fn cublasCgemmStridedBatched, fn cublasCgemmBatched;
    5 70: fn cublasZgemm_v2, fn cublasZgemmStridedBatched, fn cublasZgemmBatched;
}
