//! Writes a C program that compiles only where nvidia-uvm's headers have the layouts of `sys.rs`.
//!
//! The program is made from `sys.rs` itself, so the two cannot drift. `run`, beside this file, compiles it.
//! Argument: the driver's version, which selects the shape of the two structs that changed.

mod expect;

use deepum_kmod_bridge::sys::request;
use expect::{EXPECT_ALWAYS, EXPECT_QUEUE, EXPECT_SHAPES, EXPECT_SINCE, EXPECT_UNTIL};

fn main() {
    let version = std::env::args().nth(1).unwrap_or_default();
    let Some((have, shape)) = number(&version).and_then(|have| Some((have, shape(have)?))) else {
        eprintln!("header-check: {version:?} is no driver version from 515 on, such as 580.65.06");
        std::process::exit(2);
    };
    println!("#include <stddef.h>\n#include \"uvm_types.h\"\n#include \"uvm_ioctl.h\"");
    let later = EXPECT_SINCE.iter().filter(|(since, _)| number(since).is_some_and(|since| since <= have));
    let earlier = EXPECT_UNTIL.iter().filter(|(until, _)| number(until).is_some_and(|until| have < until));
    let others = later.chain(earlier).flat_map(|(_, expect)| *expect);
    for expect in EXPECT_ALWAYS.iter().chain(EXPECT_QUEUE).chain(EXPECT_SHAPES[shape].1).chain(others) {
        let (c_type, bytes) = (c_name(expect.c_type, have), expect.bytes);
        let c = match expect.member {
            Some(member) => format!("offsetof({c_type}, {member})"),
            None => format!("sizeof({c_type})"),
        };
        println!("_Static_assert({c} == {bytes}, \"{c} is not {bytes}\");");
    }
    let discard = (have >= (580, 65)).then_some(request::DISCARD);
    let requests = [
        request::CREATE_RANGE_GROUP,
        request::SET_RANGE_GROUP,
        request::PREVENT_MIGRATION_RANGE_GROUPS,
        request::SET_PREFERRED_LOCATION,
        request::UNSET_PREFERRED_LOCATION,
        request::ENABLE_READ_DUPLICATION,
        request::DISABLE_READ_DUPLICATION,
        request::SET_ACCESSED_BY,
        request::UNSET_ACCESSED_BY,
        request::MIGRATE,
        request::TOOLS_INIT_EVENT_TRACKER,
        request::TOOLS_SET_NOTIFICATION_THRESHOLD,
        request::TOOLS_EVENT_QUEUE_ENABLE_EVENTS,
        request::TOOLS_EVENT_QUEUE_DISABLE_EVENTS,
        request::TOOLS_GET_PROCESSOR_UUID_TABLE,
        request::TOOLS_FLUSH_EVENTS,
    ];
    for number in requests.into_iter().chain(discard) {
        let name = request::name(number);
        println!("_Static_assert({name} == {number}, \"{name} is not {number}\");");
    }
    for (name, value) in [
        ("UvmEventTypeMigration", 2),
        ("UvmEventTypeGpuFault", 3),
        ("UvmEventTypeFatalFault", 6),
        ("UvmEventTypeThrashingDetected", 10),
        ("UvmEventTypeMapRemote", 13),
        ("UvmEventMemoryAccessTypeRead", 1),
        ("UvmEventMemoryAccessTypeWrite", 2),
        ("UvmEventMemoryAccessTypeAtomic", 3),
        ("UvmEventMemoryAccessTypePrefetch", 4),
        ("UvmEventMigrationCauseUser", 1),
        ("UvmEventMigrationCauseCoherence", 2),
        ("UvmEventMigrationCausePrefetch", 3),
        ("UvmEventMigrationCauseEviction", 4),
    ] {
        println!("_Static_assert({name} == {value}, \"{name} is not {value}\");");
    }
}

/// Index of the newest shape that is not newer than `have`.
fn shape(have: (u32, u32)) -> Option<usize> {
    EXPECT_SHAPES.iter().rposition(|(since, _)| number(since).is_some_and(|since| since <= have))
}

/// Branch and release: `580.65.06` gives 580 and 65.
fn number(text: &str) -> Option<(u32, u32)> {
    let (branch, rest) = text.split_once('.').unwrap_or((text, "0"));
    Some((branch.parse().ok()?, rest.split('.').next()?.parse().ok()?))
}

/// From 550.54 until 565 the old structs of the queue carried a suffix in the headers; the control page in 550 only.
fn c_name(c_type: &str, have: (u32, u32)) -> String {
    let queue = c_type.starts_with("UvmEvent") && ((550, 54)..(565, 0)).contains(&have);
    let control = c_type == "UvmToolsEventControlData" && ((550, 54)..(551, 0)).contains(&have);
    if queue || control { format!("{c_type}_V1") } else { c_type.to_owned() }
}
