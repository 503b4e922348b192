//! ApiVersions (api key 18): what the server speaks, and the features that it has.

use super::message::{message, whole_messages};
use quorate_raft::{ErrorCode, NodeId};

whole_messages! {
    ApiVersionsRequest: ApiVersions 0 - 5;
    ApiVersionsResponse: ApiVersions 0 - 5;
}

message! {
    /// Asks what the server speaks; the first request on a connection.
    pub struct ApiVersionsRequest {
        /// Name of the client's software.
        client_software_name: String [3 +] [ignorable];
        /// Version of the client's software.
        client_software_version: String [3 +] [ignorable];
        /// The cluster that the client expects to find; goes together with `node_id`.
        cluster_id: Option<String> [5 +] [nullable 5] [ignorable];
        /// The node that the client expects to find, or -1.
        node_id: NodeId [5 +] [default -1] [ignorable];
    }

    /// What the server speaks.
    pub struct ApiVersionsResponse {
        /// NONE, 35 or 42.
        error_code: ErrorCode [0 +];
        /// The APIs of this listener.
        api_keys: Vec<ApiVersion> [0 +];
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [1 +] [ignorable];
        /// Features and the levels that the server can do.
        supported_features: Vec<SupportedFeature> [3 +] [tag 0] [ignorable];
        /// Counts changes of the finalized features; -1 if unknown.
        finalized_features_epoch: i64 [3 +] [tag 1] [default -1] [ignorable];
        /// Features and the levels in force in the cluster.
        finalized_features: Vec<FinalizedFeature> [3 +] [tag 2] [ignorable];
        /// Of Kafka's migration from ZooKeeper; never set by Quorate.
        zk_migration_ready: bool [3 +] [tag 3] [ignorable];
    }

    /// Versions of one API.
    pub struct ApiVersion {
        /// Number of the API; maybe one without a codec here.
        api_key: i16 [0 +];
        /// Lowest version, inclusive.
        min_version: i16 [0 +];
        /// Highest version, inclusive.
        max_version: i16 [0 +];
    }

    /// Levels of one feature that the server can do.
    pub struct SupportedFeature {
        /// Name of the feature.
        name: String [3 +];
        /// Lowest level, inclusive.
        min_version: i16 [3 +];
        /// Highest level, inclusive.
        max_version: i16 [3 +];
    }

    /// Level of one feature that is in force.
    pub struct FinalizedFeature {
        /// Name of the feature.
        name: String [3 +];
        /// Highest level in force.
        max_version_level: i16 [3 +];
        /// Lowest level in force.
        min_version_level: i16 [3 +];
    }
}
