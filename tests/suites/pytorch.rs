//! Unmodified PyTorch, of two CUDA generations, trains under the shim on the emulated device; every launch is
//! counted exactly once, and no call it makes is refused.

use deepum_tests::{Script, Torch};

macro_rules! trains {
    ($($name:ident: $($word:literal)+;)+) => {
        mod cuda_13 {
            use super::*;
            $(#[test] fn $name() { Script::new(Torch::Cu13, &[$($word),+]).run().assert_clean(); })+
        }
        mod cuda_12 {
            use super::*;
            $(#[test] fn $name() { Script::new(Torch::Cu12, &[$($word),+]).run().assert_clean(); })+
        }
    };
}

trains! {
    mlp: "mlp.py";
    transformer_fp32: "transformer.py" "--precision" "fp32";
    transformer_fp16: "transformer.py" "--precision" "fp16";
    transformer_bf16: "transformer.py" "--precision" "bf16";
    convnet: "convnet.py";
    convnet_benchmark: "convnet.py" "--benchmark";
    convnet_fp16_channels_last: "convnet.py" "--precision" "fp16" "--channels-last";
    convnet_without_cudnn: "convnet.py" "--no-cudnn";
    linear_algebra: "linear_algebra.py";
    bert: "language_model.py" "bert";
    gpt2: "language_model.py" "gpt2";
    data_loader: "data_loader.py";
    checkpointing: "checkpointing.py";
    out_of_memory: "out_of_memory.py";
}

#[test]
fn triton_kernel() {
    Script::new(Torch::Cu13, &["triton_kernel.py"]).run().assert_clean();
}

#[test]
fn compiled() {
    Script::new(Torch::Cu13, &["compiled.py"]).run().assert_clean();
}
