//! A profile as a trace, and back.

use deepum_core::mix::{Map, Set};
use deepum_core::units::{AddrRange, Bytes, LaunchKey};
use deepum_trace::binary::{Reader, Writer};
use deepum_trace::event::{Event, Launch, Order, Record};
use deepum_trace::g10::{G10Name, Profile};
use deepum_trace::program::{TensorId, from_events};
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

fn excerpt() -> Profile {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/g10-excerpt");
    Profile::read(&G10Name::new(&folder, "ResNet152", 256).unwrap()).unwrap()
}

fn written(profile: &Profile, iterations: u32) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &profile.header(Bytes::gib(40))).unwrap();
    profile.records(iterations).for_each(|record| writer.write(&record).unwrap());
    writer.finish().unwrap()
}

#[test]
fn kernels_are_launches_between_the_notices_of_their_tensors() {
    let profile = excerpt();
    let lines: Vec<String> = profile.records(1).map(|record| record.to_string()).collect();
    // Globals have 700416 bytes, intermediates 22095089664, from the next UM block on: 10536 UM blocks.
    assert_eq!(lines[0], "0 alloc 0x700000000000+2097152");
    assert_eq!(lines[1], "0 alloc 0x700000200000+22095593472");
    // The globals in the order of their numbers: 2 and 7.
    assert_eq!(lines[2..4], ["0 active 0x700000000000+40960", "0 active 0x70000000a000+4096"]);
    // 29 globals; 14 kinds of kernel, of which LoadData_A0 is the tenth in the alphabet.
    assert!(lines[2..31].iter().all(|line| line.starts_with("0 active ")));
    assert!(lines[31..45].iter().all(|line| line.starts_with("0 name ")));
    assert_eq!(lines[40], "0 name \"LoadData_A0\"");
    // Each global is copied from the host once, which takes 29 places.
    assert_eq!(lines[45], "0 copy stream 0 to 0x700000000000+40960");
    assert!(lines[45..74].iter().all(|line| line.starts_with("0 copy ")));
    assert_eq!(lines[74], "0 iteration");
    // Kernel 0 writes tensor 0, which kernel 37 names last.
    assert_eq!(lines[75], "0 active 0x700000200000+154140672");
    let launch = lines[76].strip_prefix("0 launch stream 0 kernel #9 key ").unwrap();
    assert_eq!(&launch[16..], " 0x700000200000");
    assert_eq!(lines[77..79], ["0 touched @30 w:0x700000200000+154140672", "0 time @30 54976318"]);
    let last = lines.iter().position(|line| line.starts_with("0 time @67 ")).unwrap();
    assert_eq!(lines[last + 1], "0 inactive 0x700000200000+154140672");
    // Kernel 3 works in place on tensor 5, 1130405888 = 0x4360a000 into the intermediates.
    assert!(lines.contains(&"0 touched @33 rw:0x70004380a000+822083584".to_owned()));
    assert_eq!(lines.last().unwrap(), "0 iteration");
}

#[test]
fn each_kernel_has_a_key_of_its_own_which_comes_again_in_every_iteration() {
    let keys: Vec<LaunchKey> = excerpt()
        .records(3)
        .filter_map(|record| match record.event {
            Event::Launch(Launch { key, .. }) => Some(key),
            _ => None,
        })
        .collect();
    assert_eq!(keys.len(), 120);
    assert_eq!((&keys[..40], &keys[..40]), (&keys[40..80], &keys[80..]));
    assert_eq!(keys.iter().copied().collect::<Set<_>>().len(), 40);
}

/// Kernels with their tensors told by where they are, which is the same whatever the numbers.
fn check(profile: &Profile) {
    let mut order = Order::default();
    profile.records(2).for_each(|record| order.take(&record.event).unwrap());
    let recorded = from_events(profile.records(2).map(Ok::<Record, Infallible>)).unwrap();
    let (again, program) = (&recorded.program, profile.program());
    assert_eq!(again.tensors().len(), program.tensors().len());
    let numbers: Map<AddrRange, TensorId> = program.ids().map(|id| (profile.place(id), id)).collect();
    let numbers = |ids: &[TensorId]| {
        let mut ids: Vec<TensorId> = ids.iter().map(|id| numbers[&recorded.places[id.index()]]).collect();
        ids.sort_unstable();
        ids
    };
    let sorted = |ids: &[TensorId]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    for (again, kernel) in again.kernels().iter().zip(program.kernels()) {
        assert_eq!((&again.name, again.time), (&kernel.name, kernel.time));
        assert_eq!((numbers(&again.reads), numbers(&again.writes)), (sorted(&kernel.reads), sorted(&kernel.writes)));
    }
    for id in again.ids() {
        assert_eq!(again.tensor(id), program.tensor(numbers(&[id])[0]));
    }
    assert_eq!((again.kernels().len(), again.live()), (program.kernels().len(), program.live()));
}

#[test]
fn the_program_of_a_profiles_trace_is_the_profiles() {
    check(&excerpt());
}

#[test]
fn the_programs_of_the_points_traces_are_the_points() {
    let Some(folder) = std::env::var_os("DEEPUM_G10") else {
        let test = "the_programs_of_the_points_traces_are_the_points";
        // Not by `eprintln`, which is not shown when a test passes.
        let _ = writeln!(std::io::stderr(), "skipped: {test}: DEEPUM_G10 names no folder with G10's profiles");
        return;
    };
    for (model, batch) in
        [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)]
    {
        let profile = Profile::read(&G10Name::new(Path::new(&folder), model, batch).unwrap()).unwrap();
        check(&profile);
        let (one, five) = (written(&profile, 1).len(), written(&profile, 5).len());
        let launches = profile.program().kernels().len();
        println!(
            "{model}-{batch}: {launches} launches, {one} bytes; {} a launch in further iterations",
            (five - one) / 4 / launches
        );
    }
}

#[test]
fn what_repeats_takes_few_bytes() {
    let profile = excerpt();
    let bytes = [1, 2, 10].map(|iterations| written(&profile, iterations));
    let read = Reader::new(&bytes[2][..]).unwrap().map(Result::unwrap);
    assert!(read.eq(profile.records(10)));
    let [one, two, ten] = bytes.map(|bytes| bytes.len());
    // The second iteration names what the first told as new; from the third on LZ4 finds the one before, until a chunk is full.
    assert!((two - one) * 2 < one && ten - two < one / 10, "{one}, {two}, {ten} bytes");
}
