//! Every API in every version, requests and responses: what is decoded can be encoded, and decoding
//! that gives the same again.

use crate::source::Source;
use bytes::Bytes;
use quorate_net::apis::ServedApi;
use quorate_net::frame::{FRAME_BYTES_MAX, LENGTH_SIZE};
use quorate_net::{
    ApiKey, ApiRequest, ApiResponse, Connection, ConnectionError, Limits, ListenerKind, Reader,
    RequestHeader, Writer,
};

/// The listener kind, an API that it serves, and one of its versions.
pub(crate) fn choose_api(source: &mut Source<'_>) -> (ListenerKind, ApiKey, i16) {
    let kinds = [ListenerKind::Client, ListenerKind::Controller];
    let kind = *source.choose(&kinds);
    let (api, version) = choose_api_of(kind, source);
    (kind, api, version)
}

/// An API that a listener of this kind serves, and one of its versions.
pub(crate) fn choose_api_of(kind: ListenerKind, source: &mut Source<'_>) -> (ApiKey, i16) {
    let (api, versions): &ServedApi = source.choose(kind.apis());
    let versions: Vec<i16> = versions.clone().collect();
    (*api, *source.choose(&versions))
}

/// To which kind of listener an input of [`requests`] goes, and as what.
#[must_use]
pub fn addressee(input: &[u8]) -> (ListenerKind, ApiKey, i16) {
    choose_api(&mut Source::new(input))
}

/// Input: listener kind, API, version, and the body of a request.
pub fn requests(data: &[u8]) {
    let mut source = Source::new(data);
    let (kind, api, version) = choose_api(&mut source);
    let body = Bytes::copy_from_slice(source.rest());
    let decoded = ApiRequest::decode(api, version, &mut Reader::new(&body));
    let through_connection = ask(kind, api, version, &body);
    let Ok(request) = decoded else {
        let refused = matches!(through_connection, Err(ConnectionError::Request(_)));
        assert!(refused, "{api} {version}: {through_connection:?}");
        return;
    };
    let mut out = Writer::new();
    let encoded = request.encode(version, &mut out);
    assert_eq!(encoded, Ok(()), "{request:?}");
    let again = Bytes::from(out.into_bytes());
    let again = ApiRequest::decode(api, version, &mut Reader::new(&again));
    assert_eq!(again.as_ref(), Ok(&request));
    let taken = through_connection.map(|taken| taken.expect("a whole frame was received"));
    assert_eq!(taken, Ok(request));
}

/// What a connection makes of a frame with this body.
fn ask(
    kind: ListenerKind,
    api: ApiKey,
    version: i16,
    body: &Bytes,
) -> Result<Option<ApiRequest>, ConnectionError> {
    let mut connection = Connection::new(kind, Limits::default());
    connection.received(&frame(api, version, 7, body));
    let taken = connection.next_request()?;
    Ok(taken.map(|inbound| inbound.request))
}

/// A request's frame.
pub(crate) fn frame(api: ApiKey, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let header = RequestHeader {
        api_key: api.code(),
        api_version: version,
        correlation_id,
        client_id: Some("fuzz".to_owned()),
    };
    let mut out = Writer::new();
    header.encode(api, &mut out).expect("a short client id");
    let head = out.into_bytes();
    let length = head.len() + body.len();
    assert!(length <= FRAME_BYTES_MAX, "inputs are small");
    let length = u32::try_from(length).expect("small").to_be_bytes();
    assert_eq!(length.len(), LENGTH_SIZE);
    [&length[..], &head, body].concat()
}

/// Input: listener kind, API, version, and the body of a response, as a peer would send it.
pub fn responses(data: &[u8]) {
    let mut source = Source::new(data);
    let (_, api, version) = choose_api(&mut source);
    let body = Bytes::copy_from_slice(source.rest());
    let Ok(response) = ApiResponse::decode(api, version, &mut Reader::new(&body)) else {
        return;
    };
    let mut out = Writer::new();
    let encoded = response.encode(version, &mut out);
    assert_eq!(encoded, Ok(()), "{response:?}");
    let again = Bytes::from(out.into_bytes());
    let again = ApiResponse::decode(api, version, &mut Reader::new(&again));
    assert_eq!(again, Ok(response));
}
