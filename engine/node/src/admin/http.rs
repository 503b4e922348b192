//! Just enough of HTTP/1.1: one GET request in, one answer out, then the connection ends.
//!
//! Pure: bytes to a request, an answer to bytes. Bodies of requests are not read.

use std::fmt::Write as _;

/// A request line and headers longer than this are refused.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// More headers than this are refused.
const HEADERS_MAX: usize = 64;

/// What the bytes of a connection are so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// No whole request yet.
    Partial,
    /// One that is to be answered.
    Get(Request),
    /// Refused, with this answer.
    Refused(Response),
}

/// A GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Without the query.
    pub path: String,
    /// What stands behind the question mark, as it is; empty without one.
    pub query: String,
}

impl Request {
    /// Whether the query has this name, with whatever value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The value of this name in the query.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|item| {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            (key == name).then_some(value)
        })
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";
/// Prometheus' text format.
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Response {
    /// An answer in words.
    pub(super) fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, TEXT, body)
    }

    pub(super) fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self {
            status,
            content_type,
            body,
        }
    }

    /// The bytes to send. The page may use what stands in it and ask this listener, nothing else.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut head = String::with_capacity(512 + self.body.len());
        let allow = if self.status == 405 {
            "Allow: GET\r\n"
        } else {
            ""
        };
        write!(
            head,
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
             frame-ancestors 'none'\r\n\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        )
        .expect("a String takes everything");
        head.push_str(&self.body);
        head.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

/// Reads what a connection has sent so far.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refused = |status, words: &str| Parsed::Refused(Response::text(status, words));
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_BYTES_MAX => {
            refused(431, "the request's headers are too long\n")
        }
        Ok(httparse::Status::Partial) => Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => refused(431, "the request has too many headers\n"),
        Err(_) => refused(400, "this is no HTTP request\n"),
        Ok(httparse::Status::Complete(_)) => match (request.method, request.path) {
            (Some("GET"), Some(target)) if target.starts_with('/') => {
                let (path, query) = target.split_once('?').unwrap_or((target, ""));
                Parsed::Get(Request {
                    path: path.to_owned(),
                    query: query.to_owned(),
                })
            }
            (Some("GET"), _) => refused(400, "the request's target is no path\n"),
            _ => refused(405, "only GET is offered\n"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(bytes: &[u8]) -> u16 {
        match parse(bytes) {
            Parsed::Refused(response) => response.status,
            Parsed::Partial => 0,
            Parsed::Get(_) => 200,
        }
    }

    #[test]
    fn a_get_is_read_whole_or_not_at_all() {
        let whole = b"GET /readyz?verbose&after=17 HTTP/1.1\r\nHost: h\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Parsed::Partial, "{end}");
        }
        let Parsed::Get(request) = parse(whole) else {
            panic!("not a request")
        };
        assert_eq!(request.path, "/readyz");
        assert!(request.has("verbose") && !request.has("verb"));
        assert_eq!(request.value("after"), Some("17"));
        assert_eq!(request.value("none"), None);
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(HEAD_BYTES_MAX));
        for (bytes, status) in [
            (&b"POST / HTTP/1.1\r\n\r\n"[..], 405),
            (b"HEAD / HTTP/1.1\r\n\r\n", 405),
            (b"GET * HTTP/1.1\r\n\r\n", 400),
            (b"GET http://h/ HTTP/1.1\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00", 400),
            (b"\x00\x00\x00\x14\x00\x12\x00\x03", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 400),
            (many.as_bytes(), 431),
            (long.as_bytes(), 431),
        ] {
            assert_eq!(
                status_of(bytes),
                status,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_none_wait_for_ever() {
        let good = b"GET /metrics?a=b HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
        let mut random = 1u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..20_000 {
            let mut bytes = good.to_vec();
            for _ in 0..next() % 4 {
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
            }
            bytes.truncate(1 + next() as usize % bytes.len());
            let _ = parse(&bytes);
            bytes.resize(HEAD_BYTES_MAX, next() as u8);
            assert_ne!(parse(&bytes), Parsed::Partial);
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let bytes = Response::text(405, "no\n").into_bytes();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"),
            "{text}"
        );
        assert!(text.contains("\r\nContent-Length: 3\r\n") && text.contains("\r\nAllow: GET\r\n"));
        assert!(text.ends_with("\r\n\r\nno\n"), "{text}");
    }
}
