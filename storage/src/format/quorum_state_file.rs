//! The file `quorum-state`: epoch, leader and vote. One line of JSON, in Kafka's order of keys.
//!
//! Version 0 (kraft.version 0) lists the voters; version 1 names the directory that was voted for.
//! Both are read (Kafka's `QuorumStateData`); unknown keys are ignored.

use super::partition_metadata::{decode_uuid, encode_uuid};
use super::{FileFormatError, malformed};
use quorate_raft::{DirectoryId, ElectionState, Epoch, NodeId, ReplicaKey};
use serde::Deserialize;
use std::fmt::Write;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    leader_id: i32,
    leader_epoch: i32,
    voted_id: i32,
    voted_directory_id: Option<String>,
    #[serde(rename = "data_version")]
    data_version: i64,
}

/// Only the voters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VotersJson {
    current_voters: Option<Vec<VoterJson>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VoterJson {
    voter_id: NodeId,
}

/// Only the version, since the other keys depend on it.
#[derive(Deserialize)]
struct VersionJson {
    data_version: Option<i64>,
}

/// The content in version 0. The vote's directory is not kept.
#[must_use]
pub fn encode_quorum_state_v0(election: &ElectionState, voters: &[NodeId]) -> Vec<u8> {
    let mut text = format!(
        "{{\"clusterId\":\"\",\"leaderId\":{},\"leaderEpoch\":{},\"votedId\":{},\
         \"appliedOffset\":0,\"currentVoters\":[",
        election.leader_id.unwrap_or(-1),
        election.epoch,
        election.voted.map_or(-1, |voted| voted.id),
    );
    for (index, id) in voters.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{{\"voterId\":{id}}}");
    }
    text.push_str("],\"data_version\":0}");
    text.into_bytes()
}

/// The content in version 1, for kraft.version 1.
#[must_use]
pub fn encode_quorum_state_v1(election: &ElectionState) -> Vec<u8> {
    let voted = election.voted.unwrap_or(ReplicaKey::of(-1));
    format!(
        "{{\"leaderId\":{},\"leaderEpoch\":{},\"votedId\":{},\"votedDirectoryId\":\"{}\",\
         \"data_version\":1}}",
        election.leader_id.unwrap_or(-1),
        election.epoch,
        voted.id,
        encode_uuid(voted.directory_id.0),
    )
    .into_bytes()
}

/// Reads either version.
///
/// # Errors
/// If the file is empty, cut or not JSON, `data_version` is missing or not 0 or 1, or a number is
/// out of range.
pub fn decode_quorum_state(bytes: &[u8]) -> Result<ElectionState, FileFormatError> {
    let json_error = |e: serde_json::Error| malformed(e.to_string());
    let version: VersionJson = serde_json::from_slice(bytes).map_err(json_error)?;
    match version.data_version {
        None => return Err(malformed("no data_version")),
        Some(0 | 1) => {}
        Some(other) => return Err(FileFormatError::Version(other)),
    }
    let json: Json = serde_json::from_slice(bytes).map_err(json_error)?;
    if json.leader_epoch < 0 || json.leader_id < -1 || json.voted_id < -1 {
        return Err(malformed("a number is negative"));
    }
    let directory_id = voted_directory(&json)?;
    Ok(ElectionState {
        epoch: Epoch(json.leader_epoch),
        leader_id: (json.leader_id >= 0).then_some(json.leader_id),
        voted: (json.voted_id >= 0).then_some(ReplicaKey {
            id: json.voted_id,
            directory_id,
        }),
    })
}

/// The voters of a version 0 file; `None` if it lists none, as in version 1.
///
/// # Errors
/// If what stands there is no list of voters.
pub fn decode_quorum_state_voters(bytes: &[u8]) -> Result<Option<Vec<NodeId>>, FileFormatError> {
    let json: VotersJson =
        serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    let voters = json.current_voters.unwrap_or_default();
    let ids: Vec<_> = voters.iter().map(|voter| voter.voter_id).collect();
    Ok((!ids.is_empty()).then_some(ids))
}

fn voted_directory(json: &Json) -> Result<DirectoryId, FileFormatError> {
    match &json.voted_directory_id {
        Some(text) if json.data_version == 1 => decode_uuid(text)
            .map(DirectoryId)
            .ok_or_else(|| malformed(format!("votedDirectoryId is '{text}'"))),
        _ => Ok(DirectoryId::UNDEFINED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &[u8] = include_bytes!("../../testdata/quorum-state");

    #[test]
    fn kafkas_file_is_read_and_written_byte_for_byte() {
        let election = decode_quorum_state(GOLDEN).unwrap();
        assert_eq!((election.epoch, election.leader_id), (Epoch(1), Some(1)));
        assert_eq!(election.voted, None);
        assert_eq!(encode_quorum_state_v0(&election, &[1]), GOLDEN);
        assert_eq!(decode_quorum_state_voters(GOLDEN), Ok(Some(vec![1])));
    }

    #[test]
    fn version_1_keeps_the_directory_of_the_vote() {
        let election = ElectionState {
            epoch: Epoch(9),
            leader_id: None,
            voted: Some(ReplicaKey {
                id: 3,
                directory_id: DirectoryId([5; 16]),
            }),
        };
        let bytes = encode_quorum_state_v1(&election);
        assert_eq!(decode_quorum_state(&bytes), Ok(election));
        assert_eq!(decode_quorum_state_voters(&bytes), Ok(None));
        let v0 = decode_quorum_state(&encode_quorum_state_v0(&election, &[1, 2, 3])).unwrap();
        assert_eq!(v0.voted, Some(ReplicaKey::of(3)));
    }

    #[test]
    fn a_file_that_is_not_whole_is_never_guessed_at() {
        for end in 0..GOLDEN.len() {
            assert!(decode_quorum_state(&GOLDEN[..end]).is_err(), "{end}");
        }
        for text in [
            r#"{"leaderId":1,"leaderEpoch":1,"votedId":-1}"#,
            r#"{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"data_version":0}"#,
            r#"{"leaderId":1,"leaderEpoch":1,"data_version":0}"#,
            r#"{"leaderId":1,"leaderEpoch":1,"votedId":2,"votedDirectoryId":"?","data_version":1}"#,
        ] {
            assert!(decode_quorum_state(text.as_bytes()).is_err(), "{text}");
        }
        let later = br#"{"data_version":2}"#;
        assert_eq!(decode_quorum_state(later), Err(FileFormatError::Version(2)));
    }
}
