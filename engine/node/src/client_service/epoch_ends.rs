//! Tells consumers where an epoch ended, so that each can tell after a change of leaders whether
//! what it read last is still in the log (KIP-320). Here it always is: only committed records are
//! shown. Some clients read on only when they have heard so.

use super::ClientService;
use super::reads::epoch_fault;
use crate::replica::Replica;
use quorate_net::wire::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use quorate_raft::{Epoch, ErrorCode, Offset, OffsetAndEpoch, Role};

impl ClientService {
    pub(super) fn offset_for_leader_epoch(
        &self,
        replica: &Replica,
        request: &OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let is_ours = topic.topic == self.identity.topic_name;
            let partitions = topic.partitions.iter();
            OffsetForLeaderTopicResult {
                topic: topic.topic.clone(),
                partitions: partitions
                    .map(|one| end_of_epoch(replica, is_ours, one))
                    .collect(),
            }
        });
        OffsetForLeaderEpochResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

fn end_of_epoch(
    replica: &Replica,
    is_ours: bool,
    asked: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let raft = replica.raft();
    let found = if !is_ours || asked.partition != 0 {
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    } else if raft.role() != Role::Leader {
        Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    } else if let Some(fault) = epoch_fault(replica, asked.current_leader_epoch) {
        Err(fault)
    } else if let Some(high_watermark) = raft.high_watermark() {
        Ok(committed_end(replica, asked.leader_epoch, high_watermark))
    } else {
        Err(ErrorCode::OFFSET_NOT_AVAILABLE)
    };
    let mut result = EpochEndOffset {
        partition: asked.partition,
        ..Default::default()
    };
    match found {
        Ok(Some(end)) => {
            result.leader_epoch = end.epoch;
            result.end_offset = end.offset;
        }
        Ok(None) => {}
        Err(error) => result.error_code = error,
    }
    result
}

/// The largest epoch not above `epoch` and where its committed records end; `None` for an epoch
/// that the log has not reached (as Kafka's `LeaderEpochFileCache.endOffsetFor` has it).
fn committed_end(
    replica: &Replica,
    epoch: Epoch,
    high_watermark: Offset,
) -> Option<OffsetAndEpoch> {
    let raft = replica.raft();
    let is_known = epoch >= Epoch(0) && epoch <= raft.last_epoch();
    is_known.then(|| {
        let end = raft.end_offset_for_epoch(epoch);
        OffsetAndEpoch {
            offset: end.offset.min(high_watermark),
            epoch: end.epoch,
        }
    })
}
