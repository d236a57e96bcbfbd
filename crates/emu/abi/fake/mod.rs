//! Test support of the stand-in libraries: loads the remembering driver (`fake_cuda.c`), then the library under test, and hands out
//! its functions by name. Included with `#[path]` by their integration tests; one test process, one driver: tests take turns.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use deepum_emu_abi::params::{Header, Operand, decode};

/// A library opened for good.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut c_void);
// SAFETY: a dlopen handle is valid on every thread, and never closed here.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn open(path: &Path) -> Self {
        let name = CString::new(path.to_str().expect("UTF-8 path")).expect("no NUL in a path");
        // SAFETY: a C string; the libraries' constructors do nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "cannot open {}", path.display());
        Self(handle)
    }

    /// The function `name` as type `F`.
    ///
    /// # Safety
    /// `F` is the function's C type.
    pub unsafe fn function<F: Copy>(self, name: &str) -> F {
        let symbol = CString::new(name).expect("no NUL in a name");
        // SAFETY: an open library and a C string.
        let found = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        assert!(!found.is_null(), "{name} is not exported");
        // SAFETY: a function pointer of the type the caller promises, as wide as any pointer.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

/// Calls a C function of the library under test that returns an `int`: `call!(bench, cublasCreate_v2: &raw mut handle)`. Its signature
/// is what the arguments say, so each must have its C type: unsuffixed integers are `int`.
macro_rules! call {
    ($bench:expr, $name:ident: $($arg:expr),* $(,)?) => {{
        let function: extern "C" fn($(call!(@any $arg)),*) -> std::ffi::c_int =
            // SAFETY: each test passes what the vendor's declaration of this function asks for.
            unsafe { $bench.library.function(stringify!($name)) };
        function($($arg),*)
    }};
    (@any $arg:expr) => { _ };
}
pub(crate) use call;

/// A launch as the driver saw it.
#[derive(Clone, Debug)]
pub struct Launch {
    pub name: String,
    pub grid: [u32; 3],
    pub through_ex: bool,
    pub stream: u64,
    pub header: Header,
    pub operands: Vec<Operand>,
}

#[repr(C)]
struct RawLaunch {
    name: [c_char; 64],
    bytes: u32,
    grid: [u32; 3],
    through_ex: u32,
    stream: u64,
    params: [u8; 4096],
}

/// The driver and the library under test, this test's turn.
#[derive(Debug)]
pub struct Bench {
    pub driver: Library,
    pub library: Library,
    _turn: MutexGuard<'static, ()>,
}

/// Loads both. `name` is the library's file name in the build folder.
pub fn bench(name: &str) -> Bench {
    static TURN: Mutex<()> = Mutex::new(());
    static LOADED: OnceLock<(Library, Library)> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (driver, library) = *LOADED.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/fake/fake_cuda.c");
        let built = folder.join(format!("fake-cuda-{}.so", std::process::id()));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1", "-o"])
            .args([&built, &source])
            .status()
            .expect("cc runs");
        assert!(status.success(), "fake_cuda.c does not compile");
        let driver = Library::open(&built);
        std::fs::remove_file(&built).expect("the file just made");
        let deps = std::env::current_exe().expect("a running test has a path");
        (driver, Library::open(&deps.with_file_name(name)))
    });
    let bench = Bench { driver, library, _turn: turn };
    bench.forget();
    bench
}

impl Bench {
    /// Forgets all launches.
    pub fn forget(&self) {
        // SAFETY: fake_cuda.c defines it so.
        unsafe { self.driver.function::<extern "C" fn()>("fake_forget")() }
    }
    /// The compute capability of devices from now on, times ten.
    pub fn capability(&self, capability: c_int) {
        // SAFETY: fake_cuda.c defines it so.
        unsafe { self.driver.function::<extern "C" fn(c_int)>("fake_capability")(capability) }
    }
    /// Calls a function of the driver that takes nothing.
    pub fn ask<T: Copy>(&self, name: &str) -> T {
        // SAFETY: only used with the counters of fake_cuda.c, by their type.
        unsafe { self.driver.function::<extern "C" fn() -> T>(name)() }
    }
    /// What the driver last heard was refused.
    pub fn refused(&self) -> String {
        // SAFETY: a C string of the driver's, alive as long as the process.
        unsafe { CStr::from_ptr(self.ask("fake_refused")) }.to_string_lossy().into_owned()
    }
    /// All launches since the last [`Bench::forget`].
    pub fn launches(&self) -> Vec<Launch> {
        let count: c_int = self.ask("fake_launches");
        // SAFETY: fake_cuda.c defines it so.
        let get = unsafe { self.driver.function::<extern "C" fn(c_int) -> *const RawLaunch>("fake_launch") };
        let launch = |i| {
            // SAFETY: the i-th of `count` records, which stays valid while this test has its turn.
            let raw = unsafe { &*get(i) };
            // SAFETY: names are NUL-terminated.
            let name = unsafe { CStr::from_ptr(raw.name.as_ptr()) }.to_string_lossy().into_owned();
            let (header, operands) = decode(&raw.params[..raw.bytes as usize]).expect("parameters as agreed");
            Launch {
                name,
                grid: raw.grid,
                through_ex: raw.through_ex != 0,
                stream: raw.stream,
                header,
                operands: operands.collect(),
            }
        };
        (0..count).map(launch).collect()
    }
    /// The one launch there was.
    #[track_caller]
    pub fn launch(&self) -> Launch {
        let launches = self.launches();
        assert_eq!(launches.len(), 1, "{launches:?}");
        let launch = launches.into_iter().next().expect("one");
        self.forget();
        launch
    }
}

/// A box as (address, element bytes, [(extent, stride)] without unit dimensions, access), for comparing.
pub fn shape(o: &Operand) -> (u64, u32, Vec<(u64, u64)>, u32) {
    let dims = o.dims.iter().copied().zip(o.strides.iter().copied()).filter(|d| d.0 != 1).collect();
    (o.ptr, o.elem_bytes, dims, o.access)
}
