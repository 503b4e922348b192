//! Step 1 of 5 of the append path: a frame becomes a typed request, and an answer a frame.
//!
//! The server's side of one connection, sans-IO. It cuts the stream, keeps answers in the order of
//! their requests, and says when to stop reading. It decides nothing about a request, and nothing
//! that a stranger sends can do more than end this connection.
//! Before: the socket. Next: the raft loop of the node.

use crate::apis::{self, ApiRequest, ApiResponse, ListenerKind, RequestError};
use crate::frame::{
    FRAME_BYTES_MAX, FrameError, FrameReader, FrameStart, LENGTH_SIZE, write_frame,
};
use crate::wire::{ApiKey, EncodeError, Reader, RequestHeader, ResponseHeader, Writer};
use bytes::Bytes;
use std::collections::VecDeque;

/// How many output buffers are kept for reuse.
const BUFFERS_KEPT_MAX: usize = 4;

/// While a request waits for one before it, this much is received behind it and no more: enough to
/// notice that the client is gone.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame that is read, in bytes.
    pub frame_bytes_max: usize,
    /// Largest frame of any request but Produce, in bytes. They are some hundred bytes long;
    /// what they may cost beyond that only a stranger would use.
    pub question_bytes_max: usize,
    /// Requests that may wait for their answers; then reading stops.
    pub requests_in_flight_max: usize,
    /// Bytes of answers that may wait to be sent; then reading stops. One answer may exceed it.
    pub output_bytes_max: usize,
    /// An output buffer that grew above this is not kept for reuse, in bytes.
    pub kept_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            question_bytes_max: 64 << 10,
            requests_in_flight_max: 256,
            output_bytes_max: 16 << 20,
            kept_bytes_max: 256 << 10,
        }
    }
}

/// The place of an answer among the answers of its connection. Each is answered or skipped once;
/// one that is forgotten blocks all answers behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Slot {
    sequence: u64,
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl Slot {
    /// API of the request.
    #[must_use]
    pub fn api(&self) -> ApiKey {
        self.api
    }

    /// Version of the request, in which the answer must be written.
    #[must_use]
    pub fn version(&self) -> i16 {
        self.version
    }
}

/// A request that came in.
#[derive(Debug)]
pub struct Inbound {
    /// For the answer.
    pub slot: Slot,
    /// As sent.
    pub header: RequestHeader,
    /// What is asked.
    pub request: ApiRequest,
    /// Size of the request with its length, in bytes: what it counts in budgets.
    pub frame_bytes: usize,
}

/// Why a connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The stream cannot be cut into frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A request that this listener cannot take.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// An answer could not be written, so none behind it can leave.
    #[error("an answer could not be written: {0}")]
    AnswerLost(EncodeError),
}

#[derive(Debug)]
enum Answer {
    Pending,
    /// A framed answer that waits for those before it.
    Ready(Vec<u8>),
    /// There will be none.
    Skipped,
}

/// The server's side of one connection.
#[derive(Debug)]
pub struct Connection {
    kind: ListenerKind,
    limits: Limits,
    input: FrameReader,
    /// Answers of the requests in flight; the first is number `first_sequence`.
    answers: VecDeque<Answer>,
    first_sequence: u64,
    /// Bytes in `Answer::Ready`.
    ready_bytes: usize,
    /// The Fetch that is not answered: the next one waits for it, or a few bytes of requests could
    /// ask for gigabytes of answers. Clients and replicas send one at a time anyway.
    fetching: Option<u64>,
    /// Framed answers in order, free to leave.
    output: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    answer_lost: Option<EncodeError>,
}

impl Connection {
    /// A new connection on a listener of this kind.
    #[must_use]
    pub fn new(kind: ListenerKind, limits: Limits) -> Self {
        Self {
            kind,
            limits,
            input: FrameReader::new(limits.frame_bytes_max),
            answers: VecDeque::new(),
            first_sequence: 0,
            ready_bytes: 0,
            fetching: None,
            output: Vec::new(),
            buffers: Vec::new(),
            answer_lost: None,
        }
    }

    /// Takes in bytes from the socket.
    pub fn received(&mut self, bytes: &[u8]) {
        self.input.received(bytes);
    }

    /// The next request, if a whole one is there and the limits allow to take it.
    ///
    /// Call it again after answers have left: requests that had to wait are taken then. An
    /// ApiVersions of a version that is not served is answered in here.
    ///
    /// # Errors
    /// The connection must be closed; answers that are due already may still be sent.
    pub fn next_request(&mut self) -> Result<Option<Inbound>, ConnectionError> {
        if let Some(error) = &self.answer_lost {
            return Err(ConnectionError::AnswerLost(error.clone()));
        }
        while self.may_take_request() {
            let Some(start) = self.input.peek()? else {
                return self.refuse_empty_frame();
            };
            self.check_length(start)?;
            if self.fetching.is_some() && start.first_int16 == ApiKey::Fetch.code() {
                return Ok(None);
            }
            let Some(frame) = self.input.next_frame()? else {
                return Ok(None);
            };
            let inbound = self.on_frame(&frame)?;
            if inbound.is_some() {
                return Ok(inbound);
            }
        }
        Ok(None)
    }

    /// A frame too short for an API key is none; before it is whole nothing can be said.
    fn refuse_empty_frame(&mut self) -> Result<Option<Inbound>, ConnectionError> {
        match self.input.next_frame()? {
            Some(frame) => self.on_frame(&frame),
            None => Ok(None),
        }
    }

    /// As soon as the API is known, so that an oversized frame is not received at all.
    fn check_length(&self, start: FrameStart) -> Result<(), FrameError> {
        let bytes_max = self.limits.question_bytes_max;
        if start.first_int16 == ApiKey::Produce.code() || start.length <= bytes_max {
            return Ok(());
        }
        Err(FrameError::TooLarge {
            length: start.length,
            bytes_max,
        })
    }

    fn on_frame(&mut self, frame: &Bytes) -> Result<Option<Inbound>, ConnectionError> {
        let mut reader = Reader::new(frame);
        let mut header = RequestHeader::decode_start(&mut reader).map_err(RequestError::Header)?;
        let api = match apis::check_served(self.kind, &header) {
            Ok(api) => api,
            Err(RequestError::UnsupportedVersion {
                api: ApiKey::ApiVersions,
                ..
            }) => {
                self.answer_unsupported_api_versions(&header);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        header
            .decode_rest(api, &mut reader)
            .map_err(RequestError::Header)?;
        let body = frame.slice(reader.position()..);
        let request = apis::decode_request(self.kind, &header, &body)?;
        Ok(Some(Inbound {
            slot: self.open_slot(api, header.api_version, header.correlation_id),
            header,
            request,
            frame_bytes: LENGTH_SIZE + frame.len(),
        }))
    }

    /// In version 0, the only one that is certain to be understood (KIP-511).
    fn answer_unsupported_api_versions(&mut self, header: &RequestHeader) {
        let response = apis::api_versions_unsupported(self.kind);
        let slot = self.open_slot(ApiKey::ApiVersions, 0, header.correlation_id);
        let answered = self.respond(slot, |out| response.encode(0, out));
        assert_eq!(answered, Ok(()), "version 0 can say this");
    }

    fn open_slot(&mut self, api: ApiKey, version: i16, correlation_id: i32) -> Slot {
        let sequence = self.first_sequence + self.answers.len() as u64;
        self.answers.push_back(Answer::Pending);
        if api == ApiKey::Fetch {
            self.fetching = Some(sequence);
        }
        Slot {
            sequence,
            api,
            version,
            correlation_id,
        }
    }

    /// Answers a request: `encode` appends the body in the slot's version, framing and header are
    /// added here. The answer leaves after all answers to earlier requests.
    ///
    /// # Errors
    /// Those of `encode`. The connection is lost then: the next `next_request` says so.
    ///
    /// # Panics
    /// If the slot is not one of this connection, or was answered before.
    pub fn respond(
        &mut self,
        slot: Slot,
        encode: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let index = self.index_of(&slot);
        self.fetching.take_if(|sequence| *sequence == slot.sequence);
        // Nothing waits before the first: it is written to where it leaves from.
        let buffer = if index == 0 {
            std::mem::take(&mut self.output)
        } else {
            self.buffers.pop().unwrap_or_default()
        };
        let mut out = Writer::appending_to(buffer);
        let written = write_frame(&mut out, |out| {
            let correlation_id = slot.correlation_id;
            ResponseHeader { correlation_id }.encode(slot.api, slot.version, out);
            encode(out)
        });
        let buffer = out.into_bytes();
        if index == 0 {
            self.output = buffer;
        } else {
            self.ready_bytes += buffer.len();
            self.answers[index] = Answer::Ready(buffer);
        }
        match &written {
            Ok(()) if index == 0 => self.close_first(),
            Ok(()) => {}
            // The slot stays open for good, so that nothing behind it leaves.
            Err(error) => {
                self.answers[index] = Answer::Pending;
                self.answer_lost = Some(error.clone());
            }
        }
        written
    }

    /// Answers a request with a typed response.
    ///
    /// # Errors
    /// As [`Connection::respond`].
    ///
    /// # Panics
    /// If the response is one of another API, the slot not one of this connection, or answered
    /// before.
    pub fn respond_with(&mut self, slot: Slot, response: &ApiResponse) -> Result<(), EncodeError> {
        assert_eq!(response.api(), slot.api, "answer of another API");
        let version = slot.version;
        self.respond(slot, |out| response.encode(version, out))
    }

    /// Leaves a request without an answer (Produce with acks=0 has none in the protocol).
    ///
    /// # Panics
    /// If the slot is not one of this connection, or was answered before.
    pub fn skip(&mut self, slot: Slot) {
        let index = self.index_of(&slot);
        self.fetching.take_if(|sequence| *sequence == slot.sequence);
        self.answers[index] = Answer::Skipped;
        if index == 0 {
            self.close_first();
        }
    }

    fn index_of(&self, slot: &Slot) -> usize {
        let index = slot.sequence.checked_sub(self.first_sequence);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let pending =
            index.filter(|index| matches!(self.answers.get(*index), Some(Answer::Pending)));
        pending.expect("the slot is one of this connection and open")
    }

    /// The first answer is out; so are those behind it that are ready.
    fn close_first(&mut self) {
        self.answers.pop_front();
        self.first_sequence += 1;
        while let Some(first) = self.answers.front_mut() {
            match std::mem::replace(first, Answer::Skipped) {
                Answer::Pending => {
                    *first = Answer::Pending;
                    return;
                }
                Answer::Ready(answer) => {
                    self.ready_bytes -= answer.len();
                    self.output.extend_from_slice(&answer);
                    self.recycle(answer);
                }
                Answer::Skipped => {}
            }
            self.answers.pop_front();
            self.first_sequence += 1;
        }
    }

    /// Bytes to send, if there are any. Send what was taken before first; give the buffer back to
    /// [`Connection::recycle`] when it is sent.
    pub fn take_output(&mut self) -> Option<Vec<u8>> {
        if self.output.is_empty() {
            return None;
        }
        let next = self.buffers.pop().unwrap_or_default();
        Some(std::mem::replace(&mut self.output, next))
    }

    /// Takes back a buffer of [`Connection::take_output`].
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= self.limits.kept_bytes_max && self.buffers.len() < BUFFERS_KEPT_MAX
        {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether to read from the socket: not while too many requests wait for their answers or too
    /// many bytes of answers wait to be sent. Behind a request that may not be taken yet a little
    /// is read, since only a read tells that the client is gone.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        let waits = self.fetching.is_some() && self.buffered() >= WAITING_BYTES_MAX;
        self.answer_lost.is_none() && self.may_take_request() && !waits
    }

    /// Bytes received that no request was made of yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.input.buffered()
    }

    /// Bytes of answers that wait to be sent, those that [`Connection::take_output`] gave not
    /// counted.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.output.len() + self.ready_bytes
    }

    /// Requests that wait for their answers.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.answers.len()
    }

    /// Whether the stream ends between two requests: an end here is a clean one.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        self.input.is_empty()
    }

    fn may_take_request(&self) -> bool {
        self.answers.len() < self.limits.requests_in_flight_max
            && self.unsent() < self.limits.output_bytes_max
    }
}
