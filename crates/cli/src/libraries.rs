//! Where our shared libraries lie, and the folder of links through which a program finds the
//! stand-in vendor libraries.
//!
//! The libraries are beside the `deepum` executable (a build tree) or in `../lib/deepum` (an
//! installation). The folder of links lives under the user's own runtime folder, is named after
//! the libraries it points to, and is made once.

use anyhow::{Context, Result, bail, ensure};
use deepum_core::mix::Mix;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The folder our shared libraries are in.
#[derive(Clone, Debug)]
pub struct Libraries {
    dir: PathBuf,
}

impl Libraries {
    /// Looks beside the running executable and in `../lib/deepum`.
    pub fn find() -> Result<Self> {
        let exe = std::env::current_exe().context("cannot tell where the deepum executable is")?;
        let exe = exe.canonicalize().with_context(|| format!("cannot resolve {}", exe.display()))?;
        let bin = exe.parent().context("the deepum executable has no folder")?;
        let candidates = [bin.to_path_buf(), bin.join("../lib/deepum")];
        for dir in &candidates {
            if dir.join("libdeepum.so").is_file() {
                let dir = dir.canonicalize()?;
                let text = dir.to_string_lossy();
                // LD_PRELOAD and LD_LIBRARY_PATH have no way to quote these.
                ensure!(
                    !text.contains([' ', ':', ';', '\t', '\n']),
                    "{} has a blank or a colon in its name, which LD_PRELOAD cannot carry; move DeepUM to another folder",
                    dir.display()
                );
                return Ok(Self { dir });
            }
        }
        bail!(
            "libdeepum.so is neither in {} nor in {}; build everything with scripts/setup",
            candidates[0].display(),
            candidates[1].display()
        )
    }

    /// Full path of one library.
    pub fn path(&self, file: &str) -> Result<PathBuf> {
        let path = self.dir.join(file);
        ensure!(path.is_file(), "{} is missing; build everything with scripts/setup", path.display());
        Ok(path)
    }

    /// A folder in which every vendor library's file name is a link to its stand-in.
    pub fn vendor_links(&self) -> Result<PathBuf> {
        let parent = own_dir()?.join("emu");
        let links: Vec<(&str, PathBuf)> = deepum_emu_abi::sonames::SONAMES
            .iter()
            .map(|(soname, library)| Ok((*soname, self.path(&format!("lib{library}.so"))?)))
            .collect::<Result<_>>()?;
        let name = format!("{:016x}", Mix::new().bytes(format!("{links:?}").as_bytes()).end());
        let dir = parent.join(name);
        if dir.is_dir() {
            return Ok(dir);
        }
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        // Made aside and renamed, so that another `deepum` never sees half of it.
        let fresh = tempfile::Builder::new().prefix(".new").tempdir_in(&parent)?;
        for (soname, target) in &links {
            symlink(target, fresh.path().join(soname))?;
        }
        let fresh = fresh.keep();
        if let Err(error) = fs::rename(&fresh, &dir) {
            fs::remove_dir_all(&fresh).ok();
            // Somebody else's rename came first: theirs is the same.
            ensure!(dir.is_dir(), "cannot make {}: {error}", dir.display());
        }
        Ok(dir)
    }
}

/// The first folder for short-lived things that can be had and is this user's alone; the status sockets are in it, too.
fn own_dir() -> Result<PathBuf> {
    let uid = nix::unistd::getuid().as_raw();
    let mut reasons = Vec::new();
    for dir in deepum_protocol::status::folders(uid) {
        match make_own(&dir, uid) {
            Ok(()) => return Ok(dir),
            Err(error) => reasons.push(format!("{}: {error:#}", dir.display())),
        }
    }
    bail!("no folder for the links to the emulated device: {}", reasons.join("; "))
}

fn make_own(dir: &Path, uid: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    // Not following links: somebody else may have put one there.
    let meta = fs::symlink_metadata(dir)?;
    ensure!(
        meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0,
        "not a folder that belongs to you alone (owner {}, mode {:o})",
        meta.uid(),
        meta.mode() & 0o777
    );
    Ok(())
}
