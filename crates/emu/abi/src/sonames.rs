//! Under which vendor file name each stand-in is found.
//!
//! From the `DT_NEEDED` entries of the torch 2.15.0 (CUDA 13.2), 2.9.1 (12.8) and 2.4.1 (12.1) wheels (`readelf -d`), what their
//! Python code opens by name, and the driver's own. One folder of links serves all: a program asks for the names of its CUDA.

/// File name as programs ask for it, and the stand-in's library (without `lib` and `.so`) behind it.
pub const SONAMES: &[(&str, &str)] = &[
    ("libcuda.so.1", "deepum_emu_cuda"),
    // The linker's name, which a driver's package brings, too: Triton 3.5 compiles its launchers against it.
    ("libcuda.so", "deepum_emu_cuda"),
    ("libcudart.so.12", "deepum_emu_cudart"),
    ("libcudart.so.13", "deepum_emu_cudart"),
    ("libcublas.so.12", "deepum_emu_cublas"),
    ("libcublas.so.13", "deepum_emu_cublas"),
    ("libcublasLt.so.12", "deepum_emu_cublas"),
    ("libcublasLt.so.13", "deepum_emu_cublas"),
    ("libcudnn.so.9", "deepum_emu_cudnn"),
    ("libcufft.so.11", "deepum_emu_vendor"),
    ("libcufft.so.12", "deepum_emu_vendor"),
    ("libcufile.so.0", "deepum_emu_vendor"),
    ("libcupti.so.12", "deepum_emu_vendor"),
    ("libcupti.so.13", "deepum_emu_vendor"),
    ("libcurand.so.10", "deepum_emu_vendor"),
    ("libcusolver.so.11", "deepum_emu_vendor"),
    ("libcusolver.so.12", "deepum_emu_vendor"),
    ("libcusparse.so.12", "deepum_emu_vendor"),
    ("libcusparseLt.so.0", "deepum_emu_vendor"),
    ("libnccl.so.2", "deepum_emu_vendor"),
    ("libnvToolsExt.so.1", "deepum_emu_vendor"),
    ("libnvrtc.so.12", "deepum_emu_vendor"),
    ("libnvrtc.so.13", "deepum_emu_vendor"),
    ("libnvshmem_host.so.3", "deepum_emu_vendor"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sonames_and_unique() {
        for (i, (name, _)) in SONAMES.iter().enumerate() {
            assert!(name.starts_with("lib") && name.contains(".so"), "{name}");
            assert!(SONAMES[..i].iter().all(|(other, _)| other != name), "{name} twice");
        }
    }
}
