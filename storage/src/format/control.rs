//! Control records: what the quorum itself writes into the log and into snapshots. The LeaderChange
//! batch is written here; the others are only decoded, for dumps.
//!
//! Key: int16 version 0, int16 type. Value of a LeaderChange, version 0 always (Kafka 4.4 neither
//! writes nor reads its version 1):
//!
//! | bytes | field |
//! |---|---|
//! | 2 | version, 0 |
//! | 4 | leader id |
//! | varint | voters + 1, then per voter: 4 bytes id, tagged fields |
//! | varint | granting voters + 1, then as above |
//! | 1 | tagged fields, none |

use super::builder::{BatchBuilder, NewRecord};
use super::record::Record;
use super::varint::{put_unsigned, take_unsigned};
use quorate_raft::{Epoch, NodeId, Offset};

const LEADER_CHANGE: i16 = 2;

/// Who leads an epoch from here on. `KIP-595, LeaderChangeMessage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// The leader.
    pub leader_id: NodeId,
    /// All voters.
    pub voters: Vec<NodeId>,
    /// Those that voted for the leader.
    pub granting_voters: Vec<NodeId>,
}

/// A decoded control record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// An epoch begins.
    LeaderChange(LeaderChange),
    /// A snapshot begins.
    SnapshotHeader {
        /// Timestamp of the last record that the snapshot covers, in ms.
        last_contained_log_timestamp: i64,
    },
    /// A snapshot ends.
    SnapshotFooter,
    /// The kraft.version from here on.
    KRaftVersion(i16),
    /// The voter set from here on; not decoded further.
    KRaftVoters {
        /// How many voters.
        count: u64,
    },
    /// A type that this release does not know. Carried through unchanged.
    Unknown(i16),
}

/// Why a control record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The key is not version and type.
    #[error("the key of the control record is malformed")]
    Key,
    /// The value of a known type is cut off or too long.
    #[error("the value of the control record of type {0} is malformed")]
    Value(i16),
}

/// The batch that a new leader appends first: one LeaderChange record.
///
/// `timestamp` in ms. The voters stand in the order given.
#[must_use]
pub fn leader_change_batch(
    base_offset: Offset,
    epoch: Epoch,
    timestamp: i64,
    change: &LeaderChange,
) -> Vec<u8> {
    let mut value = vec![0, 0];
    value.extend_from_slice(&change.leader_id.to_be_bytes());
    put_voters(&mut value, &change.voters);
    put_voters(&mut value, &change.granting_voters);
    value.push(0);
    let [high, low] = LEADER_CHANGE.to_be_bytes();
    let mut builder = BatchBuilder::control(base_offset, epoch);
    builder.push(NewRecord {
        timestamp,
        key: Some(&[0, 0, high, low]),
        value: Some(&value),
        headers: &[],
    });
    builder.build()
}

fn put_voters(out: &mut Vec<u8>, voters: &[NodeId]) {
    put_unsigned(out, voters.len() as u64 + 1);
    for id in voters {
        out.extend_from_slice(&id.to_be_bytes());
        out.push(0);
    }
}

/// Decodes a record of a control batch.
///
/// # Errors
/// `Key` or `Value`; a type that is not known is no error.
pub fn decode_control_record(record: &Record<'_>) -> Result<ControlRecord, ControlError> {
    let key = record.key.unwrap_or_default();
    let Some((&[_, _, high, low], _)) = key.split_first_chunk::<4>() else {
        return Err(ControlError::Key);
    };
    let kind = i16::from_be_bytes([high, low]);
    let mut value = record.value.unwrap_or_default();
    decode_value(kind, &mut value).ok_or(ControlError::Value(kind))
}

fn decode_value(kind: i16, value: &mut &[u8]) -> Option<ControlRecord> {
    if !(2..=6).contains(&kind) {
        return Some(ControlRecord::Unknown(kind));
    }
    let _version = take_i16(value)?;
    Some(match kind {
        LEADER_CHANGE => ControlRecord::LeaderChange(LeaderChange {
            leader_id: take_id(value)?,
            voters: take_voters(value)?,
            granting_voters: take_voters(value)?,
        }),
        3 => ControlRecord::SnapshotHeader {
            last_contained_log_timestamp: i64::from_be_bytes(take_array(value)?),
        },
        4 => ControlRecord::SnapshotFooter,
        5 => ControlRecord::KRaftVersion(take_i16(value)?),
        _ => ControlRecord::KRaftVoters {
            count: take_unsigned(value)?.checked_sub(1)?,
        },
    })
}

fn take_voters(value: &mut &[u8]) -> Option<Vec<NodeId>> {
    let count = take_unsigned(value)?.checked_sub(1)?;
    let mut voters = Vec::new();
    for _ in 0..count {
        // Each takes bytes, so the value's length bounds the loop.
        voters.push(take_id(value)?);
        skip_tags(value)?;
    }
    Some(voters)
}

fn skip_tags(value: &mut &[u8]) -> Option<()> {
    for _ in 0..take_unsigned(value)? {
        take_unsigned(value)?;
        let size = usize::try_from(take_unsigned(value)?).ok()?;
        *value = value.get(size..)?;
    }
    Some(())
}

fn take_id(value: &mut &[u8]) -> Option<NodeId> {
    Some(NodeId::from_be_bytes(take_array(value)?))
}

fn take_i16(value: &mut &[u8]) -> Option<i16> {
    Some(i16::from_be_bytes(take_array(value)?))
}

fn take_array<const N: usize>(value: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = value.split_first_chunk::<N>()?;
    *value = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::tests::GOLDEN_LOG;
    use crate::format::{BatchHeader, batches, records};

    fn golden_change() -> LeaderChange {
        LeaderChange {
            leader_id: 1,
            voters: vec![1],
            granting_voters: vec![1],
        }
    }

    #[test]
    fn the_leader_change_batch_is_kafkas_byte_for_byte() {
        let timestamp = BatchHeader::parse(GOLDEN_LOG).unwrap().base_timestamp;
        let batch = leader_change_batch(Offset(0), Epoch(1), timestamp, &golden_change());
        assert_eq!(batch, &GOLDEN_LOG[..91]);
    }

    #[test]
    fn a_leader_change_is_decoded() {
        let record = records(GOLDEN_LOG).unwrap().next().unwrap().unwrap();
        assert_eq!(
            decode_control_record(&record),
            Ok(ControlRecord::LeaderChange(golden_change()))
        );
        let cut = Record {
            value: Some(&record.value.unwrap()[..7]),
            ..record
        };
        assert_eq!(decode_control_record(&cut), Err(ControlError::Value(2)));
    }

    #[test]
    fn the_control_records_of_kafkas_bootstrap_snapshot_are_decoded() {
        let snapshot = include_bytes!("../../testdata/bootstrap-standalone-0-0.checkpoint");
        let mut kinds = Vec::new();
        for batch in batches(snapshot) {
            let (header, range) = batch.unwrap();
            if header.is_control() {
                for record in records(&snapshot[range]).unwrap() {
                    kinds.push(decode_control_record(&record.unwrap()).unwrap());
                }
            }
        }
        assert_eq!(kinds.len(), 4);
        assert!(matches!(kinds[0], ControlRecord::SnapshotHeader { .. }));
        assert_eq!(kinds[1], ControlRecord::KRaftVersion(1));
        assert_eq!(kinds[2], ControlRecord::KRaftVoters { count: 1 });
        assert_eq!(kinds[3], ControlRecord::SnapshotFooter);
    }
}
