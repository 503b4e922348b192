//! The client's side of one connection, sans-IO: a node's to its peers, and the client library's.
//!
//! It asks for ApiVersions first, then speaks each API in the highest version that both sides have,
//! keeps several requests in flight and pairs answers with them. It never retries and knows no
//! time.

use crate::apis::{ApiRequest, ApiResponse, ListenerKind};
use crate::frame::{FRAME_BYTES_MAX, FrameError, FrameReader, write_frame};
use crate::wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use crate::wire::{
    ApiKey, DecodeError, EncodeError, Reader, RequestHeader, ResponseHeader, Writer,
};
use bytes::Bytes;
use quorate_raft::ErrorCode;
use std::collections::VecDeque;

/// Name of the software in ApiVersions requests (KIP-511).
pub const SOFTWARE_NAME: &str = "quorate";

/// Version of the software in ApiVersions requests.
pub const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Highest ApiVersions version that is asked for.
const API_VERSIONS_MAX: i16 = 5;

/// Correlation id of the ApiVersions request. It need not differ from others': answers come in
/// order.
const NEGOTIATION_ID: i32 = 0;

/// An output buffer that grew above this is not kept for reuse, in bytes.
const BUFFER_KEPT_MAX: usize = 256 << 10;

/// The peer has no version of an API in which a request could be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedVersion {
    /// The peer has not said yet what it speaks; see [`Outbound::is_ready`].
    #[error("the peer has not said yet which versions it speaks")]
    NotKnownYet,
    /// No version in common.
    #[error("the peer does not speak {api} in a version known here")]
    Api {
        /// The API.
        api: ApiKey,
    },
    /// The highest common version cannot say it (such as a pre-vote before Vote v2).
    #[error("the peer's version of {api} cannot say this: {error}")]
    Content {
        /// The API.
        api: ApiKey,
        /// What cannot be said.
        error: EncodeError,
    },
}

/// Why the connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The stream cannot be cut into frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An answer to nothing.
    #[error("an answer with correlation id {correlation_id}, and nothing was asked")]
    Unasked {
        /// Its correlation id.
        correlation_id: i32,
    },
    /// Answers must come in the order of the requests.
    #[error("{api}: answer with correlation id {got}, expected {expected}")]
    WrongCorrelation {
        /// API of the request whose turn it is.
        api: ApiKey,
        /// The correlation id of that request.
        expected: i32,
        /// That of the answer.
        got: i32,
    },
    /// A malformed answer.
    #[error("malformed {api} response of version {version}: {error}")]
    Decode {
        /// API of the request.
        api: ApiKey,
        /// Its version.
        version: i16,
        /// What is wrong.
        error: DecodeError,
    },
    /// The peer does not tell what it speaks.
    #[error("ApiVersions was answered with {error}")]
    Negotiation {
        /// The peer's error.
        error: ErrorCode,
    },
}

#[derive(Debug)]
struct InFlight {
    correlation_id: i32,
    api: ApiKey,
    version: i16,
}

/// The client's side of one connection.
#[derive(Debug)]
pub struct Outbound {
    client_id: String,
    input: FrameReader,
    in_flight: VecDeque<InFlight>,
    peer: Option<ApiVersionsResponse>,
    output: Writer,
    spare: Vec<u8>,
}

impl Outbound {
    /// A new connection. The ApiVersions request is in its output already.
    ///
    /// `client_id` is the name in every request's header. Answers above [`FRAME_BYTES_MAX`] end the
    /// connection.
    ///
    /// # Panics
    /// If `client_id` is longer than 32,767 bytes: it is ours.
    #[must_use]
    pub fn new(client_id: &str) -> Self {
        let mut outbound = Self {
            client_id: client_id.to_owned(),
            input: FrameReader::new(FRAME_BYTES_MAX),
            in_flight: VecDeque::new(),
            peer: None,
            output: Writer::new(),
            spare: Vec::new(),
        };
        outbound.ask_versions(API_VERSIONS_MAX);
        outbound
    }

    /// Whether the peer has said what it speaks.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.peer.is_some()
    }

    /// Requests without an answer; at the start that is ApiVersions.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The version in which a request of `api` is sent; `None` as long as it is not known, and if
    /// there is none.
    #[must_use]
    pub fn version_of(&self, api: ApiKey) -> Option<i16> {
        let peer = self.peer.as_ref()?;
        let served = peer
            .api_keys
            .iter()
            .find(|served| served.api_key == api.code())?;
        let own = own_versions(api);
        let version = served.max_version.min(*own.end());
        (version >= served.min_version && version >= *own.start()).then_some(version)
    }

    /// Whether the peer has said that it supports the feature of this name.
    #[must_use]
    pub fn peer_has_feature(&self, name: &str) -> bool {
        let features = self.peer.iter().flat_map(|peer| &peer.supported_features);
        features.into_iter().any(|feature| feature.name == name)
    }

    /// What the peer speaks, once it has said so.
    #[must_use]
    pub fn peer_versions(&self) -> Option<&ApiVersionsResponse> {
        self.peer.as_ref()
    }

    /// Sends a request. Its answer comes out of [`Outbound::next_response`] under
    /// `correlation_id`.
    ///
    /// # Errors
    /// If the peer cannot be asked this, or has not said yet what it can be asked.
    pub fn enqueue(
        &mut self,
        request: &ApiRequest,
        correlation_id: i32,
    ) -> Result<(), UnsupportedVersion> {
        let api = request.api();
        if !self.is_ready() {
            return Err(UnsupportedVersion::NotKnownYet);
        }
        let version = self
            .version_of(api)
            .ok_or(UnsupportedVersion::Api { api })?;
        let placed = placed_for(request, version);
        self.send_in(version, placed.as_ref().unwrap_or(request), correlation_id)
            .map_err(|error| UnsupportedVersion::Content { api, error })
    }

    /// Takes in bytes from the socket.
    pub fn received(&mut self, bytes: &[u8]) {
        self.input.received(bytes);
    }

    /// The next answer, with the correlation id of its request.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn next_response(&mut self) -> Result<Option<(i32, ApiResponse)>, OutboundError> {
        while let Some(frame) = self.input.next_frame()? {
            if self.is_ready() {
                return self.on_response(&frame).map(Some);
            }
            self.on_versions(&frame)?;
        }
        Ok(None)
    }

    /// Bytes to send, if there are any. Send what was taken before first; give the buffer back to
    /// [`Outbound::recycle`] when it is sent.
    pub fn take_output(&mut self) -> Option<Vec<u8>> {
        if self.output.is_empty() {
            return None;
        }
        let next = Writer::appending_to(std::mem::take(&mut self.spare));
        Some(std::mem::replace(&mut self.output, next).into_bytes())
    }

    /// Takes back a buffer of [`Outbound::take_output`].
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_KEPT_MAX && buffer.capacity() > self.spare.capacity() {
            buffer.clear();
            self.spare = buffer;
        }
    }

    fn ask_versions(&mut self, version: i16) {
        let request = ApiVersionsRequest {
            client_software_name: SOFTWARE_NAME.to_owned(),
            client_software_version: SOFTWARE_VERSION.to_owned(),
            ..ApiVersionsRequest::default()
        };
        let sent = self.send_in(version, &request.into(), NEGOTIATION_ID);
        sent.expect("every version can ask this");
    }

    fn send_in(
        &mut self,
        version: i16,
        request: &ApiRequest,
        correlation_id: i32,
    ) -> Result<(), EncodeError> {
        let api = request.api();
        let header = RequestHeader {
            api_key: api.code(),
            api_version: version,
            correlation_id,
            client_id: Some(std::mem::take(&mut self.client_id)),
        };
        let written = write_frame(&mut self.output, |out| {
            header.encode(api, out)?;
            request.encode(version, out)
        });
        self.client_id = header.client_id.unwrap_or_default();
        written?;
        self.in_flight.push_back(InFlight {
            correlation_id,
            api,
            version,
        });
        Ok(())
    }

    fn on_response(&mut self, frame: &Bytes) -> Result<(i32, ApiResponse), OutboundError> {
        let (asked, mut reader) = self.pair(frame)?;
        let response = ApiResponse::decode(asked.api, asked.version, &mut reader);
        let response = response.map_err(|error| asked.malformed(error))?;
        Ok((asked.correlation_id, response))
    }

    /// The answer to ApiVersions. A peer that does not have the version asked for answers 35 in
    /// version 0 and names those that it has (KIP-511): one more try with the highest of them.
    fn on_versions(&mut self, frame: &Bytes) -> Result<(), OutboundError> {
        let (asked, mut reader) = self.pair(frame)?;
        let error = peek_error(frame, reader.position());
        let unsupported = error == Some(ErrorCode::UNSUPPORTED_VERSION);
        let version = if unsupported { 0 } else { asked.version };
        let response = ApiVersionsResponse::decode(version, &mut reader);
        let response = response.map_err(|error| asked.malformed(error))?;
        if unsupported && asked.version > 0 {
            self.ask_versions(retry_version(&response, asked.version));
            return Ok(());
        }
        if !response.error_code.is_none() {
            let error = response.error_code;
            return Err(OutboundError::Negotiation { error });
        }
        self.peer = Some(response);
        Ok(())
    }

    /// The request that `frame` answers, and a reader behind the frame's header.
    fn pair<'a>(&mut self, frame: &'a Bytes) -> Result<(InFlight, Reader<'a>), OutboundError> {
        let mut reader = Reader::new(frame);
        let Some(asked) = self.in_flight.pop_front() else {
            let correlation_id = frame.first_chunk().map_or(-1, |id| i32::from_be_bytes(*id));
            return Err(OutboundError::Unasked { correlation_id });
        };
        let header = ResponseHeader::decode(asked.api, asked.version, &mut reader);
        let got = header
            .map_err(|error| asked.malformed(error))?
            .correlation_id;
        if got != asked.correlation_id {
            return Err(OutboundError::WrongCorrelation {
                api: asked.api,
                expected: asked.correlation_id,
                got,
            });
        }
        Ok((asked, reader))
    }
}

impl InFlight {
    fn malformed(&self, error: DecodeError) -> OutboundError {
        OutboundError::Decode {
            api: self.api,
            version: self.version,
            error,
        }
    }
}

/// A copy with the fetching replica where `version` has it, if it stands elsewhere.
fn placed_for(request: &ApiRequest, version: i16) -> Option<ApiRequest> {
    match request {
        ApiRequest::Fetch(fetch) if !fetch.is_placed_for(version) => {
            let mut placed = fetch.clone();
            placed.place_replica(version);
            Some(placed.into())
        }
        _ => None,
    }
}

/// The error code, which is the first field in every version of an ApiVersions response.
fn peek_error(frame: &Bytes, position: usize) -> Option<ErrorCode> {
    let code = frame.get(position..)?.first_chunk()?;
    Some(ErrorCode(i16::from_be_bytes(*code)))
}

/// A version below the one that was refused; 0 if the peer names none.
fn retry_version(response: &ApiVersionsResponse, refused: i16) -> i16 {
    let code = ApiKey::ApiVersions.code();
    let served = response
        .api_keys
        .iter()
        .find(|served| served.api_key == code);
    served
        .map_or(0, |served| served.max_version)
        .clamp(0, refused - 1)
}

/// Versions of the codec, whichever listener serves the API.
fn own_versions(api: ApiKey) -> std::ops::RangeInclusive<i16> {
    let kinds = [ListenerKind::Client, ListenerKind::Controller];
    let versions = kinds.into_iter().find_map(|kind| kind.versions(api));
    versions.expect("every API is served by some listener")
}
