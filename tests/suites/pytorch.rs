//! Unmodified PyTorch, of two CUDA generations, trains under the shim on the emulated device; every launch is
//! counted exactly once, and no call it makes is refused.

use deepum_protocol::status::State;
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
    recurrent: "recurrent.py";
    data_dependent: "data_dependent.py";
    bert: "language_model.py" "bert";
    gpt2: "language_model.py" "gpt2";
    data_loader: "data_loader.py";
    checkpointing: "checkpointing.py";
    out_of_memory: "out_of_memory.py";
    triton_kernel: "triton_kernel.py";
    compiled: "compiled.py";
}

/// GPT-2, small, needs about 600 MiB; the device has 400.
fn that_does_not_fit(torch: Torch, more: &str) -> Script {
    Script::new(torch, &["language_model.py", "gpt2"]).gpu(&format!("emu:v100-32g:memory=400MiB{more}"))
}

#[test]
fn under_pressure_every_launch_is_counted_once_too() {
    for torch in [Torch::Cu13, Torch::Cu12] {
        let run = that_does_not_fit(torch, "").run();
        let shim = run.assert_clean().shim.as_ref().expect("a clean run has it");
        assert_eq!(shim.state, State::Awake, "{torch:?}");
        let heard = [shim.sources.tools_queue.attached, shim.devices[0].faults > 0];
        assert_eq!(heard, [run.driver.tells; 2], "{shim:?}");
        assert!(shim.prefetch.useful > 0, "{shim:?}");
        assert!(run.device.totals.d2h_eviction > 0, "it fitted: {:?}", run.device.totals);
        // Copies share the launches' sequence, and what is reported of a launch is still that launch's.
        let (told, device) = (shim.counters["launches"], &run.device.totals);
        assert!(shim.shim["copies"] > 0 && device.named_launches * 10 >= told * 9, "{shim:?} {device:?}");
        assert_eq!(device.blocks_missed, 0, "{device:?}");
    }
}

#[test]
fn without_a_tools_node_it_trains_and_one_line_says_what_is_lost() {
    let run = that_does_not_fit(Torch::Cu13, ",tools=missing").run();
    let shim = run.assert_clean().shim.as_ref().expect("a clean run has it");
    let reason = shim.sources.tools_queue.reason.as_ref().expect("it is not attached");
    let stderr = String::from_utf8_lossy(&run.output.stderr);
    assert!(stderr.lines().any(|line| line == format!("deepum: {reason}")), "{reason} in {stderr}");
    // It is one of those that are there once each.
    assert!(!run.driver.said(&run.output.stderr).iter().any(|line| line.starts_with("deepum")), "{stderr}");
    assert!(reason.contains("/dev/nvidia-uvm-tools") && !shim.sources.tools_queue.attached);
    let gpu = &shim.devices[0];
    assert!(gpu.resident_bytes <= gpu.memory_bytes && shim.prefetch.useful > 0, "{shim:?}");
}
