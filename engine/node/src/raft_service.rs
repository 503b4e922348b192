//! Serves the raft APIs of the controller listener: frames' requests to the core, its answers back.

use crate::connections::{ConnectionId, ConnectionSet, Origin};
use crate::raft_wire::{self, FromWire, Identity};
use bytes::Bytes;
use quorate_net::{ApiRequest, ApiResponse};
use quorate_raft::{Request, RequestToken, Response};
use std::collections::HashMap;
use std::sync::Arc;

/// Raft requests that are not answered yet, by the token the core knows them by.
pub struct RaftService {
    identity: Arc<Identity>,
    waiting: HashMap<RequestToken, Origin>,
    next_token: u64,
}

/// What becomes of a request on a controller listener.
#[derive(Debug)]
pub enum Routed {
    /// For the core.
    Raft(RequestToken, Request),
    /// Refused before it reached the core.
    Refused(ApiResponse),
    /// Not a raft request.
    Other(ApiRequest),
}

impl RaftService {
    /// Nothing waits yet.
    #[must_use]
    pub fn new(identity: Arc<Identity>) -> Self {
        Self {
            identity,
            waiting: HashMap::new(),
            next_token: 1,
        }
    }

    /// `cluster.id` of this node.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.identity.cluster_id
    }

    /// Routes a request.
    pub fn on_request(&mut self, origin: Origin, request: ApiRequest) -> Routed {
        match raft_wire::request_from_wire(&self.identity, request) {
            FromWire::Raft(request) => {
                let token = RequestToken(self.next_token);
                self.next_token += 1;
                self.waiting.insert(token, origin);
                Routed::Raft(token, request)
            }
            FromWire::Refused(refusal) => Routed::Refused(refusal),
            FromWire::Other(other) => Routed::Other(other),
        }
    }

    /// Forgets the requests of connections that are gone: the tokens that the core need not answer.
    pub fn forget(&mut self, gone: &[ConnectionId]) -> Vec<RequestToken> {
        let is_gone = |_: &RequestToken, origin: &mut Origin| gone.contains(&origin.connection);
        let forgotten = self.waiting.extract_if(is_gone);
        forgotten.map(|(token, _)| token).collect()
    }

    /// Sends the core's answer to whoever asked, unless he is gone.
    pub fn respond(
        &mut self,
        connections: &mut ConnectionSet,
        token: RequestToken,
        response: Response,
        records: Vec<Bytes>,
    ) {
        let Some(origin) = self.waiting.remove(&token) else {
            return;
        };
        let version = origin.version;
        let wire = raft_wire::response_to_wire(&self.identity, version, response, records);
        connections.respond(origin, &wire);
    }
}
