//! Batched factorisations and their solves, on matrices behind pointer arrays in device memory.
//!
//! The kernels compute nothing, so pivots and `info` arrays on the device hold whatever the memory held; PyTorch's
//! `_ex` functions hand them on unread. An `info` on the *host*, which only reports bad arguments, is written.

use std::ffi::{c_int, c_void};

use deepum_emu_abi::edge::Failure;
use deepum_emu_abi::elem::Elem;
use deepum_emu_abi::kernels::FACTOR;
use deepum_emu_abi::params::{Operand, READ, WRITE};

use crate::gemm::{Batch, Matrix, operand, tiles};
use crate::handle::Handle;
use crate::status::{Outcome, Status, check, count};

fn behind(
    at: *const c_void,
    elem: Elem,
    ld: c_int,
    rows: u64,
    cols: u64,
    batch: c_int,
    access: u32,
) -> Result<Operand, Status> {
    operand(Matrix { at, elem, ld: ld.into(), stride: 0 }, rows, cols, Batch::Pointers(batch), access)
}

fn ints(at: *const c_int, n: u64, access: u32) -> Operand {
    Operand::new(at.addr() as u64, 4, &[(n, 1)], access)
}

fn launch(handle: &Handle, elem: Elem, size: u64, batch: u64, flops: f64, operands: &[Operand]) -> Outcome {
    if size == 0 || batch == 0 {
        return Ok(());
    }
    let flops = flops * elem.multiply_add() / 2.0 * batch as f64;
    handle.launch::<{ FACTOR.operands }>(FACTOR, tiles(batch, 1, 1), flops, elem.class(false), operands)
}

macro_rules! factorisations {
    ($($elem:ident: fn $getrf:ident, fn $getrs:ident, fn $geqrf:ident;)*) => {$(
        /// LU factorisation; `pivots` may be null, `info` is in device memory.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $getrf(
            handle: *mut Handle, n: c_int, a: *const c_void, lda: c_int, pivots: *mut c_int, info: *mut c_int, batch: c_int,
        ) -> c_int {
            Status::edge(|| {
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                let (n, many) = (count(n)?, count(batch)?);
                let operands = [
                    behind(a, Elem::$elem, lda, n, n, batch, READ | WRITE)?,
                    ints(pivots, n * many, WRITE),
                    ints(info, many, WRITE),
                ];
                launch(handle, Elem::$elem, n, many, 2.0 / 3.0 * (n as f64).powi(3), &operands)
            })
        }
        /// Solve from an LU factorisation; `info` is in host memory.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $getrs(
            handle: *mut Handle, trans: c_int, n: c_int, nrhs: c_int, a: *const c_void, lda: c_int, pivots: *const c_int,
            b: *const c_void, ldb: c_int, info: *mut c_int, batch: c_int,
        ) -> c_int {
            Status::edge(|| {
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                check(&[(trans, 2)])?;
                let (n, nrhs, many) = (count(n)?, count(nrhs)?, count(batch)?);
                let operands = [
                    behind(a, Elem::$elem, lda, n, n, batch, READ)?,
                    ints(pivots, n * many, READ),
                    behind(b, Elem::$elem, ldb, n, nrhs, batch, READ | WRITE)?,
                ];
                // SAFETY: `info` is a host pointer.
                unsafe { Status::put(info, 0) }?;
                launch(handle, Elem::$elem, n.min(nrhs), many, 2.0 * (n as f64).powi(2) * nrhs as f64, &operands)
            })
        }
        /// QR factorisation; `tau` is an array of pointers in device memory, `info` is in host memory.
        ///
        /// # Safety
        /// As documented by cuBLAS.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's signature")]
        pub unsafe extern "C" fn $geqrf(
            handle: *mut Handle, m: c_int, n: c_int, a: *const c_void, lda: c_int, tau: *const c_void, info: *mut c_int,
            batch: c_int,
        ) -> c_int {
            Status::edge(|| {
                // SAFETY: the caller's promise.
                let handle = unsafe { Handle::get(handle) }?;
                let (m, n, many) = (count(m)?, count(n)?, count(batch)?);
                let short = m.min(n);
                let operands = [
                    behind(a, Elem::$elem, lda, m, n, batch, READ | WRITE)?,
                    Operand::write(tau.addr() as u64, Elem::$elem.bytes(), &[(short, 1)]).behind(many),
                ];
                // SAFETY: `info` is a host pointer.
                unsafe { Status::put(info, 0) }?;
                let (long, short) = (m.max(n) as f64, short as f64);
                // 2 long short² - 2/3 short³ (LAPACK Working Note 41, operation counts).
                launch(handle, Elem::$elem, m.min(n), many, 2.0 * short * short * (long - short / 3.0), &operands)
            })
        }
    )*};
}

factorisations! {
    F32: fn cublasSgetrfBatched, fn cublasSgetrsBatched, fn cublasSgeqrfBatched;
    F64: fn cublasDgetrfBatched, fn cublasDgetrsBatched, fn cublasDgeqrfBatched;
    C32: fn cublasCgetrfBatched, fn cublasCgetrsBatched, fn cublasCgeqrfBatched;
    C64: fn cublasZgetrfBatched, fn cublasZgetrsBatched, fn cublasZgeqrfBatched;
}
