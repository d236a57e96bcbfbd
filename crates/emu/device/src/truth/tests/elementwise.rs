//! One result, a few arguments, all walked together; and when a decoding is not believed.

use super::*;

const ADD: &str =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EELb0EEEviT0_T1_";
pub(super) const ADD_STRIDED: &str = "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";
const ADD_CASTING: &str = "_ZN2at6native27unrolled_elementwise_kernelINS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EELi4E23TrivialOffsetCalculatorILi2EjES7_ILi1EjENS0_6memory12LoadWithCastILi2EEENSA_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_";
pub(super) const ADD_STRIDED_CASTING: &str = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implINS0_15CUDAFunctor_addIfEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_";

pub(super) fn add() -> Case<'static> {
    let params = Params::new(32).u32(0, 1000).u64s(8, &[A, B, C]);
    Case { name: ADD, layout: "0+4,4+4,8+24", params, grid: [1, 1, 1], block: [128, 1, 1] }
}

#[test]
fn contiguous_operands_are_as_long_as_the_element_type_says() {
    let work = add().touches(&[(A, 4000, true), (B, 4000, false), (C, 4000, false)]);
    assert_eq!(work.traffic, Bytes(12_000));
}

#[test]
fn an_operand_updated_in_place_is_one_touch_with_both_directions_of_traffic() {
    let mut case = add();
    case.params = case.params.u64(16, A);
    let work = case.touches(&[(A, 4000, true), (C, 4000, false)]);
    assert_eq!(work.traffic, Bytes(12_000));
}

#[test]
fn converting_loads_and_stores_carry_their_own_element_sizes() {
    // Loads of half (2 bytes) and double (8), a store of float (4).
    let params = Params::new(56).u32(0, 1000).u64s(8, &[A, B, C]).u32s(40, &[2, 8]).u32(52, 4);
    let case = Case {
        name: ADD_CASTING,
        layout: "0+4,4+4,8+24,32+1,33+1,36+12,48+8",
        params,
        grid: [2, 1, 1],
        block: [128, 1, 1],
    };
    case.touches(&[(A, 4000, true), (B, 2000, false), (C, 8000, false)]);
}

#[test]
fn strided_operands_touch_what_their_strides_reach() {
    // A result of 1000 rows of 1000 floats; one argument is a column broadcast along rows, the other a matrix with
    // rows of 1 MiB, of which 4000 bytes each are used.
    let mut params = Params::new(656).u32(0, 1_000_000);
    params = params.calculator(8, &[(1000, &[4, 0, 4]), (1000, &[4000, 4, 1 << 20])]);
    params = params.u64s(8 + 608, &[A, B, C]);
    let case = Case { name: ADD_STRIDED, layout: "0+4,8+648", params, grid: [3907, 1, 1], block: [128, 1, 1] };
    let mut expected = vec![(A, 4_000_000, true), (B, 4000, false)];
    expected.extend((0..1000).map(|row| (C + (row << 20), 4000, false)));
    let work = case.touches(&expected);
    assert_eq!(work.traffic, Bytes(4_000_000 + 4000 + 4_000_000));
}

#[test]
fn gaps_below_64_kib_are_closed_but_cost_no_traffic() {
    let mut params = Params::new(656).u32(0, 100_000);
    params = params.calculator(8, &[(1000, &[4, 4, 4]), (100, &[4000, 8000, 4000])]).u64s(8 + 608, &[A, B, C]);
    let case = Case { name: ADD_STRIDED, layout: "0+4,8+648", params, grid: [391, 1, 1], block: [128, 1, 1] };
    let work = case.touches(&[(A, 400_000, true), (B, 99 * 8000 + 4000, false), (C, 400_000, false)]);
    assert_eq!(work.traffic, Bytes(1_200_000));
}

#[test]
fn a_strided_kernel_that_converts_finds_its_dtypes_behind_the_functor() {
    let mut params = Params::new(656).u32(0, 1_000_000);
    params = params.calculator(8, &[(1000, &[4, 2, 8]), (1000, &[4000, 2000, 8000])]).u64s(8 + 608, &[A, B, C]);
    // A functor of 4 bytes, then float, half, double.
    params = params.put(8 + 632 + 4, [6, 5, 7]);
    let case = Case { name: ADD_STRIDED_CASTING, layout: "0+4,8+648", params, grid: [1954, 1, 1], block: [128, 1, 1] };
    case.touches(&[(A, 4_000_000, true), (B, 2_000_000, false), (C, 8_000_000, false)]);
}

#[test]
fn a_calculator_that_does_not_describe_the_launch_is_not_believed() {
    let mut params = Params::new(656).u32(0, 1_000_001);
    params = params.calculator(8, &[(1000, &[4, 4, 4]), (1000, &[4000, 4000, 4000])]).u64s(8 + 608, &[A, B, C]);
    let case = Case { name: ADD_STRIDED, layout: "0+4,8+648", params, grid: [1, 1, 1], block: [128, 1, 1] };
    assert_eq!(case.run(&mut Truth::new(1), &memory()).source, Source::Guessed);
}

#[test]
fn a_layout_that_contradicts_the_name_is_not_decoded() {
    let mut case = add();
    case.layout = "0+8,8+4,16+16";
    assert_eq!(case.run(&mut Truth::new(1), &memory()).source, Source::Guessed);
}

#[test]
fn an_operand_outside_every_allocation_refutes_the_decoding() {
    let mut case = add();
    case.params = case.params.u64(24, 0x1234);
    assert_eq!(case.run(&mut Truth::new(1), &memory()).source, Source::Guessed);
}
