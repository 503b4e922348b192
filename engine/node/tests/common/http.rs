//! An HTTP client of a few lines, and a reader of Prometheus' text format that takes nothing on
//! trust.

use super::s;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What a listener answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// 0 if it was no HTTP answer.
    pub status: u16,
    /// Everything behind the headers.
    pub body: String,
}

/// Sends `bytes` to HOST:PORT and reads the answer, or until the other side hangs up.
///
/// # Errors
/// Not reachable, or cut off.
pub fn exchange(address: &str, bytes: &[u8]) -> io::Result<Answered> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(s(20)))?;
    stream.set_write_timeout(Some(s(20)))?;
    stream.write_all(bytes)?;
    let text = read_answer(&mut stream)?;
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(Answered {
        status: status.unwrap_or(0),
        body: body.to_owned(),
    })
}

/// Reads as far as the answer says that it goes: chromedriver does not hang up.
fn read_answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut text, mut bytes) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let count = stream.read(&mut bytes)?;
        text.extend_from_slice(&bytes[..count]);
        if count == 0 || length_of(&text).is_some_and(|length| text.len() >= length) {
            return Ok(text);
        }
    }
}

/// How long an answer is, headers included, once those are there.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let body = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("content-length");
        is_it.then(|| value.trim().parse::<usize>().ok())?
    });
    Some(head.len() + 4 + body?)
}

/// GETs a path.
///
/// # Errors
/// See [`exchange`].
pub fn get(address: &str, path: &str) -> io::Result<Answered> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    exchange(address, request.as_bytes())
}

/// The samples of a page of metrics, by name with labels.
pub type Samples = BTreeMap<String, f64>;

/// Scrapes a node's /metrics.
///
/// # Panics
/// If there is no answer or it breaks a rule of the format.
pub fn scrape(address: &str) -> Samples {
    let answered = get(address, "/metrics").expect("an answer");
    assert_eq!(answered.status, 200, "{answered:?}");
    parse_metrics(&answered.body)
}

/// Reads text format 0.0.4 by its rules.
///
/// # Panics
/// On a line that is none, a sample without its family's HELP and TYPE before it, a family or a
/// sample twice, a histogram that falls or whose last bucket is not its count.
pub fn parse_metrics(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let mut samples = Samples::new();
    let mut seen = BTreeSet::new();
    let (mut family, mut kind, mut last_bucket) = (String::new(), String::new(), None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(seen.insert(name.to_owned()), "twice: {line}");
            family = name.to_owned();
            kind.clear();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect(line);
            assert_eq!(name, family, "{line}");
            assert!(matches!(of, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            kind = of.to_owned();
        } else {
            let (key, value) = line.rsplit_once(' ').expect(line);
            let value: f64 = value.parse().expect(line);
            let name = key.split('{').next().unwrap_or(key);
            let suffix = name.strip_prefix(&family).expect(line);
            match (&*kind, suffix) {
                ("counter" | "gauge", "") => {}
                ("histogram", "_bucket") => {
                    if let Some(last) = last_bucket {
                        assert!(value >= last, "a histogram that falls: {line}");
                    }
                    let is_last = key.contains("le=\"+Inf\"");
                    last_bucket = (!is_last).then_some(value);
                }
                ("histogram", "_sum" | "_count") => {}
                _ => panic!("a sample of another family: {line}"),
            }
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            assert!(
                samples.insert(key.to_owned(), value).is_none(),
                "twice: {line}"
            );
        }
    }
    check_counts(&samples);
    samples
}

/// Each histogram's last bucket is its count.
fn check_counts(samples: &Samples) {
    let infinite = samples
        .iter()
        .filter(|(key, _)| key.contains("le=\"+Inf\""));
    for (key, value) in infinite {
        let count = key.replacen("_bucket", "_count", 1);
        let count = count
            .replace(",le=\"+Inf\"", "")
            .replace("{le=\"+Inf\"}", "");
        assert_eq!(samples.get(&count), Some(value), "{key}");
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_lowercase())
        && chars.all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
}
