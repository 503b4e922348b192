//! The small files of a data directory: what is read can be written, and reads the same again.

use crate::source::Source;
use quorate::meta_properties::Meta;
use quorate_storage::format::{
    decode_epoch_checkpoint, decode_log_identity, decode_partition_metadata, decode_quorum_state,
    encode_epoch_checkpoint, encode_log_identity, encode_partition_metadata,
    encode_quorum_state_v0, encode_quorum_state_v1,
};
use std::path::Path;

/// Input: which file, then its content. The marker of a clean stop is read by `recovery`.
pub fn state_files(data: &[u8]) {
    let mut source = Source::new(data);
    let which = source.byte() % 5;
    let bytes = source.rest();
    match which {
        0 => quorum_state(bytes),
        1 => {
            if let Ok(epochs) = decode_epoch_checkpoint(bytes) {
                let again = encode_epoch_checkpoint(&epochs);
                assert_eq!(decode_epoch_checkpoint(&again), Ok(epochs));
            }
        }
        2 => {
            if let Ok(identity) = decode_log_identity(bytes) {
                let again = encode_log_identity(identity);
                assert_eq!(decode_log_identity(&again), Ok(identity));
            }
        }
        3 => {
            if let Ok(topic_id) = decode_partition_metadata(bytes) {
                let again = encode_partition_metadata(topic_id);
                assert_eq!(decode_partition_metadata(&again), Ok(topic_id));
            }
        }
        _ => meta(&String::from_utf8_lossy(bytes)),
    }
}

fn quorum_state(bytes: &[u8]) {
    let Ok(election) = decode_quorum_state(bytes) else {
        return;
    };
    let v1 = encode_quorum_state_v1(&election);
    assert_eq!(decode_quorum_state(&v1).as_ref(), Ok(&election));
    // Version 0 has no directory ids.
    let v0 = decode_quorum_state(&encode_quorum_state_v0(&election, &[1, 2, 3]));
    let v0 = v0.expect("what is written can be read");
    assert_eq!(
        (v0.epoch, v0.leader_id),
        (election.epoch, election.leader_id)
    );
}

fn meta(text: &str) {
    let path = Path::new("meta.properties");
    if let Ok(meta) = Meta::parse(path, text) {
        let again = Meta::parse(path, &meta.encode(0)).expect("what is written can be read");
        assert_eq!(again, meta);
    }
}
