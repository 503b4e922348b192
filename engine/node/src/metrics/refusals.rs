//! Refused requests, by error code.
//!
//! An answer may carry an error per partition; the first one counts. Retriable errors are counted
//! as well: a wave of NOT_LEADER_OR_FOLLOWER is how a change of the leader looks from here.

use super::cell::Counter;
use quorate_net::ApiResponse;
use quorate_raft::ErrorCode;

/// Kafka's codes end at about 133; higher ones share the last place.
const CODES: usize = 160;

/// Counts by error code.
#[derive(Debug)]
pub struct Refusals {
    /// By code, from -1 on.
    by_code: [Counter; CODES],
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            by_code: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl Refusals {
    /// Counts an answer with this error, if it is one.
    pub fn count(&self, error: ErrorCode) {
        if !error.is_none() {
            let place = usize::try_from(i32::from(error.0) + 1).unwrap_or(CODES);
            self.by_code[place.min(CODES - 1)].add(1);
        }
    }

    /// Codes that came, ascending, and how often.
    pub fn read(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        let codes = (-1..).map(ErrorCode).zip(&self.by_code);
        codes.filter_map(|(code, counter)| {
            let count = counter.get();
            (count > 0).then_some((code, count))
        })
    }
}

/// The first error in an answer to a client; NONE if there is none.
#[must_use]
pub fn refusal_of(response: &ApiResponse) -> ErrorCode {
    let first = match response {
        ApiResponse::Produce(response) => {
            let topics = response.responses.iter();
            let mut all = topics.flat_map(|topic| &topic.partition_responses);
            all.find(|one| !one.error_code.is_none())
                .map(|one| one.error_code)
        }
        ApiResponse::Fetch(response) => {
            let topics = response.responses.iter();
            let mut all = topics.flat_map(|topic| &topic.partitions);
            all.find(|one| !one.error_code.is_none())
                .map(|one| one.error_code)
                .or(Some(response.error_code))
        }
        ApiResponse::ListOffsets(response) => {
            let topics = response.topics.iter();
            let mut all = topics.flat_map(|topic| &topic.partitions);
            all.find(|one| !one.error_code.is_none())
                .map(|one| one.error_code)
        }
        ApiResponse::Metadata(response) => {
            let mut all = response.topics.iter();
            all.find(|one| !one.error_code.is_none())
                .map(|one| one.error_code)
        }
        ApiResponse::DescribeQuorum(response) => {
            let topics = response.topics.iter();
            let mut all = topics.flat_map(|topic| &topic.partitions);
            all.find(|one| !one.error_code.is_none())
                .map(|one| one.error_code)
                .or(Some(response.error_code))
        }
        ApiResponse::ApiVersions(response) => Some(response.error_code),
        ApiResponse::DescribeCluster(response) => Some(response.error_code),
        _ => None,
    };
    first.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_net::wire::produce::{
        ProducePartitionResponse, ProduceResponse, ProduceTopicResponse,
    };

    #[test]
    fn codes_are_counted_apart() {
        let refusals = Refusals::default();
        for code in [0, 6, 6, -1, 30_000, i16::MIN] {
            refusals.count(ErrorCode(code));
        }
        let read: Vec<_> = refusals.read().map(|(code, n)| (code.0, n)).collect();
        assert_eq!(read, [(-1, 1), (6, 2), (158, 2)]);
    }

    #[test]
    fn the_first_error_of_an_answer_counts() {
        let partition = |code| ProducePartitionResponse {
            error_code: ErrorCode(code),
            ..Default::default()
        };
        let answer = |codes: &[i16]| {
            ApiResponse::Produce(ProduceResponse {
                responses: vec![ProduceTopicResponse {
                    partition_responses: codes.iter().copied().map(partition).collect(),
                    ..Default::default()
                }],
                ..Default::default()
            })
        };
        assert_eq!(refusal_of(&answer(&[0, 87, 6])), ErrorCode(87));
        assert_eq!(refusal_of(&answer(&[0])), ErrorCode::NONE);
    }
}
