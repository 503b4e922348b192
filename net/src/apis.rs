//! Which APIs each kind of listener serves, and typed requests and responses of all of them.
//!
//! As in Kafka the raft APIs are on controller listeners only: a stranger on a client listener
//! cannot even say that it is a voter. Nothing here knows what an answer should be, except that of
//! ApiVersions.

use crate::wire::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SupportedFeature,
};
use crate::wire::begin_quorum_epoch::{BeginQuorumEpochRequest, BeginQuorumEpochResponse};
use crate::wire::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use crate::wire::describe_quorum::{DescribeQuorumRequest, DescribeQuorumResponse};
use crate::wire::end_quorum_epoch::{EndQuorumEpochRequest, EndQuorumEpochResponse};
use crate::wire::fetch::{FetchRequest, FetchResponse};
use crate::wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::wire::list_offsets::{ListOffsetsRequest, ListOffsetsResponse};
use crate::wire::metadata::{MetadataRequest, MetadataResponse};
use crate::wire::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use crate::wire::produce::{ProduceRequest, ProduceResponse};
use crate::wire::vote::{VoteRequest, VoteResponse};
use crate::wire::{ApiKey, DecodeError, EncodeError, Reader, RequestHeader, Writer};
use bytes::Bytes;
use quorate_raft::ErrorCode;
use std::ops::RangeInclusive;

/// Who connects to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    /// Producers, consumers, tools.
    Client,
    /// Replicas, and tools that speak to controllers (KIP-919).
    Controller,
}

/// An API and the versions of it that a listener serves.
pub type ServedApi = (ApiKey, RangeInclusive<i16>);

const CLIENT_APIS: &[ServedApi] = &[
    (ApiKey::Produce, 3..=13),
    (ApiKey::Fetch, 4..=18),
    (ApiKey::ListOffsets, 1..=11),
    (ApiKey::Metadata, 0..=13),
    (ApiKey::ApiVersions, 0..=5),
    (ApiKey::InitProducerId, 0..=6),
    (ApiKey::OffsetForLeaderEpoch, 2..=4),
    (ApiKey::DescribeQuorum, 0..=2),
    (ApiKey::DescribeCluster, 0..=2),
];

const CONTROLLER_APIS: &[ServedApi] = &[
    (ApiKey::Fetch, 4..=18),
    (ApiKey::ApiVersions, 0..=5),
    (ApiKey::Vote, 0..=2),
    (ApiKey::BeginQuorumEpoch, 0..=1),
    (ApiKey::EndQuorumEpoch, 0..=1),
    (ApiKey::DescribeQuorum, 0..=2),
    (ApiKey::DescribeCluster, 0..=2),
];

/// Feature by which Quorate nodes know each other.
pub const QUORATE_PEER_FEATURE: &str = "quorate.peer";

/// Kafka's feature of voter sets in the log (KIP-853). A leader asks a new voter for it.
pub const KRAFT_VERSION_FEATURE: &str = "kraft.version";

/// First ApiVersions version whose clients can read a feature with lowest level 0 (KAFKA-17011).
const FEATURE_MIN_ZERO_SINCE: i16 = 4;

impl ListenerKind {
    /// What it serves, ascending by API.
    #[must_use]
    pub fn apis(self) -> &'static [ServedApi] {
        match self {
            Self::Client => CLIENT_APIS,
            Self::Controller => CONTROLLER_APIS,
        }
    }

    /// The versions of `api` that it serves, if it serves any.
    #[must_use]
    pub fn versions(self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        let served = self.apis().iter().find(|(served, _)| *served == api);
        served.map(|(_, versions)| versions.clone())
    }
}

macro_rules! api_enums {
    ($($api:ident($request:ident, $response:ident),)*) => {
        /// A request, typed.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ApiRequest {
            $(#[doc = concat!("A ", stringify!($api), " request.")] $api($request),)*
        }

        /// A response, typed.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ApiResponse {
            $(#[doc = concat!("A ", stringify!($api), " response.")] $api($response),)*
        }

        impl ApiRequest {
            /// Its API.
            #[must_use]
            pub fn api(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            /// Reads the body of a request.
            ///
            /// # Errors
            /// Whatever is wrong with the bytes, or a version without a codec.
            pub fn decode(
                api: ApiKey,
                version: i16,
                reader: &mut Reader<'_>,
            ) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$api => $request::decode(version, reader).map(Self::$api),)*
                }
            }

            /// Appends the body.
            ///
            /// # Errors
            /// A value that this version cannot say.
            pub fn encode(&self, version: i16, out: &mut Writer) -> Result<(), EncodeError> {
                match self { $(Self::$api(request) => request.encode(version, out),)* }
            }
        }

        impl ApiResponse {
            /// Its API.
            #[must_use]
            pub fn api(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            /// Reads the body of a response.
            ///
            /// # Errors
            /// Whatever is wrong with the bytes, or a version without a codec.
            pub fn decode(
                api: ApiKey,
                version: i16,
                reader: &mut Reader<'_>,
            ) -> Result<Self, DecodeError> {
                match api {
                    $(ApiKey::$api => $response::decode(version, reader).map(Self::$api),)*
                }
            }

            /// Appends the body.
            ///
            /// # Errors
            /// A value that this version cannot say.
            pub fn encode(&self, version: i16, out: &mut Writer) -> Result<(), EncodeError> {
                match self { $(Self::$api(response) => response.encode(version, out),)* }
            }
        }

        $(
            impl From<$request> for ApiRequest {
                fn from(request: $request) -> Self {
                    Self::$api(request)
                }
            }

            impl TryFrom<ApiResponse> for $response {
                type Error = ApiResponse;

                /// The response back if it is one of another API.
                fn try_from(response: ApiResponse) -> Result<Self, ApiResponse> {
                    match response {
                        ApiResponse::$api(response) => Ok(response),
                        other => Err(other),
                    }
                }
            }

            impl From<$response> for ApiResponse {
                fn from(response: $response) -> Self {
                    Self::$api(response)
                }
            }
        )*
    };
}

api_enums! {
    Produce(ProduceRequest, ProduceResponse),
    Fetch(FetchRequest, FetchResponse),
    ListOffsets(ListOffsetsRequest, ListOffsetsResponse),
    Metadata(MetadataRequest, MetadataResponse),
    ApiVersions(ApiVersionsRequest, ApiVersionsResponse),
    InitProducerId(InitProducerIdRequest, InitProducerIdResponse),
    OffsetForLeaderEpoch(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Vote(VoteRequest, VoteResponse),
    BeginQuorumEpoch(BeginQuorumEpochRequest, BeginQuorumEpochResponse),
    EndQuorumEpoch(EndQuorumEpochRequest, EndQuorumEpochResponse),
    DescribeQuorum(DescribeQuorumRequest, DescribeQuorumResponse),
    DescribeCluster(DescribeClusterRequest, DescribeClusterResponse),
}

/// A request that a listener cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The listener does not serve this API.
    #[error("api key {api_key} is not served on a {kind:?} listener")]
    UnknownApi {
        /// Number of the API.
        api_key: i16,
        /// The listener's kind.
        kind: ListenerKind,
    },
    /// The listener serves the API, in other versions.
    #[error("{api} version {version} is not served")]
    UnsupportedVersion {
        /// The API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
    /// The header is malformed.
    #[error("malformed request header: {0}")]
    Header(DecodeError),
    /// The body is malformed.
    #[error("malformed {api} request of version {version}: {error}")]
    Body {
        /// The API.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong.
        error: DecodeError,
    },
}

/// Checks that `kind` serves what the header asks for.
///
/// # Errors
/// `UnknownApi` or `UnsupportedVersion`.
pub fn check_served(kind: ListenerKind, header: &RequestHeader) -> Result<ApiKey, RequestError> {
    let api_key = header.api_key;
    let unknown = RequestError::UnknownApi { api_key, kind };
    let Some(api) = ApiKey::from_code(api_key) else {
        return Err(unknown);
    };
    let Some(versions) = kind.versions(api) else {
        return Err(unknown);
    };
    let version = header.api_version;
    if !versions.contains(&version) {
        return Err(RequestError::UnsupportedVersion { api, version });
    }
    Ok(api)
}

/// Reads the body of a request. `body` is all that follows the header.
///
/// # Errors
/// An API or version that `kind` does not serve, or malformed bytes.
pub fn decode_request(
    kind: ListenerKind,
    header: &RequestHeader,
    body: &Bytes,
) -> Result<ApiRequest, RequestError> {
    let api = check_served(kind, header)?;
    let version = header.api_version;
    ApiRequest::decode(api, version, &mut Reader::new(body)).map_err(|error| RequestError::Body {
        api,
        version,
        error,
    })
}

/// The answer to an ApiVersions request of a version that is served.
///
/// 42 if the client names a cluster without a node or a node without a cluster (v5). Whether they
/// are the right ones the caller must judge.
#[must_use]
pub fn api_versions_response(
    kind: ListenerKind,
    version: i16,
    request: &ApiVersionsRequest,
) -> ApiVersionsResponse {
    if request.cluster_id.is_some() != (request.node_id != -1) {
        return ApiVersionsResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            ..ApiVersionsResponse::default()
        };
    }
    ApiVersionsResponse {
        api_keys: kind.apis().iter().map(to_api_version).collect(),
        supported_features: supported_features(version),
        ..ApiVersionsResponse::default()
    }
}

/// The answer to an ApiVersions request of a version that is not served; written in version 0, so
/// that every client can read it and learn the right version (KIP-511).
#[must_use]
pub fn api_versions_unsupported(kind: ListenerKind) -> ApiVersionsResponse {
    let own = kind
        .apis()
        .iter()
        .filter(|(api, _)| *api == ApiKey::ApiVersions);
    ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys: own.map(to_api_version).collect(),
        ..ApiVersionsResponse::default()
    }
}

fn to_api_version((api, versions): &ServedApi) -> ApiVersion {
    ApiVersion {
        api_key: api.code(),
        min_version: *versions.start(),
        max_version: *versions.end(),
    }
}

fn supported_features(version: i16) -> Vec<SupportedFeature> {
    let mut features = Vec::new();
    if version >= FEATURE_MIN_ZERO_SINCE {
        features.push(supported_feature(KRAFT_VERSION_FEATURE, 0..=1));
    }
    features.push(supported_feature(QUORATE_PEER_FEATURE, 1..=1));
    features
}

fn supported_feature(name: &str, levels: RangeInclusive<i16>) -> SupportedFeature {
    SupportedFeature {
        name: name.to_owned(),
        min_version: *levels.start(),
        max_version: *levels.end(),
    }
}
