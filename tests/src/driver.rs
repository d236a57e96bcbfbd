//! Which driver the suites run on, and what may be expected of it.
//!
//! `scripts/drivers` runs them under each that the emulated device plays, and names it in `TEST_DRIVER`, as `--gpu` has it.

/// What a driver is to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Driver {
    /// It tells of faults and of what moves.
    pub tells: bool,
    /// It is asked to give contents up.
    pub discards: bool,
    /// It is asked to keep two copies of memory.
    pub duplicates: bool,
    /// Parts of lines that every engine says on stderr, each once.
    pub says: Vec<&'static str>,
}

impl Driver {
    /// That of a device, as `--gpu` says it.
    #[must_use]
    pub fn of(spec: &str) -> Self {
        let key = |name| spec.split([':', ',']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let (tells, release) = (key("tools") != Some("missing"), key("release"));
        let mut says = match release {
            None => Vec::new(),
            Some("none") => vec!["the NVIDIA driver does not tell its version"],
            Some(_) => vec!["is newer than those known here"],
        };
        if !tells {
            says.push("/dev/nvidia-uvm-tools");
        }
        let known = release.is_none();
        let discards = known && !["535", "550", "560"].map(Some).contains(&key("driver"));
        Self { tells, discards, duplicates: known && tells, says }
    }

    /// The one that the suites run on.
    #[must_use]
    pub fn here() -> Self {
        Self::of(&on_this_driver("emu:v100-32g"))
    }

    /// The same where no engine is that could say something.
    #[must_use]
    pub fn unheard(self) -> Self {
        Self { says: Vec::new(), ..self }
    }

    /// The same where it is to keep two copies of memory.
    #[must_use]
    pub fn of_copies(mut self) -> Self {
        // Without notices it is not asked what it could do.
        if self.tells && !self.duplicates {
            self.says.push("is not asked to keep two copies of memory");
        }
        self
    }

    /// The lines on stderr but for those about this driver, which are there once each.
    #[track_caller]
    #[must_use]
    pub fn said(&self, stderr: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(stderr);
        for part in &self.says {
            assert_eq!(text.lines().filter(|line| line.contains(part)).count(), 1, "lines with {part:?} in\n{text}");
        }
        text.lines().filter(|line| !self.is_about(line)).map(str::to_owned).collect()
    }

    /// Whether a line says what this driver lacks.
    #[must_use]
    pub fn is_about(&self, line: &str) -> bool {
        line.starts_with("deepum: ") && self.says.iter().any(|part| line.contains(part))
    }
}

/// The drivers to run on in turn, as `--gpu` has them: what `TEST_DRIVER` asks for, or these.
#[must_use]
pub fn in_turn(unless_asked: &[&str]) -> Vec<String> {
    asked().map_or_else(|| unless_asked.iter().map(|&driver| format!("driver={driver}")).collect(), |asked| vec![asked])
}

fn asked() -> Option<String> {
    std::env::var("TEST_DRIVER").ok().filter(|asked| !asked.is_empty())
}

/// A device as `--gpu` says it, with the driver that `TEST_DRIVER` asks for, unless it says itself which.
#[must_use]
pub fn on_this_driver(spec: &str) -> String {
    match asked() {
        Some(asked) if !spec.contains("driver=") => {
            let join = if spec.trim_start_matches("emu:").contains(':') { ',' } else { ':' };
            format!("{spec}{join}{asked}")
        }
        _ => spec.to_owned(),
    }
}
