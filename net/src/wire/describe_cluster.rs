//! DescribeCluster (api key 60): nodes and controller; how clients of a controller listener find
//! the leader (KIP-919).

use super::message::{message, whole_messages};
use quorate_raft::{ErrorCode, NodeId};

/// `endpoint_type` of a client listener.
pub const ENDPOINT_TYPE_BROKER: i8 = 1;
/// `endpoint_type` of a controller listener.
pub const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

whole_messages! {
    DescribeClusterRequest: DescribeCluster 0 - 2;
    DescribeClusterResponse: DescribeCluster 0 - 2;
}

message! {
    /// Asks for the nodes of the cluster.
    pub struct DescribeClusterRequest {
        /// Whether to say what the client may do to the cluster.
        include_cluster_authorized_operations: bool [0 +];
        /// 1 for clients' listeners, 2 for controllers'.
        endpoint_type: i8 [1 +] [default ENDPOINT_TYPE_BROKER];
        /// Whether to list fenced brokers; Quorate has none.
        include_fenced_brokers: bool [2 +];
    }

    /// The nodes of the cluster.
    pub struct DescribeClusterResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [0 +];
        /// NONE, 114 or 115.
        error_code: ErrorCode [0 +];
        /// Why, for people.
        error_message: Option<String> [0 +] [nullable 0];
        /// As in the request. Dropped for versions that lack it.
        endpoint_type: i8 [1 +] [default ENDPOINT_TYPE_BROKER] [ignorable];
        /// The cluster.
        cluster_id: String [0 +];
        /// The leader; -1 if unknown.
        controller_id: NodeId [0 +] [default -1];
        /// The nodes, with their endpoints of the kind asked for.
        brokers: Vec<DescribeClusterBroker> [0 +];
        /// Bit set, or -2^31 when it was not asked for.
        cluster_authorized_operations: i32 [0 +] [default i32::MIN];
    }

    /// A node.
    pub struct DescribeClusterBroker {
        /// The node.
        broker_id: NodeId [0 +];
        /// Host name or address.
        host: String [0 +];
        /// TCP port.
        port: i32 [0 +];
        /// Never set by Quorate.
        rack: Option<String> [0 +] [nullable 0];
        /// Never set by Quorate. Dropped for versions that lack it.
        is_fenced: bool [2 +] [ignorable];
    }
}
