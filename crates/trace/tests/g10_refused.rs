//! Each thing that a profile's files must not say is refused by name: the excerpt, with one change.

use deepum_trace::g10::{G10Error, G10Name, Profile};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const TENSORS: &str = "derived/ResNet152/256-tensors.config.gz";
const KERNELS: &str = "derived/ResNet152/256-kernels.config.gz";
const PLAIN: &str = "results/ResNet152/cudnn256.txt";
const BOTH: &str = "results/ResNet152/cudnn256PF.txt";
const WORKSPACE: &str = "results/ResNet152/cudnn256Workspace.txt";

fn excerpt() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/g10-excerpt")
}

fn read(file: &Path) -> String {
    let mut text = String::new();
    if file.extension().is_some_and(|end| end == "gz") {
        GzDecoder::new(fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    } else {
        text = fs::read_to_string(file).unwrap();
    }
    text
}

/// What reading says when `file` has this text.
fn with(file: &str, text: &str) -> Result<Profile, G10Error> {
    let temp = tempfile::tempdir().unwrap();
    for name in [TENSORS, KERNELS, PLAIN, "results/ResNet152/cudnn256InputPF.txt", BOTH, WORKSPACE] {
        fs::create_dir_all(temp.path().join(name).parent().unwrap()).unwrap();
        fs::copy(excerpt().join(name), temp.path().join(name)).unwrap();
    }
    let mut bytes = text.as_bytes().to_vec();
    if file.ends_with(".gz") {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&bytes).unwrap();
        bytes = packed.finish().unwrap();
    }
    fs::remove_file(temp.path().join(file)).unwrap();
    fs::write(temp.path().join(file), bytes).unwrap();
    Profile::read(&G10Name::new(temp.path(), "ResNet152", 256).unwrap())
}

#[test]
fn one_change_is_refused_with_file_line_value_and_what_is_allowed() {
    let t2 = "tensor2 Is weight (global)?: 1, Size in byte: 40960, Range:0--40960\n";
    let changes = [
        (TENSORS, "tensor2 ", "tensor3 ", ":3: tensor3: allowed is tensor2 here"),
        (TENSORS, "tensor2 Is weight (global)?: 1", "tensor2 Is weight (global)?: 2", ":3: 2, Size"),
        (
            TENSORS,
            "Size in byte: 40960, Range:0--40960",
            "Size in byte: 40961, Range:0--40961",
            ":3: size 40961: allowed is whole pages",
        ),
        (TENSORS, "Range:0--40960", "Range:0--45056", ":3: range 0--45056: allowed is as long as the size, 40960"),
        (
            TENSORS,
            "Range:0--40960",
            "Range:4096--45056",
            ":3: range from 4096: allowed is 0, where the one before it ends",
        ),
        (TENSORS, "Range:0--40960", "Range:0--40960 ", ":3:  : allowed is the end of the line here"),
        (
            TENSORS,
            "Size in byte: 40960",
            "Size in byte: 99999999999999999999999",
            "allowed is a number from 0 to 17592186044416 here",
        ),
        (KERNELS, "Kernel ID: 1,", "Kernel ID: 2,", ":9: kernel 2: allowed is kernel 1 here"),
        (KERNELS, "Name: LoadData_A0", "Name: ", ":1: Kernel ID: 0, Name: : allowed is a kernel's name at its end"),
        (KERNELS, t2, &format!("{t2}{t2}"), ":15: tensor2: allowed is each tensor once in a list"),
        (
            KERNELS,
            t2,
            &t2.replace("Range:0--40960", "Range:4096--45056"),
            "allowed is the same as in the file of tensors",
        ),
        (KERNELS, t2, &t2.replace("tensor2", "tensor119"), ":14: tensor119: allowed is one of 119 tensors"),
        (
            KERNELS,
            "Output Tensors:\n",
            "",
            ":7: ____________________________________________________________________: allowed is \"Output Tensors:\" here",
        ),
        (
            PLAIN,
            "54.976318",
            "54.976320",
            ":1: 54976320 ns, which are 65971584 cycles: allowed is 65971581 cycles, as in the file of kernels",
        ),
        (PLAIN, "54.976318", "54.97631", ":1: 97631 ms: allowed is six places behind the point"),
        (PLAIN, "54.976318 ms", "54.976318 us", ":1:  us: allowed is \" ms\" here"),
        (PLAIN, "0001 ", "0002 ", ":2: kernel 2: allowed is kernel 1 here"),
        (BOTH, "0039 0.936960 ms\n", "", ":40: the end of the file: allowed is a line for each of 40 kernels"),
        (
            BOTH,
            "0039 0.936960 ms\n",
            "0039 0.936960 ms\n0040 1.000000 ms\n",
            ":41: 0040 1.000000 ms: allowed is nothing behind the last of 40",
        ),
        (
            WORKSPACE,
            "0001 114048 B",
            "0001 114689 B",
            ":2: workspace of 114689 bytes: allowed is the page-rounded size",
        ),
        (WORKSPACE, "0005 134217728 B", "0005 0 B", ":2: workspace of 114048 bytes: allowed is the page-rounded size"),
    ];
    for (file, from, to, wanted) in changes {
        let text = read(&excerpt().join(file));
        assert!(text.contains(from), "{file} has no {from:?}");
        let said = with(file, &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(said.contains(file) && said.contains(wanted), "{file}, {from:?} to {to:?}: {said}");
    }
}

#[test]
fn files_that_are_missing_empty_cut_off_or_no_text_are_refused() {
    assert!(with(PLAIN, &read(&excerpt().join(PLAIN))).is_ok(), "nothing is changed");
    let kernels = read(&excerpt().join(KERNELS));
    let cut = kernels.rsplit_once("Output Tensors:").unwrap().0;
    assert!(with(KERNELS, cut).unwrap_err().to_string().ends_with("the end of the file: allowed is Output Tensors:"));
    assert!(with(KERNELS, "").unwrap_err().to_string().contains("allowed is nothing behind the last of 0 kernels"));
    let nobody = G10Name::new(&excerpt(), "ResNet152", 257).unwrap();
    let said = Profile::read(&nobody).unwrap_err().to_string();
    assert!(said.contains("257-tensors.config.gz") && matches!(Profile::read(&nobody), Err(G10Error::File { .. })));
    // Gzip's own end is missing: what is cut off is not taken for all there is.
    let temp = tempfile::tempdir().unwrap();
    let packed = fs::read(excerpt().join(TENSORS)).unwrap();
    fs::create_dir_all(temp.path().join("derived/ResNet152")).unwrap();
    fs::write(temp.path().join(TENSORS), &packed[..packed.len() / 2]).unwrap();
    let cut = Profile::read(&G10Name::new(temp.path(), "ResNet152", 256).unwrap());
    assert!(matches!(cut, Err(G10Error::File { .. })), "{cut:?}");
}
