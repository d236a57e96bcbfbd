//! Which workload a program is, as a number that is the same when it is started again.
//!
//! Launch keys already tell whether two runs do the same; the workload only picks the file, so that the tables of one
//! program do not push out another's. It is made of the executable, the arguments, the folder it runs in, its rank where several
//! train together, and the PyTorch installed beside the library that is loaded; and of what the tables depend on: policy, geometry,
//! and what makes an execution ID. `DEEPUM_WORKLOAD` stands in for the program's part.

use deepum_config::Config;
use deepum_core::correlate::Layout;
use deepum_core::mix::Mix;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What tells programs apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its executable.
    pub executable: OsString,
    /// Its arguments, each with a zero behind it.
    pub arguments: Vec<u8>,
    /// The folder it runs in.
    pub folder: OsString,
    /// `RANK` and `LOCAL_RANK`.
    pub ranks: [Option<OsString>; 2],
    /// The folder of PyTorch's metadata, which names its version.
    pub framework: Option<OsString>,
}

impl Program {
    /// This process.
    pub fn this() -> Self {
        let link = |path: &str| fs::read_link(path).map(PathBuf::into_os_string).unwrap_or_default();
        Self {
            executable: link("/proc/self/exe"),
            arguments: fs::read("/proc/self/cmdline").unwrap_or_default(),
            folder: link("/proc/self/cwd"),
            ranks: ["RANK", "LOCAL_RANK"].map(std::env::var_os),
            framework: fs::read("/proc/self/maps").ok().and_then(|maps| framework(&maps)),
        }
    }
}

/// `torch-2.9.1.dist-info` from `…/site-packages/torch/lib/libc10.so` among the mappings: pip puts them beside each other.
fn framework(maps: &[u8]) -> Option<OsString> {
    let library = maps.split(|&byte| byte == b'\n').find(|line| line.ends_with(b"/torch/lib/libc10.so"))?;
    let from = library.iter().position(|&byte| byte == b'/')?;
    let path = PathBuf::from(OsString::from_vec(library[from..].to_vec()));
    let site: &Path = path.ancestors().nth(3)?;
    let names = fs::read_dir(site).ok()?.flatten().map(|entry| entry.file_name());
    names.filter(|name| name.as_bytes().starts_with(b"torch-") && name.as_bytes().ends_with(b".dist-info")).min()
}

/// The number of a program under this configuration; never 0.
pub fn number(config: &Config, program: impl FnOnce() -> Program) -> u64 {
    let text = |mix: Mix, text: &str| mix.bytes(text.as_bytes());
    let mut mix = text(Mix::new(), config.policy.as_str());
    mix = text(mix, &config.table.laid_out(Layout::Compact).to_string());
    mix = text(mix, &config.exec_id.to_string());
    mix = match &config.workload {
        Some(name) => text(mix.word(1), name),
        None => {
            let Program { executable, arguments, folder, ranks, framework } = program();
            let mix = mix.word(2).bytes(executable.as_bytes()).bytes(&arguments).bytes(folder.as_bytes());
            ranks.iter().chain([&framework]).fold(mix, |mix, part| match part {
                Some(part) => mix.word(1).bytes(part.as_bytes()),
                None => mix.word(0),
            })
        }
    };
    mix.end().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_config::{ExecIdMode, Geometry, PolicyName};

    fn program() -> Program {
        Program {
            executable: "/usr/bin/python3".into(),
            arguments: b"python\0train.py\0".to_vec(),
            folder: "/home/x".into(),
            ranks: [None, None],
            framework: Some("torch-2.9.1.dist-info".into()),
        }
    }

    #[test]
    fn every_part_tells_workloads_apart_and_the_layout_does_not() {
        let config = Config::default();
        let base = number(&config, program);
        assert_eq!(base, number(&config, program));
        let paper = Config { table: Geometry::default().laid_out(Layout::Paper), ..config.clone() };
        assert_eq!(base, number(&paper, program), "both layouts save the same");
        let programs = [
            Program { executable: "/usr/bin/python4".into(), ..program() },
            Program { arguments: b"python\0train.py\0-v\0".to_vec(), ..program() },
            Program { folder: "/home/y".into(), ..program() },
            Program { ranks: [Some("1".into()), None], ..program() },
            Program { ranks: [None, Some("1".into())], ..program() },
            Program { framework: None, ..program() },
        ];
        let mut all: Vec<u64> = programs.into_iter().map(|program| number(&config, || program)).collect();
        let configs = [
            Config { policy: PolicyName::DeepumPaper, ..config.clone() },
            Config { table: Geometry::new(1024, 2, 4).unwrap(), ..config.clone() },
            Config { exec_id: ExecIdMode::Raw, ..config.clone() },
            Config { workload: Some("bert".to_owned()), ..config.clone() },
            Config { workload: Some("gpt".to_owned()), ..config.clone() },
        ];
        all.extend(configs.iter().map(|config| number(config, program)));
        all.push(base);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn a_named_workload_is_the_same_whatever_program_it_is() {
        let config = Config { workload: Some("bert".to_owned()), ..Config::default() };
        assert_eq!(number(&config, || unreachable!("a name says it all")), number(&config, program));
    }

    #[test]
    fn the_framework_is_what_lies_beside_the_loaded_library() {
        let site = tempfile::tempdir().unwrap();
        fs::create_dir_all(site.path().join("torch-2.9.1.dist-info")).unwrap();
        fs::create_dir_all(site.path().join("torchvision-1.dist-info")).unwrap();
        let library = site.path().join("torch/lib/libc10.so");
        let maps =
            format!("7f00-7f01 r--p 0 0:1 9   /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 0:1 8   {}\n", library.display());
        assert_eq!(framework(maps.as_bytes()), Some("torch-2.9.1.dist-info".into()));
        assert_eq!(framework(b"7f00-7f01 r--p 0 0:1 9   /usr/lib/libc.so.6\n"), None);
    }

    #[test]
    fn this_process_is_the_same_twice() {
        let this = Program::this();
        assert!(!this.executable.is_empty() && !this.arguments.is_empty() && !this.folder.is_empty());
        assert_eq!(this, Program::this());
    }
}
