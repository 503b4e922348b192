//! A peer that means harm, or nothing: bytes over a plain socket, and what they do to a process.

use super::{Deadline, pause};
use bytes::Bytes;
use quorate_net::{ApiKey, ApiRequest, ApiResponse, Reader, Writer};
use rustix::net::{Shutdown, shutdown};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer, or the end of a connection, takes no longer.
const LIMIT: Duration = Duration::from_secs(10);

/// One connection.
pub struct Stranger {
    stream: TcpStream,
}

impl Stranger {
    /// Connects.
    ///
    /// # Panics
    /// If there is nobody.
    pub fn connect(address: &str) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects, if somebody is there and has room.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn try_connect(address: &str) -> io::Result<Self> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self { stream })
    }

    /// Sends bytes; a connection that the other side has ended is no fault.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Says that nothing more will come.
    pub fn half_close(&self) {
        let _ = shutdown(&self.stream, Shutdown::Write);
    }

    /// The next answer, correlation id included.
    ///
    /// # Errors
    /// As the socket has them; `UnexpectedEof` if the connection was ended.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Asks in words of the protocol and waits for the answer.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn ask(&mut self, version: i16, request: &ApiRequest) -> io::Result<ApiResponse> {
        let api = request.api();
        let mut body = Writer::new();
        request
            .encode(version, &mut body)
            .map_err(io::Error::other)?;
        self.send(&frame(api.code(), version, &body.into_bytes()));
        decode_answer(api, version, self.receive()?)
    }

    /// Whether the other side ends the connection, without a word, within the limit.
    pub fn is_ended(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// An answer's body after its header.
///
/// # Errors
/// If it is none.
pub fn decode_answer(api: ApiKey, version: i16, frame: Vec<u8>) -> io::Result<ApiResponse> {
    let frame = Bytes::from(frame);
    let mut reader = Reader::new(&frame);
    quorate_net::wire::ResponseHeader::decode(api, version, &mut reader)
        .map_err(io::Error::other)?;
    ApiResponse::decode(api, version, &mut reader).map_err(io::Error::other)
}

/// A request's frame, its header as the version wants it: correlation id 7, client id "s".
pub fn frame(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(&api.to_be_bytes());
    head.extend_from_slice(&version.to_be_bytes());
    head.extend_from_slice(&7_i32.to_be_bytes());
    head.extend_from_slice(&[0, 1, b's']);
    if ApiKey::from_code(api).is_some_and(|api| api.request_header_has_tags(version)) {
        head.push(0);
    }
    framed(&[&head, body].concat())
}

/// Any bytes behind their length.
pub fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as i32;
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Numbers from a seed (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Changes, cuts or lengthens `bytes` in up to four places.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let position = self.below(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(position),
                1 => bytes.insert(position, self.next() as u8),
                _ if bytes.is_empty() => {}
                2 => bytes[position] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                3 => bytes[position] ^= 1 << self.below(8),
                _ => bytes[position] = self.next() as u8,
            }
        }
    }
}

/// Memory of a process that is in RAM, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let field = line.and_then(|line| line.split_whitespace().nth(1));
    1024 * field
        .and_then(|field| field.parse::<u64>().ok())
        .expect("kB")
}

/// Open descriptors of a process.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("a process")
        .count()
}

/// Processor time that a process has used.
pub fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let (_, fields) = stat.rsplit_once(") ").expect("a command in parentheses");
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum();
    // USER_HZ is 100 on every Linux.
    Duration::from_millis(ticks * 10)
}

/// Does `act` over and over for `length`, at most `rate` times a second.
pub fn at_pace(length: Duration, rate: u32, mut act: impl FnMut()) {
    let deadline = Deadline::after(length);
    let step = Duration::from_millis(5);
    let per_step = (rate / 200).max(1);
    while deadline.is_ahead() {
        for _ in 0..per_step {
            act();
        }
        pause(step);
    }
}
