//! The program that is to run: whether anything can be preloaded into it, and whether its PyTorch is one for CUDA.

use super::finding::Finding;
use nix::sys::stat::{Mode, stat};
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Most interpreters that lead to each other, as in `#!/usr/bin/env`.
const MOST: usize = 4;

/// Looks at what a command would start. `run` asks a Python for its PyTorch: what it prints, or why not.
pub fn examine(word: &OsStr, run: impl FnOnce(&Path) -> Result<String, String>) -> Vec<Finding> {
    const CHECK: &str = "program";
    let name = word.to_string_lossy();
    let Some(path) = find(word) else {
        return vec![Finding::stops(
            CHECK,
            format!("there is no program {name}"),
            "nothing runs",
            "its whole path, or a PATH that has it",
        )];
    };
    let path = match interpreter(path) {
        Ok(path) => path,
        Err(why) => return vec![Finding::unknown(CHECK, format!("{name}: {why}"))],
    };
    let shown = path.display();
    match kind(&path) {
        Err(why) => return vec![Finding::unknown(CHECK, format!("{shown}: {why}"))],
        Ok(Loaded::Static) => {
            return vec![Finding::stops(
                CHECK,
                format!("{shown} is linked statically"),
                "nothing can be preloaded, so it runs as without DeepUM",
                "a build of it that is linked dynamically",
            )];
        }
        Ok(Loaded::Other) => {
            return vec![Finding::stops(
                CHECK,
                format!("{shown} is no program for x86-64"),
                "libdeepum.so does not load into it",
                "a build of it for this machine",
            )];
        }
        Ok(Loaded::Privileged) => {
            return vec![Finding::stops(
                CHECK,
                format!("{shown} is set-user-ID or set-group-ID"),
                "the dynamic linker takes nothing from LD_PRELOAD for it",
                "a copy of it without those bits",
            )];
        }
        Ok(Loaded::Dynamic) => {}
    }
    let mut found = vec![Finding::ok(CHECK, shown.to_string())];
    if path.file_name().is_some_and(|file| file.to_string_lossy().starts_with("python")) {
        found.push(pytorch(&run(&path)));
    }
    found
}

/// What a Python is asked.
pub const ASK: &str = "import torch; print(torch.__version__, torch.version.cuda)";

fn pytorch(answer: &Result<String, String>) -> Finding {
    const CHECK: &str = "pytorch";
    let said = match answer {
        Ok(said) => said,
        Err(why) => {
            return Finding::unknown(
                CHECK,
                format!("this Python has no PyTorch that starts ({why}); other CUDA programs run all the same"),
            );
        }
    };
    match said.split_whitespace().collect::<Vec<_>>()[..] {
        [version, "None"] => Finding::stops(
            CHECK,
            format!("PyTorch {version} was built without CUDA"),
            "it computes on the CPU",
            "pip install torch, from an index with CUDA (https://pytorch.org/get-started)",
        ),
        [version, cuda] => Finding::ok(CHECK, format!("PyTorch {version}, CUDA {cuda}")),
        _ => Finding::unknown(CHECK, format!("PyTorch says {said:?} of its version")),
    }
}

/// As a shell finds it.
fn find(word: &OsStr) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(word)).find(|path| path.is_file())
}

/// Through `#!` lines.
fn interpreter(mut path: PathBuf) -> Result<PathBuf, String> {
    for _ in 0..MOST {
        let head = head(&path)?;
        let Some(line) = head.strip_prefix(b"#!") else { return Ok(path) };
        let line = String::from_utf8_lossy(line.split(|&b| b == b'\n').next().unwrap_or_default()).into_owned();
        let mut words = line.split_whitespace();
        let first = PathBuf::from(words.next().ok_or("its first line names no interpreter")?);
        let is_env = first.file_name() == Some(OsStr::new("env"));
        path = match words.find(|word| is_env && !word.starts_with('-') && !word.contains('=')) {
            Some(word) => find(OsStr::new(word)).ok_or_else(|| format!("there is no interpreter {word}"))?,
            None => first,
        };
    }
    Err(format!("more than {MOST} interpreters that lead to each other"))
}

fn head(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let mut head = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(4096).read_to_end(&mut head).map_err(|error| error.to_string())?;
    Ok(head)
}

#[derive(PartialEq, Eq, Debug)]
enum Loaded {
    Dynamic,
    Static,
    Privileged,
    Other,
}

fn kind(path: &Path) -> Result<Loaded, String> {
    let mode = stat(path).map_err(|error| error.desc().to_owned())?.st_mode;
    if Mode::from_bits_truncate(mode).intersects(Mode::S_ISUID | Mode::S_ISGID) {
        return Ok(Loaded::Privileged);
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let Ok(file) = ElfFile64::<Endianness>::parse(&*bytes) else { return Ok(Loaded::Other) };
    if file.architecture() != object::Architecture::X86_64 {
        return Ok(Loaded::Other);
    }
    let is_dynamic = file.elf_program_headers().iter().any(|header| header.p_type(file.endian()) == elf::PT_INTERP);
    Ok(if is_dynamic { Loaded::Dynamic } else { Loaded::Static })
}
