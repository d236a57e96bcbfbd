//! Vector and matrix-vector operations (BLAS levels 1 and 2): dot products, norms, scaling, gemv, rank-one updates.
//!
//! A vector of `n` elements with increment `inc` starts, for a negative increment, at its highest address; which bytes are
//! touched does not depend on the sign. Level 1 is bound by bytes on every device; its arithmetic is not counted. Results go to device memory in device pointer mode; in host mode through the handle's
//! workspace to the host, and the call waits, as documented.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::{GEMV, REDUCE, VECTOR};
use deepum_emu_abi::params::{Class, Operand, READ, WRITE};

use crate::gemm::{Batch, Matrix, operand, tiles};
use crate::handle::Handle;
use crate::status::{Outcome, Status, count};
use crate::types::{PointerMode, elem, transposed};

/// A vector as an operand.
fn vector(at: *const c_void, elem: Elem, n: u64, inc: c_int, access: u32) -> Operand {
    Operand::new(at.addr() as u64, elem.bytes(), &[(n, u64::from(inc.unsigned_abs()))], access)
}

/// A reduction of vectors to one result of type `result`.
///
/// # Safety
/// `handle` is null or live; `out` fits the handle's pointer mode.
unsafe fn reduce(
    handle: *const Handle,
    n: c_int,
    vectors: &[(*const c_void, Elem, c_int)],
    out: *mut c_void,
    result: u32,
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    if out.is_null() {
        return Err(Status::InvalidValue);
    }
    let n = u64::try_from(n).unwrap_or(0);
    let host = handle.settings().pointer_mode == PointerMode::Host;
    let to = if host { handle.workspace() } else { out.addr() as u64 };
    let mut operands = vec![Operand::write(to, result, &[(1, 1)])];
    operands.extend(vectors.iter().map(|&(at, elem, inc)| vector(at, elem, n, inc, READ)));
    handle.launch::<{ REDUCE.operands }>(REDUCE, tiles(n, 1, 1), 0.0, Class::Fp32, &operands)?;
    if host {
        // SAFETY: in host mode `out` is the caller's result of this size.
        unsafe { handle.fetch(out, result as usize) }?;
    }
    Ok(())
}

macro_rules! dots {
    ($($elem:ident: $(fn $name:ident),*;)*) => {$($(
        /// Dot product of two vectors.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: *mut Handle, n: c_int, x: *const c_void, incx: c_int, y: *const c_void, incy: c_int, result: *mut c_void,
        ) -> c_int {
            let elem = Elem::$elem;
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { reduce(handle, n, &[(x, elem, incx), (y, elem, incy)], result, elem.bytes()) })
        }
    )*)*};
}

dots! {
    F32: fn cublasSdot_v2;
    F64: fn cublasDdot_v2;
    C32: fn cublasCdotu_v2, fn cublasCdotc_v2;
    C64: fn cublasZdotu_v2, fn cublasZdotc_v2;
}

/// Dot product with a type for each vector and the result.
///
/// # Safety
/// As documented by cuBLAS.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
pub unsafe extern "C" fn cublasDotEx(
    handle: *mut Handle,
    n: c_int,
    x: *const c_void,
    x_type: c_int,
    incx: c_int,
    y: *const c_void,
    y_type: c_int,
    incy: c_int,
    result: *mut c_void,
    result_type: c_int,
    _execution_type: c_int,
) -> c_int {
    Status::edge(|| {
        let vectors = [(x, elem(x_type)?, incx), (y, elem(y_type)?, incy)];
        // SAFETY: the caller's promise.
        unsafe { reduce(handle, n, &vectors, result, elem(result_type)?.bytes()) }
    })
}

macro_rules! norms {
    ($($elem:ident -> $bytes:literal: $(fn $name:ident),*;)*) => {$($(
        /// A norm, or the index of an extreme element, of one vector.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            handle: *mut Handle, n: c_int, x: *const c_void, incx: c_int, result: *mut c_void,
        ) -> c_int {
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { reduce(handle, n, &[(x, Elem::$elem, incx)], result, $bytes) })
        }
    )*)*};
}

norms! {
    F32 -> 4: fn cublasSnrm2_v2, fn cublasSasum_v2, fn cublasIsamax_v2, fn cublasIsamin_v2;
    C32 -> 4: fn cublasScnrm2_v2, fn cublasScasum_v2, fn cublasIcamax_v2, fn cublasIcamin_v2;
    F64 -> 8: fn cublasDnrm2_v2, fn cublasDasum_v2;
    F64 -> 4: fn cublasIdamax_v2, fn cublasIdamin_v2;
    C64 -> 8: fn cublasDznrm2_v2, fn cublasDzasum_v2;
    C64 -> 4: fn cublasIzamax_v2, fn cublasIzamin_v2;
}

/// An elementwise operation on one or two vectors, and perhaps a scalar.
///
/// # Safety
/// `handle` is null or live; the scalar as the pointer mode says.
unsafe fn map(
    handle: *const Handle,
    n: c_int,
    elem: Elem,
    scalar: Option<(*const c_void, Elem)>,
    vectors: &[(*const c_void, c_int, u32)],
) -> Outcome {
    // SAFETY: the caller's promise.
    let handle = unsafe { Handle::get(handle) }?;
    let Ok(n @ 1..) = u64::try_from(n) else {
        return Ok(());
    };
    let mut operands = Vec::with_capacity(VECTOR.operands);
    if let Some((at, elem)) = scalar {
        // SAFETY: the caller's promise.
        operands.push(unsafe { handle.scalar(at, elem) }?.operand);
    }
    operands.extend(vectors.iter().map(|&(at, inc, access)| vector(at, elem, n, inc, access)));
    handle.launch::<{ VECTOR.operands }>(VECTOR, tiles(n, 1, 1), 0.0, Class::Fp32, &operands)
}

macro_rules! maps {
    ($($elem:ident: fn $axpy:ident, fn $copy:ident, fn $swap:ident, $($scalar:ident fn $scal:ident),*;)*) => {$(
        /// `y = alpha x + y`.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $axpy(
            handle: *mut Handle, n: c_int, alpha: *const c_void, x: *const c_void, incx: c_int, y: *mut c_void, incy: c_int,
        ) -> c_int {
            let vectors = [(x, incx, READ), (y.cast_const(), incy, READ | WRITE)];
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { map(handle, n, Elem::$elem, Some((alpha, Elem::$elem)), &vectors) })
        }
        /// `y = x`.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $copy(
            handle: *mut Handle, n: c_int, x: *const c_void, incx: c_int, y: *mut c_void, incy: c_int,
        ) -> c_int {
            let vectors = [(x, incx, READ), (y.cast_const(), incy, WRITE)];
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { map(handle, n, Elem::$elem, None, &vectors) })
        }
        /// Exchanges x and y.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $swap(
            handle: *mut Handle, n: c_int, x: *mut c_void, incx: c_int, y: *mut c_void, incy: c_int,
        ) -> c_int {
            let vectors = [(x.cast_const(), incx, READ | WRITE), (y.cast_const(), incy, READ | WRITE)];
            // SAFETY: the caller's promise.
            Status::edge(|| unsafe { map(handle, n, Elem::$elem, None, &vectors) })
        }
        $(
            /// `x = alpha x`.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $scal(
                handle: *mut Handle, n: c_int, alpha: *const c_void, x: *mut c_void, incx: c_int,
            ) -> c_int {
                let (alpha, x) = ((alpha, Elem::$scalar), [(x.cast_const(), incx, READ | WRITE)]);
                // SAFETY: the caller's promise.
                Status::edge(|| unsafe { map(handle, n, Elem::$elem, Some(alpha), &x) })
            }
        )*
    )*};
}

maps! {
    F32: fn cublasSaxpy_v2, fn cublasScopy_v2, fn cublasSswap_v2, F32 fn cublasSscal_v2;
    F64: fn cublasDaxpy_v2, fn cublasDcopy_v2, fn cublasDswap_v2, F64 fn cublasDscal_v2;
    C32: fn cublasCaxpy_v2, fn cublasCcopy_v2, fn cublasCswap_v2, C32 fn cublasCscal_v2, F32 fn cublasCsscal_v2;
    C64: fn cublasZaxpy_v2, fn cublasZcopy_v2, fn cublasZswap_v2, C64 fn cublasZscal_v2, F64 fn cublasZdscal_v2;
}

macro_rules! gemvs {
    ($($elem:ident: fn $gemv:ident, $(fn $ger:ident),*;)*) => {$(
        /// `y = alpha op(A) x + beta y`.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $gemv(
            handle: *mut Handle, trans: c_int, m: c_int, n: c_int, alpha: *const c_void, a: *const c_void, lda: c_int,
            x: *const c_void, incx: c_int, beta: *const c_void, y: *mut c_void, incy: c_int,
        ) -> c_int {
            Status::edge(|| {
                let elem = Elem::$elem;
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                let (m, n) = (count(m)?, count(n)?);
                let (x_len, y_len) = if transposed(trans)? { (m, n) } else { (n, m) };
                if incx == 0 || incy == 0 {
                    return Err(Status::InvalidValue);
                }
                // SAFETY: the caller's promise.
                let (alpha, beta) = unsafe { (handle.scalar(alpha, elem)?, handle.scalar(beta, elem)?) };
                let matrix = Matrix { at: a, elem, ld: lda.into(), stride: 0 };
                let operands = [
                    alpha.times(operand(matrix, m, n, Batch::ONE, READ)?),
                    alpha.times(vector(x, elem, x_len, incx, READ)),
                    vector(y, elem, y_len, incy, beta.blend()),
                    alpha.operand,
                    beta.operand,
                ];
                if m == 0 || n == 0 {
                    return Ok(());
                }
                let flops = if alpha.is_zero { 0.0 } else { elem.multiply_add() * m as f64 * n as f64 };
                handle.launch::<{ GEMV.operands }>(GEMV, tiles(y_len, 1, 1), flops, elem.class(false), &operands)
            })
        }
        $(
            /// `A = alpha x y' + A`.
            ///
            /// # Safety
            /// As documented by cuBLAS.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
            pub unsafe extern "C" fn $ger(
                handle: *mut Handle, m: c_int, n: c_int, alpha: *const c_void, x: *const c_void, incx: c_int,
                y: *const c_void, incy: c_int, a: *mut c_void, lda: c_int,
            ) -> c_int {
                Status::edge(|| {
                    let elem = Elem::$elem;
                    // SAFETY: the caller's promise.
                    let handle = unsafe { Handle::get(handle) }?;
                    let (m, n) = (count(m)?, count(n)?);
                    if incx == 0 || incy == 0 {
                        return Err(Status::InvalidValue);
                    }
                    // SAFETY: the caller's promise.
                    let alpha = unsafe { handle.scalar(alpha, elem) }?;
                    let matrix = Matrix { at: a, elem, ld: lda.into(), stride: 0 };
                    let operands = [
                        operand(matrix, m, n, Batch::ONE, READ | WRITE)?,
                        vector(x, elem, m, incx, READ),
                        vector(y, elem, n, incy, READ),
                        alpha.operand,
                    ];
                    if m == 0 || n == 0 {
                        return Ok(());
                    }
                    let flops = elem.multiply_add() * m as f64 * n as f64;
                    handle.launch::<{ GEMV.operands }>(GEMV, tiles(m, n, 1), flops, elem.class(false), &operands)
                })
            }
        )*
    )*};
}

gemvs! {
    F32: fn cublasSgemv_v2, fn cublasSger_v2;
    F64: fn cublasDgemv_v2, fn cublasDger_v2;
    C32: fn cublasCgemv_v2, fn cublasCgeru_v2, fn cublasCgerc_v2;
    C64: fn cublasZgemv_v2, fn cublasZgeru_v2, fn cublasZgerc_v2;
}
