//! The daemon's packets: what is written is read; what is not allowed is refused by name; no bytes do harm.

use deepum_core::units::{Bytes, DeviceId};
use deepum_protocol::control::{
    CONFIG_BYTES, ControlError, Device, Hello, PACKET_BYTES, Packet, Reason, Refused, TEXT_BYTES, ToolsQueue, VERSION,
    WEIGHT, Welcome,
};
use deepum_protocol::shared::MAX_DEVICES;
use proptest::prelude::*;

fn device(n: u8) -> Device {
    Device { id: DeviceId(n), uuid: [n; 16], memory: Bytes(32 << 30), budget: Bytes(16 << 30) }
}

fn hello() -> Hello {
    Hello {
        ring: Bytes(2_098_176),
        page: Bytes(1 << 20),
        tools: Ok(ToolsQueue { entries: 1 << 16, memory: Bytes((4 << 20) + 4096) }),
        driven: true,
        attachment: 3,
        weight: 7,
        workload: 0xfeed,
        devices: vec![device(0), device(2)],
        driver: "580.65.06".to_owned(),
        config: "DEEPUM_POLICY=deepum\nDEEPUM_DEGREE=8\n".to_owned(),
    }
}

/// One of each, with every field other than its default.
fn packets() -> Vec<Packet> {
    vec![
        Packet::Hello(hello()),
        Packet::Hello(Hello { tools: Err("the node does not open".to_owned()), ..hello() }),
        Packet::Welcome(Welcome { worker: 4711, release: "0.1.0".to_owned() }),
        Packet::Refused(Refused { reason: Reason::Full, text: "64 programs are served".to_owned() }),
        Packet::Say("a line".to_owned()),
        Packet::Budget(vec![(DeviceId(0), Bytes(1 << 34)), (DeviceId(15), Bytes(0))]),
        Packet::Bye,
    ]
}

#[test]
fn what_is_written_is_read() {
    for packet in packets() {
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
}

#[test]
fn the_largest_hello_there_is_fits_a_packet() {
    let devices = (0u8..).take(MAX_DEVICES).map(device).collect();
    let long = |n: usize| "é".repeat(n / 2);
    let hello = Hello {
        devices,
        driver: long(TEXT_BYTES),
        config: long(CONFIG_BYTES),
        tools: Err(long(TEXT_BYTES)),
        ..hello()
    };
    let bytes = Packet::Hello(hello.clone()).to_bytes();
    assert!(bytes.len() <= PACKET_BYTES, "{}", bytes.len());
    assert_eq!(Packet::parse(&bytes), Ok(Packet::Hello(hello)));
}

#[test]
fn texts_too_long_or_odd_are_cut_and_cleaned_when_written() {
    let bytes = Packet::Say("\x1b[31m".to_owned() + &"é".repeat(TEXT_BYTES)).to_bytes();
    let Ok(Packet::Say(line)) = Packet::parse(&bytes) else { panic!() };
    assert!(line.starts_with("[31mé") && line.len() <= TEXT_BYTES && line.len() > TEXT_BYTES - 4);
}

#[test]
fn every_packet_cut_short_anywhere_or_with_bytes_behind_it_is_refused() {
    for packet in packets() {
        let whole = packet.to_bytes();
        for len in 0..whole.len() {
            assert!(Packet::parse(&whole[..len]).is_err(), "{packet:?} cut to {len}");
            // And where the length is honest about the cut, what is missing is named.
            let mut cut = whole[..len].to_vec();
            if len >= 24 {
                cut[16..24].copy_from_slice(&(len as u64).to_le_bytes());
                assert!(matches!(Packet::parse(&cut), Err(ControlError::Field { .. })), "{packet:?} cut to {len}");
            }
        }
        let mut long = whole.clone();
        long.push(0);
        assert!(Packet::parse(&long).is_err());
        let len = long.len() as u64;
        long[16..24].copy_from_slice(&len.to_le_bytes());
        let error = Packet::parse(&long).unwrap_err().to_string();
        assert!(error.contains("1 bytes too long"), "{error}");
    }
}

#[test]
fn another_version_is_named_but_its_refusal_is_understood() {
    for packet in packets() {
        let mut bytes = packet.to_bytes();
        bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
        match packet {
            Packet::Refused(_) => assert_eq!(Packet::parse(&bytes), Ok(packet)),
            _ => {
                let error = Packet::parse(&bytes).unwrap_err();
                assert_eq!(error, ControlError::Version { have: 9 });
                assert_eq!(error.reason(), Reason::Version);
                assert!(error.to_string().contains(&format!("reads version {VERSION}")));
            }
        }
    }
}

#[test]
fn values_that_are_not_allowed_are_named() {
    let with = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        Packet::parse(&Packet::Hello(hello).to_bytes()).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Hello);
    let cases: [(&str, Change<'_>); 13] = [
        ("ring bytes is 7;", &|h| h.ring = Bytes(7)),
        ("ring bytes is 0;", &|h| h.ring = Bytes(0)),
        ("page bytes is 18446744073709551608;", &|h| h.page = Bytes(u64::MAX - 7)),
        ("weight is 0; allowed is 1 to 100", &|h| h.weight = 0),
        ("weight is 101;", &|h| h.weight = WEIGHT + 1),
        ("attachment is 0;", &|h| h.attachment = 0),
        ("devices is 0;", &|h| h.devices.clear()),
        ("ordinal is 0; allowed is more than that of the GPU before", &|h| h.devices[1].id = DeviceId(0)),
        ("ordinal is 16;", &|h| h.devices[1].id = DeviceId(16)),
        ("uuid is 00000000000000000000000000000000; allowed is another than those of the GPUs before", &|h| {
            h.devices[1].uuid = [0; 16]
        }),
        ("budget is 34359738369; allowed is 1 to the memory", &|h| h.devices[0].budget = Bytes((32 << 30) + 1)),
        ("tools entries is 3; allowed is a power of two", &|h| {
            h.tools = Ok(ToolsQueue { entries: 3, memory: Bytes(8) });
        }),
        ("tools bytes is 0;", &|h| h.tools = Ok(ToolsQueue { entries: 4, memory: Bytes(0) })),
    ];
    for (want, change) in cases {
        let error = with(change);
        assert!(error.starts_with(want), "{error}");
    }
    let mut odd = Packet::Bye.to_bytes();
    odd[12] = 77;
    assert_eq!(Packet::parse(&odd).unwrap_err().to_string(), "kind is 77; allowed is 1 to 6");
    let mut text = Packet::Say("abc".to_owned()).to_bytes();
    *text.last_mut().unwrap() = 0xff;
    assert!(Packet::parse(&text).unwrap_err().to_string().contains("UTF-8"));
    *text.last_mut().unwrap() = 0x1b;
    assert!(Packet::parse(&text).unwrap_err().to_string().contains("control characters"));
}

proptest! {
    /// Whatever is changed in a packet, parsing says yes or no; and what it takes, it would have written just so.
    #[test]
    fn changed_packets_do_no_harm(which in 0usize..7, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = packets()[which].to_bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
        }
    }

    #[test]
    fn noise_is_no_packet(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Packet::parse(&bytes).is_err());
    }
}
