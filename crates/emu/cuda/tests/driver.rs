//! Compiles `driver.c` and `graphs.c` and runs their cases against the built library, each in a process of its own.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use deepum_emu_device::log::FlightLog;

/// The built library, beside the test programs.
fn library() -> PathBuf {
    let built = std::env::current_exe().expect("a test knows its own file").with_file_name("libdeepum_emu_cuda.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

/// The folder of the compiled programs.
fn programs() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["driver", "graphs"] {
            let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
            let flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-rdynamic", "-o"];
            let mut compile = Command::new("gcc");
            compile.args(flags).arg(folder.path().join(name)).arg(source).args(["-ldl", "-lpthread"]);
            assert!(compile.status().expect("gcc is there").success());
        }
        std::os::unix::fs::symlink(library(), folder.path().join("libcuda.so.1")).expect("a link");
        folder
    });
    folder.path()
}

/// A case, `NAME` or `graphs:NAME`, to be run on the library under the name it is played as.
fn command(case: &str, emu: &str) -> Command {
    let (program, case) = case.split_once(':').unwrap_or(("driver", case));
    let mut command = Command::new(programs().join(program));
    command.args(["libcuda.so.1", case]).env("DEEPUM_EMU", emu).env_remove("DEEPUM_EMU_LOG");
    command.env("LD_LIBRARY_PATH", programs());
    command
}

/// Runs a case; answers what it said on stderr.
fn run(case: &str, emu: &str) -> String {
    let done = command(case, emu).output().expect("the program runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{case}: {said}");
    said
}

macro_rules! cases {
    ($($(#[doc = $doc:literal])* $name:ident with $emu:literal;)*) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            run(stringify!($name), $emu);
        }
    )*};
}

cases! {
    devices with "v100-32g:devices=2,driver=550";
    launches with "v100-32g:data=1";
    cooperative with "v100-32g";
    contexts with "v100-32g:devices=2";
    copies with "v100-32g";
    ranges with "h200:devices=2,driver=580";
    pointers with "v100-32g";
    pools with "v100-32g:devices=2,memory=1GiB";
    mappings with "v100-32g:devices=2,memory=1GiB,data=1";
    exports with "v100-32g:memory=1GiB,data=1";
    streams with "v100-32g";
    threads with "v100-32g";
    forks with "v100-32g";
}

/// CUDA graphs, with real bytes.
mod graphs {
    macro_rules! cases {
        ($($name:ident;)*) => {$(
            #[test]
            fn $name() {
                super::run(concat!("graphs:", stringify!($name)), "v100-32g:data=1,devices=1,driver=580");
            }
        )*};
    }

    cases! {
        replay;
        forbidden;
        spreading;
        building;
        objects;
    }

    /// A graph's launch is one launch, with one entry, in which the times of its kernels add up.
    #[test]
    fn a_launch_of_a_graph_is_counted_once() {
        let (ended, log) = super::logged("graphs:counted", "v100-32g");
        assert!(ended.success());
        let totals = &log.totals;
        assert_eq!((totals.launches, totals.launches_done, log.entries.len()), (21, 21, 21));
        assert_eq!(totals.exact_launches, 61, "kernels, by what they touch");
        let same = log.entries[..20].iter().all(|entry| entry.identity == log.entries[0].identity);
        assert!(same && log.entries[20].identity != log.entries[0].identity);
        // Three kernels that read and write 4 MiB each, against one that does with 4 KiB.
        let took = |n: usize| log.entries[n].end - log.entries[n].start;
        assert!(took(19) > 3 * took(20), "{:?}", log.entries);
        assert!(log.entries[0].end <= log.entries[1].start);
    }
}

#[test]
fn a_refused_function_names_itself_once() {
    let said = run("proc_address", "v100-32g");
    assert_eq!(
        said.matches("deepum-emu: cuMemPoolExportPointer is not supported by the emulated device\n").count(),
        1,
        "{said}"
    );
}

#[test]
fn a_bad_configuration_is_one_clear_line() {
    let said = run("refused", "v100-32g:memory=lots");
    assert_eq!(said, "deepum-emu: DEEPUM_EMU: memory `lots`: bytes, or a number with KiB, MiB, GiB or TiB\n");
}

/// Runs a case; answers how it ended and its flight log.
fn logged(case: &str, emu: &str) -> (ExitStatus, FlightLog) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let ended = command(case, emu).env("DEEPUM_EMU_LOG", &path).status().expect("the program runs");
    (ended, FlightLog::open(&path).expect("a log"))
}

/// Of the whole function (arrays) and of what is asked of one (registers of another device) alike.
#[test]
fn every_refused_call_is_counted_once() {
    let (ended, log) = logged("streams", "v100-32g");
    assert!(ended.success());
    assert_eq!(log.totals.refused, 2);
}

#[test]
fn the_flight_log_is_whole_though_the_program_was_killed() {
    let (ended, log) = logged("killed", "v100-32g:data=1");
    assert_eq!(ended.signal(), Some(9));
    assert_eq!((log.totals.launches, log.totals.launches_done, log.entries.len()), (3, 3, 3));
    assert_eq!(log.entries[0].identity, log.entries[1].identity, "same kernel, same shape");
    assert!(log.entries[0].end <= log.entries[1].start && log.entries[1].end <= log.totals.virtual_ns);
    assert!(log.totals.fault_entries > 0 && log.totals.managed_bytes == 8 << 20);
}
