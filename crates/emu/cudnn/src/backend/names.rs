//! Numbers of the graph interface: descriptor kinds, attributes, attribute types (cuDNN 9 API reference, `cudnn_graph`).

/// `cudnnBackendDescriptorType_t`, those that are supported.
pub mod kind {
    use std::ffi::c_int;
    pub const POINTWISE: c_int = 0;
    pub const CONVOLUTION: c_int = 1;
    pub const ENGINE: c_int = 2;
    pub const ENGINE_CONFIG: c_int = 3;
    pub const HEURISTIC: c_int = 4;
    pub const PLAN: c_int = 5;
    pub const KNOB_CHOICE: c_int = 7;
    pub const CONV_FORWARD: c_int = 10;
    pub const CONV_BACKWARD_FILTER: c_int = 11;
    pub const CONV_BACKWARD_DATA: c_int = 12;
    pub const OP_POINTWISE: c_int = 13;
    pub const GRAPH: c_int = 15;
    pub const VARIANT_PACK: c_int = 16;
    pub const TENSOR: c_int = 17;
    pub const MATMUL: c_int = 18;
    pub const OP_MATMUL: c_int = 19;
    pub const REDUCTION: c_int = 21;
    pub const OP_REDUCTION: c_int = 22;
    pub const OP_RESHAPE: c_int = 31;
    pub const RNG: c_int = 32;
    pub const OP_RNG: c_int = 33;
    pub const SDPA_FORWARD: c_int = 41;
    pub const OP_BAND_MASK: c_int = 44;
    pub const OP_SOFTMAX: c_int = 45;
}

/// `cudnnBackendAttributeName_t`, those that are looked at.
pub mod attr {
    use std::ffi::c_int;
    pub const HEURISTIC_GRAPH: c_int = 201;
    pub const HEURISTIC_RESULTS: c_int = 202;
    pub const ENGINE_CONFIG_ENGINE: c_int = 300;
    pub const ENGINE_CONFIG_INTERMEDIATE_INFO: c_int = 301;
    pub const ENGINE_CONFIG_KNOB_CHOICES: c_int = 302;
    pub const ENGINE_CONFIG_WORKSPACE_SIZE: c_int = 303;
    pub const ENGINE_CONFIG_SHARED_MEMORY: c_int = 304;
    pub const PLAN_ENGINE_CONFIG: c_int = 401;
    pub const PLAN_WORKSPACE_SIZE: c_int = 402;
    pub const PLAN_COMPUTED_INTERMEDIATE_UIDS: c_int = 403;
    pub const CONV_FORWARD_BETA: c_int = 701;
    pub const CONV_FORWARD_W: c_int = 703;
    pub const CONV_FORWARD_X: c_int = 704;
    pub const CONV_FORWARD_Y: c_int = 705;
    pub const CONV_BACKWARD_DATA_BETA: c_int = 707;
    pub const CONV_BACKWARD_DATA_W: c_int = 709;
    pub const CONV_BACKWARD_DATA_DX: c_int = 710;
    pub const CONV_BACKWARD_DATA_DY: c_int = 711;
    pub const CONV_BACKWARD_FILTER_BETA: c_int = 713;
    pub const CONV_BACKWARD_FILTER_DW: c_int = 715;
    pub const CONV_BACKWARD_FILTER_X: c_int = 716;
    pub const CONV_BACKWARD_FILTER_DY: c_int = 717;
    pub const POINTWISE_X: c_int = 751;
    pub const POINTWISE_B: c_int = 752;
    pub const POINTWISE_Y: c_int = 753;
    pub const POINTWISE_DX: c_int = 756;
    pub const POINTWISE_DY: c_int = 757;
    pub const POINTWISE_T: c_int = 758;
    pub const GRAPH_HANDLE: c_int = 800;
    pub const GRAPH_OPS: c_int = 801;
    pub const GRAPH_ENGINE_COUNT: c_int = 802;
    pub const TENSOR_DATA_TYPE: c_int = 901;
    pub const TENSOR_DIMENSIONS: c_int = 902;
    pub const TENSOR_STRIDES: c_int = 903;
    pub const TENSOR_VECTOR_COUNT: c_int = 904;
    pub const TENSOR_UNIQUE_ID: c_int = 906;
    pub const TENSOR_IS_VIRTUAL: c_int = 907;
    pub const TENSOR_IS_BY_VALUE: c_int = 908;
    pub const VARIANT_PACK_UNIQUE_IDS: c_int = 1000;
    pub const VARIANT_PACK_DATA_POINTERS: c_int = 1001;
    pub const ENGINE_GRAPH: c_int = 1300;
    pub const ENGINE_GLOBAL_INDEX: c_int = 1301;
    pub const ENGINE_KNOB_INFO: c_int = 1302;
    pub const ENGINE_NUMERICAL_NOTE: c_int = 1303;
    pub const ENGINE_LAYOUT_INFO: c_int = 1304;
    pub const ENGINE_BEHAVIOR_NOTE: c_int = 1305;
    pub const MATMUL_A: c_int = 1520;
    pub const MATMUL_B: c_int = 1521;
    pub const MATMUL_C: c_int = 1522;
    pub const REDUCTION_X: c_int = 1610;
    pub const REDUCTION_Y: c_int = 1611;
    pub const RESHAPE_X: c_int = 2200;
    pub const RESHAPE_Y: c_int = 2201;
    pub const RNG_Y: c_int = 2310;
    pub const RNG_SEED: c_int = 2311;
    pub const RNG_OFFSET: c_int = 2313;
    pub const SDPA_Q: c_int = 2800;
    pub const SDPA_K: c_int = 2801;
    pub const SDPA_V: c_int = 2802;
    pub const SDPA_O: c_int = 2803;
    pub const SDPA_STATS: c_int = 2804;
    pub const SDPA_SCALE: c_int = 2805;
    pub const SDPA_SEQ_LEN_Q: c_int = 2809;
    pub const SDPA_SEQ_LEN_KV: c_int = 2810;
    pub const SDPA_SUBGRAPH: c_int = 2811;
    pub const SDPA_SOFTMAX: c_int = 2814;
    pub const SDPA_DROPOUT_SEED: c_int = 2815;
    pub const SDPA_DROPOUT_OFFSET: c_int = 2816;
    pub const BAND_MASK_X: c_int = 3000;
    pub const BAND_MASK_SEQ_LEN_KV: c_int = 3001;
    pub const BAND_MASK_SEQ_LEN_Q: c_int = 3002;
    pub const BAND_MASK_LEFT: c_int = 3003;
    pub const BAND_MASK_SHIFT_RIGHT: c_int = 3004;
    pub const BAND_MASK_B: c_int = 3005;
    pub const BAND_MASK_Y: c_int = 3006;
    pub const SOFTMAX_X: c_int = 3100;
    pub const SOFTMAX_Y: c_int = 3101;
    pub const SOFTMAX_STATS: c_int = 3102;
    pub const SOFTMAX_MAX: c_int = 3103;
    pub const SOFTMAX_SUM_EXP: c_int = 3104;
}

/// `cudnnBackendAttributeType_t`.
pub mod ty {
    use std::ffi::c_int;

    use crate::status::Status;

    pub const HANDLE: c_int = 0;
    pub const INT64: c_int = 3;
    pub const NUMERICAL_NOTE: c_int = 11;
    pub const DESCRIPTOR: c_int = 15;
    pub const BEHAVIOR_NOTE: c_int = 19;
    pub const INT32: c_int = 23;

    /// Bytes of an element: C enumerations are 4, `bool` and `char` 1, `cudnnFraction_t` 16.
    pub fn size(ty: c_int) -> Result<usize, Status> {
        Ok(match ty {
            2 | 24 => 1,
            1 | 4 | 7..=14 | 16..=23 | 25 | 27..=31 => 4,
            0 | 3 | 5 | 6 | 15 => 8,
            26 => 16,
            _ => return Err(Status::AttributeType),
        })
    }
}

/// Attributes that each kind of descriptor lets a program set. An attribute outside would change what runs in a way that
/// is not modelled, and is refused.
pub fn settable(kind: std::ffi::c_int) -> Option<&'static [std::ops::RangeInclusive<std::ffi::c_int>]> {
    Some(match kind {
        kind::POINTWISE => &[0..=9],
        kind::CONVOLUTION => &[100..=106],
        kind::ENGINE => &[1300..=1301, 1306..=1306],
        kind::ENGINE_CONFIG => &[300..=300, 302..=302],
        kind::HEURISTIC => &[200..=201, 203..=203],
        kind::PLAN => &[400..=401],
        // Programs create these to be filled with an engine's choices, of which ours have none.
        kind::KNOB_CHOICE => &[],
        kind::CONV_FORWARD => &[700..=705],
        kind::CONV_BACKWARD_FILTER => &[712..=717],
        kind::CONV_BACKWARD_DATA => &[706..=711],
        kind::OP_POINTWISE => &[750..=758],
        kind::GRAPH => &[800..=801, 803..=803],
        kind::VARIANT_PACK => &[1000..=1003],
        kind::TENSOR => &[900..=909],
        kind::MATMUL => &[1500..=1500, 1503..=1503],
        kind::OP_MATMUL => &[1520..=1523],
        kind::REDUCTION => &[1600..=1602],
        kind::OP_REDUCTION => &[1610..=1612],
        kind::OP_RESHAPE => &[2200..=2202],
        kind::RNG => &[2300..=2305],
        kind::OP_RNG => &[2310..=2313],
        kind::SDPA_FORWARD => &[2800..=2805, 2809..=2816, 2818..=2819],
        kind::OP_BAND_MASK => &[3000..=3007],
        kind::OP_SOFTMAX => &[3100..=3104],
        _ => return None,
    })
}
