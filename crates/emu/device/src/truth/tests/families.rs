//! The kernels that training launches most: each is recognised, each survives any parameters.
//! Names and layouts are those of torch 2.15.0, but where 2.9.1 is named.

use super::*;

/// Mangled name and layout.
#[rustfmt::skip]
const KNOWN: &[(&str, &str)] = &[
    // vectorized
    ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EELb0EEEviT0_T1_", "0+4,4+4,8+8"),
    // unrolled
    ("_ZN2at6native27unrolled_elementwise_kernelINS0_11FillFunctorIfEESt5arrayIPcLm1EELi4E23TrivialOffsetCalculatorILi0EjES7_ILi1EjENS0_6memory15LoadWithoutCastENSA_16StoreWithoutCastEEEviT_T0_T2_T3_T4_T5_", "0+4,4+4,8+8,16+1,17+1,18+1,19+1"),
    // closure cast
    ("_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_", "0+4,8+536"),
    // distribution
    ("_ZN2at6native63_GLOBAL__N__45ddeda0_30_DistributionLogNormalKernel_cu_e7567be543distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templates4cuda20normal_and_transformIffPNS_17CUDAGeneratorImplEZZZNS4_17log_normal_kernelIS7_EEvRNS_18TensorIteratorBaseEddT_ENKUlvE_clEvENKUlvE0_clEvEUlfE_EEvSA_T1_T2_EUlP24curandStatePhilox4_32_10E_ZNS1_27distribution_nullary_kernelIff6float4S7_SJ_SE_EEvSA_SG_RKT3_T4_EUlifE_EEvlNS_15PhiloxCudaStateESF_SG_", "0+8,8+32,40+1,48+24"),
    // arange
    ("_ZN50_GLOBAL__N__2fa45684_17_RangeFactories_cu_38772b0829elementwise_kernel_with_indexIiZZZN2at6native15arange_cuda_outERKN3c106ScalarES6_S6_RNS1_6TensorEENKUlvE_clEvENKUlvE_clEvEUllE_EEvT_T0_PN15function_traitsISD_E11result_typeE", "0+4,8+24,32+8"),
    // norm
    ("_ZN2at6native51_GLOBAL__N__99dedba0_18_ForeachReduceOp_cu_b83ec48c25multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS0_13LpNormFunctorIfLNS0_8NormTypeE2EfLi1ELi1ELi0EEEJPfPKlEEEvT_T0_DpT1_", "0+25768,25768+1,25776+8,25784+8"),
    // copy
    ("_ZN2at6native55_GLOBAL__N__f86471ef_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_11CopyFunctorIN3c108BFloat16EfLi2ELi1ELi1EEEJNS0_4CopyIS7_fEEEEEvT_T0_DpT1_", "0+24200,24200+1,24201+1"),
    // cleanup
    ("_ZN2at6native14lpnorm_cleanupIfLNS0_8NormTypeE2EfLb0EfEEvPKT3_NS0_19TensorListAddressesEPKli", "0+8,8+25600,25608+8,25616+4"),
    // cleanup, 2.9.1
    ("_ZN2at6native14lpnorm_cleanupIfLNS0_8NormTypeE1EffEEvPKT2_NS0_19TensorListAddressesEi", "0+8,8+3200,3208+4"),
    // layer norm
    ("_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_kernelIffLb0EEEviT0_PKT_S6_S6_PS3_S7_PS4_", "0+4,4+4,8+8,16+8,24+8,32+8,40+8,48+8"),
    // layer norm grad
    ("_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu_9c5ada8a39layer_norm_grad_input_kernel_vectorizedIffLb0EEEvPKT_S5_PKT0_S8_S5_PS3_i", "0+8,8+8,16+8,24+8,32+8,40+8,48+4"),
    // gamma beta
    ("_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu_9c5ada8a35GammaBetaBackwardCUDAKernelTemplateIffLj32ELj1ELj8ELb1ELb0ELb1EEEvllPKT_S5_PKT0_S8_PS3_S9_", "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8"),
    // softmax bwd
    ("_ZN43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6321softmax_warp_backwardIfffLi10ELb0ELb0ELi32EEEvPT0_PKT_S5_iiiPKb", "0+8,8+8,16+8,24+4,28+4,32+4,40+8"),
    // long softmax
    ("_ZN2at6native43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6319cunn_SoftMaxForwardILi4EfffNS1_22SoftMaxForwardEpilogueEEEvPT2_PKT0_i", "0+8,8+8,16+4"),
    // nll fwd
    ("_ZN2at6native39_GLOBAL__N__6bd09d29_7_Loss_cu_5b0651e138nll_loss_forward_reduce_cuda_kernel_2dIfflEEvPT_S4_PKS3_PKT1_S6_bllll", "0+8,8+8,16+8,24+8,32+8,40+1,48+8,56+8,64+8,72+8"),
    // nll bwd
    ("_ZN2at6native39_GLOBAL__N__6bd09d29_7_Loss_cu_5b0651e139nll_loss_backward_reduce_cuda_kernel_2dIflEEvPT_PKS3_PKT0_S6_S6_biill", "0+8,8+8,16+8,24+8,32+8,40+1,44+4,48+4,56+8,64+8"),
    // max pool
    ("_ZN2at6native52_GLOBAL__N__3235d1b4_19_DilatedMaxPool2d_cu_6258b57421max_pool_forward_nchwIflEEvT0_PKT_llliiiiiiiiiiPS4_Pl", "0+8,8+8,16+8,24+8,32+8,40+4,44+4,48+4,52+4,56+4,60+4,64+4,68+4,72+4,76+4,80+8,88+8"),
    // max pool bwd
    ("_ZN2at6native52_GLOBAL__N__3235d1b4_19_DilatedMaxPool2d_cu_6258b57422max_pool_backward_nchwIfflEEvPKT_PKlT1_S8_S8_S8_S8_S8_iiiiiiiiPS3_", "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8,64+4,68+4,72+4,76+4,80+4,84+4,88+4,92+4,96+8"),
    // im2col
    ("_ZN2at6native13im2col_kernelIfEEvlPKT_llllllllllllPS2_", "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8,64+8,72+8,80+8,88+8,96+8,104+8,112+8"),
    // batch norm
    ("_ZN2at6native36batch_norm_collect_statistics_kernelINS0_3VarEfffiEEvN5torch10headeronly6detail27GenericPackedTensorAccessorINS5_14TensorAccessorIN3c108ArrayRefIlEEKT0_Lm2ENS4_17RestrictPtrTraitsET3_EENS_6detail16IndexBoundsCheckILm3ESE_EESC_Lm3ESD_SE_EET2_SK_NS6_INS7_ISA_SK_Lm0ESD_SE_EENSH_ILm1ESE_EESK_Lm1ESD_SE_EESN_", "0+32,32+4,36+4,40+16,56+16"),
    // triu
    ("_ZN2at6native16triu_tril_kernelIfiLb1ELi2ELb0EEEvNS_4cuda6detail10TensorInfoIT_T0_EENS4_IKS5_S6_EEllS6_", "0+216,216+216,432+8,440+8,448+4"),
    // gather
    ("_ZN2at6native34_scatter_gather_elementwise_kernelILi128ELi8EZNS0_36_cuda_scatter_gather_internal_kernelILb0ENS0_10OpaqueTypeILi4EEElEclINS0_12TensorAssignEEEvRNS_14TensorIteratorElllRKT_EUliE_EEviT1_", "0+4,8+664"),
    // index
    ("_ZN2at6native24index_elementwise_kernelILi128ELi4EZNS0_16gpu_index_kernelIZNS0_17index_kernel_implINS0_10OpaqueTypeILi4EEEEEvRNS_18TensorIteratorBaseEN3c108ArrayRefIlEESA_EUlPcPKclE_EEvS7_SA_SA_RKT_bEUliE_EEvlT1_", "0+8,8+1240"),
    // index select
    ("_ZN2at6native44_GLOBAL__N__b23ef953_11_Indexing_cu_89862edb21indexSelectSmallIndexIfljLi2ELi2ELin2EEEvNS_4cuda6detail10TensorInfoIT_T1_EENS5_IKS6_S7_EENS5_IKT0_S7_EEiiS7_l", "0+216,216+216,432+216,648+4,652+4,656+4,664+8"),
    // embedding bwd
    ("_ZN2at6native45_GLOBAL__N__495ba4d0_12_Embedding_cu_9c8c8d3a33embedding_backward_feature_kernelIfflEEvPKT1_PKT_PS6_ili", "0+8,8+8,16+8,24+4,32+8,40+4"),
    // scatter
    ("_ZN2at6native59_GLOBAL__N__791b8af4_26_EmbeddingBackwardKernel_cu_5d1cf09b15sum_and_scatterIflEEvPKT0_PT_lS5_PKlPKNS_14AccumulateTypeIS6_Lb1EE4typeES5_S9_ll", "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8,64+8,72+8"),
    // flash bwd
    ("_ZN13pytorch_flash44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelI23Flash_bwd_kernel_traitsILi64ELi64ELi128ELi8ELi2ELi4ELi4ELb1ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi64ELi128ELi8ES3_EELb0ELb1ELb0ELb0ELb0ELb0ELb0EEEvNS_16Flash_bwd_paramsE", "0+648"),
    // flash dot
    ("_ZN13pytorch_flash25flash_bwd_dot_do_o_kernelILb1E23Flash_bwd_kernel_traitsILi64ELi64ELi128ELi8ELi2ELi4ELi4ELb1ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi64ELi128ELi8ES3_EEEEvNS_16Flash_bwd_paramsE", "0+648"),
    // flash convert
    ("_ZN13pytorch_flash27flash_bwd_convert_dq_kernelI23Flash_bwd_kernel_traitsILi64ELi64ELi128ELi8ELi2ELi4ELi4ELb1ELb0EN7cutlass6half_tE19Flash_kernel_traitsILi64ELi64ELi128ELi8ES3_EEEEvNS_16Flash_bwd_paramsEi", "0+648,648+4"),
    // efficient fwd
    ("_Z39fmha_cutlassF_f32_aligned_64x64_rf_sm80N22PyTorchMemEffAttention15AttentionKernelIfN7cutlass4arch4Sm80ELb1ELi64ELi64ELi64ELb1ELb1EE6ParamsE", "0+280"),
    // efficient bwd
    ("_Z40fmha_cutlassB_f32_aligned_64x64_k64_sm80N22PyTorchMemEffAttention23AttentionBackwardKernelIN7cutlass4arch4Sm80EfLb1ELb0ELb0ELi64ELi64ELi64ELb0EE6ParamsE", "0+480"),
    // amp
    ("_ZN2at6native28amp_update_scale_cuda_kernelEPfPiPKfddi", "0+8,8+8,16+8,24+8,32+8,40+4"),
    // radix sort
    ("_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hubIlN2at4cuda3cub6detail10OpaqueTypeILi8EEEyE10Policy1000ELNS0_9SortOrderE0ElSB_yiiNS1_21identity_decomposer_tEEEvPT5_SH_PT3_PKSI_PT1_PKSM_PT2_PKSQ_T4_iiT6_", "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8,64+4,68+4,72+4,76+1"),
    // cumsum
    ("_ZN2at6native32tensor_kernel_scan_innermost_dimIfSt4plusIfEEEvPT_PKS4_jjjS4_T0_", "0+8,8+8,16+4,20+4,24+4,28+4,32+1"),
];

#[test]
fn every_family_is_recognised_and_only_with_its_own_layout() {
    for (name, text) in KNOWN {
        let (layout, signature) = (layout(text), name::Signature::of(name));
        assert!(kernel::Kernel::new(name, &layout).decode.is_some(), "{}", signature.text);
        let longer = [&layout[..], &[Param { offset: 30_000, size: 8 }]].concat();
        assert!(kernel::Kernel::new(name, &longer).decode.is_none(), "one parameter more: {}", signature.text);
        assert!(kernel::Kernel::new(name, &[]).decode.is_none(), "no parameters: {}", signature.text);
    }
}

#[test]
fn a_name_alone_decodes_nothing() {
    for name in ["_Z3addPKfPfi", "triton_poi_fused_0", "reduce_kernel", "vectorized_elementwise_kernel", ""] {
        assert!(kernel::Kernel::new(name, &[Param { offset: 0, size: 8 }]).decode.is_none(), "{name}");
    }
}

/// A word as parameters have them: an address, two small numbers, a large one, nothing.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..1 << 26).prop_map(|n| BASE + (n << 10)),
        6 => (0u64..300, 0u64..300).prop_map(|(a, b)| a | b << 32),
        1 => any::<u64>(),
        2 => Just(0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever is in the parameters: an answer inside the allocations, without a panic, from bounded work.
    #[test]
    fn plausible_and_absurd_parameters_are_survived(
        which in 0..KNOWN.len(),
        words in prop::collection::vec(word(), 1..200),
        grid in (1u32..300, 1u32..5),
        block in (0u32..5, 1u32..3),
    ) {
        let (name, text) = KNOWN[which];
        let size = layout(text).iter().map(|p| p.offset + p.size).max().unwrap_or(0) as usize;
        let mut params = Params::new(size.next_multiple_of(8));
        for at in 0..params.0.len() / 8 {
            params = params.u64(8 * at, words[at % words.len()]);
        }
        let case = Case { name, layout: text, params, grid: [grid.0, grid.1, 1], block: [32 << block.0, block.1, 1] };
        let memory = memory();
        let work = case.run(&mut Truth::new(1), &memory);
        for t in &work.touches {
            let whole = memory.allocation(t.range.start).expect("inside");
            prop_assert!(t.range.end() <= whole.end());
        }
    }
}
