//! A client of a few lines, over a plain socket: each answer of a node is seen as it came, with no
//! retry and no metadata in between. For measuring, and for what librdkafka would hide.
//!
//! Requests are written out by hand from Kafka's protocol tables (Produce 3, Fetch 4,
//! OffsetForLeaderEpoch 2: versions before tagged fields), so that a fault in the program's own
//! codecs can't cancel itself out.

use super::TOPIC;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const INIT_PRODUCER_ID: i16 = 22;
const OFFSET_FOR_LEADER_EPOCH: i16 = 23;

/// The value in records of [`RawClient::produce`]; other readers pass over it.
pub const PROBE_VALUE: &[u8] = b"probe";

/// What a node answered to a Produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// Kafka's error code, 0 for success.
    pub error: i16,
    /// Offset of the record, -1 without success.
    pub offset: i64,
}

/// What a node answered to a Fetch; the records are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Kafka's error code, 0 for success.
    pub error: i16,
    /// First offset not yet committed, -1 without success.
    pub high_watermark: i64,
}

/// What a node answered to an InitProducerId.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// Kafka's error code, 0 for success.
    pub error: i16,
    /// The id, -1 without success.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// What a node answered to an OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// Kafka's error code, 0 for success.
    pub error: i16,
    /// The largest epoch not above the one asked for, -1 for none.
    pub epoch: i32,
    /// Where it ended, -1 for none.
    pub end: i64,
}

/// One connection, requests and answers in order.
pub struct RawClient {
    stream: TcpStream,
    correlation_sent: i32,
    correlation_received: i32,
}

impl RawClient {
    /// Connects to a client listener. No answer within 5 s is an error of the read.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn connect(address: &str) -> io::Result<Self> {
        let address = address.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self {
            stream,
            correlation_sent: 0,
            correlation_received: 0,
        })
    }

    /// Sets how long to wait for an answer.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn wait_for_answers(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// Appends `batch` with acks=all and waits for the answer.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn produce(&mut self, batch: &[u8]) -> io::Result<Produced> {
        self.send_produce(batch)?;
        self.receive_produce()
    }

    /// Sends `batch` without waiting.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn send_produce(&mut self, batch: &[u8]) -> io::Result<()> {
        let mut body = Vec::new();
        put_i16(&mut body, -1); // transactional id: none
        put_i16(&mut body, -1); // acks: all
        put_i32(&mut body, 5_000); // timeout in ms
        put_topic(&mut body);
        put_i32(&mut body, batch.len() as i32);
        body.extend_from_slice(batch);
        self.send(PRODUCE, 3, &body)
    }

    /// Sends several batches in one request, as so many entries of the one partition.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn send_produce_all(&mut self, batches: &[Vec<u8>]) -> io::Result<()> {
        let mut body = Vec::new();
        put_i16(&mut body, -1); // transactional id: none
        put_i16(&mut body, -1); // acks: all
        put_i32(&mut body, 5_000); // timeout in ms
        put_i32(&mut body, 1);
        put_string(&mut body, TOPIC);
        put_i32(&mut body, batches.len() as i32);
        for batch in batches {
            put_i32(&mut body, 0);
            put_i32(&mut body, batch.len() as i32);
            body.extend_from_slice(batch);
        }
        self.send(PRODUCE, 3, &body)
    }

    /// What became of each batch of the oldest Produce not answered yet.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn receive_produce_all(&mut self) -> io::Result<Vec<Produced>> {
        let frame = self.receive()?;
        let mut answer = Fields(&frame);
        answer.take(4 + 2 + TOPIC.len())?;
        let count = answer.i32()?;
        let one = |_| {
            answer.i32()?; // partition
            let (error, offset) = (answer.i16()?, answer.i64()?);
            answer.i64()?; // append time
            Ok(Produced { error, offset })
        };
        (0..count).map(one).collect()
    }

    /// The answer to the oldest Produce not answered yet.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn receive_produce(&mut self) -> io::Result<Produced> {
        let frame = self.receive()?;
        let mut answer = Fields::of_one_topic(&frame)?;
        Ok(Produced {
            error: answer.i16()?,
            offset: answer.i64()?,
        })
    }

    /// Asks for a producer id: Kafka's error code, the id and its epoch.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn init_producer_id(&mut self, transactional_id: Option<&str>) -> io::Result<ProducerId> {
        let mut body = Vec::new();
        match transactional_id {
            Some(id) => put_string(&mut body, id),
            None => put_i16(&mut body, -1),
        }
        put_i32(&mut body, 60_000); // transaction timeout in ms
        self.send(INIT_PRODUCER_ID, 0, &body)?;
        let frame = self.receive()?;
        let throttle = 4;
        let mut answer = Fields(frame.get(throttle..).unwrap_or_default());
        Ok(ProducerId {
            error: answer.i16()?,
            id: answer.i64()?,
            epoch: answer.i16()?,
        })
    }

    /// Asks for one committed batch from `offset` on, waiting at most `max_wait_ms` for it.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn fetch(&mut self, offset: i64, max_wait_ms: i32) -> io::Result<Fetched> {
        let mut body = Vec::new();
        put_i32(&mut body, -1); // replica id: a consumer
        put_i32(&mut body, max_wait_ms);
        put_i32(&mut body, 1); // least bytes
        put_i32(&mut body, 1); // most bytes: one batch comes in any case
        body.push(0); // isolation: read uncommitted
        put_topic(&mut body);
        body.extend_from_slice(&offset.to_be_bytes());
        put_i32(&mut body, 1);
        self.send(FETCH, 4, &body)?;
        let frame = self.receive()?;
        let throttle = 4;
        let mut answer = Fields::of_one_topic(frame.get(throttle..).unwrap_or_default())?;
        Ok(Fetched {
            error: answer.i16()?,
            high_watermark: answer.i64()?,
        })
    }

    /// Asks where `epoch` ended, as one who takes `current` for the leader's epoch.
    ///
    /// # Errors
    /// As the socket has them, and for an answer that is none.
    pub fn epoch_end(&mut self, current: i32, epoch: i32) -> io::Result<EpochEnd> {
        let mut body = Vec::new();
        put_topic(&mut body);
        put_i32(&mut body, current);
        put_i32(&mut body, epoch);
        self.send(OFFSET_FOR_LEADER_EPOCH, 2, &body)?;
        let frame = self.receive()?;
        // Here the error stands before the partition: throttle time, a topic's name, one partition.
        let partition = 4 + 4 + 2 + TOPIC.len() + 4;
        let mut answer = Fields(frame.get(partition..).unwrap_or_default());
        let error = answer.i16()?;
        answer.i32()?;
        Ok(EpochEnd {
            error,
            epoch: answer.i32()?,
            end: answer.i64()?,
        })
    }

    /// Whether no byte of an answer comes for so long.
    ///
    /// # Errors
    /// As the socket has them.
    pub fn is_silent_for(&mut self, length: Duration) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(length))?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        match peeked {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, api: i16, version: i16, body: &[u8]) -> io::Result<()> {
        self.correlation_sent += 1;
        let mut frame = vec![0; 4];
        put_i16(&mut frame, api);
        put_i16(&mut frame, version);
        put_i32(&mut frame, self.correlation_sent);
        put_string(&mut frame, "raw");
        frame.extend_from_slice(body);
        let length = frame.len() as i32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame)
    }

    /// The next answer, without length and correlation id.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; i32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame)?;
        self.correlation_received += 1;
        let mut fields = Fields(&frame);
        if fields.i32()? != self.correlation_received {
            return Err(io::Error::other("the answer to another request"));
        }
        Ok(fields.0.to_vec())
    }
}

fn put_i16(out: &mut Vec<u8>, value: i16) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_i16(out, text.len() as i16);
    out.extend_from_slice(text.as_bytes());
}

/// One topic with one partition, 0; the partition's other fields follow.
fn put_topic(out: &mut Vec<u8>) {
    put_i32(out, 1);
    put_string(out, TOPIC);
    put_i32(out, 1);
    put_i32(out, 0);
}

/// Reads big-endian fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of the only partition of the only topic.
    fn of_one_topic(frame: &'a [u8]) -> io::Result<Self> {
        let mut fields = Fields(frame);
        let topics = fields.i32()?;
        let name = fields.i16()?;
        fields.take(name as usize)?;
        let partitions = fields.i32()?;
        let partition = fields.i32()?;
        match (topics, partitions, partition) {
            (1, 1, 0) => Ok(fields),
            other => Err(io::Error::other(format!(
                "topics, partitions, partition: {other:?}"
            ))),
        }
    }

    fn take(&mut self, size: usize) -> io::Result<&'a [u8]> {
        let cut = self.0.split_at_checked(size);
        let (taken, rest) = cut.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> io::Result<i16> {
        let bytes = self.take(2)?.try_into().expect("2 bytes");
        Ok(i16::from_be_bytes(bytes))
    }

    fn i32(&mut self) -> io::Result<i32> {
        let bytes = self.take(4)?.try_into().expect("4 bytes");
        Ok(i32::from_be_bytes(bytes))
    }

    fn i64(&mut self) -> io::Result<i64> {
        let bytes = self.take(8)?.try_into().expect("8 bytes");
        Ok(i64::from_be_bytes(bytes))
    }
}

/// A record batch (magic 2) with one record: no key, no header, `value`.
pub fn batch(value: &[u8]) -> Vec<u8> {
    numbered_batch(value, -1, -1, -1)
}

/// The same from an idempotent producer.
pub fn numbered_batch(value: &[u8], id: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    let mut record = vec![0, 0, 0]; // attributes, timestamp delta, offset delta
    put_varint(&mut record, -1); // no key
    put_varint(&mut record, value.len() as i32);
    record.extend_from_slice(value);
    put_varint(&mut record, 0); // no headers

    let mut checked = Vec::new();
    put_i16(&mut checked, 0); // attributes
    put_i32(&mut checked, 0); // last offset delta
    let time = 1_700_000_000_000_i64.to_be_bytes();
    checked.extend_from_slice(&time); // first timestamp
    checked.extend_from_slice(&time); // greatest timestamp
    checked.extend_from_slice(&id.to_be_bytes());
    put_i16(&mut checked, epoch);
    put_i32(&mut checked, sequence);
    put_i32(&mut checked, 1); // records
    put_varint(&mut checked, record.len() as i32);
    checked.extend_from_slice(&record);

    let mut batch = vec![0; 8]; // base offset
    put_i32(&mut batch, checked.len() as i32 + 9);
    put_i32(&mut batch, -1); // partition leader epoch
    batch.push(2); // magic
    batch.extend_from_slice(&crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);
    batch
}

/// Zigzag, then seven bits a byte.
pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    let mut rest = ((value << 1) ^ (value >> 31)) as u32;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Gives a batch that was changed the length and CRC that belong to it.
pub fn sign(batch: &mut [u8]) {
    let length = (batch.len() as i32 - 12).to_be_bytes();
    batch[8..12].copy_from_slice(&length);
    let crc = crc32c(&batch[21..]).to_be_bytes();
    batch[17..21].copy_from_slice(&crc);
}

/// CRC-32C (Castagnoli), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}
