//! All published points, where they are at hand: `DEEPUM_G10` names the folder that has `derived` and `results`.
//!
//! The expected figures were added up from the same files by another program than ours, and are the artifact's, not ours; they are rounded to the
//! places that stand here.

use deepum_core::units::{Bytes, Nanos};
use deepum_trace::g10::{G10Name, Origin, Profile};
use deepum_trace::program::Life;
use std::io::Write;
use std::path::PathBuf;

/// The folder; without one `test` is said to be skipped. Not by `eprintln`, which is not shown when a test passes.
fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("DEEPUM_G10").map(PathBuf::from);
    if folder.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: DEEPUM_G10 names no folder with G10's profiles");
    }
    folder
}

fn read(folder: &std::path::Path, model: &str, batch: u32) -> Profile {
    Profile::read(&G10Name::new(folder, model, batch).unwrap()).unwrap_or_else(|why| panic!("{why}"))
}

struct Point {
    batch: u32,
    tensors: usize,
    /// GiB, to two places: globals, all intermediates, most that lives at a time, most that one kernel touches.
    gib: [f64; 4],
    seconds: f64,
}

const fn point(batch: u32, tensors: usize, gib: [f64; 4], seconds: f64) -> Point {
    Point { batch, tensors, gib, seconds }
}

const POINTS: [(&str, usize, &[Point]); 5] = [
    (
        "BERT_Base",
        1369,
        &[
            point(128, 1463, [8.49, 65.94, 24.08, 1.12], 5.906),
            point(256, 1463, [16.60, 131.44, 47.76, 2.25], 7.285),
            point(512, 1463, [32.82, 262.45, 95.11, 4.50], 9.833),
            point(768, 1463, [49.04, 393.46, 142.47, 6.75], 14.124),
            point(1024, 1463, [65.26, 524.47, 189.82, 9.00], 17.441),
        ],
    ),
    (
        "VIT",
        1489,
        &[
            point(256, 1563, [3.46, 33.61, 11.55, 0.43], 2.125),
            point(512, 1563, [6.85, 67.07, 23.01, 0.80], 2.539),
            point(768, 1563, [10.23, 100.53, 34.47, 1.17], 2.903),
            point(1024, 1563, [13.61, 133.98, 45.93, 1.54], 3.266),
            point(1280, 1563, [17.00, 167.44, 57.39, 1.91], 3.716),
        ],
    ),
    (
        "Inceptionv3",
        929,
        &[
            point(512, 2171, [0.09, 264.13, 44.70, 10.55], 53.612),
            point(768, 2171, [0.09, 395.02, 67.00, 15.83], 56.463),
            point(1024, 2171, [0.09, 525.91, 89.31, 21.10], 59.313),
            point(1280, 2171, [0.09, 656.80, 111.61, 26.38], 59.949),
            point(1536, 2171, [0.09, 787.70, 133.92, 31.65], 59.694),
            point(1792, 2171, [0.09, 918.59, 156.22, 36.93], 59.439),
        ],
    ),
    (
        "ResNet152",
        1299,
        &[
            point(256, 3366, [0.23, 229.68, 54.87, 3.06], 106.107),
            point(512, 3330, [0.23, 440.37, 109.52, 6.13], 108.418),
            point(768, 3330, [0.23, 655.57, 164.17, 9.19], 109.811),
            point(1024, 3330, [0.23, 870.76, 218.81, 12.25], 111.203),
            point(1280, 3330, [0.23, 1085.95, 273.46, 15.31], 112.589),
        ],
    ),
    (
        "SENet154",
        2319,
        &[
            point(256, 4405, [1.30, 462.60, 86.93, 6.13], 129.431),
            point(512, 4405, [1.30, 875.24, 172.53, 12.25], 131.259),
            point(768, 4333, [1.30, 1287.87, 258.28, 18.38], 133.086),
            point(1024, 4341, [1.30, 1709.82, 344.07, 24.50], 132.870),
        ],
    ),
];

#[test]
fn every_point_has_the_published_figures() {
    let Some(folder) = folder("every_point_has_the_published_figures") else { return };
    let gib = |bytes: Bytes| bytes.0 as f64 / Bytes::gib(1).0 as f64;
    for (model, kernels, points) in POINTS {
        for Point { batch, tensors, gib: wanted, seconds } in points {
            let profile = read(&folder, model, *batch);
            let program = profile.program();
            assert_eq!((program.kernels().len(), program.tensors().len()), (kernels, *tensors), "{model}-{batch}");
            let sum = |life| Bytes(program.tensors().iter().filter(|t| t.life == life).map(|t| t.size.0).sum());
            let touched = |touches: Vec<_>| touches.into_iter().map(|id| program.tensor(id).size.0).sum();
            let largest = program.kernels().iter().map(|kernel| Bytes(touched(kernel.touches()))).max();
            let peak = program.live().into_iter().max();
            let (globals, intermediates) = (sum(Life::Global), sum(Life::Intermediate));
            assert_eq!((profile.globals().len, profile.intermediates().len), (globals, intermediates));
            let found = [globals, intermediates, peak.unwrap(), largest.unwrap()].map(gib);
            for (found, wanted) in found.iter().zip(wanted) {
                // Half a unit of the last place, and what a float adds.
                assert!((found - wanted).abs() < 0.005_001, "{model}-{batch}: {found} GiB, not {wanted}");
            }
            let ideal = program.ideal().0 as f64 / 1e9;
            assert!((ideal - seconds).abs() < 0.000_501, "{model}-{batch}: {ideal} s, not {seconds}");
            assert!(profile.name().origin().is_some(), "{model}-{batch} was looked at");
        }
    }
}

#[test]
fn points_said_to_be_computed_lie_on_straight_lines_and_measured_ones_do_not() {
    let Some(folder) = folder("points_said_to_be_computed_lie_on_straight_lines_and_measured_ones_do_not") else {
        return;
    };
    // By model: a point, and the two of which it is made; all three must be at hand.
    let lines = [
        ("VIT", 768, [512, 1024], Origin::Interpolated),
        ("Inceptionv3", 768, [512, 1024], Origin::Interpolated),
        ("ResNet152", 768, [512, 1024], Origin::Interpolated),
        ("SENet154", 512, [256, 768], Origin::Interpolated),
        ("Inceptionv3", 1792, [1280, 1536], Origin::Extrapolated),
        ("BERT_Base", 512, [256, 768], Origin::Measured),
        ("Inceptionv3", 1536, [1024, 1280], Origin::Measured),
        ("ResNet152", 512, [256, 1024], Origin::Measured),
        ("SENet154", 768, [256, 1024], Origin::Measured),
    ];
    for (model, batch, others, origin) in lines {
        let name = G10Name::new(&folder, model, batch).unwrap();
        assert_eq!(name.origin(), Some(origin), "{model}-{batch}");
        let [at, a, b] = [batch, others[0], others[1]].map(|batch| (i128::from(batch), read(&folder, model, batch)));
        let times = |profile: &Profile| -> Vec<i128> {
            profile.program().kernels().iter().map(|kernel| i128::from(kernel.time.0)).collect()
        };
        let (on, all) = (times(&at.1).into_iter().zip(times(&a.1)).zip(times(&b.1)), times(&at.1).len());
        let run = b.0 - a.0;
        // Times are printed to the nanosecond from single-precision numbers; three are allowed for that.
        let lie = on.filter(|((y, from), to)| ((y - from) * run - (to - from) * (at.0 - a.0)).abs() <= 3 * run).count();
        let share = lie as f64 / all as f64;
        let computed = origin != Origin::Measured;
        assert!(
            if computed { share > 0.99 } else { share < 0.5 },
            "{model}-{batch}: {share} of its kernels on the line"
        );
    }
}

#[test]
fn costs_of_faults_are_what_the_files_differ_by() {
    let Some(folder) = folder("costs_of_faults_are_what_the_files_differ_by") else { return };
    // BERT_Base-512, kernels 0 and 2: 0.391168, 25.225216, 115.966972 and 0.745472, 96.450562, 239.027206 ms.
    let profile = read(&folder, "BERT_Base", 512);
    let cost = |kernel: usize| (profile.faults()[kernel].input, profile.faults()[kernel].output);
    assert_eq!(cost(0), (Nanos(90_741_756), Nanos(24_834_048)));
    assert_eq!(cost(2), (Nanos(142_576_644), Nanos(95_705_090)));
    assert!(profile.workspaces().iter().all(Option::is_none));
}
