//! Synthetic images, built byte by byte from the layouts the module headers state, and damaged ones.

use proptest::prelude::*;

use super::*;

/// A cubin with the sections of one kernel per `(name, attributes, registers, shared)`.
fn cubin(kernels: &[(&str, Vec<u8>, u32, u64)]) -> Vec<u8> {
    let mut names = vec![0u8];
    let mut data = Vec::new();
    // name, type, info, offset in data, size
    let mut sections: Vec<(u32, u32, u32, u64, u64)> = vec![(0, 0, 0, 0, 0)];
    let name = |names: &mut Vec<u8>, text: String| {
        let at = u32::try_from(names.len()).expect("small");
        names.extend_from_slice(text.as_bytes());
        names.push(0);
        at
    };
    for (kernel, attributes, registers, shared) in kernels {
        let at = data.len() as u64;
        data.extend_from_slice(attributes);
        sections.push((name(&mut names, format!(".nv.info.{kernel}")), 0x7000_0000, 0, at, attributes.len() as u64));
        sections.push((name(&mut names, format!(".text.{kernel}")), 1, registers << 24 | 7, at, 0));
        sections.push((name(&mut names, format!(".nv.shared.{kernel}")), 8, 0, at, *shared));
    }
    let strings = name(&mut names, ".shstrtab".into());
    sections.push((strings, 3, 0, data.len() as u64, names.len() as u64));
    data.extend_from_slice(&names);
    data.resize(data.len().next_multiple_of(8), 0);

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0x33, 7, 0, 0, 0, 0, 0, 0, 0];
    file.extend_from_slice(&2u16.to_le_bytes()); // executable
    file.extend_from_slice(&190u16.to_le_bytes()); // EM_CUDA
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&[0; 16]); // entry, program headers
    file.extend_from_slice(&(64 + data.len() as u64).to_le_bytes());
    file.extend_from_slice(&[0; 4]); // flags
    for half in [
        64u16,
        56,
        0,
        64,
        u16::try_from(sections.len()).expect("small"),
        u16::try_from(sections.len() - 1).expect("small"),
    ] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&data);
    for (name, kind, info, offset, size) in sections {
        file.extend_from_slice(&name.to_le_bytes());
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&[0; 16]); // flags, address
        file.extend_from_slice(&(64 + offset).to_le_bytes());
        file.extend_from_slice(&size.to_le_bytes());
        file.extend_from_slice(&[0; 4]); // link
        file.extend_from_slice(&info.to_le_bytes());
        file.extend_from_slice(&[0; 16]); // alignment, entry size
    }
    file
}

fn kparam(ordinal: u16, offset: u16, size: u32) -> Vec<u8> {
    let mut a = vec![4, 0x17, 12, 0, 0, 0, 0, 0];
    a.extend_from_slice(&ordinal.to_le_bytes());
    a.extend_from_slice(&offset.to_le_bytes());
    a.extend_from_slice(&(size << 18 | 0x1f000).to_le_bytes());
    a
}

fn kparam_v2(ordinal: u16, offset: u16, size: u32) -> Vec<u8> {
    let mut a = kparam(ordinal, offset, 0);
    a[1] = 0x45;
    a.splice(12.., size.to_le_bytes());
    a
}

/// Two parameters, last one first as the compiler writes them, among attributes of no interest.
fn two_params() -> Vec<u8> {
    let noise = [4, 0x37, 4, 0, 0x84, 0, 0, 0, 1, 0x35, 0, 0, 3, 0x19, 0x20, 0];
    let block = [4, 5, 12, 0, 0, 2, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    [&noise[..], &kparam(1, 8, 24), &kparam(0, 0, 4), &block].concat()
}

struct Packed<'a> {
    kind: u16,
    arch: u32,
    flags: u64,
    payload: &'a [u8],
    unpacked: u64,
}

fn container(entries: &[Packed<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for e in entries {
        let padded = e.payload.len().next_multiple_of(8);
        body.extend_from_slice(&e.kind.to_le_bytes());
        body.extend_from_slice(&0x101u16.to_le_bytes());
        body.extend_from_slice(&64u32.to_le_bytes());
        body.extend_from_slice(&(padded as u64).to_le_bytes());
        body.extend_from_slice(&u32::try_from(e.payload.len()).expect("small").to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&e.arch.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&e.flags.to_le_bytes());
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&e.unpacked.to_le_bytes());
        body.extend_from_slice(e.payload);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let mut image = 0xba55_ed50u32.to_le_bytes().to_vec();
    image.extend_from_slice(&1u16.to_le_bytes());
    image.extend_from_slice(&16u16.to_le_bytes());
    image.extend_from_slice(&(body.len() as u64).to_le_bytes());
    image.extend_from_slice(&body);
    image
}

fn plain(arch: u32, payload: &[u8]) -> Packed<'_> {
    Packed { kind: 2, arch, flags: 0x11, payload, unpacked: 0 }
}

/// A zstd frame of raw blocks: what the format allows a compressor that does not compress.
fn zstd_stored(data: &[u8]) -> Vec<u8> {
    let mut frame = 0xfd2f_b528u32.to_le_bytes().to_vec();
    frame.push(0b1010_0000); // single segment, content size of four bytes
    frame.extend_from_slice(&u32::try_from(data.len()).expect("small").to_le_bytes());
    let header = u32::try_from(data.len()).expect("small") << 3 | 1; // raw, last
    frame.extend_from_slice(&header.to_le_bytes()[..3]);
    frame.extend_from_slice(data);
    frame
}

const PTX: &str = "//\n// made by hand\n//\n.version 8.0\n.target sm_80\n.address_size 64\n
/* .entry not_this( */
.visible .entry add_kernel(
\t.param .u64 .ptr .global .align 16 add_kernel_param_0, // .param .u8 no
\t.param .u32 add_kernel_param_1,
\t.param .align 8 .b8 add_kernel_param_2[24],
\t.param .f64 add_kernel_param_3
)
.maxntid 128, 1, 1
{ ret; }
.visible .entry empty() { ret; }
";

fn param(offset: u32, size: u32) -> Param {
    Param { offset, size }
}

#[test]
fn a_cubin_gives_names_parameters_registers_shared_memory_and_largest_block() {
    let attributes = two_params();
    let kernels =
        parse(&cubin(&[("_Z1kv", attributes, 42, 4096), ("bare", vec![], 8, 0)]), (8, 0)).expect("well formed");
    assert_eq!(
        kernels,
        [
            KernelInfo {
                name: "_Z1kv".into(),
                params: vec![param(0, 4), param(8, 24)],
                static_shared: Bytes(4096),
                registers: 42,
                max_threads: 512,
            },
            KernelInfo {
                name: "bare".into(),
                params: vec![],
                static_shared: Bytes::ZERO,
                registers: 8,
                max_threads: 0
            },
        ]
    );
}

#[test]
fn parameters_too_large_for_fourteen_bits_use_the_second_form() {
    let attributes = [kparam_v2(1, 24_200, 1), kparam_v2(0, 0, 24_200)].concat();
    let kernels = parse(&cubin(&[("k", attributes, 8, 0)]), (8, 0)).expect("well formed");
    assert_eq!(kernels[0].params, [param(0, 24_200), param(24_200, 1)]);
}

#[test]
fn the_newest_cubin_of_the_same_major_that_is_not_newer_is_chosen() {
    let [a, b, c, d] = ["sm75", "sm80", "sm86", "sm90"].map(|name| cubin(&[(name, vec![], 8, 0)]));
    let image = container(&[plain(75, &a), plain(80, &b), plain(86, &c), plain(90, &d)]);
    let chosen = |capability| parse(&image, capability).map(|k| k[0].name.clone());
    assert_eq!(chosen((8, 0)), Ok("sm80".into()));
    assert_eq!(chosen((8, 9)), Ok("sm86".into()));
    assert_eq!(chosen((9, 0)), Ok("sm90".into()));
    assert_eq!(chosen((7, 0)), Err(FatbinError::NoBinary { major: 7, minor: 0 }));
    assert_eq!(chosen((10, 0)), Err(FatbinError::NoBinary { major: 10, minor: 0 }));
}

#[test]
fn ptx_serves_where_no_cubin_does() {
    let cubin = cubin(&[("k", vec![], 8, 0)]);
    let ptx = Packed { kind: 1, arch: 80, flags: 0x11, payload: PTX.as_bytes(), unpacked: 0 };
    let image = container(&[plain(75, &cubin), ptx]);
    let kernels = parse(&image, (9, 0)).expect("PTX of 8.0 runs on 9.0");
    assert_eq!(kernels.len(), 2);
    assert_eq!(kernels[0].name, "add_kernel");
    assert_eq!(kernels[0].params, [param(0, 8), param(8, 4), param(16, 24), param(40, 8)]);
    assert_eq!((kernels[1].name.as_str(), kernels[1].params.len()), ("empty", 0));
}

#[test]
fn packed_entries_unpack() {
    let cubin = cubin(&[("_Z1kv", two_params(), 42, 0)]);
    let lz4 = lz4_flex::block::compress(&cubin);
    let zstd = zstd_stored(&cubin);
    for (flags, payload) in [(0x2011, &lz4), (0x8011, &zstd)] {
        let entry = Packed { kind: 2, arch: 80, flags, payload, unpacked: cubin.len() as u64 };
        let kernels = parse(&container(&[entry]), (8, 0)).expect("unpacks");
        assert_eq!(kernels[0].params, [param(0, 4), param(8, 24)], "flags {flags:#x}");
        for lie in [cubin.len() as u64 - 1, cubin.len() as u64 + 1, 1 << 29, u64::MAX] {
            let entry = Packed { kind: 2, arch: 80, flags, payload, unpacked: lie };
            assert!(matches!(parse(&container(&[entry]), (8, 0)), Err(FatbinError::Damaged(_))), "{flags:#x} {lie}");
        }
    }
}

#[test]
fn the_marker_image_of_a_stand_in_library_names_its_kernels() {
    let kernels = parse(&deepum_emu_abi::image::encode(deepum_emu_abi::kernels::ALL), (8, 0)).expect("our own");
    let gemm = kernels.iter().find(|k| k.name == deepum_emu_abi::kernels::GEMM.name).expect("there is a gemm");
    assert_eq!(gemm.params.len(), 1);
}

#[test]
fn unknown_images_are_named_by_their_first_word() {
    assert_eq!(parse(b"BC\xc0\xde....", (8, 0)), Err(FatbinError::UnknownFormat(0xdec0_4342)));
    assert_eq!(parse(b"", (8, 0)), Err(FatbinError::UnknownFormat(0)));
}

#[test]
fn an_image_is_found_whole_from_its_address_alone() {
    let cubin = cubin(&[("k", two_params(), 8, 64)]);
    let container = container(&[plain(80, &cubin)]);
    let marker = deepum_emu_abi::image::encode(deepum_emu_abi::kernels::ALL);
    for image in [&cubin, &container, &marker] {
        // SAFETY: a whole image, as built above.
        assert_eq!(unsafe { image_at(image.as_ptr()) }, Ok(&image[..]));
    }
    let ptx = std::ffi::CString::new(PTX).expect("no NUL inside");
    // SAFETY: NUL-terminated PTX text.
    assert_eq!(unsafe { image_at(ptx.as_ptr().cast()) }, Ok(PTX.as_bytes()));

    let wrapper = [0x0000_0001_4662_43b1u64, container.as_ptr() as u64, 0];
    // SAFETY: a wrapper that names a whole container.
    assert_eq!(unsafe { image_at(wrapper.as_ptr().cast()) }, Ok(&container[..]));
    let other = [0u64; 3];
    // SAFETY: 24 readable bytes; nothing behind them is looked at, since the magic is unknown.
    assert_eq!(unsafe { image_at(other.as_ptr().cast()) }, Err(FatbinError::UnknownFormat(0)));
}

proptest! {
    /// Whatever single bytes change, whatever the cut: an answer or an error, never a panic.
    #[test]
    fn damaged_images_are_refused_or_read_but_never_panic(
        which in 0..5usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), cut in any::<prop::sample::Index>(),
    ) {
        let plain_cubin = cubin(&[("_Z1kv", two_params(), 42, 4096)]);
        let (lz4, zstd) = (lz4_flex::block::compress(&plain_cubin), zstd_stored(&plain_cubin));
        let size = plain_cubin.len() as u64;
        let mut image = match which {
            0 => plain_cubin,
            1 => container(&[plain(75, &plain_cubin), plain(80, &plain_cubin)]),
            2 => container(&[Packed { kind: 2, arch: 80, flags: 0x2011, payload: &lz4, unpacked: size }]),
            3 => container(&[Packed { kind: 2, arch: 80, flags: 0x8011, payload: &zstd, unpacked: size }]),
            _ => PTX.as_bytes().to_vec(),
        };
        for (at, value) in changes {
            let at = at.index(image.len());
            image[at] = value;
        }
        image.truncate(cut.index(image.len()) + 1);
        let _ = parse(&image, (8, 0));
    }
}
