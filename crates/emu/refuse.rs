//! Build-time: every vendor function that a stand-in library does not implement, as an exported refusal.
//!
//! The problem: PyTorch's libraries do not load when one imported function is missing, and a stub that returns
//! success lies. So each name of a symbol list (`crates/emu/symbols/LIST.txt`, written by `scripts/emu-symbols`)
//! that the package does not define becomes a function that says once on stderr
//! `deepum-emu: NAME is not supported by the emulated device` and returns its library's own "not supported" status.
//!
//! Use, in a stand-in package:
//!
//! ```text
//! // build.rs                                   // src/lib.rs
//! #[path = "../refuse.rs"]                      include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
//! mod refuse;
//! fn main() { refuse::generate(&["cublas"]) }
//! ```
//!
//! A listed name counts as implemented if `fn NAME` stands anywhere in the package's `src` outside comments; macros
//! that make families of functions are therefore called with `fn NAME` spelled out. A wrong guess cannot go unseen:
//! doubly defined names fail to link, and missing ones fail `scripts/emu-coverage`.
//!
//! A package whose root has `fn on_refusal(status: i64) -> i64` sees each status before the program does (the CUDA runtime keeps a
//! last error per thread).
//!
//! What a generated library holds beside the refusals: a section `.deepum_refused`, the refused names each followed by
//! a newline, from which `scripts/emu-coverage` tells implemented and refused apart in the built file; and one call,
//! if the loaded `libcuda.so.1` has it, of `void deepumEmuRefused(const char *name)` for each refused call, so
//! that the device can count them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a refused function of each list returns: the library's own code for "not supported".
const STATUS: &[(&str, i64)] = &[
    ("cuda", 801),      // CUDA_ERROR_NOT_SUPPORTED
    ("cudart", 801),    // cudaErrorNotSupported
    ("cublas", 15),     // CUBLAS_STATUS_NOT_SUPPORTED
    ("cublasLt", 15),   // the same type
    ("cudnn", 3000),    // CUDNN_STATUS_NOT_SUPPORTED, cuDNN 9
    ("cufft", 16),      // CUFFT_NOT_SUPPORTED
    ("cusparse", 10),   // CUSPARSE_STATUS_NOT_SUPPORTED
    ("cusparseLt", 10), // the same type
    ("cusolver", 9),    // CUSOLVER_STATUS_NOT_SUPPORTED
    ("cufile", 5007),   // CU_FILE_PLATFORM_NOT_SUPPORTED, in the first word of CUfileError_t
    ("cupti", 27),      // CUPTI_ERROR_NOT_SUPPORTED
    ("nccl", 5),        // ncclInvalidUsage: NCCL has no "not supported"
    ("nvrtc", 11),      // NVRTC_ERROR_INTERNAL_ERROR: NVRTC has no "not supported"
    ("nvshmem", 3),     // NVSHMEMX_ERROR_NOT_SUPPORTED
    ("nvtx", -1),       // no status in NVTX: ranges return a level, negative is an error
];

/// Listed functions whose result is not their library's status: a pointer (null is the refusal), a count (-1), or a signed
/// number of bytes.
const OTHER_RESULT: &[(&str, i64)] = &[
    ("nvshmem_malloc", 0),
    ("nvshmem_ptr", 0),
    ("nvshmemx_mc_ptr", 0),
    ("nvshmem_team_n_pes", -1),
    ("cuFileRead", -5007),
    ("cuFileWrite", -5007),
];

/// Listed functions that refuse in a body of their own, as they have more to say.
const IN_OWN_WORDS: &[&str] = &["cuGetExportTable"];

/// Writes `$OUT_DIR/refusals.rs` for the symbol lists named; answers the names refused. Fails the build with a clear message if a
/// list is unknown.
pub fn generate(lists: &[&str]) -> Vec<String> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let symbols = package.join("../symbols");
    // As the vendor's libraries do, ours reach their own functions even where the program has others of the same name: a preloaded
    // library sees the calls of the program, not those of a library to itself.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed={}", package.join("src").display());
    println!("cargo::rerun-if-changed={}", package.join("build.rs").display());
    println!("cargo::rerun-if-changed={}", package.join("../refuse.rs").display());

    let defined = defined_functions(&package.join("src"));
    let (mut code, mut refused) = (String::from(SUPPORT), String::new());
    let done = if defined.contains_key("on_refusal") { "super::on_refusal" } else { "core::convert::identity" };
    let _ = writeln!(code, "    use {done} as done;");
    for list in lists {
        let path = symbols.join(format!("{list}.txt"));
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("symbol list {}: {e}", path.display()));
        let status = lookup(STATUS, list).unwrap_or_else(|| panic!("no refusal status known for symbol list {list}"));
        for name in text.lines() {
            if !defined.contains_key(name) {
                let result = lookup(OTHER_RESULT, name).unwrap_or(status);
                let _ = writeln!(code, "    refusal!({name}, {result});");
            } else if !IN_OWN_WORDS.contains(&name) {
                continue;
            }
            let _ = writeln!(refused, "{name}");
        }
    }
    let _ = writeln!(
        code,
        "    /// The refused names, for `scripts/emu-coverage`.\n    #[used]\n    \
         #[unsafe(link_section = \".deepum_refused\")]\n    static NAMES: [u8; {}] = *b{refused:?};\n}}",
        refused.len()
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("refusals.rs");
    fs::write(&out, code).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    refused.lines().map(str::to_owned).collect()
}

fn lookup(table: &[(&str, i64)], name: &str) -> Option<i64> {
    table.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

/// Every name that follows the word `fn` in the Rust sources under `folder`, with the file it stands in.
pub fn defined_functions(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            names.extend(defined_functions(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            for line in text.lines() {
                let line = line.split("//").next().unwrap_or_default();
                let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty());
                while let Some(word) = words.next() {
                    if word == "fn"
                        && let Some(name) = words.next()
                    {
                        names.insert(name.to_owned(), path.clone());
                    }
                }
            }
        }
    }
    names
}

/// The head of the generated file: how a refusal speaks. No allocation, no panic, `errno` kept.
const SUPPORT: &str = r#"/// Listed functions this library refuses; written by `crates/emu/refuse.rs`.
#[allow(non_snake_case, clippy::missing_safety_doc, reason = "exported names are the vendor's")]
mod refusals {
    use core::ffi::{CStr, c_char, c_void};
    use core::sync::atomic::{AtomicBool, Ordering};

    /// Says once that `name` is not supported, and tells the emulated driver each time.
    #[cold]
    pub fn refuse(name: &CStr, said: &AtomicBool) {
        // SAFETY: the C library's own thread-local errno, always valid.
        let errno = unsafe { *libc::__errno_location() };
        if !said.swap(true, Ordering::Relaxed) {
            let mut line = [0u8; 160];
            let mut len = 0;
            for part in [&b"deepum-emu: "[..], name.to_bytes(), b" is not supported by the emulated device\n"] {
                let room = &mut line[len..];
                let n = part.len().min(room.len());
                room[..n].copy_from_slice(&part[..n]);
                len += n;
            }
            // SAFETY: `len` bytes of `line` are initialised; a failed write has no remedy.
            let _ = unsafe { libc::write(2, line.as_ptr().cast::<c_void>(), len) };
        }
        // SAFETY: NUL-terminated constants; with RTLD_NOLOAD nothing is loaded; the symbol has this one signature
        // wherever it exists (crates/emu/refuse.rs); `name` is a C string.
        unsafe {
            let cuda = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !cuda.is_null() {
                let tell = libc::dlsym(cuda, c"deepumEmuRefused".as_ptr());
                if !tell.is_null() {
                    core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char)>(tell)(name.as_ptr());
                }
                libc::dlclose(cuda);
            }
            *libc::__errno_location() = errno;
        }
    }

    /// One refused function. Its arguments, whatever they are, are the caller's business in every ABI we run on
    /// (System V x86-64: the caller cleans up), so none are declared.
    macro_rules! refusal {
        ($name:ident, $result:literal) => {
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> i64 {
                static SAID: AtomicBool = AtomicBool::new(false);
                // The name with its NUL is a literal: from_bytes_with_nul cannot fail.
                if let Ok(name) = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    refuse(name, &SAID);
                }
                done($result)
            }
        };
    }
"#;
