//! Generates the refusals: see `crates/emu/refuse.rs`.

#[path = "../refuse.rs"]
mod refuse;

fn main() {
    refuse::generate(&["cudart"]);
}
