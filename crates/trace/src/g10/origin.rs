//! Which of the published points were measured, so that tables can mark the others.
//!
//! Most of a measurement's times are multiples of the event timer's tick, 1.024 us. At some batch sizes few are, and all times are,
//! kernel by kernel, those of the straight line through two other batch sizes: they were computed. Others are multiples of the tick, but exactly
//! `2a - b` of two others. A trend over batch sizes inside such a group shows nothing new.
//!
//! Source: the published times themselves (`results/` of `platformxlab/G10` at de2c8c6); `tests/g10_points.rs` draws the lines again
//! where the points they go through are at hand.

use super::G10Name;

/// Where a point's times come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// They look measured.
    Measured,
    /// All three times of every kernel lie on the straight line between two other batch sizes.
    Interpolated,
    /// All three times of every kernel lie on the straight line through two smaller batch sizes, but for a few that were clamped.
    Extrapolated,
    /// The times without faults do; those with faults look measured.
    PlainExtrapolated,
}

const COMPUTED: [(&str, u32, Origin); 9] = [
    ("BERT_Base", 1024, Origin::Extrapolated),
    ("VIT", 768, Origin::Interpolated),
    ("VIT", 1024, Origin::PlainExtrapolated),
    ("VIT", 1280, Origin::Interpolated),
    ("Inceptionv3", 768, Origin::Interpolated),
    ("Inceptionv3", 1792, Origin::Extrapolated),
    ("ResNet152", 768, Origin::Interpolated),
    ("ResNet152", 1280, Origin::Interpolated),
    ("SENet154", 512, Origin::Interpolated),
];

/// The points of the paper's figures 11 and 15 whose times look measured.
const MEASURED: [(&str, &[u32]); 5] = [
    ("BERT_Base", &[128, 256, 512, 768]),
    ("VIT", &[256, 512]),
    ("Inceptionv3", &[512, 1024, 1280, 1536]),
    ("ResNet152", &[256, 512, 1024]),
    ("SENet154", &[256, 768, 1024]),
];

impl G10Name {
    /// Where its times come from; nothing for a point that nobody looked at.
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        let computed = COMPUTED.iter().find(|(model, batch, _)| *model == self.model() && *batch == self.batch());
        let measured =
            || MEASURED.iter().any(|(model, batches)| *model == self.model() && batches.contains(&self.batch()));
        computed.map(|(.., origin)| *origin).or_else(|| measured().then_some(Origin::Measured))
    }
}
