//! Appends of clients: checked, appended, and answered after their commit, never before.

use super::checks::Verdicts;
use super::{Answer, Asker, ClientService, positive_ms};
use crate::clock::Now;
use crate::replica::{Produced, Replica};
use quorate_net::ApiResponse;
use quorate_net::wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse,
};
use quorate_raft::{ErrorCode, Instant, LeaderInfo, Offset, Role};
use quorate_storage::format::{BatchError, Codec, check_produced};
use std::collections::VecDeque;

/// First version in which zstd is known to all readers (KIP-110;
/// `ProduceRequest.validateRecords`).
const ZSTD_SINCE_VERSION: i16 = 7;

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

impl Append {
    /// Who waits for it.
    pub(super) fn asker(&self) -> Asker {
        self.asker
    }
}

/// A batch that is in the log.
struct Taken {
    /// Where it begins; -1 if that is no longer known.
    base_offset: Offset,
    /// NONE, or that only this much is known of it.
    error_code: ErrorCode,
    /// It is committed once the high watermark is here.
    end: Offset,
}

/// A batch that is not taken.
struct Refusal {
    error_code: ErrorCode,
    message: Option<String>,
}

impl Refusal {
    fn bare(error_code: ErrorCode) -> Self {
        Self {
            error_code,
            message: None,
        }
    }

    fn of_batch(error: &BatchError) -> Self {
        Self {
            error_code: error.error_code(),
            message: Some(error.to_string()),
        }
    }
}

impl ClientService {
    pub(super) fn produce(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: &ProduceRequest,
        verdicts: &Verdicts,
        answers: &mut Vec<Answer>,
    ) {
        let mut response = ProduceResponse::default();
        let mut end = None;
        let mut places = 0..;
        for topic in &request.topic_data {
            let mut partitions = Vec::with_capacity(topic.partition_data.len());
            for partition in &topic.partition_data {
                let place = places.next().unwrap_or(usize::MAX);
                let fault_of = || verdicts.of(place);
                let fault = self.topic_fault(asker, &topic.name, topic.topic_id, partition.index);
                let taken = match fault {
                    Some(error) => Err(Refusal::bare(error)),
                    None => self.append(now, replica, asker, request.acks, partition, fault_of),
                };
                if let Ok(taken) = &taken {
                    end = end.max(Some(taken.end));
                }
                partitions.push(partition_response(replica, partition.index, taken));
            }
            response.responses.push(ProduceTopicResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: partitions,
            });
        }
        if request.acks == 0 {
            answers.push(Answer {
                lane: asker.lane,
                origin: asker.origin,
                response: None,
            });
            return;
        }
        match end {
            Some(end) if replica.raft().high_watermark() < Some(end) => self.park(Append {
                asker,
                response,
                end,
                deadline: now.instant.plus_ms(positive_ms(request.timeout_ms)),
            }),
            _ => {
                self.name_leader_in_produce(&replica.raft().leader_info(), &mut response);
                answers.push(asker.answer(ApiResponse::Produce(response)));
            }
        }
    }

    /// Lets an append wait, in the order of what they wait for. A duplicate waits for less than
    /// those that came before it.
    fn park(&mut self, append: Append) {
        let place = self
            .appends
            .partition_point(|waiting| waiting.end <= append.end);
        self.appends.insert(place, append);
    }

    /// Checks a batch whole and appends it, unless it is there already. `fault_of` says what is
    /// wrong with its records if they are compressed.
    fn append<'a>(
        &self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        acks: i16,
        partition: &ProducePartition,
        fault_of: impl Fn() -> Option<&'a BatchError>,
    ) -> Result<Taken, Refusal> {
        if !(-1..=1).contains(&acks) {
            return Err(Refusal::bare(ErrorCode::INVALID_REQUIRED_ACKS));
        }
        if self.refuses_appends || replica.raft().role() != Role::Leader {
            return Err(Refusal::bare(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        let Some(records) = &partition.records else {
            return Err(Refusal {
                error_code: ErrorCode::INVALID_RECORD,
                message: Some("no record batch".to_owned()),
            });
        };
        let info = check_produced(records).map_err(|error| Refusal::of_batch(&error))?;
        if info.codec == Codec::Zstd && asker.origin.version < ZSTD_SINCE_VERSION {
            return Err(Refusal {
                error_code: ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
                message: Some("zstd needs Produce version 7".to_owned()),
            });
        }
        if info.codec != Codec::None
            && let Some(fault) = fault_of()
        {
            return Err(Refusal::of_batch(fault));
        }
        let produced = replica.produce(now, records, &info);
        let produced = produced.map_err(|error| Refusal {
            error_code: error.error_code(),
            message: Some(error.to_string()),
        })?;
        Ok(taken(produced))
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
            .filter(|partition| is_promise(partition.error_code));
        for partition in partitions {
            partition.error_code = error;
            partition.base_offset = Offset(-1);
        }
        self.name_leader_in_produce(&replica.raft().leader_info(), &mut append.response);
        append.asker.answer(ApiResponse::Produce(append.response))
    }
}

/// What is known of a batch that is in the log, now or before.
fn taken(produced: Produced) -> Taken {
    let (base_offset, error_code, end) = match produced {
        Produced::Appended {
            base_offset,
            end_offset,
        }
        | Produced::Duplicate {
            base_offset,
            end_offset,
        } => (base_offset, ErrorCode::NONE, end_offset),
        Produced::Older { below } => (Offset(-1), ErrorCode::DUPLICATE_SEQUENCE_NUMBER, below),
    };
    Taken {
        base_offset,
        error_code,
        end,
    }
}

fn partition_response(
    replica: &Replica,
    index: i32,
    taken: Result<Taken, Refusal>,
) -> ProducePartitionResponse {
    let mut response = ProducePartitionResponse {
        index,
        base_offset: Offset(-1),
        ..Default::default()
    };
    match taken {
        Ok(taken) => {
            response.base_offset = taken.base_offset;
            response.error_code = taken.error_code;
            response.log_start_offset = replica.raft().log_start_offset();
        }
        Err(refusal) => {
            response.error_code = refusal.error_code;
            response.error_message = refusal.message;
        }
    }
    response
}

/// Whether a producer that gets this answer believes its batch to be committed.
fn is_promise(error: ErrorCode) -> bool {
    error.is_none() || error == ErrorCode::DUPLICATE_SEQUENCE_NUMBER
}
