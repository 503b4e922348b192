//! Consumers' reads: committed records and nothing else, whatever replica id a reader claims.
//!
//! A Fetch with nothing to read is parked until there is something, or its time is over; one whose
//! records are on the disk waits for the read.

use super::{Answer, Asker, ClientService, positive_ms};
use crate::clock::Now;
use crate::connections::SHARE_BYTES;
use crate::replica::{CommittedRead, ReadId, Replica};
use bytes::Bytes;
use quorate_net::ApiResponse;
use quorate_net::wire::fetch::{
    FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopic,
    FetchTopicResponse,
};
use quorate_net::wire::list_offsets::{
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsPartition, ListOffsetsPartitionResponse,
    ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use quorate_raft::{Epoch, ErrorCode, Instant, LeaderInfo, Offset, Role};

/// Records in one answer to a consumer, at most; one batch is always sent whole. The default of
/// librdkafka and of the Java consumer for a partition, so that nobody gets less than it asks for.
const FETCH_BYTES_MAX: usize = 1024 * 1024;

/// The longest that a consumer's Fetch is held, whatever it asks for.
const FETCH_WAIT_MAX_MS: u64 = 30_000;

/// How soon readers that the disk has no room for ask again.
const BUSY_RETRY_MS: u64 = 5;

/// A Fetch with nothing to read yet, or whose records are on their way from the disk.
pub(super) struct Reader {
    asker: Asker,
    response: FetchResponse,
    topic: usize,
    partition: usize,
    from: Offset,
    bytes_max: usize,
    pub(super) deadline: Instant,
}

impl ClientService {
    pub(super) fn fetch(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: &FetchRequest,
        answers: &mut Vec<Answer>,
    ) {
        let mut response = FetchResponse::default();
        let mut found: Option<(usize, usize, &FetchPartition)> = None;
        let mut faulty = false;
        for (topic_index, topic) in request.topics.iter().enumerate() {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for (index, partition) in topic.partitions.iter().enumerate() {
                let fault = self.fetch_fault(replica, asker, topic, partition, found.is_some());
                faulty |= fault.is_some();
                if fault.is_none() {
                    found = Some((topic_index, index, partition));
                }
                partitions.push(FetchPartitionResponse {
                    partition_index: partition.partition,
                    error_code: fault.unwrap_or_default(),
                    high_watermark: Offset(-1),
                    ..Default::default()
                });
            }
            response.responses.push(FetchTopicResponse {
                topic: topic.topic.clone(),
                topic_id: topic.topic_id,
                partitions,
            });
        }
        let wait_ms = positive_ms(request.max_wait_ms).min(FETCH_WAIT_MAX_MS);
        // A Fetch that already has something to say does not wait.
        let wait_ms = if faulty { 0 } else { wait_ms };
        let Some((topic, partition, asked)) = found else {
            self.name_leader_in_fetch(&replica.raft().leader_info(), &mut response);
            answers.push(asker.answer(ApiResponse::Fetch(response)));
            return;
        };
        let bytes_max = asked.partition_max_bytes.min(request.max_bytes);
        let reader = Reader {
            asker,
            response,
            topic,
            partition,
            from: asked.fetch_offset,
            bytes_max: usize::try_from(bytes_max).unwrap_or(0).min(FETCH_BYTES_MAX),
            deadline: now.instant.plus_ms(wait_ms),
        };
        self.read(now, replica, reader, answers);
    }

    fn fetch_fault(
        &self,
        replica: &Replica,
        asker: Asker,
        topic: &FetchTopic,
        partition: &FetchPartition,
        again: bool,
    ) -> Option<ErrorCode> {
        let fault = self.topic_fault(asker, &topic.topic, topic.topic_id, partition.partition);
        if fault.is_some() {
            return fault;
        }
        if again {
            return Some(ErrorCode::INVALID_REQUEST);
        }
        epoch_fault(replica, partition.current_leader_epoch)
    }

    /// Answers a reader, or parks it until there is something.
    fn read(&mut self, now: Now, replica: &mut Replica, reader: Reader, answers: &mut Vec<Answer>) {
        if self.room.last == 0 {
            return self.wait_for_room(now, reader);
        }
        // Little at a time, rather than nothing, for those who read their answers.
        let bytes_max = match self.room.plenty {
            0 => reader.bytes_max.min(SHARE_BYTES),
            _ => reader.bytes_max,
        };
        let error = match replica.read_committed(reader.from, bytes_max) {
            CommittedRead::Records(records) => {
                answers.push(self.full_read(replica, reader, records));
                return;
            }
            CommittedRead::Pending(id) => {
                self.reading.insert(id, reader);
                return;
            }
            CommittedRead::Busy => return self.wait_for_room(now, reader),
            CommittedRead::AtEnd | CommittedRead::NotAvailable if reader.deadline > now.instant => {
                self.parked.push(reader);
                return;
            }
            CommittedRead::AtEnd => ErrorCode::NONE,
            CommittedRead::NotAvailable => ErrorCode::OFFSET_NOT_AVAILABLE,
            CommittedRead::OutOfRange => ErrorCode::OFFSET_OUT_OF_RANGE,
            CommittedRead::NotLeader => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        };
        answers.push(self.failed_read(replica, reader, error));
    }

    fn wait_for_room(&mut self, now: Now, reader: Reader) {
        self.busy_retry = now.instant.plus_ms(BUSY_RETRY_MS);
        self.busy.push_back(reader);
    }

    /// Nobody reads any more for who is gone.
    pub(super) fn forget_readers(&mut self, is_gone: &impl Fn(Asker) -> bool) {
        self.parked.retain(|reader| !is_gone(reader.asker));
        self.busy.retain(|reader| !is_gone(reader.asker));
        self.reading.retain(|_, reader| !is_gone(reader.asker));
    }

    /// Reads for those that had to wait, in their order, as far as there is room.
    fn retry_busy(&mut self, now: Now, replica: &mut Replica, answers: &mut Vec<Answer>) {
        for _ in 0..self.busy.len() {
            let Some(reader) = self.busy.pop_front() else {
                return;
            };
            let waiting = self.busy.len();
            self.read(now, replica, reader, answers);
            if self.busy.len() > waiting {
                // No room: back to the front of the line.
                self.busy.rotate_right(1);
                return;
            }
        }
    }

    /// A read of the disk is done.
    pub fn on_read(
        &mut self,
        now: Now,
        replica: &mut Replica,
        id: ReadId,
        records: Result<Bytes, ErrorCode>,
        answers: &mut Vec<Answer>,
    ) {
        let Some(reader) = self.reading.remove(&id) else {
            return;
        };
        match records {
            Ok(records) if replica.raft().role() == Role::Leader => {
                answers.push(self.full_read(replica, reader, vec![records]));
            }
            // The log changed underneath, or is damaged: the client asks again.
            Err(error) if replica.raft().role() == Role::Leader => {
                answers.push(self.failed_read(replica, reader, error));
            }
            _ => self.read(now, replica, reader, answers),
        }
        self.retry_busy(now, replica, answers);
    }

    fn full_read(&mut self, replica: &Replica, mut reader: Reader, records: Vec<Bytes>) -> Answer {
        self.room.take(records.iter().map(Bytes::len).sum());
        let partition = reader.partition_mut();
        partition.records = records;
        fill_offsets(replica, partition);
        reader.asker.answer(ApiResponse::Fetch(reader.response))
    }

    fn failed_read(&self, replica: &Replica, mut reader: Reader, error: ErrorCode) -> Answer {
        let partition = reader.partition_mut();
        partition.error_code = error;
        fill_offsets(replica, partition);
        self.name_leader_in_fetch(&replica.raft().leader_info(), &mut reader.response);
        reader.asker.answer(ApiResponse::Fetch(reader.response))
    }

    fn name_leader_in_fetch(&self, leader: &LeaderInfo, response: &mut FetchResponse) {
        let mut named = false;
        for partition in response
            .responses
            .iter_mut()
            .flat_map(|topic| &mut topic.partitions)
        {
            let stale = matches!(
                partition.error_code,
                ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH
            );
            if stale {
                partition.current_leader = self.leader_id_and_epoch(leader);
                named = true;
            }
        }
        if named {
            response.node_endpoints = self.broker_endpoint(leader);
        }
    }

    /// The high watermark moved: readers get what is new.
    pub(super) fn wake_readers(
        &mut self,
        now: Now,
        replica: &mut Replica,
        answers: &mut Vec<Answer>,
    ) {
        for reader in std::mem::take(&mut self.parked) {
            self.read(now, replica, reader, answers);
        }
    }

    /// Tells whoever waits for records to look for the leader.
    pub(super) fn fail_readers(&mut self, replica: &Replica, answers: &mut Vec<Answer>) {
        for reader in std::mem::take(&mut self.parked) {
            answers.push(self.failed_read(replica, reader, ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
    }

    /// Answers the readers that have waited long enough, and reads for those that the disk had no
    /// room for.
    pub(super) fn sweep_readers(
        &mut self,
        now: Now,
        replica: &mut Replica,
        answers: &mut Vec<Answer>,
    ) {
        let due = |reader: &mut Reader| reader.deadline <= now.instant;
        for reader in self.parked.extract_if(.., due).collect::<Vec<_>>() {
            let known = replica.raft().high_watermark().is_some();
            let error = if known {
                ErrorCode::NONE
            } else {
                ErrorCode::OFFSET_NOT_AVAILABLE
            };
            answers.push(self.failed_read(replica, reader, error));
        }
        if now.instant >= self.busy_retry {
            self.retry_busy(now, replica, answers);
        }
    }

    pub(super) fn list_offsets(
        &self,
        replica: &Replica,
        request: &ListOffsetsRequest,
    ) -> ListOffsetsResponse {
        let topics = request.topics.iter().map(|topic| {
            let is_ours = topic.name == self.identity.topic_name;
            let partitions = topic.partitions.iter();
            ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: partitions
                    .map(|one| list_offset(replica, is_ours, one))
                    .collect(),
            }
        });
        ListOffsetsResponse {
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

impl Reader {
    fn partition_mut(&mut self) -> &mut FetchPartitionResponse {
        &mut self.response.responses[self.topic].partitions[self.partition]
    }
}

/// A client that names an epoch wants to be told when it is not the leader's.
pub(super) fn epoch_fault(replica: &Replica, epoch: Epoch) -> Option<ErrorCode> {
    let own = replica.raft().epoch();
    if epoch.0 < 0 || epoch == own {
        None
    } else if epoch < own {
        Some(ErrorCode::FENCED_LEADER_EPOCH)
    } else {
        Some(ErrorCode::UNKNOWN_LEADER_EPOCH)
    }
}

fn fill_offsets(replica: &Replica, partition: &mut FetchPartitionResponse) {
    let leads = replica.raft().role() == Role::Leader;
    let high_watermark = replica.raft().high_watermark().filter(|_| leads);
    partition.high_watermark = high_watermark.unwrap_or(Offset(-1));
    partition.last_stable_offset = partition.high_watermark;
    partition.log_start_offset = replica.raft().log_start_offset();
}

fn list_offset(
    replica: &Replica,
    is_ours: bool,
    asked: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let raft = replica.raft();
    let found = if !is_ours || asked.partition_index != 0 {
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    } else if raft.role() != Role::Leader {
        Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    } else if let Some(fault) = epoch_fault(replica, asked.current_leader_epoch) {
        Err(fault)
    } else {
        match (asked.timestamp, raft.high_watermark()) {
            (_, None) => Err(ErrorCode::OFFSET_NOT_AVAILABLE),
            (EARLIEST_TIMESTAMP, Some(_)) => Ok(raft.log_start_offset()),
            (LATEST_TIMESTAMP, Some(high_watermark)) => Ok(high_watermark),
            // Look-ups by timestamp are not offered.
            _ => Err(ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT),
        }
    };
    let mut response = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..Default::default()
    };
    match found {
        Ok(offset) => {
            response.offset = offset;
            response.leader_epoch = raft.epoch();
        }
        Err(error) => response.error_code = error,
    }
    response
}
