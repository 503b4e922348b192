//! One connection to a server, sans-IO: requests out, checked answers in.

use bytes::Bytes;
use quorate_net::outbound::Outbound;
use quorate_net::wire::Uuid;
use quorate_net::wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceTopic,
};
use quorate_net::{ApiRequest, ApiResponse};
use quorate_raft::ErrorCode;
use std::error::Error;

/// Answer to everybody who commits.
const ACKS_ALL: i16 = -1;

/// How long a server may take for a commit, in ms.
const TIMEOUT_MS: i32 = 30_000;

/// What went wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("a produce was answered with error {0}")]
    Refused(ErrorCode),
    #[error("a produce was answered with base offset {got} after {before} on the same connection")]
    OffsetNotRising { before: i64, got: i64 },
    #[error("a produce was answered for other partitions than asked")]
    OtherPartition,
    #[error("a request was answered with another API's response")]
    OtherApi,
}

/// A commit as its answer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) client: usize,
    pub(crate) base_offset: i64,
}

/// Where a topic is.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) id: Uuid,
}

/// A connection that only produces.
pub(crate) struct Session {
    outbound: Outbound,
    request: ApiRequest,
    last_offset: i64,
}

impl Session {
    /// Every request carries `batch`.
    pub(crate) fn new(topic: &Topic, batch: Bytes) -> Session {
        let partition = ProducePartition {
            index: 0,
            records: Some(batch),
        };
        let topic = ProduceTopic {
            name: topic.name.clone(),
            topic_id: topic.id,
            partition_data: vec![partition],
        };
        let request = ProduceRequest {
            acks: ACKS_ALL,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        let outbound = Outbound::new("quorate-bench");
        Session {
            outbound,
            request: request.into(),
            last_offset: -1,
        }
    }

    /// Whether the server has said which versions it speaks; before that nothing can be asked.
    pub(crate) fn is_ready(&self) -> bool {
        self.outbound.is_ready()
    }

    pub(crate) fn produce(&mut self, client: usize) -> Result<(), Box<dyn Error>> {
        let id = i32::try_from(client)?;
        Ok(self.outbound.enqueue(&self.request, id)?)
    }

    pub(crate) fn received(&mut self, bytes: &[u8]) {
        self.outbound.received(bytes);
    }

    /// The next commit, if an answer is there.
    pub(crate) fn next_committed(&mut self) -> Result<Option<Committed>, Box<dyn Error>> {
        let Some((client, response)) = self.outbound.next_response()? else {
            return Ok(None);
        };
        let base_offset = base_offset(&response)?;
        if base_offset <= self.last_offset {
            let before = self.last_offset;
            return Err(AnswerError::OffsetNotRising {
                before,
                got: base_offset,
            }
            .into());
        }
        self.last_offset = base_offset;
        Ok(Some(Committed {
            client: client as usize,
            base_offset,
        }))
    }

    pub(crate) fn take_output(&mut self) -> Option<Vec<u8>> {
        self.outbound.take_output()
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        self.outbound.recycle(buffer);
    }
}

fn base_offset(response: &ApiResponse) -> Result<i64, AnswerError> {
    let ApiResponse::Produce(response) = response else {
        return Err(AnswerError::OtherApi);
    };
    let [topic] = &response.responses[..] else {
        return Err(AnswerError::OtherPartition);
    };
    match &topic.partition_responses[..] {
        [
            ProducePartitionResponse {
                index: 0,
                error_code,
                base_offset,
                ..
            },
        ] => {
            if error_code.is_none() {
                Ok(base_offset.0)
            } else {
                Err(AnswerError::Refused(*error_code))
            }
        }
        _ => Err(AnswerError::OtherPartition),
    }
}
