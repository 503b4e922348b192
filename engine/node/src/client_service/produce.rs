//! Appends of clients: checked, appended, and answered after their commit, never before.

use super::{Answer, Asker, ClientService, positive_ms};
use crate::clock::Now;
use crate::replica::Replica;
use quorate_net::ApiResponse;
use quorate_net::wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse,
};
use quorate_raft::{ErrorCode, Instant, LeaderInfo, Offset, Role};
use quorate_storage::format::check_produced;
use std::collections::VecDeque;

/// How often appends that wait are looked at for their time-out.
const TIMEOUT_SWEEP_MS: u64 = 100;

/// An append that is not committed yet.
pub(super) struct Append {
    asker: Asker,
    response: ProduceResponse,
    /// Committed once the high watermark is here.
    end: Offset,
    deadline: Instant,
}

impl ClientService {
    pub(super) fn produce(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: &ProduceRequest,
        answers: &mut Vec<Answer>,
    ) {
        let mut response = ProduceResponse::default();
        let mut end = None;
        for topic in &request.topic_data {
            let mut partitions = Vec::with_capacity(topic.partition_data.len());
            for partition in &topic.partition_data {
                let mut one = ProducePartitionResponse {
                    index: partition.index,
                    base_offset: Offset(-1),
                    ..Default::default()
                };
                let fault = self.topic_fault(asker, &topic.name, topic.topic_id, partition.index);
                let appended = match fault {
                    Some(error) => Err((error, None)),
                    None => self.append(now, replica, request.acks, partition),
                };
                match appended {
                    Ok((base_offset, batch_end)) => {
                        one.base_offset = base_offset;
                        one.log_start_offset = replica.raft().log_start_offset();
                        end = end.max(Some(batch_end));
                    }
                    Err((error, message)) => {
                        one.error_code = error;
                        one.error_message = message;
                    }
                }
                partitions.push(one);
            }
            response.responses.push(ProduceTopicResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: partitions,
            });
        }
        match end {
            Some(end) if request.acks != 0 => self.appends.push_back(Append {
                asker,
                response,
                end,
                deadline: now.instant.plus_ms(positive_ms(request.timeout_ms)),
            }),
            _ if request.acks == 0 => {
                answers.push(Answer {
                    lane: asker.lane,
                    origin: asker.origin,
                    response: None,
                });
            }
            _ => {
                self.name_leader_in_produce(&replica.raft().leader_info(), &mut response);
                answers.push(asker.answer(ApiResponse::Produce(response)));
            }
        }
    }

    /// Checks a batch whole and appends it; its offsets, or why not.
    fn append(
        &self,
        now: Now,
        replica: &mut Replica,
        acks: i16,
        partition: &ProducePartition,
    ) -> Result<(Offset, Offset), (ErrorCode, Option<String>)> {
        if !(-1..=1).contains(&acks) {
            return Err((ErrorCode::INVALID_REQUIRED_ACKS, None));
        }
        if self.refuses_appends || replica.raft().role() != Role::Leader {
            return Err((ErrorCode::NOT_LEADER_OR_FOLLOWER, None));
        }
        let Some(records) = &partition.records else {
            return Err((
                ErrorCode::INVALID_RECORD,
                Some("no record batch".to_owned()),
            ));
        };
        let info = check_produced(records)
            .map_err(|error| (error.error_code(), Some(error.to_string())))?;
        let appended = replica
            .produce(now, records, info.count.unsigned_abs())
            .map_err(|_| (ErrorCode::NOT_LEADER_OR_FOLLOWER, None))?;
        let end = Offset(appended.base_offset.0 + i64::from(info.count));
        Ok((appended.base_offset, end))
    }

    fn name_leader_in_produce(&self, leader: &LeaderInfo, response: &mut ProduceResponse) {
        let partitions = response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partition_responses);
        let mut named = false;
        for partition in partitions {
            if partition.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
                partition.current_leader = self.leader_id_and_epoch(leader);
                named = true;
            }
        }
        if named {
            response.node_endpoints = self.broker_endpoint(leader);
        }
    }

    /// Answers the appends below `high_watermark`.
    pub(super) fn answer_committed(&mut self, high_watermark: Offset, answers: &mut Vec<Answer>) {
        while let Some(append) = self
            .appends
            .pop_front_if(|append| append.end <= high_watermark)
        {
            answers.push(append.asker.answer(ApiResponse::Produce(append.response)));
        }
    }

    /// Tells whoever waits for a commit to look for the leader.
    pub(super) fn fail_appends(&mut self, replica: &Replica, answers: &mut Vec<Answer>) {
        for append in std::mem::take(&mut self.appends) {
            answers.push(self.failed_append(replica, append, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
    }

    /// Answers the appends that have waited long enough.
    pub(super) fn sweep_appends(&mut self, now: Now, replica: &Replica, answers: &mut Vec<Answer>) {
        if now.instant < self.next_sweep || self.appends.is_empty() {
            return;
        }
        self.next_sweep = now.instant.plus_ms(TIMEOUT_SWEEP_MS);
        let (late, waiting): (VecDeque<_>, VecDeque<_>) = self
            .appends
            .drain(..)
            .partition(|append| append.deadline <= now.instant);
        self.appends = waiting;
        for append in late {
            answers.push(self.failed_append(replica, append, ErrorCode::REQUEST_TIMED_OUT));
        }
    }

    fn failed_append(&self, replica: &Replica, mut append: Append, error: ErrorCode) -> Answer {
        let partitions = append
            .response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partition_responses)
            .filter(|partition| partition.error_code.is_none());
        for partition in partitions {
            partition.error_code = error;
            partition.base_offset = Offset(-1);
        }
        self.name_leader_in_produce(&replica.raft().leader_info(), &mut append.response);
        append.asker.answer(ApiResponse::Produce(append.response))
    }
}
