//! Who is in the quorum and where clients find them.
//!
//! Static voters name controller endpoints only; client endpoints are learnt from the peers
//! themselves (DescribeCluster on their controller listener) and kept here.

use quorate_raft::{Endpoint, NodeId, VoterSet};
use std::collections::BTreeMap;

/// Client endpoints by node id.
#[derive(Clone, Debug)]
pub struct Directory {
    own_id: NodeId,
    own: Option<Endpoint>,
    learnt: BTreeMap<NodeId, Endpoint>,
}

impl Directory {
    /// A directory that knows only this node, if it has a client listener.
    #[must_use]
    pub fn new(own_id: NodeId, own: Option<Endpoint>) -> Self {
        Self {
            own_id,
            own,
            learnt: BTreeMap::new(),
        }
    }

    /// Takes what a peer told; what it says of this node is not believed.
    pub fn learn(&mut self, endpoints: Vec<(NodeId, Endpoint)>) {
        for (id, endpoint) in endpoints {
            if id != self.own_id && id >= 0 {
                self.learnt.insert(id, endpoint);
            }
        }
    }

    /// The client endpoint of a node.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Option<&Endpoint> {
        if id == self.own_id {
            self.own.as_ref()
        } else {
            self.learnt.get(&id)
        }
    }

    /// All known client endpoints, this node's among them.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Endpoint)> {
        let own = self.own.as_ref().map(|endpoint| (self.own_id, endpoint));
        own.into_iter()
            .chain(self.learnt.iter().map(|(id, endpoint)| (*id, endpoint)))
    }

    /// Whether every voter's endpoint is known.
    #[must_use]
    pub fn is_complete(&self, voters: &VoterSet) -> bool {
        voters
            .voters()
            .iter()
            .all(|voter| self.get(voter.key.id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> Endpoint {
        Endpoint {
            host: "127.0.0.1".into(),
            port,
        }
    }

    #[test]
    fn a_peer_cannot_redirect_this_nodes_own_clients() {
        let mut directory = Directory::new(1, Some(endpoint(9092)));
        directory.learn(vec![
            (1, endpoint(666)),
            (2, endpoint(9093)),
            (-2, endpoint(1)),
        ]);
        assert_eq!(directory.get(1), Some(&endpoint(9092)));
        assert_eq!(directory.get(2), Some(&endpoint(9093)));
        assert_eq!(directory.iter().count(), 2);
    }
}
