//! Which CUDA runtime this is: the major version in the file name it was loaded under.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// A CUDA runtime that can be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Major {
    /// `libcudart.so.12`
    Twelve,
    /// `libcudart.so.13`
    Thirteen,
}

impl Major {
    /// What `cudaRuntimeGetVersion` says: the releases that torch 2.9.1 and 2.15.0 were built with (facts 20).
    pub const fn version(self) -> i32 {
        match self {
            Self::Twelve => 12_080,
            Self::Thirteen => 13_020,
        }
    }

    /// The version in a file name such as `/some/where/libcudart.so.13.2.86`.
    fn of_file(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?.strip_prefix("libcudart.so.")?;
        match name.split('.').next()? {
            "12" => Some(Self::Twelve),
            "13" => Some(Self::Thirteen),
            _ => None,
        }
    }
}

/// The version this copy plays; `None`, said once on stderr, if the name names neither.
pub fn major() -> Option<Major> {
    static MAJOR: OnceLock<Option<Major>> = OnceLock::new();
    *MAJOR.get_or_init(|| {
        let file = own_file().unwrap_or_default();
        let major = Major::of_file(&file);
        if major.is_none() {
            crate::error::say(&format!(
                "the CUDA runtime was loaded as `{file}`; allowed names: libcudart.so.12, libcudart.so.13"
            ));
        }
        major
    })
}

/// The path this library was loaded under: the link's own, not what it points to.
fn own_file() -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = own_file as fn() -> Option<String> as *const c_void;
    // SAFETY: dladdr takes any address and fills `info` when it returns non-zero.
    let found = unsafe { libc::dladdr(here, info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed is a valid Dl_info: integers and null pointers.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own NUL-terminated name of this library, which stays while our code runs.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::Major;

    #[test]
    fn the_major_version_is_read_from_the_name_alone() {
        assert_eq!(Major::of_file("/a/libcudart.so.12"), Some(Major::Twelve));
        assert_eq!(Major::of_file("libcudart.so.13.2.86"), Some(Major::Thirteen));
        assert_eq!(Major::of_file("/cuda-13/libcudart.so.11.0"), None);
        assert_eq!(Major::of_file("/libcudart.so.13/libother.so"), None);
        assert_eq!(Major::of_file("libcudart.so.130"), None);
    }
}
