//! `DEEPUM_EMU=PROFILE[:key=value,…]`: which device to play, and how cruelly.
//!
//! Everything has a default but nothing is guessed: an unknown profile, key or value is one error that names
//! the part, what was given, and what is allowed. Defaults of sizes come from the profile.

use std::path::PathBuf;

use deepum_core::units::{Bytes, Nanos};
use deepum_model::Profile;

/// Environment variable read by the stand-in `libcuda.so.1`.
pub const VARIABLE: &str = "DEEPUM_EMU";
/// What is played when the variable is not set.
pub const DEFAULT_PROFILE: &str = "v100-32g";

/// Driver versions whose character devices can be played (facts 2.1: each has its own parameter shapes).
pub const DRIVERS: [u16; 5] = [535, 550, 560, 580, 595];

/// One device configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Name of a profile of `deepum-model`.
    pub profile: String,
    /// Device memory instead of the profile's.
    pub memory: Option<Bytes>,
    /// Host memory instead of the profile's.
    pub host: Option<Bytes>,
    /// Numbers of the profile's files, each scaled to a percentage.
    pub scale: Vec<(String, u32)>,
    /// Driver branch played by the character devices and `cuDriverGetVersion`.
    pub driver: u16,
    /// What the driver says its release is, instead of the branch's; empty: it does not say.
    pub release: Option<String>,
    /// Whether the file that pins the process's memory map is opened before that of its VA space (facts 2.6).
    pub mm_first: bool,
    /// Number of equal devices.
    pub devices: u8,
    /// Seed of everything that is picked: rows, partial touches.
    pub seed: u64,
    /// Data mode: every copy is real, device copies are kept apart, lost pages are poisoned.
    pub data: bool,
    /// Whether `/dev/nvidia-uvm-tools` exists.
    pub tools: bool,
    /// What becomes of pools of semaphores.
    pub pools: Pools,
    /// Every n-th notice is dropped as if the tools queue had been full.
    pub drop_notices: Option<u64>,
    /// Every n-th `UVM_MIGRATE` fails for want of memory.
    pub fail_migrate: Option<u64>,
    /// How much later than in life notices reach the tools queue.
    pub late: Nanos,
    /// Copies above this size move no bytes unless `data` is set.
    pub copy_limit: Bytes,
    /// Write a line for every launch to this file, with the process number appended: what it is taken to touch
    /// (`truth/trace.rs`).
    pub kernels: Option<PathBuf>,
}

/// Why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{VARIABLE}: {what} `{given}`: {allowed}")]
pub struct ConfigError {
    what: String,
    given: String,
    allowed: String,
}

fn refuse<T>(what: &str, given: &str, allowed: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError { what: what.to_owned(), given: given.to_owned(), allowed: allowed.into() })
}

/// Pools of semaphores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pools {
    /// As in life.
    Good,
    /// There is no memory for any.
    Refused,
    /// Nothing is ever written there.
    Silent,
}

impl Config {
    /// The plain device of a profile.
    #[must_use]
    pub fn of_profile(profile: &str) -> Self {
        Self {
            profile: profile.to_owned(),
            memory: None,
            host: None,
            scale: Vec::new(),
            driver: 580,
            release: None,
            mm_first: false,
            devices: 1,
            seed: 1,
            data: false,
            tools: true,
            pools: Pools::Good,
            drop_notices: None,
            fail_migrate: None,
            late: Nanos::ZERO,
            copy_limit: Bytes::mib(1),
            kernels: None,
        }
    }

    /// Reads `PROFILE[:key=value,…]`; `profiles` are the names that exist.
    ///
    /// # Errors
    /// The first part that is not understood.
    pub fn parse(text: &str, profiles: &[&str]) -> Result<Self, ConfigError> {
        let (profile, keys) = text.split_once(':').unwrap_or((text, ""));
        if !profiles.contains(&profile) {
            return refuse("unknown profile", profile, format!("one of {}", profiles.join(", ")));
        }
        let mut config = Self::of_profile(profile);
        for part in keys.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return refuse("not key=value", part, KEYS);
            };
            config.set(key, value)?;
        }
        // Known only when all of them are: two may scale the same number.
        if let Err(error) = Profile::scaled(profile, &config.scale) {
            return refuse("scale of", profile, error.to_string());
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        match key {
            "memory" => self.memory = Some(size(key, value)?),
            "host" => self.host = Some(size(key, value)?),
            "scale" => match value.split_once('*').map(|(key, percent)| (key, percent.parse())) {
                Some((key, Ok(percent @ 1..=1000))) => self.scale.push((key.to_owned(), percent)),
                _ => return refuse(key, value, "NUMBER*PERCENT, a number of the profile and 1 to 1000"),
            },
            "copy" => self.copy_limit = size(key, value)?,
            "kernels" => self.kernels = Some(PathBuf::from(value)),
            "driver" => match value.parse() {
                Ok(v) if DRIVERS.contains(&v) => self.driver = v,
                _ => {
                    return refuse(
                        key,
                        value,
                        format!("one of {}", DRIVERS.map(|branch| branch.to_string()).join(", ")),
                    );
                }
            },
            "release" => match value {
                "none" => self.release = Some(String::new()),
                _ if value.len() <= 32 && value.starts_with(|c: char| c.is_ascii_digit()) => {
                    self.release = Some(value.to_owned());
                }
                _ => return refuse(key, value, "a release such as 700.10.01, or none"),
            },
            "mm" => match value {
                "first" => self.mm_first = true,
                "second" => self.mm_first = false,
                _ => return refuse(key, value, "first or second"),
            },
            "devices" => match value.parse() {
                Ok(n @ 1..=8) => self.devices = n,
                _ => return refuse(key, value, "1 to 8"),
            },
            "seed" => match value.parse() {
                Ok(n) => self.seed = n,
                Err(_) => return refuse(key, value, "a whole number"),
            },
            "data" => self.data = flag(key, value)?,
            "tools" => match value {
                "present" => self.tools = true,
                "missing" => self.tools = false,
                _ => return refuse(key, value, "present or missing"),
            },
            "drop_notices" => self.drop_notices = Some(count(key, value)?),
            "pools" => match value {
                "good" => self.pools = Pools::Good,
                "refused" => self.pools = Pools::Refused,
                "silent" => self.pools = Pools::Silent,
                _ => return refuse(key, value, "good, refused or silent"),
            },
            "fail_migrate" => self.fail_migrate = Some(count(key, value)?),
            "late_us" => match value.parse::<u64>() {
                Ok(us) if us <= 10_000_000 => self.late = Nanos::micros(us),
                _ => return refuse(key, value, "microseconds, at most 10000000"),
            },
            _ => return refuse("unknown key", key, KEYS),
        }
        Ok(())
    }
}

const KEYS: &str = "keys are memory, host, scale, driver, release, mm, devices, seed, data, copy, tools, pools, drop_notices, fail_migrate, late_us, kernels";

fn flag(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => refuse(key, value, "0 or 1"),
    }
}

fn count(key: &str, value: &str) -> Result<u64, ConfigError> {
    match value.parse() {
        Ok(n @ 1..) => Ok(n),
        _ => refuse(key, value, "every how many-th, at least 1"),
    }
}

fn size(key: &str, value: &str) -> Result<Bytes, ConfigError> {
    let allowed = "bytes, or a number with KiB, MiB, GiB or TiB";
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let found = units.iter().find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, *shift)));
    let Some((number, shift)) = found else { return refuse(key, value, allowed) };
    match number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)) {
        Some(n) if n > 0 => Ok(Bytes(n)),
        _ => refuse(key, value, allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILES: [&str; 2] = ["v100-32g", "h200"];

    #[test]
    fn a_full_line_is_read() {
        let got = Config::parse(
            "h200:memory=24GiB,driver=550,release=550.1,mm=first,devices=2,data=1,late_us=5,tools=missing,scale=h2d_gb_s*50",
            &PROFILES,
        );
        let want = Config {
            memory: Some(Bytes::gib(24)),
            scale: vec![("h2d_gb_s".to_owned(), 50)],
            driver: 550,
            release: Some("550.1".to_owned()),
            mm_first: true,
            devices: 2,
            data: true,
            late: Nanos::micros(5),
            tools: false,
            ..Config::of_profile("h200")
        };
        assert_eq!(got, Ok(want));
    }

    #[test]
    fn an_error_names_the_part_the_value_and_what_is_allowed() {
        let text = |line: &str| Config::parse(line, &PROFILES).expect_err(line).to_string();
        assert_eq!(text("v100"), "DEEPUM_EMU: unknown profile `v100`: one of v100-32g, h200");
        assert_eq!(text("h200:driver=545"), "DEEPUM_EMU: driver `545`: one of 535, 550, 560, 580, 595");
        assert!(
            text("h200:release=new").contains("release `new`: a release such as")
                && text("h200:mm=1").contains("first or second")
        );
        assert!(text("h200:memroy=1GiB").starts_with("DEEPUM_EMU: unknown key `memroy`: keys are memory"));
        assert!(text("h200:memory=0").contains("memory `0`"));
        assert!(text("h200:memory=99999999999TiB").contains("TiB"));
        assert!(text("h200:scale=h2d_gb_s").contains("scale `h2d_gb_s`: NUMBER*PERCENT"));
        assert!(text("h200:scale=h2d_gb_s*0").contains("1 to 1000"));
        assert!(text("h200:scale=h2d*50").contains("scale of `h200`: device profiles have no number \"h2d\""));
        assert!(text("h200:scale=sms*500").contains("sms = 660 is outside 1 to 256"));
        assert!(text("h200:data").contains("not key=value `data`"));
    }
}
