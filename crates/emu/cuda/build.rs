//! Generates the refusals of every listed driver function this package does not implement, and the table from which
//! `cuGetProcAddress` answers: every exported name with its address.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

#[path = "../refuse.rs"]
mod refuse;

fn main() {
    let mut module_of: BTreeMap<String, String> =
        refuse::generate(&["cuda"]).into_iter().map(|name| (name, "refusals".to_owned())).collect();
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for (name, file) in refuse::defined_functions(&package.join("src")) {
        if name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase)) {
            let module = file.file_stem().and_then(|stem| stem.to_str()).expect("our file names are plain");
            module_of.insert(name, module.to_owned());
        }
    }
    let row =
        |(name, module)| format!("    (\"{name}\", crate::proc::Address(crate::{module}::{name} as *const ())),\n");
    let rows: String = module_of.into_iter().map(row).collect();
    let code = format!(
        "/// Every exported driver function and its address, by name.\n\
         pub static TABLE: &[(&str, crate::proc::Address)] = &[\n{rows}];\n"
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("table.rs");
    fs::write(&out, code).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}
