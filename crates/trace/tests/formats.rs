//! Traces in both forms: what is written is read, and what was cut off or changed is found.

use deepum_core::units::{AddrRange, Bytes, DevAddr, LaunchKey, LaunchSeq, Nanos, StreamSlot};
use deepum_trace::binary::{MOST_KNOWN, ReadError, Reader, WriteError, Writer};
use deepum_trace::event::{Access, Event, EventError, Header, Launch, NameId, Order, Record, Touch};
use deepum_trace::text;
use proptest::prelude::*;

fn header() -> Header {
    Header { program: "train.py".into(), device: "v100-32g".into(), budget: Bytes::gib(1) }
}

fn written(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap()
}

fn range() -> impl Strategy<Value = AddrRange> {
    // Few addresses, so that they come again; all of them, so that differences wrap.
    let start = prop_oneof![(0..4u64).prop_map(|n| n << 40), any::<u64>()];
    let len = prop_oneof![0..4u64, any::<u64>()];
    (start, len).prop_map(|(start, len)| AddrRange::new(DevAddr(start), Bytes(len.min(u64::MAX - start))))
}

fn event() -> impl Strategy<Value = Event> {
    let pointer = prop_oneof![(0..4u64).prop_map(|n| n << 40), any::<u64>()].prop_map(DevAddr);
    let stream = || any::<u16>().prop_map(StreamSlot);
    let key = prop_oneof![0..4u64, any::<u64>()].prop_map(LaunchKey);
    let launch = (stream(), 0..4u32, key, prop::collection::vec(pointer, 0..5))
        .prop_map(|(stream, kernel, key, pointers)| Launch { stream, kernel: NameId(kernel), key, pointers });
    let access = prop::sample::select(vec![Access::Read, Access::Write, Access::ReadWrite]);
    let phase = prop_oneof![0..3u32, any::<u32>()];
    let touch = (range(), access, phase).prop_map(|(range, access, phase)| Touch { range, access, phase });
    let place = || (1..9u64).prop_map(LaunchSeq);
    let nanos = || any::<u64>().prop_map(Nanos);
    prop_oneof![
        range().prop_map(|range| Event::Alloc { range }),
        range().prop_map(|range| Event::Free { range }),
        (range(), any::<bool>()).prop_map(|(range, active)| Event::PtBlock { range, active }),
        any::<String>().prop_map(|name| Event::Name { name: name.into() }),
        launch.prop_map(Event::Launch),
        (stream(), prop::option::of(range()), prop::option::of(range())).prop_map(|(stream, from, to)| Event::Copy {
            stream,
            from,
            to
        }),
        (place(), prop::collection::vec(touch, 0..5)).prop_map(|(launch, touches)| Event::Touched { launch, touches }),
        (place(), nanos()).prop_map(|(launch, time)| Event::Time { launch, time }),
        (prop::option::of(stream()), nanos()).prop_map(|(stream, waited)| Event::Wait { stream, waited }),
        Just(Event::Iteration),
        any::<u64>().prop_map(|events| Event::Lost { events }),
    ]
}

/// Records that may follow each other: of random ones those that do.
fn records() -> impl Strategy<Value = Vec<Record>> {
    let at = prop_oneof![0..1000u64, any::<u64>()].prop_map(Nanos);
    let record = (at, event()).prop_map(|(at, event)| Record { at, event });
    prop::collection::vec(record, 0..60).prop_map(|mut records| {
        records.insert(0, Record { at: Nanos(5), event: Event::Name { name: "first".into() } });
        let mut order = Order::default();
        records.retain(|record| order.take(&record.event).is_ok());
        records
    })
}

proptest! {
    #[test]
    fn both_forms_read_back_what_was_written(
        program in any::<String>(),
        budget in any::<u64>(),
        records in records(),
        flushes in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let header = Header { program: program.into(), device: "\u{85}\n\"".into(), budget: Bytes(budget) };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let flushes: Vec<usize> = flushes.iter().map(|at| at.index(records.len())).collect();
        for (n, record) in records.iter().enumerate() {
            writer.write(record).unwrap();
            if flushes.contains(&n) {
                writer.flush().unwrap();
            }
        }
        let bytes = writer.finish().unwrap();
        let reader = Reader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &header);
        prop_assert_eq!(&reader.map(Result::unwrap).collect::<Vec<_>>(), &records);

        let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
        let lines = text::header(&header) + &lines;
        let reader = text::Reader::new(lines.as_bytes()).unwrap();
        prop_assert_eq!(reader.header(), &header);
        prop_assert_eq!(&reader.map(Result::unwrap).collect::<Vec<_>>(), &records);
    }

    /// What a fuzzer finds behind the checksums: any bytes as a chunk of records. What is read is written and read again.
    #[test]
    fn chunks_of_any_bytes_are_refused_or_read_to_what_can_be_written(payload in prop::collection::vec(0..16u8, 1..80)) {
        let bytes = [preamble(), chunk(&payload), chunk(&[])].concat();
        let mut records = Vec::new();
        for record in Reader::new(&bytes[..]).unwrap() {
            match record {
                Ok(record) => records.push(record),
                Err(ReadError::Wrong { at, .. } | ReadError::Event { at, .. }) => prop_assert_eq!(at, 51),
                Err(other) => panic!("{other}"),
            }
        }
        let again: Vec<Record> = Reader::new(&written(&header(), &records)[..]).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(again, records);
    }
}

/// A chunk as `docs/trace.md` says, not packed.
fn chunk(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let head = [len, len, crc32fast::hash(payload).to_le_bytes()].concat();
    [&head[..], &crc32fast::hash(&head).to_le_bytes(), payload].concat()
}

/// Magic, version and the chunk of [`header`]: 12 + 16 + 9 + 9 + 5 bytes.
fn preamble() -> Vec<u8> {
    let payload = [b"\x08train.py\x08v100-32g", &[0x80, 0x80, 0x80, 0x80, 4][..]].concat();
    [b"DEEPUMTR\x01\0\0\0", &chunk(&payload)[..]].concat()
}

/// Three chunks of two records each.
fn three_chunks() -> (Vec<Record>, Vec<u8>) {
    let record = |at, event| Record { at: Nanos(at), event };
    let launch = |key| Launch { stream: StreamSlot(0), kernel: NameId(0), key: LaunchKey(key), pointers: Vec::new() };
    let records = vec![
        record(0, Event::Name { name: "k".into() }),
        record(5, Event::Launch(launch(1))),
        record(9, Event::Time { launch: LaunchSeq(1), time: Nanos(7) }),
        record(10, Event::Iteration),
        record(11, Event::Launch(launch(1))),
        record(12, Event::Iteration),
    ];
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for two in records.chunks(2) {
        two.iter().for_each(|record| writer.write(record).unwrap());
        writer.flush().unwrap();
    }
    (records, writer.finish().unwrap())
}

/// What is read before the first error, and the error.
fn outcome(bytes: &[u8]) -> (Vec<Record>, Option<ReadError>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(why) => return (records, Some(why)),
    };
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(why) => {
                assert!(reader.next().is_none(), "it ends behind an error");
                return (records, Some(why));
            }
        }
    }
    (records, None)
}

#[test]
fn a_trace_cut_off_anywhere_gives_all_whole_chunks_and_says_where_it_is_cut() {
    let (records, bytes) = three_chunks();
    // The header's chunk is at 12. Heads of 16 bytes; records of 4 and 14, of 4 and 2, of 6 and 2 bytes.
    let starts = [12, 51, 51 + 16 + 18, 85 + 16 + 6, 107 + 16 + 8];
    assert_eq!(bytes.len(), 131 + 16);
    for len in 0..bytes.len() {
        let (read, why) = outcome(&bytes[..len]);
        let whole = starts.iter().filter(|start| **start <= len).count();
        match why.unwrap() {
            ReadError::Magic => assert!(len < 8),
            ReadError::Cut { at: 0 } => assert!((8..12).contains(&len)),
            ReadError::Cut { at } => assert_eq!(at, starts[whole - 1] as u64, "cut at {len}"),
            other => panic!("cut at {len}: {other}"),
        }
        assert_eq!(read, records[..whole.saturating_sub(2) * 2], "cut at {len}");
    }
    let behind = [&bytes[..], &[0]].concat();
    assert!(matches!(outcome(&behind).1, Some(ReadError::Behind { at }) if at == bytes.len() as u64));
}

#[test]
fn a_changed_bit_is_found_wherever_it_is_and_what_is_before_its_chunk_is_given() {
    let (records, bytes) = three_chunks();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (read, why) = outcome(&changed);
        let expected = match bit / 8 {
            0..8 => matches!(why, Some(ReadError::Magic)),
            8..12 => matches!(why, Some(ReadError::Version(version)) if version != 1),
            byte => {
                matches!(why, Some(ReadError::Changed { at, .. }) if at <= byte as u64 && byte as u64 - at < 16 + 23)
            }
        };
        assert!(expected, "bit {bit}: {why:?}");
        assert!(read.len() < records.len() || bit / 8 >= bytes.len() - 16, "bit {bit}");
        assert_eq!(read, records[..read.len()], "bit {bit}");
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let mut bytes = written(&header(), &[]);
    bytes[8] = 2;
    assert_eq!(Reader::new(&bytes[..]).unwrap_err().to_string(), "a trace of version 2; version 1 is known");
    assert_eq!(Reader::new(&b"PNG"[..]).unwrap_err().to_string(), "no trace: the first bytes are not DEEPUMTR");
}

#[test]
fn lengths_are_not_believed() {
    let head = |stored: u32, whole: u32| {
        let head = [stored.to_le_bytes(), whole.to_le_bytes(), [0; 4]].concat();
        [preamble(), head.clone(), crc32fast::hash(&head).to_le_bytes().to_vec()].concat()
    };
    let most = 16 << 20;
    for (stored, whole) in [(u32::MAX, u32::MAX), (1, most + 1), (2, 1), (0, 1)] {
        let why = outcome(&head(stored, whole)).1.unwrap().to_string();
        assert_eq!(why, "the chunk at byte 51 was changed: its lengths cannot be", "{stored}, {whole}");
    }
    // Four bytes that are no LZ4 block of a hundred.
    let packed = [4u32.to_le_bytes(), 100u32.to_le_bytes(), crc32fast::hash(&[0xff; 4]).to_le_bytes()].concat();
    let bytes = [preamble(), packed.clone(), crc32fast::hash(&packed).to_le_bytes().to_vec(), vec![0xff; 4]].concat();
    let why = outcome(&bytes).1.unwrap().to_string();
    assert_eq!(why, "the chunk at byte 51 was changed: it does not unpack to its length");
    let why = outcome(&head(most, most)).1.unwrap().to_string();
    assert_eq!(why, "the trace is cut off in the chunk at byte 51; what is before it is good");
    // Whole chunks that say what cannot be: a name of 200 bytes, a launch of a kernel without a name, a time of place 0.
    let says = [
        (&[0, 0, 200, 1][..], "at its byte 0: kernel's name 200: there are not so many bytes in the chunk"),
        (
            &[10, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0],
            "at its byte 2: a launch of kernel 0, and 0 kernels have names",
        ),
        (&[8, 0, 0, 0], "at its byte 0: places back 0: fewer than there are launches and copies before"),
        (&[12, 0], "at its byte 0: record of kind 12: at most 11"),
        (&[1, 0, 1], "at its byte 0: range 1: none is known by this number"),
    ];
    for (payload, said) in says {
        let bytes = [preamble(), chunk(payload)].concat();
        let why = outcome(&bytes).1.unwrap().to_string();
        assert_eq!(why, format!("the chunk at byte 51, unpacked, has {said}"));
    }
}

#[test]
fn a_writer_refuses_what_no_reader_takes_and_goes_on() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let wrong = Record { at: Nanos(1), event: Event::Time { launch: LaunchSeq(1), time: Nanos(1) } };
    let refused = writer.write(&wrong);
    assert!(matches!(refused, Err(WriteError::Event(EventError::NoSuchPlace { place: 1, taken: 0 }))));
    let long = Record { at: Nanos(1), event: Event::Name { name: "x".repeat((1 << 16) + 1).into() } };
    assert!(matches!(writer.write(&long), Err(WriteError::Event(EventError::TooMany { count: 65_537, .. }))));
    let good = Record { at: Nanos(2), event: Event::Iteration };
    writer.write(&good).unwrap();
    assert_eq!(outcome(&writer.finish().unwrap()).0, [good]);
}

#[test]
fn lists_that_are_full_begin_anew_on_both_sides() {
    let name = Record { at: Nanos(0), event: Event::Name { name: "k".into() } };
    let launch = |from: u64| {
        let pointers = (from..from + 1000).map(|n| DevAddr(n * 4096)).collect();
        let launch = Launch { stream: StreamSlot(0), kernel: NameId(0), key: LaunchKey(from), pointers };
        Record { at: Nanos(from), event: Event::Launch(launch) }
    };
    // Past the end of the list, and then what was forgotten, and what was not.
    let past = MOST_KNOWN as u64 + 2000;
    let launches = (0..past).step_by(1000).chain([0, past - 1000, 5000]).map(launch);
    let records: Vec<Record> = std::iter::once(name).chain(launches).collect();
    assert_eq!(outcome(&written(&header(), &records)).0, records);
}
