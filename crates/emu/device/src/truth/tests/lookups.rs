//! Lookups and their backward passes.

use super::*;

pub(super) const GATHER: &str = "_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb";

pub(super) fn gather(rows: u64) -> Case<'static> {
    // 4 rows of 1 MiB out of a table.
    let params = Params::new(72).u64s(0, &[A, B, C]).u32(24, 4).u64s(32, &[1 << 20, rows, 1 << 20, 1 << 20]);
    Case {
        name: GATHER,
        layout: "0+8,8+8,16+8,24+4,32+8,40+8,48+8,56+8,64+1",
        params,
        grid: [4, 1, 1],
        block: [256, 1, 1],
    }
}

#[test]
fn a_lookup_reads_the_rows_its_indices_name() {
    let mut memory = memory();
    memory.content.push((C, [5u64, 2, 5, 3].iter().flat_map(|v| v.to_le_bytes()).collect()));
    let work = gather(10).run(&mut Truth::new(1), &memory);
    let got: Vec<_> = work.touches.iter().map(|t| (t.range.start.0, t.range.len.0, t.access.writes())).collect();
    // Rows 2 and 3 lie together; row 5 is apart and read once.
    let expected =
        [(A, 4 << 20, true), (C, 32, false), (B + (2 << 20), 2 << 20, false), (B + (5 << 20), 1 << 20, false)];
    assert_eq!(got, expected);
    assert_eq!(work.source, Source::Exact);
}

#[test]
fn a_lookup_by_numbers_that_are_not_there_draws_rows_by_seed() {
    let table = |seed| {
        let work = gather(1000).run(&mut Truth::new(seed), &memory());
        assert_eq!(work.source, Source::Exact);
        work.touches[2..].to_vec()
    };
    assert_eq!(table(1), table(1));
    assert_ne!(table(1), table(2));
    assert!(table(1).iter().all(|t| t.range.start.0 >= B && t.range.end().0 <= B + (1000 << 20)));
}

/// Four indices at `C`: rows 5, 2, 5 and 3.
fn with_indices() -> Memory {
    let mut memory = memory();
    memory.content.push((C, [5u64, 2, 5, 3].iter().flat_map(|v| v.to_le_bytes()).collect()));
    memory
}

#[test]
fn the_backward_pass_updates_the_rows_that_were_looked_up() {
    let (mut truth, memory) = (Truth::new(1), with_indices());
    gather(10).run(&mut truth, &memory);
    // Rows of 2^18 floats, as the lookup had them.
    let params = Params::new(48).u64s(0, &[C, A, D]).u32(24, 4).u64(32, 1 << 18);
    let backward = Case {
        name: "_ZN2at6native45_GLOBAL__N__495ba4d0_12_Embedding_cu_9c8c8d3a33embedding_backward_feature_kernelIfflEEvPKT1_PKT_PS6_ili",
        layout: "0+8,8+8,16+8,24+4,32+8,40+4",
        params,
        grid: [1 << 16, 1, 1],
        block: [32, 32, 1],
    };
    let work = backward.run(&mut truth, &memory);
    let got: Vec<_> = work.touches.iter().map(|t| (t.range.start.0, t.range.len.0, t.access.writes())).collect();
    let rows = [(D + (2 << 20), 2 << 20, true), (D + (5 << 20), 1 << 20, true)];
    assert_eq!(got[..2], [(C, 32, false), (A, 4 << 20, false)]);
    assert_eq!(got[2..], rows);
    assert_eq!(backward.run(&mut Truth::new(1), &memory).source, Source::Guessed, "no lookup, no rows");
}

#[test]
fn the_sorted_backward_pass_counts_segments_of_equal_rows() {
    let (mut truth, memory) = (Truth::new(1), with_indices());
    gather(10).run(&mut truth, &memory);
    let begin = Case {
        name: "_ZN2at6native59_GLOBAL__N__791b8af4_26_EmbeddingBackwardKernel_cu_5d1cf09b24krn_partials_per_segmentIlEEvPT_PKS3_PKll",
        layout: "0+8,8+8,16+8,24+8",
        params: Params::new(32).u64s(0, &[A, B, D, 4]),
        grid: [1, 1, 1],
        block: [32, 1, 1],
    };
    let work = begin.run(&mut truth, &memory);
    let got: Vec<_> = work.touches.iter().map(|t| (t.range.start.0, t.range.len.0)).collect();
    assert_eq!(got, [(A, 24), (B, 24), (D, 8)], "rows 2, 3 and 5 are three segments");
    // Sums of three partials, one per segment, go to the three rows.
    let params = Params::new(80).u64s(0, &[C, D, 1 << 18, B, B + 64, A, B + 128, B + 192, 0, 1 << 18]);
    let scatter = Case {
        name: "_ZN2at6native59_GLOBAL__N__791b8af4_26_EmbeddingBackwardKernel_cu_5d1cf09b15sum_and_scatterIflEEvPKT0_PT_lS5_PKlPKNS_14AccumulateTypeIS6_Lb1EE4typeES5_S9_ll",
        layout: "0+8,8+8,16+8,24+8,32+8,40+8,48+8,56+8,64+8,72+8",
        params,
        grid: [1, 1, 1],
        block: [1024, 1, 1],
    };
    let work = scatter.run(&mut truth, &memory);
    assert_eq!(work.source, Source::Exact);
    let written: Vec<_> =
        work.touches.iter().filter(|t| t.access.writes()).map(|t| (t.range.start.0, t.range.len.0)).collect();
    assert_eq!(written, [(D + (2 << 20), 2 << 20), (D + (5 << 20), 1 << 20)]);
}
