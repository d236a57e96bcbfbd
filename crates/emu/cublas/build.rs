//! Generates the refusals of every listed function this package does not implement.
#[path = "../refuse.rs"]
mod refuse;

fn main() {
    refuse::generate(&["cublas", "cublasLt"]);
}
