//! `multi_tensor_apply_kernel(lists, operation, …)`: one launch over chunks of many tensors (foreach and fused optimizers, gradient
//! scaling, norms).
//!
//! The first parameter is a list (`ATen/native/cuda/MultiTensorApply.cuh`): addresses[depth][tensors], elements per tensor,
//! maybe a scalar or a step counter per tensor, and for every thread block which tensor and which chunk of 65,536
//! elements it works on. How many tensors and blocks fit depends on the CUDA version it was compiled with; the parameter's size tells which.

use deepum_core::units::DevAddr;

use super::args::{Launch, Words};
use super::name::{element_size, template};
use super::offsets::number;
use super::touches::{Access, Touches};

const CHUNK: u64 = 65_536;

/// Room in the lists by depth, as compiled for one generation of CUDA: tensors, tensors where a scalar goes with each,
/// blocks, and the size of a block's tensor number.
struct Room {
    tensors: [usize; 5],
    with_scalar: [usize; 5],
    blocks: usize,
    tensor_number: usize,
}

/// From CUDA 13 on, then before. `MultiTensorApply.cuh`, `depth_to_max_*`.
const ROOMS: [Room; 2] = [
    Room { tensors: [770, 448, 336, 252, 210], with_scalar: [672, 448, 336, 252, 210], blocks: 2240, tensor_number: 2 },
    Room { tensors: [110, 64, 48, 36, 30], with_scalar: [96, 64, 48, 36, 30], blocks: 320, tensor_number: 1 },
];

/// Where things are in a list.
struct Layout {
    depth: usize,
    tensors: usize,
    /// Step counters of the fused optimizers.
    steps: Option<usize>,
    tensor_numbers: usize,
    tensor_number: usize,
    chunks: usize,
    blocks: usize,
}

impl Layout {
    fn of(list: &str, size: usize) -> Option<Self> {
        let (name, args) = template(list)?;
        ROOMS.iter().find_map(|room| {
            let (depth, per_tensor, fused) = match name {
                "TensorListMetadata" => (number(args.first()?)?, 0, false),
                "FusedOptimizerTensorListMetadata" => (number(args.first()?)?, 8, true),
                "TensorListScalarListMetadata" => (number(args.get(1)?)?, element_size(args.first()?)? as usize, false),
                _ => return None,
            };
            let slot = depth.checked_sub(1).filter(|&d| d < 5)?;
            let tensors =
                if name == "TensorListScalarListMetadata" { room.with_scalar[slot] } else { room.tensors[slot] };
            let extra = 8 * tensors * (depth + 1);
            let tensor_numbers = extra + per_tensor * tensors;
            let chunks = (tensor_numbers + room.tensor_number * room.blocks).next_multiple_of(4);
            let end = chunks + 4 * room.blocks;
            let whole = if name == "TensorListScalarListMetadata" { end } else { end + 4 };
            (whole.next_multiple_of(8) == size).then_some(Self {
                depth,
                tensors,
                steps: fused.then_some(extra),
                tensor_numbers,
                tensor_number: room.tensor_number,
                chunks,
                blocks: room.blocks,
            })
        })
    }
}

/// What an operation does with the tensors of each depth: element size and access.
fn operands(launch: &Launch<'_>, depth: usize) -> Option<Vec<(u64, Access)>> {
    let (name, args) = template(launch.signature.params.get(1)?)?;
    let size = |n: usize| args.get(n).and_then(|t| element_size(t)).map(u64::from);
    let elem = size(0)?;
    let all = |access: &dyn Fn(usize) -> Access| (0..depth).map(|d| (elem, access(d))).collect();
    Some(match name {
        // Parameter, gradient, and states. Gradients are written back when a scaler's inverse scale is applied.
        _ if name.starts_with("FusedAdam") => {
            let scaled = launch.pointer(launch.signature.params.len().checked_sub(2)?)? != 0;
            all(&|d| if d == 1 && !scaled { Access::Read } else { Access::Update })
        }
        _ if name.starts_with("FusedSgd") || name.starts_with("FusedAdagrad") => {
            all(&|d| if d == 1 { Access::Read } else { Access::Update })
        }
        // Norms and maxima read the tensors; results go to buffers among the other parameters.
        "LpNormFunctor" | "LpMaxFunctor" => all(&|_| Access::Read),
        // Different types on both sides: destination last.
        "CopyFunctor" | "Copy" if depth == 2 => {
            let (to, from) = (size(0)?, size(1).unwrap_or(elem));
            vec![(from, Access::Read), (to, Access::Write)]
        }
        // <type, depth, how many are read, which is the result>
        _ => {
            let (read, result) = (number(args.get(2)?)?, number(args.get(3)?)?);
            all(&|d| match (d < read, d == result) {
                (true, true) => Access::Update,
                (false, true) => Access::Write,
                _ => Access::Read,
            })
        }
    })
}

pub(super) fn apply(launch: &Launch<'_>, out: &mut Touches<'_>) -> Option<()> {
    let list = launch.param(0)?;
    let layout = Layout::of(launch.signature.params.first()?, list.len())?;
    let operands = operands(launch, layout.depth)?;
    let blocks = usize::try_from(launch.blocks()).ok().filter(|&b| b <= layout.blocks)?;
    // Runs of chunks of the same tensor become one range.
    let mut run: Option<(usize, u64, u64)> = None;
    for block in 0..=blocks {
        let next = if block < blocks { Some(chunk(list, &layout, block)?) } else { None };
        match (&mut run, next) {
            (Some((tensor, _, end)), Some((t, first, last))) if *tensor == t && *end == first => *end = last,
            (_, next) => {
                if let Some((tensor, first, end)) = run.take() {
                    for (d, &(elem, access)) in operands.iter().enumerate() {
                        let base = list.u64(8 * (d * layout.tensors + tensor))?;
                        out.dense(
                            if base == 0 { 0 } else { base.checked_add(first * elem)? },
                            (end - first) * elem,
                            access,
                        );
                    }
                    if let Some(steps) = layout.steps {
                        out.dense(list.u64(steps + 8 * tensor)?, 4, Access::Read);
                    }
                    // Blocks are taken in order, so tensors are worked on one after the other.
                    out.phase = out.phase.saturating_add(1);
                }
                run = next;
            }
        }
    }
    norms(launch, out, &layout, list, blocks)
}

/// The tensor and the elements that `block` works on.
fn chunk(list: Words<'_>, layout: &Layout, block: usize) -> Option<(usize, u64, u64)> {
    let at = layout.tensor_numbers + block * layout.tensor_number;
    let tensor = if layout.tensor_number == 1 { usize::from(list.u8(at)?) } else { usize::from(list.u16(at)?) };
    let chunk = u64::from(list.u32(layout.chunks + 4 * block)?);
    let numel = list.count(8 * (layout.tensors * layout.depth + tensor), 8).filter(|_| tensor < layout.tensors)?;
    let first = chunk.checked_mul(CHUNK)?;
    // Addresses of 57 bits are the most a GPU has; no tensor has more elements than that.
    (first <= numel && numel < 1 << 57).then(|| (tensor, first, numel.min(first + CHUNK)))
}

/// Norms: a partial result per chunk goes to a buffer, for each tensor from its own place on. Up to torch 2.9 places are a fixed number of
/// chunks apart; since then an array in device memory says where they are.
fn norms(launch: &Launch<'_>, out: &mut Touches<'_>, layout: &Layout, list: Words<'_>, blocks: usize) -> Option<()> {
    let (name, _) = template(launch.signature.params.get(1)?)?;
    if !matches!(name, "LpNormFunctor" | "LpMaxFunctor") || blocks == 0 {
        return Some(());
    }
    let elem = launch.element(2)?;
    let start = u64::from(list.u32(layout.chunks + 4 * layout.blocks)?);
    let (first, last) = (start + chunk(list, layout, 0)?.0 as u64, start + chunk(list, layout, blocks - 1)?.0 as u64);
    let tensors = (last + 1).checked_sub(first)?;
    let (from, count) = if launch.access(3).is_some() {
        let places = launch.pointer(3)?.checked_add(8 * first)?;
        out.dense(places, 8 * tensors, Access::Read);
        let mut place = [0; 8];
        if !out.view().read(DevAddr(places), &mut place) {
            return None;
        }
        (u64::from_le_bytes(place), blocks as u64)
    } else {
        let per_tensor = launch.count(3)?;
        (first.checked_mul(per_tensor)?, tensors.checked_mul(per_tensor)?)
    };
    let to = launch.pointer(2)?.checked_add(from.checked_mul(elem)?)?;
    out.dense(to, count.checked_mul(elem)?, Access::Write);
    Some(())
}
