//! The kinds of value a variable can have, each with its parser and its list of what is allowed.

use deepum_core::units::Bytes;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Why a value is not one of its kind: what would be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAllowed {
    /// The value found.
    pub value: String,
    /// What is allowed, for people.
    pub allowed: String,
}

impl NotAllowed {
    pub(crate) fn new(value: &str, allowed: impl Into<String>) -> Self {
        Self { value: value.to_owned(), allowed: allowed.into() }
    }
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not allowed: {}", self.value, self.allowed)
    }
}

impl std::error::Error for NotAllowed {}

/// An amount of memory: fixed, or a share of something known later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// So many bytes.
    Fixed(Bytes),
    /// So many hundredths of the whole, 1 to 100.
    Percent(u8),
}

impl Budget {
    /// What [`Budget::parse`] takes.
    pub const ALLOWED: &str = "bytes (17179869184), KiB, MiB, GiB or TiB (16GiB), or 1% to 100%";

    /// Reads `17179869184`, `16GiB`, `1.5GiB` or `80%`.
    ///
    /// # Errors
    /// [`NotAllowed`] for anything else, nothing (0), and what no 64 bits hold.
    pub fn parse(text: &str) -> Result<Self, NotAllowed> {
        let bad = || NotAllowed::new(text, Self::ALLOWED);
        let trimmed = text.trim();
        if let Some(percent) = trimmed.strip_suffix('%') {
            return match percent.trim().parse() {
                Ok(p @ 1..=100) => Ok(Self::Percent(p)),
                _ => Err(bad()),
            };
        }
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "kib" => 10,
            "mib" => 20,
            "gib" => 30,
            "tib" => 40,
            _ => return Err(bad()),
        };
        let bytes = scaled(number, shift).filter(|&b| b > 0).ok_or_else(bad)?;
        Ok(Self::Fixed(Bytes(bytes)))
    }

    /// The amount, where the whole is `whole`; never more than it.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Self::Fixed(bytes) => bytes.min(whole),
            Self::Percent(p) => Bytes(whole.0 / 100 * u64::from(p) + whole.0 % 100 * u64::from(p) / 100),
        }
    }
}

/// `number`, which may have decimals, times two to the `shift`; exact to the byte below it.
fn scaled(number: &str, shift: u32) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && decimals.is_empty()) || decimals.len() > 9 || (shift == 0 && !decimals.is_empty()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits: u128 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let places = u32::try_from(decimals.len()).ok()?;
    let part = u64::try_from((digits << shift) / 10u128.pow(places)).ok()?;
    whole.checked_mul(1 << shift)?.checked_add(part)
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => bytes.fmt(f),
            Self::Percent(p) => write!(f, "{p}%"),
        }
    }
}

/// How many times as much, in hundredths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times(u64);

impl Times {
    /// Reads `1`, `1.5`, `100` or, for no limit, `none`.
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn parse(text: &str) -> Result<Option<Self>, NotAllowed> {
        let not = || NotAllowed::new(text, "1 to 1000, with two decimals at most, or none");
        let number = text.trim();
        if number == "none" {
            return Ok(None);
        }
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 4 || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
            return Err(not());
        }
        let hundredths = format!("{whole}{decimals:0<2}").parse().map_err(|_| not())?;
        Some(hundredths).filter(|times| (100..=100_000).contains(times)).map(|times| Some(Self(times))).ok_or_else(not)
    }

    /// So many times as much.
    #[must_use]
    pub fn of(self, bytes: Bytes) -> Bytes {
        Bytes(u64::try_from(u128::from(bytes.0) * u128::from(self.0) / 100).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Where the engine runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineIn {
    /// In the program.
    Program,
    /// In a daemon, which listens in one of the usual places, or here.
    Daemon(Option<PathBuf>),
}

impl EngineIn {
    /// Reads `embedded`, `daemon` or `daemon:` and an absolute path.
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn parse(text: &str) -> Result<Self, NotAllowed> {
        let not = || NotAllowed::new(text, "embedded, daemon, or daemon:PATH with the whole path of its socket");
        match text.trim().split_once(':') {
            None if text.trim() == "embedded" => Ok(Self::Program),
            None if text.trim() == "daemon" => Ok(Self::Daemon(None)),
            Some(("daemon", path)) if path.starts_with('/') => Ok(Self::Daemon(Some(path.into()))),
            _ => Err(not()),
        }
    }
}

/// Where learned tables are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TablesIn {
    /// Where the system keeps the state of programs.
    Usual,
    /// Nowhere.
    Off,
    /// In this folder.
    Folder(PathBuf),
}

impl TablesIn {
    /// Reads `off` or an absolute path.
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn parse(text: &str) -> Result<Self, NotAllowed> {
        let path = PathBuf::from(text.trim());
        match text.trim() {
            "off" => Ok(Self::Off),
            _ if path.is_absolute() => Ok(Self::Folder(path)),
            _ => Err(NotAllowed::new(text, "off, or a folder by its whole path, such as /home/me/tables")),
        }
    }

    /// Where the system keeps the state of a user's programs: `deepum/tables` there; nothing where these variables do not say.
    pub fn usual(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        state.map(|state| state.join("deepum/tables"))
    }
}

/// Reads the name of a workload.
pub(crate) fn workload(text: &str) -> Result<String, NotAllowed> {
    let name = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        return Err(NotAllowed::new(text, "1 to 64 letters, digits, dots, dashes and underscores"));
    }
    Ok(name.to_owned())
}

macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $vdoc:literal])* $variant:ident = $word:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $name { $($(#[doc = $vdoc])* $variant,)* }

        impl $name {
            /// The words it may be, in order.
            pub const WORDS: &[&str] = &[$($word),*];

            /// Reads one of the words.
            ///
            /// # Errors
            /// [`NotAllowed`].
            pub fn parse(text: &str) -> Result<Self, NotAllowed> {
                match text.trim() {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(NotAllowed::new(text, one_of(Self::WORDS))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }
    };
}

/// Reads `0` or `1`.
pub(crate) fn flag(text: &str) -> Result<bool, NotAllowed> {
    match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(NotAllowed::new(text, one_of(&["0", "1"]))),
    }
}

/// Reads what has a parser of its own.
pub(crate) fn parsed<T: FromStr>(text: &str, allowed: impl Into<String>) -> Result<T, NotAllowed> {
    text.trim().parse().map_err(|_| NotAllowed::new(text, allowed))
}

/// `one of a, b, c`.
pub(crate) fn one_of(words: &[&str]) -> String {
    format!("one of {}", words.join(", "))
}

words! {
    /// What makes two launches the same.
    ExecIdMode {
        /// Kernel, shape, and pointers as (allocation, offset).
        Pointers = "pointers",
        /// Kernel, and the bytes of all arguments: the paper's.
        Raw = "raw",
    }
}
words! {
    /// What memory queries answer.
    MemInfo {
        /// Device memory and the host memory that managed memory may use.
        Virtual = "virtual",
        /// What the driver says.
        Physical = "physical",
    }
}
words! {
    /// How blocks leave the GPU.
    Leave {
        /// As what moves take on this machine says; in virtual time, mapped.
        Measured = "measured",
        /// The host maps their pages, one by one.
        Mapped = "mapped",
        /// It does not.
        Unmapped = "unmapped",
    }
}
words! {
    /// How it is known that what comes to the GPU is there.
    Await {
        /// The driver writes a word then.
        Word = "word",
        /// A call of the driver does not return before.
        Call = "call",
    }
}
words! {
    /// How much is said on stderr.
    LogLevel {
        /// Nothing.
        Off = "off",
        /// What is lost and why: at most one line each.
        Error = "error",
        /// When DeepUM starts, wakes and stops, too.
        Info = "info",
        /// Whatever helps to find a mistake.
        Debug = "debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_two_decimals() {
        let of = |text| Times::parse(text).map(|times| times.map(|times| times.of(Bytes(1000)).0));
        assert_eq!(
            ["1", "1.5", "2.25", "1000", " none "].map(|text| of(text).unwrap()),
            [Some(1000), Some(1500), Some(2250), Some(1_000_000), None]
        );
        for bad in ["", "0", "0.99", "1000.01", "1.234", "-2", "x", ".5", "1e3", "99999999999999999999"] {
            assert!(of(bad).unwrap_err().to_string().contains("1 to 1000"), "{bad}");
        }
    }

    #[test]
    fn the_usual_folder_is_where_the_system_says_state_is_kept() {
        let of = |vars: &[(&str, &str)]| {
            TablesIn::usual(|name| {
                vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            })
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(of(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), path("/s/deepum/tables"));
        assert_eq!(of(&[("HOME", "/h")]), path("/h/.local/state/deepum/tables"));
        assert_eq!(of(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]), path("/h/.local/state/deepum/tables"));
        assert_eq!(of(&[("XDG_STATE_HOME", "s")]), None);
    }
}
