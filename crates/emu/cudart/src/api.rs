//! The exported functions, one file per chapter of the CUDA Runtime API. Every function here has the vendor's documentation as its
//! contract; a comment stands only where the translation is not plain.

mod advice;
mod copy;
mod device;
mod event;
mod function;
mod graph;
mod ipc;
mod launch;
mod library;
mod memory;
mod pool;
mod query;
mod register;
mod stream;

/// Defines exported functions.
///
/// `fn NAME(arguments) { body }`: the body is a block of type [`crate::error::Result`].
/// `fn NAME, TWIN on STREAM (arguments) { body }`: also the twin for per-thread default streams, in which stream 0 is the thread's.
macro_rules! export {
    () => {};
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::error::Status {
            $crate::error::entry(|| $body)
        }
        $crate::api::export! { $($rest)* }
    };
    ($(#[$attribute:meta])* fn $name:ident, $twin:ident on $stream:ident ($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::error::Status {
            $crate::error::entry(|| $body)
        }
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $twin($($argument: $type),*) -> $crate::error::Status {
            let $stream = $stream.per_thread();
            $crate::error::entry(|| $body)
        }
        $crate::api::export! { $($rest)* }
    };
}
use export;

/// Writes a result where the program wants it; a null address is an invalid value, as everywhere in the runtime.
///
/// # Safety
/// `to` must be null or writable as a `T`.
unsafe fn put<T>(to: *mut T, value: T) -> crate::error::Result {
    if to.is_null() {
        return Err(crate::error::Error::INVALID_VALUE);
    }
    // SAFETY: not null, so writable by the caller's promise; programs' structures need not be aligned for us.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
