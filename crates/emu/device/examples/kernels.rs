//! Lists every kernel of a library's `.nv_fatbin` section: registers, shared memory, parameters, name.
//! For looking at a new PyTorch wheel: `cargo run --example kernels -- libtorch_cuda.so 80`.

use deepum_emu_device::fatbin;
use object::{Object, ObjectSection};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(arch)) = (args.next(), args.next()) else {
        return Err("usage: kernels LIBRARY ARCHITECTURE (such as 80)".into());
    };
    let arch: u32 = arch.parse()?;
    let file = std::fs::read(path)?;
    let elf = object::File::parse(&*file)?;
    let section = elf.section_by_name(".nv_fatbin").ok_or("no .nv_fatbin section")?;
    let mut rest = section.data()?;
    let mut images = 0;
    // Containers lie one after another, each on an 8-byte boundary.
    while rest.len() >= 16 {
        if rest[..4] != 0xba55_ed50u32.to_le_bytes() {
            rest = &rest[8..];
            continue;
        }
        let len = 16 + usize::try_from(u64::from_le_bytes(*rest[8..].first_chunk().ok_or("cut")?))?;
        let image = rest.get(..len).ok_or("a container reaches past its section")?;
        match fatbin::parse(image, (arch / 10, arch % 10)) {
            Ok(kernels) => {
                for k in kernels {
                    let params: Vec<String> = k.params.iter().map(|p| format!("{}+{}", p.offset, p.size)).collect();
                    println!("{images}\t{}\t{}\t{}\t{}", k.registers, k.static_shared.0, params.join(","), k.name);
                }
            }
            Err(e) => println!("{images}\terror: {e}"),
        }
        images += 1;
        rest = &rest[len.next_multiple_of(8).min(rest.len())..];
    }
    Ok(())
}
