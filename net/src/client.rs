//! The async client library: finds the leader, follows it through failovers, speaks to it.
//!
//! One client is one connection at a time, for one topic. It tries again on whatever passes, until
//! a deadline. An append whose connection broke before the answer may have been committed, and is
//! appended again: at least once, as any Kafka producer without idempotence.
//!
//! It runs on tokio-uring, and on plain tokio where the host forbids io_uring; [`run`] sees to
//! that. Nothing else of it shows.

mod error;
mod leader;
mod session;
mod stream;
mod transport;

pub use error::{Address, ClientError};
pub use stream::run;

use crate::apis::ListenerKind;
use crate::wire::ApiKey;
use crate::wire::describe_cluster::DescribeClusterResponse;
use crate::wire::describe_quorum::DescribeQuorumResponse;
use bytes::Bytes;
use quorate_raft::Offset;
use session::Session;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;
use transport::Transport;

/// First pause before another try; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(20);

/// Longest pause between two tries: a new leader is found soon after it is elected.
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Name in every request, for the server's logs.
    pub client_id: String,
    /// Topic of the quorum's log.
    pub topic: String,
    /// How long one call may take, all its tries included.
    pub deadline: Duration,
    /// How long a server may take to accept a connection, or to answer (beyond a Fetch's wait).
    /// Shorter when `deadline` is near.
    pub answer_timeout: Duration,
    /// Batches that [`Client::produce_many`] keeps in flight.
    pub batches_in_flight_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            client_id: "quorate-client".to_owned(),
            topic: "__cluster_metadata".to_owned(),
            deadline: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(5),
            batches_in_flight_max: 5,
        }
    }
}

/// A batch is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceAck {
    /// Offset of its first record.
    pub base_offset: Offset,
}

/// Committed records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResult {
    /// Whole batches; the first may begin below the offset asked for. Empty: nothing new.
    pub records: Bytes,
    /// First offset that is not committed.
    pub high_watermark: Offset,
    /// First offset of the log.
    pub log_start: Offset,
}

/// Which offset is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The log's first.
    Earliest,
    /// That of the next record that will be committed.
    Latest,
}

/// A client of the quorum.
pub struct Client {
    kind: ListenerKind,
    options: ClientOptions,
    bootstrap: Vec<Address>,
    /// Nodes that servers told of.
    known: Vec<Address>,
    /// Whom to ask first; moves on when one does not help.
    next_candidate: usize,
    session: Option<Session>,
}

impl Client {
    /// A client with default options, connected to the leader.
    ///
    /// `kind` is that of the listeners which `bootstrap` names.
    ///
    /// # Errors
    /// If no leader is found before the deadline.
    pub async fn connect(
        bootstrap: &[(String, u16)],
        kind: ListenerKind,
    ) -> Result<Self, ClientError> {
        Self::connect_with(bootstrap, kind, ClientOptions::default()).await
    }

    /// A client connected to the leader.
    ///
    /// # Errors
    /// If no leader is found before the deadline.
    pub async fn connect_with(
        bootstrap: &[(String, u16)],
        kind: ListenerKind,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        if bootstrap.is_empty() {
            return Err(ClientError::NoBootstrap);
        }
        let addresses = bootstrap.iter().cloned();
        let mut client = Self {
            kind,
            options,
            bootstrap: addresses
                .map(|(host, port)| Address { host, port })
                .collect(),
            known: Vec::new(),
            next_candidate: 0,
            session: None,
        };
        client.with_leader(async |_| Ok(())).await?;
        Ok(client)
    }

    /// The leader that the client is connected to, if it is at the moment.
    #[must_use]
    pub fn leader_address(&self) -> Option<&Address> {
        self.session
            .as_ref()
            .map(|session| session.transport.address())
    }

    /// Appends a record batch; returns when it is committed.
    ///
    /// # Errors
    /// If the leader refuses the batch, or no leader takes it before the deadline.
    pub async fn produce(&mut self, batch: Bytes) -> Result<ProduceAck, ClientError> {
        let mut base_offset = Offset(-1);
        self.produce_many(&[batch], |_, ack| base_offset = ack.base_offset)
            .await?;
        Ok(ProduceAck { base_offset })
    }

    /// Appends record batches, several in flight on one connection. `on_ack` hears of each batch
    /// that is committed, by its index.
    ///
    /// Batches without an acknowledgement are sent again after a failure, behind those that were
    /// acknowledged meanwhile: only then their order may differ.
    ///
    /// # Errors
    /// If the leader refuses a batch, or no leader takes it before the deadline, which counts from
    /// the last acknowledgement.
    pub async fn produce_many(
        &mut self,
        batches: &[Bytes],
        mut on_ack: impl FnMut(usize, ProduceAck),
    ) -> Result<(), ClientError> {
        self.must_be(ListenerKind::Client, ApiKey::Produce)?;
        let in_flight_max = self.options.batches_in_flight_max.max(1);
        let mut open: VecDeque<usize> = (0..batches.len()).collect();
        while !open.is_empty() {
            let open_before = open.len();
            let outcome = self
                .with_leader(async |session| {
                    session
                        .produce_all(batches, &mut open, in_flight_max, &mut on_ack)
                        .await
                })
                .await;
            // A call that got something done may begin anew: the deadline is for standing still.
            match outcome {
                Err(ClientError::GaveUp { .. }) if open.len() < open_before => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads committed records from `from` on. Waits up to `max_wait_ms` for the first one.
    ///
    /// # Errors
    /// `Server` with `OFFSET_OUT_OF_RANGE` if the log has no such offset; otherwise if no leader
    /// answers before the deadline.
    pub async fn fetch(
        &mut self,
        from: Offset,
        max_wait_ms: i32,
        max_bytes: i32,
    ) -> Result<FetchResult, ClientError> {
        self.must_be(ListenerKind::Client, ApiKey::Fetch)?;
        self.with_leader(async |session| session.fetch(from, max_wait_ms, max_bytes).await)
            .await
    }

    /// The first or the next offset of the log.
    ///
    /// # Errors
    /// If no leader answers before the deadline.
    pub async fn list_offsets(&mut self, spec: OffsetSpec) -> Result<Offset, ClientError> {
        self.must_be(ListenerKind::Client, ApiKey::ListOffsets)?;
        self.with_leader(async |session| session.list_offsets(spec).await)
            .await
    }

    /// State of the quorum, as its leader sees it. The answer has the log's one partition.
    ///
    /// # Errors
    /// If no leader answers before the deadline.
    pub async fn describe_quorum(&mut self) -> Result<DescribeQuorumResponse, ClientError> {
        self.with_leader(async |session| session.describe_quorum().await)
            .await
    }

    /// The nodes of the cluster, with their listeners of this client's kind.
    ///
    /// # Errors
    /// If no leader answers before the deadline.
    pub async fn describe_cluster(&mut self) -> Result<DescribeClusterResponse, ClientError> {
        let kind = self.kind;
        self.with_leader(async |session| session.describe_cluster(kind).await)
            .await
    }

    fn must_be(&self, kind: ListenerKind, api: ApiKey) -> Result<(), ClientError> {
        if self.kind == kind {
            Ok(())
        } else {
            Err(ClientError::NotOnController { api })
        }
    }

    /// Does `work` at the leader, again and again while it fails with what passes.
    async fn with_leader<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Session) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let start = Instant::now();
        let mut pause = BACKOFF_MIN;
        loop {
            let left = self
                .options
                .deadline
                .saturating_sub(start.elapsed())
                .max(pause);
            let limit = self.options.answer_timeout.min(left);
            let error = match self.attempt(limit, &mut work).await {
                Err(error) if error.is_retriable() => error,
                done => return done,
            };
            if start.elapsed() + pause >= self.options.deadline {
                return Err(ClientError::GaveUp {
                    after: start.elapsed(),
                    last: Box::new(error),
                });
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(BACKOFF_MAX);
        }
    }

    /// One try. The session is kept only if nothing went wrong on it; if this future is dropped in
    /// the middle, so is the session.
    async fn attempt<T>(
        &mut self,
        limit: Duration,
        work: &mut impl AsyncFnMut(&mut Session) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.find_leader(limit).await?,
        };
        session.limit = limit;
        let done = work(&mut session).await?;
        self.session = Some(session);
        Ok(done)
    }

    /// Asks one node after the other, each once.
    async fn find_leader(&mut self, limit: Duration) -> Result<Session, ClientError> {
        let mut candidates = self.bootstrap.clone();
        candidates.extend(
            self.known
                .iter()
                .filter(|node| !self.bootstrap.contains(node))
                .cloned(),
        );
        let mut last = ClientError::NoBootstrap;
        for _ in 0..candidates.len() {
            let candidate = &candidates[self.next_candidate % candidates.len()];
            match self.find_leader_from(candidate, limit).await {
                Ok(session) => return Ok(session),
                Err(error) if error.is_retriable() => last = error,
                Err(error) => return Err(error),
            }
            self.next_candidate = self.next_candidate.wrapping_add(1);
        }
        Err(last)
    }

    async fn find_leader_from(
        &mut self,
        address: &Address,
        limit: Duration,
    ) -> Result<Session, ClientError> {
        let client_id = &self.options.client_id;
        let topic = &self.options.topic;
        let mut transport = Transport::connect(address, client_id, limit).await?;
        let cluster = leader::ask(&mut transport, self.kind, topic, limit).await?;
        self.known = cluster
            .nodes
            .iter()
            .map(|(_, address)| address.clone())
            .collect();
        let Some(leader) = cluster.leader() else {
            let address = address.clone();
            return Err(ClientError::NoLeader { address });
        };
        if leader != address {
            transport = Transport::connect(leader, client_id, limit).await?;
        }
        Ok(Session {
            transport,
            topic: topic.clone(),
            topic_id: cluster.topic_id,
            limit,
        })
    }
}
