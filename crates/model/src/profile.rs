//! Device profiles: every number the model uses, with its source beside it in `profiles/*.toml`.
//!
//! A profile is two files: one for the card (data sheet, link), and `driver.toml`, shared by all cards, for
//! what the driver and the host's processor cost. Units are in the keys. The loader refuses unknown keys,
//! missing keys and numbers outside a sane range, so a slip of a power of ten does not become a result.

use deepum_core::units::{Bytes, Nanos};
use serde::Deserialize;

/// Peak arithmetic rates in operations per second, already times the share that real kernels achieve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlopRates {
    /// Double precision.
    pub fp64: f64,
    /// Single precision on ordinary cores.
    pub fp32: f64,
    /// Single precision on tensor cores with TF32 operands (equal to `fp32` before Ampere).
    pub tf32: f64,
    /// fp16 or bf16 on tensor cores, accumulating in single precision.
    pub half: f64,
}

/// Which of [`FlopRates`] a kernel is bound by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Precision {
    /// Double precision.
    Fp64,
    /// Single precision.
    Fp32,
    /// TF32 on tensor cores.
    Tf32,
    /// fp16 or bf16 on tensor cores.
    Half,
}

/// A GPU, its link, its driver and its host, in numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Name by which it is asked for: `v100-32g`.
    pub name: &'static str,
    /// Name that the CUDA API reports.
    pub device_name: String,
    /// Device memory as the CUDA API reports it.
    pub memory: Bytes,
    /// Part of it that a context takes.
    pub context: Bytes,
    /// Host memory.
    pub host_memory: Bytes,
    /// Compute capability that the emulated device reports: at least 8.0.
    pub reported_compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Resident threads per multiprocessor.
    pub threads_per_sm: u32,
    /// Core clock, in kHz, as the CUDA API reports it.
    pub clock_khz: u32,
    /// Memory clock, in kHz.
    pub memory_clock_khz: u32,
    /// Memory bus width in bits.
    pub memory_bus_bits: u32,
    /// L2 cache.
    pub l2: Bytes,
    /// Device memory bandwidth that kernels achieve, in bytes per second.
    pub memory_bandwidth: f64,
    /// Achieved arithmetic rates.
    pub flops: FlopRates,
    /// Host-to-device copies from pinned memory, bytes per second.
    pub h2d_bandwidth: f64,
    /// Device-to-host copies, bytes per second.
    pub d2h_bandwidth: f64,
    /// Fixed time of one contiguous copy on a copy engine.
    pub per_transfer: Nanos,
    /// Entries the driver takes out of the fault buffer for one batch.
    pub batch_entries: u32,
    /// Fault entries per distinct faulting page, in hundredths: 200 means each page faults twice.
    pub entries_per_page_percent: u32,
    /// Pages of its operands that a kernel has under way at once, at most: the width of its front.
    pub front_pages: u32,
    /// Driver work for one fault batch, whatever is in it; the replay included.
    pub batch_cost: Nanos,
    /// Driver work per fault entry.
    pub entry_cost: Nanos,
    /// Driver work per block served in a batch or migrated.
    pub block_cost: Nanos,
    /// Driver work per root chunk evicted.
    pub evict_cost: Nanos,
    /// Driver work to take a block out of the host's page tables before it moves to the GPU.
    pub host_unmap_cost: Nanos,
    /// Driver work to enter a whole block into the host's page tables after `UVM_MIGRATE` to the host.
    pub host_map_cost: Nanos,
    /// `UVM_MIGRATE`, `UVM_DISCARD` or a prefetch call: entry, locks and return.
    pub ioctl_cost: Nanos,
    /// From the end of the last copy until the call that waits for it goes on.
    pub await_cost: Nanos,
    /// `UVM_TOOLS_FLUSH_EVENTS`, which waits for a thread of the driver twice; a migrate call that waits does so, too.
    pub flush_cost: Nanos,
    /// Driver work to mark the pages of a whole block dirty, one by one, which the host has when it is preferred no more.
    pub mark_dirty_cost: Nanos,
    /// Driver work per block given up and unmapped.
    pub discard_cost: Nanos,
    /// Driver work per page that a kernel writes to, and that is there to be read.
    pub rewrite_cost: Nanos,
    /// Subtree share, in percent, above which the driver's prefetcher takes the whole subtree.
    pub prefetch_threshold_percent: u32,
    /// Host time of a CUDA call that enqueues no kernel.
    pub call_cost: Nanos,
    /// Host time of a kernel launch.
    pub launch_cost: Nanos,
    /// Launches a stream holds before the host has to wait.
    pub launch_queue: u32,
    /// Idle time of the GPU between two kernels of one stream.
    pub kernel_gap: Nanos,
    /// GPU time of a stream memory operation (`cuStreamWriteValue64`).
    pub stream_write_cost: Nanos,
    /// From a notice being in the queue to the engine's first command in answer: thread wake-up and lookup.
    pub engine_reaction: Nanos,
}

/// Why a profile cannot be had.
#[derive(thiserror::Error, Clone, PartialEq, Debug)]
pub enum ProfileError {
    /// No profile of this name.
    #[error("no device profile {name:?}; there are: {known}", known = Profile::NAMES.join(", "))]
    Unknown {
        /// As asked for.
        name: String,
    },
    /// A profile file does not have the form of one.
    #[error("device profile {name}: {what}")]
    Form {
        /// Which file.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// No number of this name in a profile.
    #[error("device profiles have no number {key:?}; there are: {}", Profile::keys().collect::<Vec<_>>().join(", "))]
    Key {
        /// As asked for.
        key: String,
    },
    /// A number outside its sane range.
    #[error("device profile {name}: {key} = {value} is outside {low} to {high}")]
    Range {
        /// Which file.
        name: String,
        /// Which key.
        key: &'static str,
        /// What it says.
        value: f64,
        /// Least allowed.
        low: f64,
        /// Most allowed.
        high: f64,
    },
}

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $low:literal ..= $high:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Deserialize, Clone, Debug)]
        #[serde(deny_unknown_fields)]
        struct $name { $($key: f64),* }
        impl $name {
            fn check(&self, file: &str) -> Result<(), ProfileError> {
                $(if !($low..=$high).contains(&self.$key) {
                    return Err(ProfileError::Range {
                        name: file.to_owned(), key: stringify!($key), value: self.$key, low: $low, high: $high,
                    });
                })*
                Ok(())
            }

            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn get_mut(&mut self, key: &str) -> Option<&mut f64> {
                match key {
                    $(stringify!($key) => Some(&mut self.$key),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// `[card]` of a card's file.
    Card {
        memory_bytes: 1e9..=1e12, context_mib: 1.0..=2048.0, host_memory_gib: 8.0..=8192.0,
        reported_cc_major: 8.0..=12.0, reported_cc_minor: 0.0..=9.0,
        sms: 1.0..=256.0, threads_per_sm: 1024.0..=2048.0, clock_khz: 5e5..=4e6, memory_clock_khz: 5e5..=2e7,
        memory_bus_bits: 64.0..=8192.0, l2_mib: 1.0..=256.0,
        memory_gb_s: 100.0..=10_000.0, memory_achieved_percent: 50.0..=100.0,
        fp64_tflops: 0.05..=200.0, fp32_tflops: 1.0..=500.0, tf32_tflops: 1.0..=2500.0, half_tflops: 1.0..=5000.0,
        flops_achieved_percent: 20.0..=100.0,
        h2d_gb_s: 1.0..=500.0, d2h_gb_s: 1.0..=500.0,
    }
}
numbers! {
    /// `driver.toml`.
    Driver {
        batch_entries: 1.0..=4096.0, entries_per_page_percent: 100.0..=1600.0, front_bytes_per_thread: 4.0..=64.0,
        batch_ns: 1e3..=1e6, entry_ns: 1.0..=1e5, block_ns: 100.0..=1e6, evict_ns: 100.0..=1e6,
        host_unmap_ns: 0.0..=1e6, host_map_ns: 0.0..=1e6, ioctl_ns: 100.0..=1e6, await_ns: 0.0..=1e6, flush_ns: 0.0..=1e6,
        mark_dirty_ns: 0.0..=1e6, discard_ns: 100.0..=1e6, rewrite_ns: 0.0..=1e6, per_transfer_ns: 100.0..=1e5,
        prefetch_threshold_percent: 1.0..=100.0, call_ns: 10.0..=1e5, launch_ns: 100.0..=1e5,
        launch_queue: 1.0..=65_536.0, kernel_gap_ns: 0.0..=1e5, stream_write_ns: 0.0..=1e5,
        engine_reaction_ns: 0.0..=1e6,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    device_name: String,
    card: Card,
}

const DRIVER: &str = include_str!("../profiles/driver.toml");
const CARDS: [(&str, &str); 6] = [
    ("v100-16g", include_str!("../profiles/v100-16g.toml")),
    ("v100-32g", include_str!("../profiles/v100-32g.toml")),
    ("a100-40g", include_str!("../profiles/a100-40g.toml")),
    ("rtx3060-12g", include_str!("../profiles/rtx3060-12g.toml")),
    ("rtx4090", include_str!("../profiles/rtx4090.toml")),
    ("h200", include_str!("../profiles/h200.toml")),
];

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: [&'static str; 6] = {
        let mut names = [""; 6];
        let mut i = 0;
        while i < names.len() {
            names[i] = CARDS[i].0;
            i += 1;
        }
        names
    };

    /// The profile called `name`.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] lists the names there are. The other variants cannot come from the profiles
    /// that are built in (a test loads them all).
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        Self::scaled(name, &[])
    }

    /// The profile called `name`, with numbers of its files scaled to a percentage: what a result owes to one of them.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] and [`ProfileError::Key`] list what there is. [`ProfileError::Range`]: the scaled number is outside
    /// what any profile may have.
    pub fn scaled(name: &str, scales: &[(String, u32)]) -> Result<Self, ProfileError> {
        let (name, card) = CARDS
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
        Self::parse(name, card, DRIVER, scales)
    }

    /// The numbers that [`Profile::scaled`] can scale, card first.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        Card::KEYS.iter().chain(Driver::KEYS).copied()
    }

    /// Roofline time of a kernel that touches `bytes` of device memory and does `flops` operations.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a float to integer cast saturates; a kernel of 500 years may")]
    pub fn kernel_time(&self, bytes: Bytes, flops: f64, precision: Precision) -> Nanos {
        let memory = bytes.0 as f64 / self.memory_bandwidth;
        let rate = match precision {
            Precision::Fp64 => self.flops.fp64,
            Precision::Fp32 => self.flops.fp32,
            Precision::Tf32 => self.flops.tf32,
            Precision::Half => self.flops.half,
        };
        let arithmetic = flops.max(0.0) / rate;
        Nanos((memory.max(arithmetic) * 1e9) as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "every number was checked to be in a range that fits")]
    fn parse(name: &'static str, card: &str, driver: &str, scales: &[(String, u32)]) -> Result<Self, ProfileError> {
        let form =
            |file: &str, e: toml::de::Error| ProfileError::Form { name: file.to_owned(), what: e.message().to_owned() };
        let CardFile { device_name, mut card } = toml::from_str(card).map_err(|e| form(name, e))?;
        let mut driver: Driver = toml::from_str(driver).map_err(|e| form("driver", e))?;
        for (key, percent) in scales {
            let number = card.get_mut(key).or_else(|| driver.get_mut(key));
            let number = number.ok_or_else(|| ProfileError::Key { key: key.clone() })?;
            *number *= f64::from(*percent) / 100.0;
        }
        card.check(name)?;
        driver.check("driver")?;
        let rate = |tflops: f64| tflops * 1e12 * card.flops_achieved_percent / 100.0;
        let nanos = |ns: f64| Nanos(ns as u64);
        // What the resident threads of the whole chip can have asked for at once.
        let front = card.sms * card.threads_per_sm * driver.front_bytes_per_thread / 4096.0;
        Ok(Self {
            name,
            device_name,
            memory: Bytes(card.memory_bytes as u64),
            context: Bytes::mib(card.context_mib as u64),
            host_memory: Bytes::gib(card.host_memory_gib as u64),
            reported_compute_capability: (card.reported_cc_major as u32, card.reported_cc_minor as u32),
            sms: card.sms as u32,
            threads_per_sm: card.threads_per_sm as u32,
            clock_khz: card.clock_khz as u32,
            memory_clock_khz: card.memory_clock_khz as u32,
            memory_bus_bits: card.memory_bus_bits as u32,
            l2: Bytes::mib(card.l2_mib as u64),
            memory_bandwidth: card.memory_gb_s * 1e9 * card.memory_achieved_percent / 100.0,
            flops: FlopRates {
                fp64: rate(card.fp64_tflops),
                fp32: rate(card.fp32_tflops),
                tf32: rate(card.tf32_tflops),
                half: rate(card.half_tflops),
            },
            h2d_bandwidth: card.h2d_gb_s * 1e9,
            d2h_bandwidth: card.d2h_gb_s * 1e9,
            per_transfer: nanos(driver.per_transfer_ns),
            batch_entries: driver.batch_entries as u32,
            entries_per_page_percent: driver.entries_per_page_percent as u32,
            front_pages: (front as u32).max(1),
            batch_cost: nanos(driver.batch_ns),
            entry_cost: nanos(driver.entry_ns),
            block_cost: nanos(driver.block_ns),
            evict_cost: nanos(driver.evict_ns),
            host_unmap_cost: nanos(driver.host_unmap_ns),
            host_map_cost: nanos(driver.host_map_ns),
            ioctl_cost: nanos(driver.ioctl_ns),
            await_cost: nanos(driver.await_ns),
            flush_cost: nanos(driver.flush_ns),
            mark_dirty_cost: nanos(driver.mark_dirty_ns),
            discard_cost: nanos(driver.discard_ns),
            rewrite_cost: nanos(driver.rewrite_ns),
            prefetch_threshold_percent: driver.prefetch_threshold_percent as u32,
            call_cost: nanos(driver.call_ns),
            launch_cost: nanos(driver.launch_ns),
            launch_queue: driver.launch_queue as u32,
            kernel_gap: nanos(driver.kernel_gap_ns),
            stream_write_cost: nanos(driver.stream_write_ns),
            engine_reaction: nanos(driver.engine_reaction_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_loads_and_is_called_by_its_name() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.context < profile.memory && profile.memory < profile.host_memory, "{name}");
            assert!(profile.reported_compute_capability >= (8, 0), "{name}");
            assert!(profile.flops.fp32 <= profile.flops.tf32 && profile.flops.tf32 <= profile.flops.half, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = Profile::named("v100").unwrap_err().to_string();
        assert!(error.contains("\"v100\"") && error.contains("v100-16g, v100-32g"), "{error}");
    }

    #[test]
    fn a_slip_of_a_power_of_ten_is_refused() {
        let card = CARDS[1].1.replace("fp32_tflops = ", "fp32_tflops = 1000");
        let error = Profile::parse("v100-32g", &card, DRIVER, &[]).unwrap_err();
        assert!(matches!(error, ProfileError::Range { key: "fp32_tflops", .. }), "{error}");
        let card = CARDS[1].1.replace("sms = ", "smss = ");
        let error = Profile::parse("v100-32g", &card, DRIVER, &[]).unwrap_err();
        assert!(matches!(error, ProfileError::Form { .. }), "{error}");
    }

    #[test]
    fn a_number_can_be_scaled_and_a_wrong_one_is_refused() {
        let scale = |key: &str, percent| Profile::scaled("v100-32g", &[(key.to_owned(), percent)]);
        let plain = Profile::named("v100-32g").unwrap();
        let half = scale("h2d_gb_s", 50).unwrap();
        assert_eq!((half.h2d_bandwidth, half.d2h_bandwidth), (plain.h2d_bandwidth / 2.0, plain.d2h_bandwidth));
        assert_eq!(scale("block_ns", 150).unwrap().block_cost, Nanos(11_250));
        assert_eq!(Profile { block_cost: plain.block_cost, ..scale("block_ns", 150).unwrap() }, plain);
        let error = scale("h2d", 50).unwrap_err().to_string();
        assert!(error.contains("\"h2d\"") && error.contains("h2d_gb_s") && error.contains("batch_ns"), "{error}");
        let error = scale("memory_achieved_percent", 150).unwrap_err().to_string();
        assert!(error.contains("memory_achieved_percent = 135 is outside 50 to 100"), "{error}");
    }

    #[test]
    fn the_roofline_is_the_slower_of_bytes_and_arithmetic() {
        let p = Profile::named("v100-32g").unwrap();
        let bytes = Bytes::gib(1);
        let memory = p.kernel_time(bytes, 0.0, Precision::Fp32);
        assert_eq!(memory, p.kernel_time(bytes, 1.0, Precision::Fp32));
        let arithmetic = p.kernel_time(Bytes::ZERO, p.flops.fp32, Precision::Fp32);
        assert_eq!(arithmetic, Nanos(1_000_000_000));
    }

    #[test]
    fn every_number_has_a_source_beside_it() {
        for (name, text) in CARDS.into_iter().chain([("driver", DRIVER)]) {
            for line in text.lines().filter(|l| l.contains(" = ") && !l.starts_with('#')) {
                assert!(line.contains('#'), "{name}: no source after: {line}");
            }
        }
    }
}
