//! Which GPU a program gets: the machine's own, or an emulated one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use deepum_emu_device::config::DEFAULT_PROFILE;

/// `--gpu`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gpu {
    /// What the NVIDIA driver offers.
    Real,
    /// An emulated device: the value of `DEEPUM_EMU`.
    Emulated(String),
}

impl Gpu {
    /// The GPU if there is one, otherwise an emulated device; says so when it has to choose the latter.
    pub fn or_default(choice: Option<&Self>) -> Self {
        match choice {
            Some(gpu) => gpu.clone(),
            None if real_gpu_present() => Self::Real,
            None => {
                eprintln!(
                    "deepum: no NVIDIA GPU here; running on an emulated one (--gpu emu:{DEFAULT_PROFILE}): times are virtual, results are not computed"
                );
                Self::Emulated(DEFAULT_PROFILE.to_owned())
            }
        }
    }
}

/// Whether there is an NVIDIA driver. It may make its device nodes only when the first program starts CUDA, so the loaded
/// module counts, too; under WSL the node has another name.
pub fn real_gpu_present() -> bool {
    ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
}

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "real" => Ok(Self::Real),
            None if text == "emu" => Ok(Self::Emulated(DEFAULT_PROFILE.to_owned())),
            Some(("emu", spec)) => {
                // Checked here, where a person reads the answer, and again by the device.
                deepum_emu_device::config::Config::parse(spec, &deepum_model::Profile::NAMES)
                    .map_err(|error| error.to_string())?;
                Ok(Self::Emulated(spec.to_owned()))
            }
            _ => Err(format!(
                "allowed: real, or emu:PROFILE[:key=value,…] with PROFILE one of {}",
                deepum_model::Profile::NAMES.join(", ")
            )),
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real => f.write_str("real"),
            Self::Emulated(spec) => write!(f, "emu:{spec}"),
        }
    }
}
