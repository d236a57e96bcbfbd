//! Which family a kernel belongs to: from its name and layout, once per kernel.

use super::args::Launch;
use super::name::Signature;
use super::offsets::Shaped;
use super::touches::Touches;
use super::{attention, cat, elementwise, embedding, index, multi_tensor, pointers, reduce, sort, vendor};
use crate::fatbin::Param;

/// Reads a launch's parameters and touches what they name; `None` if they are not what the family's struct says.
pub(super) type Decode = fn(&Launch<'_>, &mut Touches<'_>) -> Option<()>;

/// A kernel as the device knows it.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) signature: Signature,
    pub(super) layout: Vec<Param>,
    pub(super) decode: Option<Decode>,
}

impl Kernel {
    pub(super) fn new(name: &str, layout: &[Param]) -> Self {
        let signature = Signature::of(name);
        let decode = decoder(&signature, layout);
        Self { signature, layout: layout.to_vec(), decode }
    }
}

/// The decoder of a kernel whose layout in the fatbin agrees with its name.
fn decoder(s: &Signature, layout: &[Param]) -> Option<Decode> {
    if s.family.starts_with(deepum_emu_abi::kernels::PREFIX) {
        return (layout.len() == 1).then_some(vendor::operands as Decode);
    }
    if s.params.is_empty() || !s.agrees(layout) {
        return None;
    }
    let all = layout.len();
    let by_name: Option<Decode> = match s.family.as_str() {
        "vectorized_elementwise_kernel" if all == 3 => Some(elementwise::vectorized),
        "unrolled_elementwise_kernel" if all == 7 => Some(elementwise::unrolled),
        "unrolled_elementwise_kernel_for_multi_outputs" if all == 5 => Some(elementwise::unrolled),
        "elementwise_kernel" if all == 2 => Some(elementwise::closure),
        "distribution_elementwise_grid_stride_kernel" if all == 4 => Some(elementwise::distribution),
        "elementwise_kernel_with_index" if all == 3 => Some(elementwise::with_index),
        "reduce_kernel" if all == 1 => Some(reduce::reduce),
        "multi_tensor_apply_kernel" => Some(multi_tensor::apply),
        "indexSelectSmallIndex" | "indexSelectLargeIndex" | "indexFuncSmallIndex" | "indexFuncLargeIndex" => {
            Some(index::select)
        }
        "vectorized_gather_kernel" if all == 9 => Some(index::vectorized_gather),
        "_scatter_gather_elementwise_kernel" if all == 2 => Some(index::scatter_gather),
        "index_elementwise_kernel" if all == 2 => Some(index::advanced),
        "flash_fwd_kernel" if all == 1 => Some(attention::flash_forward),
        "flash_bwd_dot_do_o_kernel" if all == 1 => Some(attention::flash_dot),
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if all == 1 => Some(attention::flash_backward),
        "flash_bwd_convert_dq_kernel" if all == 2 => Some(attention::flash_convert),
        name if name.starts_with("fmha_cutlassF_") => Some(attention::efficient_forward),
        name if name.starts_with("fmha_cutlassB_") => Some(attention::efficient_backward),
        name if name.starts_with("CatArrayBatchedCopy") && all == 5 => Some(cat::concatenate),
        _ => None,
    };
    let tables = [pointers::decoder, embedding::decoder, sort::decoder];
    by_name.or_else(|| tables.iter().find_map(|table| table(&s.family, all))).or_else(|| {
        // Tensors that carry their shape speak for themselves, unless data picks among their elements.
        let shaped = s.params.iter().any(|t| Shaped::kind(t).is_some());
        let picks = ["gather", "scatter", "index", "unpool", "embedding", "Index"].iter().any(|p| s.family.contains(p));
        (shaped && !picks).then_some(pointers::shaped as Decode)
    })
}
