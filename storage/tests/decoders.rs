//! No bytes, whatever they are, make a decoder panic or run on; what is built comes back.

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_raft::{Epoch, Offset};
use quorate_storage::format::{
    BatchBuilder, BatchHeader, LogIdentity, Mark, NewRecord, batches, check_produced, crc32c,
    decode_control_record, decode_epoch_checkpoint, decode_log_identity, decode_partition_metadata,
    decode_quorum_state, records,
};

const GOLDEN: &[u8] = include_bytes!("../testdata/testraftserver-single-node.log");

fn decode_everything(bytes: &[u8]) {
    let walked: usize = batches(bytes).flatten().map(|(_, range)| range.len()).sum();
    assert!(walked <= bytes.len());
    let _ = BatchHeader::parse(bytes);
    let _ = check_produced(bytes);
    if let Ok(walk) = records(bytes) {
        for record in walk.flatten() {
            let _ = decode_control_record(&record);
        }
    }
    let _ = Mark::decode(bytes, LogIdentity([0; 16]), Offset(0));
    let _ = decode_epoch_checkpoint(bytes);
    let _ = decode_log_identity(bytes);
    let _ = decode_partition_metadata(bytes);
    let _ = decode_quorum_state(bytes);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        decode_everything(&bytes);
    }

    #[test]
    fn changed_batches_with_a_right_crc_are_decoded_or_refused(
        changes in vec((0_usize..191, any::<u8>()), 1..6),
        sign in any::<bool>(),
    ) {
        let mut bytes = GOLDEN[..191].to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        if sign {
            for range in [0..91, 91..191] {
                let crc = crc32c(&bytes[range.start + 21..range.end]);
                bytes[range.start + 17..range.start + 21].copy_from_slice(&crc.to_be_bytes());
            }
        }
        decode_everything(&bytes);
        decode_everything(&bytes[91..]);
    }

    #[test]
    fn what_is_built_is_taken_and_comes_back(
        entries in vec(
            (any::<i64>(), proptest::option::of(vec(any::<u8>(), 0..20)),
             proptest::option::of(vec(any::<u8>(), 0..200)),
             vec(("[a-z]{0,5}", proptest::option::of(vec(any::<u8>(), 0..9))), 0..4)),
            1..20,
        ),
    ) {
        let mut builder = BatchBuilder::produced();
        for (timestamp, key, value, headers) in &entries {
            let headers: Vec<_> = headers.iter()
                .map(|(key, value)| (key.as_str(), value.as_deref()))
                .collect();
            builder.push(NewRecord {
                timestamp: timestamp / 4,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &headers,
            });
        }
        let bytes = builder.build();
        let info = check_produced(&bytes).unwrap();
        prop_assert_eq!(info.count as usize, entries.len());
        for (record, entry) in records(&bytes).unwrap().zip(&entries) {
            let record = record.unwrap();
            prop_assert_eq!(record.timestamp, entry.0 / 4);
            prop_assert_eq!(record.key, entry.1.as_deref());
            prop_assert_eq!(record.value, entry.2.as_deref());
            let headers: Vec<_> = entry.3.iter()
                .map(|(key, value)| (key.as_bytes(), value.as_deref()))
                .collect();
            prop_assert_eq!(record.headers, headers);
        }
    }

    #[test]
    fn a_stamp_never_touches_what_the_crc_covers(offset in 0_i64..1 << 62, epoch in 0_i32..) {
        let mut bytes = GOLDEN[..91].to_vec();
        quorate_storage::format::stamp(&mut bytes, Offset(offset), Epoch(epoch));
        let header = BatchHeader::parse_whole(&bytes).unwrap();
        prop_assert_eq!((header.base_offset, header.epoch), (Offset(offset), Epoch(epoch)));
        prop_assert_eq!(&bytes[16..], &GOLDEN[16..91]);
    }
}
