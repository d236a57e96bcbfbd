//! Which driver is loaded, and whether we know it.
//!
//! Known is 515 to 595: the releases whose layouts were compared one by one (`docs/facts.md`, "Sources"). The answer for the rest:
//!
//! | driver | what we do |
//! | --- | --- |
//! | 515 to 595 | use it |
//! | newer, or it does not say | say so; attach with the one buffer that serves every known shape; leave at the first entry that makes no sense |
//! | older | refuse: its nvidia-uvm source is not public, so nothing is known of its layouts |
//!
//! Giving up contents is asked for more carefully than anything else, since it destroys them where it goes wrong: only of
//! a release that is known to have it ([`Support::can_discard`]).

use std::fmt;

/// A driver release, such as 580.65.06.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriverVersion {
    /// The branch: 580.
    pub branch: u32,
    /// As the driver writes it.
    text: String,
}

/// First and last branch we know.
pub const KNOWN: (u32, u32) = (515, 595);

impl DriverVersion {
    /// Reads `580.65.06`, as in `/sys/module/nvidia/version`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut parts = text.split('.');
        let branch = parts.next()?.parse().ok()?;
        let rest: Vec<&str> = parts.collect();
        let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if text.len() > 32 || !(1..=2).contains(&rest.len()) || !rest.iter().all(digits) {
            return None;
        }
        Some(Self { branch, text: text.to_owned() })
    }

    /// Whether it is this release of this branch, or a later one.
    fn at_least(&self, branch: u32, release: u32) -> bool {
        let have = self.text.split('.').nth(1).and_then(|part| part.parse().ok()).unwrap_or(0);
        (self.branch, have) >= (branch, release)
    }

    /// The loaded driver's, by the first of its files that says so; `read` gives the text of one.
    pub fn loaded(read: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let module = read("/sys/module/nvidia/version").and_then(|text| Self::parse(&text));
        module.or_else(|| Self::find(&read("/proc/driver/nvidia/version")?))
    }

    /// Finds it in `/proc/driver/nvidia/version`, whose first line holds it among other words.
    pub fn find(proc_text: &str) -> Option<Self> {
        let line = proc_text.lines().find(|line| line.contains("NVRM version"))?;
        line.split_whitespace().find_map(Self::parse)
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What we make of the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Support {
    /// One we know.
    Known(DriverVersion),
    /// Newer than any we know.
    Newer(DriverVersion),
    /// It does not say, or says something that is no version.
    Unnamed,
    /// Older than any we know.
    Older(DriverVersion),
}

impl Support {
    /// Judges what the driver says of itself.
    pub fn of(version: Option<DriverVersion>) -> Self {
        match version {
            None => Self::Unnamed,
            Some(v) if v.branch < KNOWN.0 => Self::Older(v),
            Some(v) if v.branch > KNOWN.1 => Self::Newer(v),
            Some(v) => Self::Known(v),
        }
    }

    /// Whether the driver can give up the contents of memory without copying them (facts 4.3), or why not.
    ///
    /// # Errors
    /// One line for the user.
    pub fn can_discard(&self) -> Result<(), String> {
        let (since, until) = ("580.65.06", KNOWN.1);
        match self {
            Self::Known(v) if v.at_least(580, 65) => Ok(()),
            Self::Known(v) | Self::Older(v) => {
                Err(format!("NVIDIA driver {v} cannot give up the contents of memory; {since} and later can"))
            }
            Self::Newer(v) => Err(format!(
                "NVIDIA driver {v} is not asked to give up the contents of memory: that is known of {since} to {until} only"
            )),
            Self::Unnamed => Err(format!(
                "a driver that does not tell its version is not asked to give up the contents of memory: that is known of {since} \
                 to {until} only"
            )),
        }
    }

    /// Whether the driver is known to have policies for two copies of memory (facts 4.7), as all known ones have, or why not.
    ///
    /// # Errors
    /// One line for the user.
    pub fn can_duplicate(&self) -> Result<(), String> {
        let (from, to) = KNOWN;
        let who = match self {
            Self::Known(_) => return Ok(()),
            Self::Newer(v) | Self::Older(v) => format!("NVIDIA driver {v}"),
            Self::Unnamed => "a driver that does not tell its version".to_owned(),
        };
        Err(format!("{who} is not asked to keep two copies of memory: that is known of {from} to {to} only"))
    }

    /// The version, if there is one.
    pub const fn version(&self) -> Option<&DriverVersion> {
        match self {
            Self::Known(v) | Self::Newer(v) | Self::Older(v) => Some(v),
            Self::Unnamed => None,
        }
    }

    /// Whether its layouts were checked.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// One line for the user, where there is something to say.
    pub fn warning(&self) -> Option<String> {
        let (from, to) = KNOWN;
        match self {
            Self::Known(_) => None,
            Self::Newer(v) => Some(format!(
                "NVIDIA driver {v} is newer than those known here ({from} to {to}): attaching in the shape all of those share"
            )),
            Self::Unnamed => Some(format!(
                "the NVIDIA driver does not tell its version: attaching in the shape that {from} to {to} share"
            )),
            Self::Older(v) => {
                Some(format!("NVIDIA driver {v} is older than those known here ({from} to {to}): not touching it"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(text: &str) -> Support {
        Support::of(DriverVersion::parse(text))
    }

    #[test]
    fn known_from_515_to_595() {
        for text in ["515.43.04\n", "535.54.03", "550.40.07", "580.142", "595.45.04"] {
            assert!(support(text).is_known(), "{text}");
        }
        assert!(matches!(support("470.256.02"), Support::Older(_)));
        assert!(matches!(support("610.10"), Support::Newer(_)));
        assert!(support("610.10").warning().unwrap().contains("610.10"));
    }

    #[test]
    fn contents_are_given_up_from_580_65_to_595_and_every_refusal_names_the_driver() {
        for text in ["580.65.06", "580.142", "590.44.01", "595.45.04"] {
            assert_eq!(support(text).can_discard(), Ok(()), "{text}");
        }
        for text in ["470.256.02", "535.183.01", "575.64.05", "580.10.01", "596.1", "610.10"] {
            let why = support(text).can_discard().unwrap_err();
            assert!(why.contains(text) && why.contains("580.65.06"), "{why}");
        }
        assert!(support("").can_discard().unwrap_err().contains("does not tell its version"));
    }

    #[test]
    fn two_copies_are_asked_of_known_drivers_alone_and_every_refusal_names_the_driver() {
        assert_eq!(support("515.43.04").can_duplicate(), Ok(()));
        for text in ["470.256.02", "610.10"] {
            assert!(support(text).can_duplicate().unwrap_err().contains(text));
        }
        assert!(support("").can_duplicate().unwrap_err().contains("does not tell its version"));
    }

    #[test]
    fn what_is_no_version_is_no_version() {
        for text in ["", "580", "580.", "580.x", "580.1.2.3", "abc", "-1.2", "580.1 2", "99999999999.1"] {
            assert_eq!(support(text), Support::Unnamed, "{text:?}");
        }
    }

    #[test]
    fn the_proc_file_names_it_too() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder)\nGCC version:  gcc version 13.2.0\n";
        assert_eq!(DriverVersion::find(open).unwrap().to_string(), "580.65.06");
        assert_eq!(DriverVersion::find("GCC version: gcc version 13.2.0"), None);
    }
}
