//! The preloaded node under C programs: the library that was built for this test, a stand-in `libcuda.so.1` that counts,
//! and programs that must not notice it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Of `DeepumHooks`, by which an engine takes the pace over.
const ABI: u32 = 3;

/// The library under test, beside this test's executable.
fn node() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    let deps = exe.parent().expect("in a folder");
    [deps, deps.parent().expect("in a folder")]
        .map(|folder| folder.join("libdeepum_emu_node.so"))
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library before its tests")
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

fn compile(out: &Path, args: &[&str], source: &Path) {
    let made = Command::new("cc").args(["-Wall", "-Werror", "-O1", "-o"]).arg(out).args(args).arg(source).output();
    let made = made.expect("a C compiler is needed for this test");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_program_sees_the_driver_exactly_where_the_device_is() {
    let folder = tempfile::tempdir().expect("room for programs");
    let (cuda, genuine, program) =
        (folder.path().join("libcuda.so.1"), folder.path().join("genuine"), folder.path().join("node"));
    compile(&cuda, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], &programs().join("fake_libcuda.c"));
    compile(&program, &["-ldl"], &programs().join("node.c"));
    let run = |args: &[&Path]| Command::new(&program).args(args).env("LD_PRELOAD", node()).output().expect("it runs");
    let fake = run(&[&cuda]);
    assert!(fake.status.success() && text(&fake) == "ok\n", "{}", text(&fake));

    // A libcuda.so.1 that knows nothing of us is a genuine one: the node steps aside.
    std::fs::create_dir(&genuine).expect("a folder");
    let cuda = genuine.join("libcuda.so.1");
    let empty = folder.path().join("empty.c");
    std::fs::write(&empty, "int cuInit(unsigned flags) { return (int)flags; }\n").expect("a file");
    compile(&cuda, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"], &empty);
    let real = run(&[&cuda, Path::new("genuine")]);
    assert!(real.status.success() && text(&real) == "ok\n", "{}", text(&real));
}

/// A folder with the stand-in libcuda.so.1 under that name, and a program.
fn beside_the_device(source: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    // The stand-in only makes a C library, which cargo builds for no other package's tests.
    let folder = tempfile::tempdir().expect("room for programs");
    let target = node().parent().and_then(Path::parent).and_then(Path::parent).expect("a target folder").to_owned();
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "deepum-emu-cuda", "--target-dir"])
        .arg(&target)
        .output();
    let built = built.expect("cargo runs this test");
    assert!(built.status.success(), "{}", text(&built));
    let library = target.join("debug/libdeepum_emu_cuda.so");
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).expect("a link");
    let program = folder.path().join("program");
    compile(&program, &[&["-ldl"], flags].concat(), &programs().join(source));
    (folder, program)
}

/// Runs it on the device of a driver.
fn on_driver(folder: &tempfile::TempDir, program: &Path, args: &[&str], more: &str) {
    let mut run = Command::new(program);
    run.args(args).env("LD_PRELOAD", node()).env("LD_LIBRARY_PATH", folder.path());
    let run = run.env("DEEPUM_EMU", format!("v100-32g:driver={}{more}", args[0])).output().expect("it runs");
    assert!(run.status.success() && text(&run) == "ok\n", "{args:?}: {}", text(&run));
}

#[test]
fn a_tool_attaches_reads_and_commands_with_every_driver() {
    let (folder, program) = beside_the_device("attach.c", &[]);
    for driver in ["535", "550", "560", "580"] {
        on_driver(&folder, &program, &[driver], "");
        on_driver(&folder, &program, &[driver, "tiny"], ",memory=8MiB");
    }
}

#[test]
fn another_process_that_is_handed_the_files_does_all_that_the_program_can() {
    let abi = format!("-DABI={}", ABI);
    let (folder, program) = beside_the_device("elsewhere.c", &[&abi]);
    for driver in ["535", "550", "560", "580"] {
        on_driver(&folder, &program, &[driver], "");
    }
}

#[test]
fn ordinary_programs_do_not_notice_it() {
    for command in ["ls -l /proc/self/fd >/dev/null", "echo a | cat | grep -q a", "test ! -e /dev/nvidia-uvm-tools"] {
        let run = |preload: Option<PathBuf>| {
            let mut sh = Command::new("sh");
            sh.args(["-c", command]);
            if let Some(preload) = preload {
                sh.env("LD_PRELOAD", preload);
            }
            sh.output().expect("a shell")
        };
        let (with, without) = (run(Some(node())), run(None));
        assert_eq!((with.status, text(&with)), (without.status, text(&without)), "{command}");
    }
}
