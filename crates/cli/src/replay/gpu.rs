//! What a trace is replayed on: a GPU as in life, or the world that G10 was published with.

use deepum_emu_device::config::Config as Device;
use deepum_model::Profile;
use deepum_sim::published::World;

/// The name of that world.
pub const COMPAT: &str = "g10-compat";

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub enum Gpu {
    /// As in life.
    Life(Device),
    /// As published.
    Compat(World),
}

impl Gpu {
    /// Reads `PROFILE[:key=value,…]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("emu:").unwrap_or(text);
        let compat = text.strip_prefix(COMPAT).filter(|keys| keys.is_empty() || keys.starts_with(':'));
        // Its keys are read like those of any profile.
        let read = compat.map_or_else(|| text.to_owned(), |keys| format!("{}{keys}", Profile::NAMES[0]));
        let device = Device::parse(&read, &Profile::NAMES).map_err(|error| match compat {
            Some(_) => error.to_string(),
            None => format!("{error}; and {COMPAT}"),
        })?;
        let Device { memory, host, scale, profile, .. } = device.clone();
        if compat.is_some() && device == (Device { memory, host, ..Device::of_profile(&profile) }) {
            let published = World::PUBLISHED;
            let [gpu, host] = [memory.unwrap_or(published.gpu), host.unwrap_or(published.host)];
            return Ok(Self::Compat(World { gpu, host, ..published }));
        }
        if compat.is_some() {
            return Err(format!("only the keys memory and host mean something on {COMPAT}"));
        }
        if device != (Device { memory, host, scale, ..Device::of_profile(&profile) }) {
            return Err("only the keys memory, host and scale mean something in a replay".to_owned());
        }
        Ok(Self::Life(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepum_core::units::Bytes;

    #[test]
    fn a_gpu_is_a_profile_or_the_published_world() {
        assert!(matches!(Gpu::parse("emu:a100-40g:memory=6GiB"), Ok(Gpu::Life(_))));
        assert_eq!(Gpu::parse(COMPAT), Ok(Gpu::Compat(World::PUBLISHED)));
        let smaller = World { gpu: Bytes::gib(20), host: Bytes::gib(64), ..World::PUBLISHED };
        assert_eq!(Gpu::parse("g10-compat:memory=20GiB,host=64GiB"), Ok(Gpu::Compat(smaller)));
        assert!(Gpu::parse("g10-compat:scale=h2d_gb_s*50").unwrap_err().contains("memory and host"));
        assert!(Gpu::parse("g10-compatible").unwrap_err().contains("and g10-compat"));
    }
}
