//! Virtual time: what waits for what, and that it repeats.

mod common;

use common::*;
use deepum_core::units::{Bytes, DevAddr, Nanos};
use deepum_emu_device::error::CuError;
use deepum_emu_device::machine::{Cost, Machine};
use deepum_emu_device::memory::Return;
use deepum_emu_device::run::Until;
use deepum_emu_device::space::Kind;
use deepum_emu_device::work::{Condition, HostFn, Work};

#[test]
fn a_launch_costs_the_host_its_own_time_and_a_wait_the_kernels() {
    let m = machine("v100-32g");
    let s = null_stream(&m);
    let x = allocate(&m, Kind::Device, 64 * MIB).unwrap();
    let scale = kernel(&m, "deepum_test_scale");
    let before = host(&m);
    launch(&m, s, &scale, &[x, 16 * MIB, number(2.0)]);
    assert_eq!(host(&m), before + m.profile.launch_cost, "asynchronous");
    call(&m, |c| c.synchronize(GPU));
    let bytes = Bytes(64 * MIB);
    let roofline = m.profile.kernel_time(bytes, 0.0, deepum_model::Precision::Fp32);
    assert_eq!(host(&m), before + m.profile.launch_cost + roofline, "64 MiB at the bandwidth of the profile");
}

#[test]
fn a_full_queue_holds_the_host_until_a_kernel_is_done() {
    let m = machine("v100-32g");
    let s = null_stream(&m);
    let x = allocate(&m, Kind::Device, 1024 * MIB).unwrap();
    let copy = kernel(&m, "deepum_test_copy");
    // 32 MiB read and written: several times slower than a launch, so that the queue does fill.
    let words = [x, x + 512 * MIB, 8 * MIB];
    let start = host(&m);
    for _ in 0..m.profile.launch_queue {
        launch(&m, s, &copy, &words);
    }
    let issued = u64::from(m.profile.launch_queue) * m.profile.launch_cost.0;
    assert_eq!(host(&m).0, start.0 + issued, "nothing waited so far");
    for _ in 0..m.profile.launch_queue {
        launch(&m, s, &copy, &words);
        m.look(|state| {
            assert!(state.gpus[0].queued_launches <= m.profile.launch_queue);
            Ok(())
        })
        .unwrap();
    }
    let done = m.look(|state| Ok(state.totals.launches_done)).unwrap();
    assert!(done >= u64::from(m.profile.launch_queue), "the host had to wait for half of them: {done}");
}

#[test]
fn copies_run_beside_kernels_and_an_event_joins_them() {
    let m = machine("v100-32g");
    let (compute, io) = (stream(&m), stream(&m));
    let x = allocate(&m, Kind::Device, 512 * MIB).unwrap();
    let pinned = allocate(&m, Kind::Pinned, 256 * MIB).unwrap();
    let scale = kernel(&m, "deepum_test_scale");
    let begin = host(&m);
    queue_copy(&m, io, x + 256 * MIB, pinned, 256 * MIB, Return::Early);
    for _ in 0..4 {
        launch(&m, compute, &scale, &[x, 16 * MIB, 0]);
    }
    let kernels = call(&m, |c| Ok(c.state.streams.tail(compute)));
    call(&m, |c| c.run(Until::Reached(kernels)));
    let kernels_done = host(&m);
    let copied = call(&m, |c| Ok(c.state.streams.tail(io)));
    call(&m, |c| c.run(Until::Reached(copied)));
    let copy_done = host(&m);
    let link = 256.0 * MIB as f64 / m.profile.h2d_bandwidth * 1e9;
    assert!(kernels_done < copy_done, "the kernels did not wait for the copy");
    let took = (copy_done.0 - begin.0) as f64;
    assert!(took + 1.0 >= link && took < link + 100_000.0, "nor the copy for them");
    let joined = call(&m, |c| c.queue(compute, &[copied], Work::Nothing));
    call(&m, |c| {
        assert!(c.state.streams.reached(joined) || c.run(Until::Reached(joined)).is_ok());
        Ok(())
    });
}

#[test]
fn device_memory_runs_out_and_managed_memory_does_not() {
    let m = machine("v100-32g:memory=64MiB,host=1GiB");
    let a = allocate(&m, Kind::Device, 60 * MIB).unwrap();
    assert_eq!(allocate(&m, Kind::Device, 8 * MIB), Err(CuError::OutOfMemory));
    let (free, total) = call(&m, |c| Ok(c.memory_info(GPU)));
    assert_eq!((free, total), (Bytes::mib(4), Bytes::mib(64)));
    let managed = allocate(&m, Kind::Managed, 256 * MIB).unwrap();
    call(&m, |c| c.release(deepum_core::units::DevAddr(a), &[Kind::Device]));
    assert_eq!(call(&m, |c| Ok(c.memory_info(GPU).0)), Bytes::mib(64));

    let (s, fill) = (null_stream(&m), kernel(&m, "deepum_test_fill"));
    for part in 0..4 {
        launch(&m, s, &fill, &[managed + part * 64 * MIB, 16 * MIB, 0]);
    }
    call(&m, |c| c.synchronize(GPU));
    let totals = m.look(|state| {
        state.sum_up(&m.pace);
        Ok(state.totals)
    });
    let totals = totals.unwrap();
    assert!(totals.fault_batches > 0 && totals.stall_ns > 0);
    assert!(totals.peak_resident <= 64 * MIB);
    assert_eq!(totals.d2h_eviction, 192 * MIB, "three quarters had to leave, each page once");
    assert_eq!(totals.out_of_memory, 1);
}

/// A program with several streams, faults and copies; answers every time it saw.
fn program(m: &Machine) -> Vec<u64> {
    let (a, b, null) = (stream(m), stream(m), null_stream(m));
    let x = allocate(m, Kind::Managed, 96 * MIB).unwrap();
    let y = allocate(m, Kind::Device, 16 * MIB).unwrap();
    let (fill, axpy) = (kernel(m, "deepum_test_fill"), kernel(m, "deepum_test_axpy"));
    let host_buffer = vec![0u8; 4096];
    let mut seen = Vec::new();
    let mut random = Random(7);
    for _ in 0..60 {
        let part = x + random.below(12) * 8 * MIB;
        match random.below(6) {
            0 => launch(m, a, &fill, &[part, 2 * MIB, number(1.0)]),
            1 => launch(m, b, &axpy, &[part, y, 2 * MIB, number(3.0)]),
            2 => copy(m, null, address(&host_buffer), part, 4096),
            3 => {
                let mark = call(m, |c| c.queue(a, &[], Work::Nothing));
                call(m, |c| c.queue(b, &[mark], Work::Nothing));
            }
            4 => call(m, |c| c.synchronize(GPU)),
            _ => queue_copy(m, b, part, y, 8 * MIB, Return::Early),
        }
        seen.push(host(m).0);
    }
    call(m, |c| c.synchronize(GPU));
    seen.push(host(m).0);
    seen
}

#[test]
fn the_same_calls_give_the_same_times() {
    let line = "v100-32g:memory=64MiB,host=1GiB";
    let first = program(&machine(line));
    assert_eq!(first, program(&machine(line)));
    assert!(first.is_sorted());
}

#[test]
fn a_stream_waits_for_a_word_and_a_function_of_the_program_runs_in_order() {
    let m = machine("v100-32g");
    let (waiter, writer) = (stream(&m), stream(&m));
    let word = allocate(&m, Kind::Pinned, 4096).unwrap();
    unsafe extern "C" fn add_one(counter: *mut std::ffi::c_void) {
        // SAFETY: the test passes a pointer to its own counter, which outlives the call.
        unsafe { *counter.cast::<u64>() += 1 };
    }
    let mut counter = 0u64;
    let argument = (&raw mut counter).cast();
    let at = deepum_core::units::DevAddr(word);
    call(&m, |c| {
        let w = c.word(at, 5, true)?;
        c.queue(waiter, &[], Work::Wait(w, Condition::GreaterEqual))?;
        c.queue(waiter, &[], Work::Host(HostFn { function: add_one, argument }))
    });
    let tail = call(&m, |c| Ok(c.state.streams.tail(waiter)));
    assert!(!call(&m, |c| Ok(c.state.streams.reached(tail))));
    let before = host(&m);
    call(&m, |c| {
        let w = c.word(at, 9, true)?;
        c.queue(writer, &[], Work::Write(w))
    });
    call(&m, |c| c.run(Until::Reached(tail)));
    assert_eq!(counter, 1);
    assert!(host(&m) >= before + m.profile.stream_write_cost);
    assert_eq!(
        m.look(|s| Ok(s.bytes(false).word(deepum_emu_device::work::Word { addr: at, value: 0, wide: true }))),
        Ok(9)
    );
    let unknown = m.call(Cost::Call, |c| c.word(deepum_core::units::DevAddr(word + 4), 0, true));
    assert_eq!(unknown, Err(CuError::InvalidValue), "words are aligned");
}

#[test]
fn a_wait_costs_a_command_and_then_as_long_as_the_word_is_wrong() {
    let m = machine("v100-32g");
    let (waiter, writer) = (stream(&m), stream(&m));
    let at = DevAddr(allocate(&m, Kind::Pinned, 4096).unwrap());
    // What the host waits for a stream that waits for the last of `writes`, each by another stream, one after the other.
    let waited = |writes: std::ops::RangeInclusive<u64>| {
        let last = *writes.end();
        call(&m, |c| {
            c.synchronize(GPU)?;
            let before = c.state.host;
            for value in writes {
                let word = c.word(at, value, true)?;
                c.queue(writer, &[], Work::Write(word))?;
            }
            let word = c.word(at, last, true)?;
            c.queue(waiter, &[], Work::Wait(word, Condition::GreaterEqual))?;
            let tail = c.state.streams.tail(waiter);
            c.run(Until::Reached(tail))?;
            Ok(c.state.host - before)
        })
    };
    let command = m.profile.stream_write_cost;
    assert_eq!(waited(1..=3), Nanos(3 * command.0), "until the third write");
    assert_eq!(waited(9..=9), command, "written while the wait itself took its time");
    #[expect(clippy::reversed_empty_ranges, reason = "no write at all")]
    let right_already = waited(8..=7);
    assert_eq!(right_already, command);
}

#[test]
fn small_copies_are_real_and_large_ones_only_with_data() {
    for (line, large_is_real) in [("v100-32g", false), ("v100-32g:data=1", true)] {
        let m = machine(line);
        let s = null_stream(&m);
        let len = 2 << 20;
        let given: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut got = vec![0u8; len];
        let device = allocate(&m, Kind::Device, len as u64).unwrap();
        copy(&m, s, device, address(&given), 1000);
        copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, device, 1000);
        assert_eq!(got[..1000], given[..1000], "{line}");
        copy(&m, s, device, address(&given), len as u64);
        copy(&m, s, got.as_mut_ptr().expose_provenance() as u64, device, len as u64);
        assert_eq!(got == given, large_is_real, "{line}");
    }
}
