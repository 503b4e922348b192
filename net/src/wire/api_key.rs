//! The APIs that Quorate speaks, and what framing must know of each.

use std::fmt;

/// An API of Kafka's protocol that this package has a codec for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ApiKey {
    /// Append records.
    Produce = 0,
    /// Read records; between replicas also the acknowledgement.
    Fetch = 1,
    /// First or last offset, or the one at a timestamp.
    ListOffsets = 2,
    /// Brokers, topics and their leaders.
    Metadata = 3,
    /// What the server speaks.
    ApiVersions = 18,
    /// An id for a producer.
    InitProducerId = 22,
    /// Where an epoch ended.
    OffsetForLeaderEpoch = 23,
    /// Ask for a vote.
    Vote = 52,
    /// A new leader announces itself.
    BeginQuorumEpoch = 53,
    /// A leader resigns.
    EndQuorumEpoch = 54,
    /// State of the quorum as its leader sees it.
    DescribeQuorum = 55,
    /// Nodes of the cluster and its controller.
    DescribeCluster = 60,
}

impl ApiKey {
    /// All of them, ascending.
    pub const ALL: [Self; 12] = [
        Self::Produce,
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::ApiVersions,
        Self::InitProducerId,
        Self::OffsetForLeaderEpoch,
        Self::Vote,
        Self::BeginQuorumEpoch,
        Self::EndQuorumEpoch,
        Self::DescribeQuorum,
        Self::DescribeCluster,
    ];

    /// The API with this number, if there is a codec for it.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.code() == code)
    }

    /// Its number on the wire.
    #[must_use]
    pub fn code(self) -> i16 {
        self as i16
    }

    /// First version with compact lengths and tagged fields (`flexibleVersions` in Kafka).
    #[must_use]
    pub fn flexible_since(self) -> i16 {
        match self {
            Self::Produce | Self::Metadata => 9,
            Self::Fetch => 12,
            Self::ListOffsets => 6,
            Self::ApiVersions => 3,
            Self::InitProducerId => 2,
            Self::OffsetForLeaderEpoch => 4,
            Self::BeginQuorumEpoch | Self::EndQuorumEpoch => 1,
            Self::Vote | Self::DescribeQuorum | Self::DescribeCluster => 0,
        }
    }

    /// Whether the request header of `version` ends in a tagged section (header version 2).
    #[must_use]
    pub fn request_header_has_tags(self, version: i16) -> bool {
        version >= self.flexible_since()
    }

    /// Whether the response header of `version` ends in a tagged section (header version 1).
    ///
    /// Never for ApiVersions: a client that does not know what the server speaks must be able to
    /// read its answer (KIP-511).
    #[must_use]
    pub fn response_header_has_tags(self, version: i16) -> bool {
        self != Self::ApiVersions && version >= self.flexible_since()
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
