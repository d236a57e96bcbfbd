//! Operations with a triangular or symmetric matrix (BLAS level 3): solves, products, rank-k updates.
//!
//! Of a triangular or symmetric n × n matrix only one triangle is stored; the operand is the whole square, as the columns of
//! a triangle cover its pages but for less than one column at each step. The difference is stated here because it is the one
//! place where an operand of this library is larger than what is read. Scalars that are zero save reading as in [`crate::gemm`].

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::{LEVEL3, TRSM};
use deepum_emu_abi::params::{Operand, READ};

use crate::gemm::{Batch, Matrix, operand, tiles};
use crate::handle::Handle;
use crate::status::{Outcome, Status, check, count};
use crate::types::{Scalar, left, transposed};

/// An address and a leading dimension.
type Place = (*const c_void, c_int);

fn square(at: Place, elem: Elem, n: u64, access: u32) -> Result<Operand, Status> {
    rectangle(at, elem, [n, n], Batch::ONE, access)
}

fn rectangle(
    (at, ld): Place,
    elem: Elem,
    [rows, cols]: [u64; 2],
    batch: Batch,
    access: u32,
) -> Result<Operand, Status> {
    operand(Matrix { at, elem, ld: ld.into(), stride: 0 }, rows, cols, batch, access)
}

/// `B = alpha op(A)^-1 B` or `B = alpha B op(A)^-1`: A is triangular, of the side B is multiplied from.
///
/// # Safety
/// `handle` is null or live; alpha as the pointer mode says.
#[allow(clippy::too_many_arguments, reason = "the vendor's arguments, in the vendor's order")]
unsafe fn solve(
    handle: *const Handle,
    elem: Elem,
    [side, uplo, trans, diag]: [c_int; 4],
    [m, n]: [c_int; 2],
    alpha: *const c_void,
    a: Place,
    b: Place,
    batch: Batch,
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    check(&[(uplo, 1), (trans, 2), (diag, 1)])?;
    let (m, n, many) = (count(m)?, count(n)?, batch.count()?);
    let order = if left(side)? { m } else { n };
    // SAFETY: the caller's promise.
    let alpha = unsafe { handle.scalar(alpha, elem) }?;
    let operands = [
        alpha.times(rectangle(a, elem, [order, order], batch, READ)?),
        rectangle(b, elem, [m, n], batch, alpha.blend())?,
        alpha.operand,
    ];
    if m == 0 || n == 0 || many == 0 {
        return Ok(());
    }
    // Half of a full product's multiply-adds: the matrix is triangular.
    let per_product = if alpha.is_zero { 0.0 } else { elem.multiply_add() / 2.0 };
    let flops = per_product * m as f64 * n as f64 * order as f64 * many as f64;
    handle.launch::<{ TRSM.operands }>(TRSM, tiles(m, n, many), flops, elem.class(false), &operands)
}

/// `C = alpha A B + beta C` or `C = alpha B A + beta C`: A is square, of the side B is multiplied from. A triangular A, which
/// has no beta, is half of the work.
///
/// # Safety
/// `handle` is null or live; alpha and beta, if there is one, as the pointer mode says.
#[allow(clippy::too_many_arguments, reason = "the vendor's arguments, in the vendor's order")]
unsafe fn product(
    handle: *const Handle,
    elem: Elem,
    side: c_int,
    [m, n]: [c_int; 2],
    alpha: *const c_void,
    a: Place,
    b: Place,
    beta: Option<*const c_void>,
    c: Place,
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    let (m, n) = (count(m)?, count(n)?);
    let order = if left(side)? { m } else { n };
    // SAFETY: the caller's promise.
    let alpha = unsafe { handle.scalar(alpha, elem) }?;
    let (beta, part) = match beta {
        // SAFETY: the caller's promise.
        Some(beta) => (unsafe { handle.scalar(beta, elem) }?, 1.0),
        None => (Scalar { is_zero: true, ..Scalar::default() }, 0.5),
    };
    let operands = [
        alpha.times(square(a, elem, order, READ)?),
        alpha.times(rectangle(b, elem, [m, n], Batch::ONE, READ)?),
        rectangle(c, elem, [m, n], Batch::ONE, beta.blend())?,
        alpha.operand,
        beta.operand,
    ];
    if m == 0 || n == 0 {
        return Ok(());
    }
    let per_product = if alpha.is_zero { 0.0 } else { part * elem.multiply_add() };
    let flops = per_product * m as f64 * n as f64 * order as f64;
    handle.launch::<{ LEVEL3.operands }>(LEVEL3, tiles(m, n, 1), flops, elem.class(false), &operands)
}

/// A rank-k or rank-2k update of one triangle of C: one or two factors. `scalars` are the types of alpha and beta.
///
/// # Safety
/// `handle` is null or live; alpha and beta as the pointer mode says.
#[allow(clippy::too_many_arguments, reason = "the vendor's arguments, in the vendor's order")]
unsafe fn update(
    handle: *const Handle,
    elem: Elem,
    scalars: [Elem; 2],
    [uplo, trans]: [c_int; 2],
    [n, k]: [c_int; 2],
    alpha: *const c_void,
    factors: &[Place],
    beta: *const c_void,
    c: Place,
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    check(&[(uplo, 1)])?;
    let (n, k) = (count(n)?, count(k)?);
    let shape = if transposed(trans)? { [k, n] } else { [n, k] };
    // SAFETY: the caller's promise.
    let (alpha, beta) = unsafe { (handle.scalar(alpha, scalars[0])?, handle.scalar(beta, scalars[1])?) };
    let mut operands = Vec::with_capacity(LEVEL3.operands);
    for &factor in factors {
        operands.push(alpha.times(rectangle(factor, elem, shape, Batch::ONE, READ)?));
    }
    operands.extend([square(c, elem, n, beta.blend())?, alpha.operand, beta.operand]);
    if n == 0 {
        return Ok(());
    }
    // Half of the full products, of which a rank-2k update has two.
    let per_product = if alpha.is_zero { 0.0 } else { elem.multiply_add() / 2.0 * factors.len() as f64 };
    let flops = per_product * n as f64 * n as f64 * k as f64;
    handle.launch::<{ LEVEL3.operands }>(LEVEL3, tiles(n, n, 1), flops, elem.class(false), &operands)
}

macro_rules! triangular {
    ($($elem:ident: fn $trsm:ident, fn $batched:ident, fn $trmm:ident;)*) => {$(
        /// Triangular solve with many right-hand sides.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $trsm(
            handle: *mut Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *mut c_void, ldb: c_int,
        ) -> c_int {
            let flags = [side, uplo, trans, diag];
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe {
                solve(handle, Elem::$elem, flags, [m, n], alpha, (a, lda), (b, ldb), Batch::ONE)
            })
        }
        /// The same for matrices behind pointer arrays in device memory.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $batched(
            handle: *mut Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, batch: c_int,
        ) -> c_int {
            let flags = [side, uplo, trans, diag];
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe {
                solve(handle, Elem::$elem, flags, [m, n], alpha, (a, lda), (b, ldb), Batch::Pointers(batch))
            })
        }
        /// `C = alpha op(A) B` with A triangular.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $trmm(
            handle: *mut Handle, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: c_int, n: c_int,
            alpha: *const c_void, a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, c: *mut c_void, ldc: c_int,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe {
                check(&[(uplo, 1), (trans, 2), (diag, 1)])?;
                product(handle, Elem::$elem, side, [m, n], alpha, (a, lda), (b, ldb), None, (c, ldc))
            })
        }
    )*};
}

triangular! {
    F32: fn cublasStrsm_v2, fn cublasStrsmBatched, fn cublasStrmm_v2;
    F64: fn cublasDtrsm_v2, fn cublasDtrsmBatched, fn cublasDtrmm_v2;
    C32: fn cublasCtrsm_v2, fn cublasCtrsmBatched, fn cublasCtrmm_v2;
    C64: fn cublasZtrsm_v2, fn cublasZtrsmBatched, fn cublasZtrmm_v2;
}

macro_rules! symmetric {
    ($($elem:ident: $(fn $symm:ident),*;)*) => {$($(
        /// `C = alpha A B + beta C` with A symmetric or Hermitian.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $symm(
            handle: *mut Handle, side: c_int, uplo: c_int, m: c_int, n: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe {
                check(&[(uplo, 1)])?;
                product(handle, Elem::$elem, side, [m, n], alpha, (a, lda), (b, ldb), Some(beta), (c, ldc))
            })
        }
    )*)*};
}

symmetric! {
    F32: fn cublasSsymm_v2;
    F64: fn cublasDsymm_v2;
    C32: fn cublasCsymm_v2, fn cublasChemm_v2;
    C64: fn cublasZsymm_v2, fn cublasZhemm_v2;
}

/// Updates, with the types of matrices, alpha, and beta.
macro_rules! updates {
    ($($elem:ident $alpha:ident $beta:ident: $(rank_k fn $syrk:ident)? $(rank_2k fn $syr2k:ident)?;)*) => {$(
        $(
            /// `C = alpha op(A) op(A)' + beta C`, one triangle of C.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $syrk(
                handle: *mut Handle, uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: *const c_void,
                a: *const c_void, lda: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
            ) -> c_int {
                let (scalars, flags) = ([Elem::$alpha, Elem::$beta], [uplo, trans]);
                // SAFETY: the caller's promise.
                Status::edge(|| unsafe {
                    update(handle, Elem::$elem, scalars, flags, [n, k], alpha, &[(a, lda)], beta, (c, ldc))
                })
            }
        )?
        $(
            /// `C = alpha (op(A) op(B)' + op(B) op(A)') + beta C`, one triangle of C.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $syr2k(
                handle: *mut Handle, uplo: c_int, trans: c_int, n: c_int, k: c_int, alpha: *const c_void,
                a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int,
            ) -> c_int {
                let (scalars, flags) = ([Elem::$alpha, Elem::$beta], [uplo, trans]);
                // SAFETY: the caller's promise.
                Status::edge(|| unsafe {
                    update(handle, Elem::$elem, scalars, flags, [n, k], alpha, &[(a, lda), (b, ldb)], beta, (c, ldc))
                })
            }
        )?
    )*};
}

updates! {
    F32 F32 F32: rank_k fn cublasSsyrk_v2 rank_2k fn cublasSsyr2k_v2;
    F64 F64 F64: rank_k fn cublasDsyrk_v2 rank_2k fn cublasDsyr2k_v2;
    C32 C32 C32: rank_k fn cublasCsyrk_v2 rank_2k fn cublasCsyr2k_v2;
    C64 C64 C64: rank_k fn cublasZsyrk_v2 rank_2k fn cublasZsyr2k_v2;
    C32 F32 F32: rank_k fn cublasCherk_v2;
    C64 F64 F64: rank_k fn cublasZherk_v2;
    C32 C32 F32: rank_2k fn cublasCher2k_v2;
    C64 C64 F64: rank_2k fn cublasZher2k_v2;
}
