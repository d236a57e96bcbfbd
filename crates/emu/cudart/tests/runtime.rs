//! The built library under both of its names, called by a C program, over a driver that says what it was asked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of links to the built library and a compiled program.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(driver: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bench = Self { folder };
        let built = built_library();
        for name in ["libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0"] {
            std::os::unix::fs::symlink(&built, bench.path(name)).expect("a link");
        }
        bench.compile("runtime.c", "runtime", &["-ldl"]);
        if driver {
            bench.compile("fake_cuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, source: &str, out: &str, flags: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let done = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-O1", "-o"])
            .arg(self.path(out))
            .arg(source)
            .args(flags)
            .output()
            .expect("a C compiler called cc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn run(&self, major: &str, library: &str) -> Output {
        Command::new(self.path("runtime"))
            .args([major, library])
            .env("LD_LIBRARY_PATH", self.folder.path())
            .output()
            .expect("the program starts")
    }
}

/// The library that Cargo built beside this test.
fn built_library() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let deps = test.parent().expect("in a folder");
    let library = deps.join("libdeepum_emu_cudart.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

#[track_caller]
fn passes(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim_end() == "ok", "{}\n{out}{err}", output.status);
    err.into_owned()
}

#[test]
fn every_call_becomes_the_driver_calls_it_stands_for_in_cuda_12() {
    passes(&Bench::new(true).run("12", "libcudart.so.12"));
}

#[test]
fn every_call_becomes_the_driver_calls_it_stands_for_in_cuda_13() {
    let err = passes(&Bench::new(true).run("13", "libcudart.so.13"));
    for name in ["cudaGraphAddNode", "cuMemHostAlloc"] {
        let line = format!("deepum-emu: {name} is not supported by the emulated device");
        assert_eq!(err.lines().filter(|l| *l == line).count(), 1, "{name} once in:\n{err}");
    }
}

#[test]
fn without_a_driver_the_error_says_so() {
    let err = passes(&Bench::new(false).run("13", "libcudart.so.13"));
    assert_eq!(err, "deepum-emu: the CUDA runtime needs libcuda.so.1, which is not found\n");
}

#[test]
fn a_name_of_no_known_version_is_refused() {
    let err = passes(&Bench::new(true).run("0", "libcudart.so.11.0"));
    assert!(err.contains("libcudart.so.11.0`; allowed names: libcudart.so.12, libcudart.so.13"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}
