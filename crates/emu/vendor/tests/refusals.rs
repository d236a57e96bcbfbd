//! What a refused function does, seen from a C program: the wording, once; its library's own code; and what must not refuse.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs C statements in which `call(name)` calls a function of the library without arguments, and `address(name)` finds one.
fn run(test: &str, statements: &str) -> Output {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(format!("{test}.c")), folder.join(test));
    let text = format!(
        "#include <dlfcn.h>\n#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         static void *library;\n\
         static void *address(const char *name) {{\n\
             void *f = dlsym(library, name);\n\
             if (!f) {{ printf(\"missing %s\\n\", name); exit(2); }}\n\
             return f;\n\
         }}\n\
         static __attribute__((unused)) long call(const char *name) {{ return ((long (*)(void))address(name))(); }}\n\
         int main(int n, char **arg) {{\n\
             library = dlopen(arg[n - 1], RTLD_NOW);\n\
             if (!library) {{ puts(dlerror()); return 2; }}\n\
             {statements}\n\
             return 0;\n\
         }}\n"
    );
    std::fs::write(&source, text).expect("the test's own folder");
    let compiled =
        Command::new("cc").args(["-Wall", "-Werror", "-o"]).args([&program, &source]).status().expect("cc runs");
    assert!(compiled.success());
    let library = std::env::current_exe().expect("a running test has a path").with_file_name("libdeepum_emu_vendor.so");
    Command::new(&program).arg(library).output().expect("the program just built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_refusal_names_itself_once_keeps_errno_and_returns_its_librarys_code() {
    let names = [
        ("cufftCreate", 16),
        ("cusparseCreate", 10),
        ("cusparseLtInit", 10),
        ("cusolverDnCreate", 9),
        ("cuptiSubscribe", 27),
        ("ncclCommInitRank", 5),
        ("nvrtcCompileProgram", 11),
        ("nvshmemx_get_uniqueid", 3),
        ("nvshmem_malloc", 0),
        ("nvshmem_team_n_pes", -1),
        ("cuFileHandleRegister", 5007),
        ("cuFileRead", -5007),
    ];
    let calls: String = names
        .iter()
        .map(|(n, _)| format!("errno = 77; call(\"{n}\"); printf(\"%ld %d\\n\", call(\"{n}\"), errno);\n"))
        .collect();
    let out = run("codes", &calls);
    let expected: String = names.iter().map(|(_, code)| format!("{code} 77\n")).collect();
    assert_eq!(text(&out.stdout), expected);
    let said: String =
        names.iter().map(|(n, _)| format!("deepum-emu: {n} is not supported by the emulated device\n")).collect();
    assert_eq!(text(&out.stderr), said, "each once, though called twice");
}

#[test]
fn every_listed_function_is_exported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../symbols");
    let lists = ["cufft", "cufile", "cupti", "cusolver", "cusparse", "cusparseLt", "nccl", "nvrtc", "nvshmem", "nvtx"];
    let mut looks = String::new();
    let mut count = 0;
    for list in lists {
        let names = std::fs::read_to_string(folder.join(format!("{list}.txt"))).expect(list);
        for name in names.lines() {
            count += 1;
            looks += &format!("address(\"{name}\");\n");
        }
    }
    let out = run("exports", &looks);
    assert_eq!(text(&out.stdout), "");
    assert!(out.status.success() && count > 300, "{count} names");
}

#[test]
fn texts_versions_and_marks_answer_without_a_word() {
    let out = run(
        "answers",
        "int v = 0; const char *s = 0;\n\
         if (((int (*)(int *))address(\"ncclGetVersion\"))(&v) || ((int (*)(int *))address(\"ncclGetVersion\"))(0) != 4) return 3;\n\
         printf(\"%d\\n\", v);\n\
         puts(((const char *(*)(int))address(\"ncclGetErrorString\"))(5));\n\
         puts(((const char *(*)(int))address(\"cusparseGetErrorString\"))(10));\n\
         puts(((const char *(*)(int))address(\"nvrtcGetErrorString\"))(11));\n\
         if (((int (*)(int, const char **))address(\"cuptiGetResultString\"))(27, &s)) return 4;\n\
         puts(s);\n\
         call(\"nvtxMarkA\");\n\
         printf(\"%d %d\\n\", (int)call(\"nvtxRangePushA\"), (int)call(\"nvtxRangePop\"));\n\
         printf(\"%d\\n\", (int)call(\"nvshmemid_init_status\"));",
    );
    assert_eq!(
        text(&out.stdout),
        "23007\nNCCL is not supported by the emulated device\ncuSPARSE is not supported by the emulated device\n\
         NVRTC is not supported by the emulated device\nCUPTI_ERROR_NOT_SUPPORTED\n-2 -2\n0\n"
    );
    assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""));
}
