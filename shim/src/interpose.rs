//! A row of the table becomes an exported function, a slot for the genuine one, and an entry of `TABLE`.
//!
//! Five kinds of row:
//!
//! - `watch` looks at a call the program makes anyway. The mechanism, not the hook, makes the call: exactly once, with the
//!   program's arguments. The hook has `before(args…) -> Option<Note>` and `after(Note, result)`.
//! - `free` is `watch` for a function that may be given memory that is ours alone, of which the driver knows nothing. The hook has
//!   `ours(genuine, args…) -> Option<result>`, which is asked first, in every stage.
//! - `replace` may make a different call. The hook has `instead(genuine, args…) -> result`, and makes it itself.
//! - `look_up` is `replace` for a function that hands out addresses of functions: ours are handed out wherever it is called.
//! - `replace_by_caller` is `replace` for a function whose treatment depends on who calls it: a stub of two instructions
//!   passes the return address along, in the first register that the arguments leave free.
//!
//! What unwinds out of a watched function (an exception of PyTorch's, a thread that is cancelled) goes on through us; panics of
//! ours stay inside the fence ([`crate::fence`]).
//!
//! Copies have rows of their own, of two twins each, which become two `copy` rows: `watch`, but that the note may have an answer
//! of its own (`refusal`), which then stands for the call; what such a row says is the stream, and how the
//! arguments describe the copy ([`crate::copy`]).
//!
//! A row says the library, the CUDA version since which the driver hands this variant out (0 elsewhere), and what is
//! returned if the library is not there at all.

/// One interposed function.
pub struct Entry {
    /// Its exported name.
    pub name: &'static std::ffi::CStr,
    /// Of which library.
    pub lib: crate::real::Lib,
    /// Since which CUDA version the driver's entry-point getter answers with this variant; 0 for other libraries.
    pub since: u32,
    /// Address of our function.
    pub ours: fn() -> usize,
    /// Address of the genuine one, or 0.
    pub genuine: fn() -> usize,
}

macro_rules! interpose {
    ($(
        $(#[doc = $doc:literal])+
        $kind:ident $lib:ident $since:tt $sym:ident ( $($a:ident : $t:ty),* ) $(-> $ret:ty [$missing:expr])?
            $(, caller in $reg:literal)? => $hook:path;
    )*) => {
        /// Slots of the genuine functions, under their own names.
        #[allow(non_upper_case_globals, reason = "they are called as the C functions are")]
        pub mod genuine {
            use super::*;
            $(pub static $sym: $crate::real::Real<unsafe extern "C-unwind" fn($($t),*) $(-> $ret)?> = $crate::real::Real::new(
                $crate::real::Lib::$lib,
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($sym), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a symbol name holds a NUL"),
                },
            );)*
        }

        /// The exported functions.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "they are called as the C functions are")]
        pub mod exported {
            use super::*;
            $(interpose!(@export $kind $sym ( $($a: $t),* ) $(-> $ret [$missing])? $(, $reg)? => $hook; $($doc)+);)*
        }

        /// Every interposed function of a CUDA or PyTorch library.
        pub static TABLE: &[$crate::interpose::Entry] = &[$($crate::interpose::Entry {
            name: match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($sym), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol name holds a NUL"),
            },
            lib: $crate::real::Lib::$lib,
            since: $since,
            ours: || exported::$sym as *const () as usize,
            genuine: || genuine::$sym.address(),
        }),*];
    };

    (@export watch $sym:ident ( $($a:ident : $t:ty),* ) $(-> $ret:ty [$missing:expr])? => $hook:path; $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $sym($($a: $t),*) $(-> $ret)? {
            let Some(real) = genuine::$sym.get() else { return $($missing)? };
            // SAFETY: the arguments are the program's own to this very function; its contract makes them readable.
            let note = $crate::fence::ours(|| unsafe { <$hook>::before($($a),*) }).flatten();
            // SAFETY: the program's own call: same symbol, same arguments, same thread.
            let ret = unsafe { real($($a),*) };
            if let Some(note) = note {
                $crate::fence::ours(|| <$hook>::after(note, ret));
            }
            ret
        }
    };

    (@export free $sym:ident ( $($a:ident : $t:ty),* ) -> $ret:ty [$missing:expr] => $hook:path; $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $sym($($a: $t),*) -> $ret {
            let Some(real) = genuine::$sym.get() else { return $missing };
            // SAFETY: the arguments are the program's own to this very function; its contract makes them usable.
            if let Some(ret) = unsafe { <$hook>::ours(real, $($a),*) } {
                return ret;
            }
            // SAFETY: as above.
            let note = $crate::fence::ours(|| unsafe { <$hook>::before($($a),*) }).flatten();
            // SAFETY: the program's own call: same symbol, same arguments, same thread.
            let ret = unsafe { real($($a),*) };
            if let Some(note) = note {
                $crate::fence::ours(|| <$hook>::after(note, ret));
            }
            ret
        }
    };

    (@export copy $sym:ident ( $($a:ident : $t:ty),* ) -> $ret:ty [$missing:expr] => $hook:path; $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $sym($($a: $t),*) -> $ret {
            let Some(real) = genuine::$sym.get() else { return $missing };
            // SAFETY: the arguments are the program's own to this very function; its contract makes them readable.
            let note = $crate::fence::ours(|| unsafe { <$hook>::before($($a),*) }).flatten();
            let refused = note.as_ref().and_then(|note| note.refusal());
            // SAFETY: the program's own call: same symbol, same arguments, same thread.
            let ret = refused.unwrap_or_else(|| unsafe { real($($a),*) });
            if let Some(note) = note {
                $crate::fence::ours(|| <$hook>::after(note, ret));
            }
            ret
        }
    };

    (@export replace $($row:tt)*) => { interpose!(@export instead ours $($row)*); };
    (@export look_up $($row:tt)*) => { interpose!(@export instead anywhere $($row)*); };
    (@export instead $fence:ident $sym:ident ( $($a:ident : $t:ty),* ) -> $ret:ty [$missing:expr] => $hook:path; $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $sym($($a: $t),*) -> $ret {
            let Some(real) = genuine::$sym.get() else { return $missing };
            // SAFETY: the arguments are the program's own to this very function; its contract makes them usable.
            let ret = $crate::fence::$fence(|| unsafe { <$hook>::instead(real, $($a),*) });
            // SAFETY: the program's own call: same symbol, same arguments, same thread.
            ret.unwrap_or_else(|| unsafe { real($($a),*) })
        }
    };

    (@export replace_by_caller $sym:ident ( $($a:ident : $t:ty),* ) -> $ret:ty [$missing:expr], $reg:literal => $hook:path; $($doc:literal)+) => {
        $(#[doc = $doc])+
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $sym($($a: $t),*) -> $ret {
            unsafe extern "C-unwind" fn with_caller($($a: $t,)* caller: usize) -> $ret {
                let Some(real) = genuine::$sym.get() else { return $missing };
                // SAFETY: the arguments are the program's own to this very function; its contract makes them usable.
                let ret = $crate::fence::ours(|| unsafe { <$hook>::instead(real, caller, $($a),*) });
                // SAFETY: the program's own call: same symbol, same arguments, same thread.
                ret.unwrap_or_else(|| unsafe { real($($a),*) })
            }
            // The arguments stay where they are; the return address joins them, and the stack is the caller's.
            std::arch::naked_asm!("endbr64", concat!("mov ", $reg, ", [rsp]"), "jmp {}", sym with_caller)
        }
    };
}
pub(crate) use interpose;

/// Since when the driver hands out a twin for per-thread default streams of a function that it hands out since `version`.
pub const fn twin_since(version: u32) -> u32 {
    match version {
        0 => 0,
        1..7000 => 7000,
        later => later,
    }
}

macro_rules! interpose_copies {
    ($(
        #[doc = $doc:literal]
        copy $lib:ident $since:literal [$sym:ident $(, $twin:ident)?] $args:tt => $stream:expr, $how:ident $what:tt;
    )*) => {
        /// One hook for each function, under its own name.
        #[allow(non_camel_case_types, reason = "they are called as the C functions are")]
        mod hooks {
            use super::*;
            $(
                interpose_copies!(@hook $sym false $args => $stream, $how $what);
                $(interpose_copies!(@hook $twin true $args => $stream, $how $what);)?
            )*
        }

        interpose! {$(
            #[doc = $doc]
            copy $lib $since $sym $args -> Status [GONE] => hooks::$sym;
            $(
                #[doc = $doc]
                copy $lib (twin_since($since)) $twin $args -> Status [GONE] => hooks::$twin;
            )?
        )*}
    };
    (@hook $sym:ident $per_thread:literal ( $($a:ident : $t:ty),* ) => $stream:expr, $how:ident ( $($what:expr),* )) => {
        pub struct $sym;

        impl $sym {
            /// The copy begins.
            #[allow(unused_variables, clippy::too_many_arguments, reason = "the function's own; a copy may not need all of them")]
            pub unsafe fn before($($a: $t),*) -> Option<Note> {
                let mut copy = crate::copy::begin(stringify!($sym), $stream, $per_thread)?;
                // SAFETY: the arguments are the program's own to this function.
                #[allow(unused_unsafe, reason = "not every description has to be read")]
                unsafe { copy.$how($($what),*) };
                copy.end()
            }
            /// It was given to the driver.
            pub fn after(note: Note, status: Status) {
                crate::copy::after(note, status);
            }
        }
    };
}
pub(crate) use interpose_copies;

/// Hooks of watched functions that want to know only how the call ended.
macro_rules! when_over {
    ($($(#[doc = $doc:literal])+ $hook:ident($($t:ty),*) => $then:expr;)*) => {$(
        $(#[doc = $doc])+
        pub struct $hook;

        impl $hook {
            /// Nothing is known before.
            pub unsafe fn before($(_: $t),*) -> Option<()> {
                Some(())
            }
            /// How it ended.
            pub fn after((): (), status: Status) {
                $then(status);
            }
        }
    )*};
}
pub(crate) use when_over;
