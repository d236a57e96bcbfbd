//! The excerpt of a profile in `data/g10-excerpt` against what a person reads in its files.

use deepum_core::units::{AddrRange, Bytes, Nanos};
use deepum_trace::g10::{BASE, FaultCost, G10Name, Profile};
use deepum_trace::program::{Kernel, Life, Tensor, TensorId};
use std::path::Path;

fn excerpt() -> Profile {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/g10-excerpt");
    Profile::read(&G10Name::new(&folder, "ResNet152", 256).unwrap()).unwrap()
}

fn ids(numbers: &[u32]) -> Vec<TensorId> {
    numbers.iter().copied().map(TensorId).collect()
}

#[test]
fn kernels_are_as_their_records_and_lines_say() {
    let profile = excerpt();
    let kernels = profile.program().kernels();
    assert_eq!(kernels.len(), 40);
    let convolution =
        Kernel { name: "Conv2d_Forward".into(), time: Nanos(432_128), reads: ids(&[23, 20]), writes: ids(&[106, 22]) };
    assert_eq!(kernels[5], convolution);
    let load = Kernel { name: "LoadData_A0".into(), time: Nanos(54_976_318), reads: ids(&[]), writes: ids(&[0]) };
    assert_eq!(kernels[0], load);
    // In place.
    assert_eq!((&kernels[3].reads, &kernels[3].writes, kernels[3].touches()), (&ids(&[5]), &ids(&[5]), ids(&[5])));
    // The lines of cudnn256.txt added up by bc.
    assert_eq!(profile.program().ideal(), Nanos(3_378_521_907));
}

#[test]
fn faults_cost_what_the_three_files_differ_by_and_never_less_than_nothing() {
    let profile = excerpt();
    // 0.432128, 24.484863, 105.904129 ms.
    let cost = FaultCost { input: Nanos(105_904_129 - 24_484_863), output: Nanos(24_484_863 - 432_128) };
    assert_eq!(profile.faults()[5], cost);
    // 54.976318, 63.741951, 58.166271 ms: the last is taken for the second.
    assert_eq!(profile.faults()[0], FaultCost { input: Nanos::ZERO, output: Nanos(63_741_951 - 54_976_318) });
    // 0.011264, 0.010240, 0.661504 ms: the second is taken for the first.
    assert_eq!(profile.faults()[36], FaultCost { input: Nanos(661_504 - 11_264), output: Nanos::ZERO });
    assert_eq!(profile.faults().len(), 40);
}

#[test]
fn tensors_have_their_sizes_lives_and_places() {
    let profile = excerpt();
    let program = profile.program();
    assert_eq!(program.tensors().len(), 119);
    assert_eq!(program.tensor(TensorId(39)), Tensor { size: Bytes(4096), life: Life::Global });
    assert_eq!(program.tensor(TensorId(40)), Tensor { size: Bytes(205_520_896), life: Life::Intermediate });
    // Globals end at 700416, so intermediates begin one UM block behind the base.
    let second = BASE.offset(Bytes::mib(2));
    assert_eq!(profile.globals(), AddrRange::new(BASE, Bytes(700_416)));
    assert_eq!(profile.intermediates(), AddrRange::new(second, Bytes(22_095_089_664)));
    assert_eq!(profile.place(TensorId(39)), AddrRange::new(BASE.offset(Bytes(77_824)), Bytes(4096)));
    let place = AddrRange::new(second.offset(Bytes(7_501_627_392)), Bytes(205_520_896));
    assert_eq!(profile.place(TensorId(40)), place);
}

#[test]
fn workspaces_are_the_last_tensors_one_for_each_kernel_that_has_one() {
    let profile = excerpt();
    let with: Vec<usize> = (0..40).filter(|&kernel| profile.workspaces()[kernel].is_some()).collect();
    assert_eq!(with, [1, 5, 7, 9, 12, 15, 17, 19, 20, 24, 25, 29, 30, 37]);
    let workspaces: Vec<TensorId> = profile.workspaces().iter().flatten().copied().collect();
    assert_eq!(workspaces, (105..119).map(TensorId).collect::<Vec<_>>());
}

#[test]
fn an_intermediate_lives_from_the_first_kernel_that_names_it_to_the_last() {
    let profile = excerpt();
    let program = profile.program();
    assert_eq!(program.uses(TensorId(20)), [4, 5, 12, 29]);
    // While kernel 5 runs: globals; 0 (0 to 37), 5 (2 to 34), 11 and 12 (2 to 35), 20 (4 to 29), 22 (5 to 6), 106 (5).
    let live = [700_416, 154_140_672, 822_083_584, 822_083_584, 4_096, 205_520_896, 205_520_896, 134_217_728];
    assert_eq!(program.live()[5], Bytes(live.iter().sum()));
}
