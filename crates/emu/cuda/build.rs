//! Generates the refusals of every listed driver function this package does not implement, and the table from which
//! `cuGetProcAddress` answers: every exported name with its address.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "../refuse.rs"]
mod refuse;

fn main() {
    refuse::generate(&["cuda"]);

    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let mut rows: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(package.join("src")).expect("the package has sources").flatten() {
        let path = entry.path();
        let module = path.file_stem().and_then(|s| s.to_str()).expect("our file names are plain").to_owned();
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        rows.extend(defined(&text).into_iter().map(|name| (name.clone(), format!("crate::{module}::{name}"))));
    }
    let implemented: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let listed = read(&package.join("../symbols/cuda.txt"));
    let refused = listed.lines().filter(|name| !implemented.iter().any(|other| other == name));
    rows.extend(refused.map(|name| (name.to_owned(), format!("crate::refusals::{name}"))));
    rows.sort();

    let mut code = String::from(
        "/// Every exported driver function and its address, by name.\npub static TABLE: &[(&str, crate::proc::Address)] = &[\n",
    );
    for (name, path) in rows {
        let _ = writeln!(code, "    (\"{name}\", crate::proc::Address({path} as *const ())),");
    }
    code.push_str("];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("table.rs");
    fs::write(&out, code).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// Names of driver functions defined in a source: `fn cu…(` outside comments.
fn defined(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let names = lines.filter_map(|line| line.split_once("fn cu").map(|(_, rest)| rest));
    let names = names.filter_map(|rest| rest.split_once('(').map(|(name, _)| name));
    names
        .filter(|name| name.starts_with(char::is_uppercase) && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .map(|name| format!("cu{name}"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
