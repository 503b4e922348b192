//! Pure codecs of everything that stands in the log's directory: bytes in, values out, and back.
//! No files, no clock. What comes from outside is a typed error, whatever its bytes are.

mod batch;
mod builder;
mod compressed;
mod control;
mod epoch_checkpoint;
mod log_identity;
mod mark;
mod partition_metadata;
mod produced;
mod quorum_state_file;
mod record;
mod record_check;
mod varint;

pub use batch::{
    BATCH_BYTES_LIMIT, BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchError, BatchHeader, Batches,
    Codec, batches, crc32c, stamp,
};
pub use builder::{BatchBuilder, Header, NewRecord};
pub use compressed::Decompressor;
pub use control::{
    ControlError, ControlRecord, LeaderChange, decode_control_record, leader_change_batch,
};
pub use epoch_checkpoint::{decode_epoch_checkpoint, encode_epoch_checkpoint};
pub use log_identity::{LogIdentity, decode_log_identity, encode_log_identity};
pub(crate) use mark::{ChunkState, is_mark};
pub use mark::{GroupSums, MARK_BYTES, Mark};
pub use partition_metadata::{decode_partition_metadata, encode_partition_metadata};
pub use produced::{BatchInfo, check_produced};
pub use quorum_state_file::{
    decode_quorum_state, decode_quorum_state_voters, encode_quorum_state_v0, encode_quorum_state_v1,
};
pub use record::{Record, Records, records};

/// What is wrong with the content of a small file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFormatError {
    /// It does not say what it should.
    #[error("{0}")]
    Malformed(String),
    /// It is of a version that this release does not know.
    #[error("version {0}")]
    Version(i64),
}

pub(crate) fn malformed(reason: impl Into<String>) -> FileFormatError {
    FileFormatError::Malformed(reason.into())
}
