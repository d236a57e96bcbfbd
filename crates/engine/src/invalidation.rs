//! What is done about contents that nobody needs: what was asked for, as far as it can be had.
//!
//! Contents are given up only where the driver is known to do it (`kmod-bridge`), and where it is known when the GPU has
//! finished with them. Elsewhere such blocks leave first, with a copy; the status says which, and why.

use deepum_core::invalidate::Invalidate;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalidation {
    /// What is done.
    pub what: Invalidate,
    /// Why that is less than was asked for, if it is.
    pub less: Option<String>,
}

impl Invalidation {
    /// `wanted`, with a driver that `discards` or does not, and with progress words or without.
    pub fn within(wanted: Invalidate, discards: Result<(), String>, progress: bool) -> Self {
        let less = match discards {
            _ if wanted < Invalidate::Discard => None,
            Err(why) => Some(why),
            Ok(()) if !progress => {
                Some("without progress words it is not known when a GPU has finished with them".to_owned())
            }
            Ok(()) => None,
        };
        match less {
            None => Self { what: wanted, less },
            Some(why) => Self {
                what: Invalidate::EvictFirst,
                less: Some(format!("{why}; such blocks are moved out first instead")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Invalidate::{Discard, EvictFirst, No};

    #[test]
    fn what_is_done_is_what_was_asked_for_as_far_as_it_can_be_had() {
        let within = |wanted, discards: Result<(), &str>, progress| {
            Invalidation::within(wanted, discards.map_err(str::to_owned), progress)
        };
        assert_eq!(within(Discard, Ok(()), true), Invalidation { what: Discard, less: None });
        let old = within(Discard, Err("driver 550 cannot"), true);
        assert_eq!(
            (old.what, old.less.as_deref()),
            (EvictFirst, Some("driver 550 cannot; such blocks are moved out first instead"))
        );
        let blind = within(Discard, Ok(()), false);
        assert!(blind.what == EvictFirst && blind.less.unwrap().contains("progress words"));
        for wanted in [No, EvictFirst] {
            assert_eq!(within(wanted, Err("driver 550 cannot"), false), Invalidation { what: wanted, less: None });
        }
    }
}
