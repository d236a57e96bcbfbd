//! Matrix products: every form of `C = alpha op(A) op(B) + beta C` in cuBLAS, one at a time or batched.
//!
//! All forms meet in [`Product`]. Matrices are column-major: element (i, j) lies at `i + j * ld`.
//! As documented, A and B are not read when alpha is zero, and C is not read when beta is zero; with alpha and beta on the
//! device nobody here knows, and all are read.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::kernels::GEMM;
use deepum_emu_abi::params::{Operand, READ, WRITE};

use crate::edge::{Outcome, Status, count, edge};
use crate::handle::{Handle, PointerMode};
use crate::types::{Compute, Elem, transposed};

/// A matrix argument as passed: address (of the matrix, or of an array of addresses), element type, leading dimension, and
/// distance to the next of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    pub at: *const c_void,
    pub elem: Elem,
    pub ld: i64,
    pub stride: i64,
}

impl Matrix {
    /// With the element type as C passes it.
    fn new(at: *const c_void, elem: c_int, ld: c_int, stride: i64) -> Result<Self, Status> {
        Ok(Self { at, elem: Elem::new(elem)?, ld: ld.into(), stride })
    }
}

/// One of three ways to say which matrices are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// One product.
    Single,
    /// So many, each matrix at its stride from the one before.
    Strided(c_int),
    /// So many, each matrix behind a pointer in an array in device memory.
    Pointers(c_int),
}

/// A product as passed by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub ops: [c_int; 2],
    pub m: c_int,
    pub n: c_int,
    pub k: c_int,
    pub alpha: *const c_void,
    pub beta: *const c_void,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub compute: Compute,
    pub batch: Batch,
}

/// A column-major matrix of `rows` × `cols` as an operand, batched as `batch` says.
pub fn operand(matrix: Matrix, rows: u64, cols: u64, batch: Batch, access: u32) -> Result<Operand, Status> {
    let ld = count(matrix.ld)?;
    if ld < rows.max(1) {
        return Err(Status::InvalidValue);
    }
    let ptr = matrix.at.addr() as u64;
    let bytes = matrix.elem.bytes();
    Ok(match batch {
        Batch::Single => Operand::new(ptr, bytes, &[(rows, 1), (cols, ld)], access),
        Batch::Strided(n) => {
            Operand::new(ptr, bytes, &[(rows, 1), (cols, ld), (count(n)?, count(matrix.stride)?)], access)
        }
        Batch::Pointers(n) => Operand::new(ptr, bytes, &[(rows, 1), (cols, ld)], access).behind(count(n)?),
    })
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
        let (m, n, k) = (count(self.m)?, count(self.n)?, count(self.k)?);
        let batch = match self.batch {
            Batch::Single => 1,
            Batch::Strided(n) | Batch::Pointers(n) => count(n)?,
        };
        let [ta, tb] = [transposed(self.ops[0])?, transposed(self.ops[1])?];
        if self.alpha.is_null() || self.beta.is_null() {
            return Err(Status::InvalidValue);
        }
        let settings = *handle.settings();
        let scalar = self.compute.scalar(self.a.elem);
        let (mut no_alpha, mut no_beta) = (false, false);
        let mut scalars = [Operand::default(); 2];
        if settings.pointer_mode == PointerMode::Host {
            // SAFETY: host pointers to scalars of this type, by the caller's promise and the mode.
            (no_alpha, no_beta) = unsafe { (scalar.is_zero(self.alpha), scalar.is_zero(self.beta)) };
        } else {
            scalars = [self.alpha, self.beta].map(|s| Operand::read(s.addr() as u64, scalar.bytes(), &[(1, 1)]));
        }
        let shape = |transposed, rows, cols| if transposed { (cols, rows) } else { (rows, cols) };
        let (a_rows, a_cols) = shape(ta, m, k);
        let (b_rows, b_cols) = shape(tb, k, n);
        let mut a = operand(self.a, a_rows, a_cols, self.batch, READ)?;
        let mut b = operand(self.b, b_rows, b_cols, self.batch, READ)?;
        let c = operand(self.c, m, n, self.batch, if no_beta { WRITE } else { READ | WRITE })?;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let mut flops = self.a.elem.multiply_add() * (m as f64) * (n as f64) * (k as f64) * (batch as f64);
        if no_alpha {
            (a.ptr, b.ptr, flops) = (0, 0, 0.0);
        }
        let tf32 = settings.math_mode & 15 == 3;
        let class = self.compute.class(self.a.elem, tf32, handle.capability());
        handle.launch::<{ GEMM.operands }>(GEMM, tiles(m, n, batch), flops, class, &[a, b, c, scalars[0], scalars[1]])
    }
}

/// The typed forms: one element type for everything.
macro_rules! typed {
    ($($elem:ident $compute:ident: fn $gemm:ident, fn $strided:ident, fn $batched:ident;)*) => {$(
        /// `C = alpha op(A) op(B) + beta C`.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $gemm(
            handle: *mut Handle, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
        ) -> c_int {
            let matrix = |at, ld: c_int| Matrix { at, elem: Elem::$elem, ld: ld.into(), stride: 0 };
            let product = Product {
                ops: [ta, tb], m, n, k, alpha, beta,
                a: matrix(a, lda), b: matrix(b, ldb), c: matrix(c, ldc),
                compute: Compute::$compute, batch: Batch::Single,
            };
            // SAFETY: the caller's promise.
            edge(|| unsafe { product.run(handle) })
        }
        /// The same for matrices at fixed strides.
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
            let matrix = |at, ld: c_int, stride| Matrix { at, elem: Elem::$elem, ld: ld.into(), stride };
            let product = Product {
                ops: [ta, tb], m, n, k, alpha, beta,
                a: matrix(a, lda, stride_a), b: matrix(b, ldb, stride_b), c: matrix(c, ldc, stride_c),
                compute: Compute::$compute, batch: Batch::Strided(batch),
            };
            // SAFETY: the caller's promise.
            edge(|| unsafe { product.run(handle) })
        }
        /// The same for matrices behind pointer arrays in device memory.
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
            let matrix = |at, ld: c_int| Matrix { at, elem: Elem::$elem, ld: ld.into(), stride: 0 };
            let product = Product {
                ops: [ta, tb], m, n, k, alpha, beta,
                a: matrix(a, lda), b: matrix(b, ldb), c: matrix(c, ldc),
                compute: Compute::$compute, batch: Batch::Pointers(batch),
            };
            // SAFETY: the caller's promise.
            edge(|| unsafe { product.run(handle) })
        }
    )*};
}

typed! {
    F16 F16: fn cublasHgemm, fn cublasHgemmStridedBatched, fn cublasHgemmBatched;
    F32 F32: fn cublasSgemm_v2, fn cublasSgemmStridedBatched, fn cublasSgemmBatched;
    F64 F64: fn cublasDgemm_v2, fn cublasDgemmStridedBatched, fn cublasDgemmBatched;
    C32 F32: fn cublasCgemm_v2, fn cublasCgemmStridedBatched, fn cublasCgemmBatched;
    C64 F64: fn cublasZgemm_v2, fn cublasZgemmStridedBatched, fn cublasZgemmBatched;
}

/// The form with a type for each matrix and for the computation.
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
    _algorithm: c_int,
) -> c_int {
    edge(|| {
        let matrix = |at, elem, ld| Matrix::new(at, elem, ld, 0);
        let product = Product {
            ops: [ta, tb],
            m,
            n,
            k,
            alpha,
            beta,
            a: matrix(a, a_type, lda)?,
            b: matrix(b, b_type, ldb)?,
            c: matrix(c, c_type, ldc)?,
            compute: Compute::new(compute)?,
            batch: Batch::Single,
        };
        // SAFETY: the caller's promise.
        unsafe { product.run(handle) }
    })
}

/// Single-precision computation on matrices of other types.
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

/// [`cublasGemmEx`] for matrices at fixed strides.
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
    edge(|| {
        let matrix = Matrix::new;
        let product = Product {
            ops: [ta, tb],
            m,
            n,
            k,
            alpha,
            beta,
            a: matrix(a, a_type, lda, stride_a)?,
            b: matrix(b, b_type, ldb, stride_b)?,
            c: matrix(c, c_type, ldc, stride_c)?,
            compute: Compute::new(compute)?,
            batch: Batch::Strided(batch),
        };
        // SAFETY: the caller's promise.
        unsafe { product.run(handle) }
    })
}

/// [`cublasGemmEx`] for matrices behind pointer arrays in device memory.
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
    edge(|| {
        let matrix = |at, elem, ld| Matrix::new(at, elem, ld, 0);
        let product = Product {
            ops: [ta, tb],
            m,
            n,
            k,
            alpha,
            beta,
            a: matrix(a, a_type, lda)?,
            b: matrix(b, b_type, ldb)?,
            c: matrix(c, c_type, ldc)?,
            compute: Compute::new(compute)?,
            batch: Batch::Pointers(batch),
        };
        // SAFETY: the caller's promise.
        unsafe { product.run(handle) }
    })
}
