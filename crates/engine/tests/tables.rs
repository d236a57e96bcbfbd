//! Learned tables from one engine to the next, through files.

mod common;

use common::{GPU, SAID, World};
use deepum_config::{Config, TablesIn};
use deepum_core::units::{Bytes, DeviceId, UmBlock};
use deepum_engine::status;
use deepum_engine::tables::Keeper;
use deepum_protocol::status::Pace;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

const WORKLOAD: u64 = 0x77;

fn keeper(folder: &Path) -> Option<Keeper> {
    let config = Config { tables: TablesIn::Folder(folder.to_owned()), ..Config::default() };
    Keeper::open(&config, WORKLOAD, true).unwrap()
}

fn world(folder: &Path, gpus: &[DeviceId]) -> World {
    World::with_tables("deepum", Bytes(4 * UmBlock::SIZE.get()), Pace::Driven, gpus, keeper(folder))
}

/// Three launches and a fault, finished.
fn train(world: &World) {
    world.alloc(0, 20);
    for (seq, key) in [(1, 10), (2, 20), (3, 30)] {
        assert!(world.launch(seq, key, &[seq]));
        world.settle();
        world.device.fault(seq + 10, u32::try_from(seq).unwrap());
        world.settle();
        world.progress[0].store(seq, Ordering::Release);
        world.settle();
    }
}

fn counter(world: &World, name: &str) -> u64 {
    status::of(&world.running).counters[name]
}

#[test]
fn what_one_engine_learned_the_next_one_knows() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("tables");
    let gpus = [GPU, DeviceId(GPU.0 + 1)];
    let first = world(&folder, &gpus);
    train(&first);
    assert_eq!(counter(&first, "tables_taken_over"), 0);
    first.running.save_tables_at_end();
    let file = folder.join(format!("{WORKLOAD:016x}-{}.tables", GPU.0));
    let bytes = fs::read(&file).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing was learned for the other GPU");
    assert_eq!(counter(&first, "tables_written"), 1);
    first.running.save_tables_at_end();
    assert_eq!(counter(&first, "tables_written"), 1, "nothing new was learned");

    let second = world(&folder, &gpus);
    assert_eq!(counter(&second, "tables_taken_over"), 3);
    assert_eq!(status::of(&second.running).tables.block_tables, 3);
    second.running.save_tables_at_end();
    assert_eq!(counter(&second, "tables_written"), 0);
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_file_that_is_not_as_it_should_be_is_said_and_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("tables");
    let file = folder.join(format!("{WORKLOAD:016x}-{}.tables", GPU.0));
    let first = world(&folder, &[GPU]);
    train(&first);
    first.running.save_tables_at_end();
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).unwrap();

    let second = world(&folder, &[GPU]);
    let path = file.display().to_string();
    let said: Vec<String> = SAID.lock().unwrap().iter().filter(|line| line.contains(&path)).cloned().collect();
    let why = "the checksum of the saved tables is wrong: they were changed or written in part; this run learns anew";
    assert_eq!(said, [format!("{path}: {why}")]);
    train(&second);
    second.running.save_tables_at_end();
    assert_eq!(counter(&world(&folder, &[GPU]), "tables_taken_over"), 3);
}

#[test]
fn a_turn_that_does_not_end_does_not_keep_the_program_from_ending() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("tables");
    let world = world(&folder, &[GPU]);
    train(&world);
    // It gives up by itself; if it waited for the turn, this would wait for good.
    world.running.between_turns(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| world.running.save_tables_at_end());
        });
    });
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn without_a_name_nothing_is_kept_where_runs_repeat_and_off_is_off() {
    assert!(Keeper::open(&Config::default(), WORKLOAD, true).unwrap().is_none());
    let off = Config { tables: TablesIn::Off, ..Config::default() };
    assert!(Keeper::open(&off, WORKLOAD, false).unwrap().is_none());
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, b"").unwrap();
    let config = Config { tables: TablesIn::Folder(file.clone()), ..Config::default() };
    let why = Keeper::open(&config, WORKLOAD, false).unwrap_err();
    assert!(why.starts_with(&file.display().to_string()) && why.ends_with("learned tables are not kept"), "{why}");
}
