//! Lists what is in a segment, a snapshot or a whole log, batch by batch, for people and scripts.
//! Reads only; a live log can be dumped.

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::file_disk::{FileDisk, LogFile};
use crate::format::{BatchHeader, Codec, ControlRecord, decode_control_record, records};
use crate::scan::{ScanError, Scanner};
use crate::segment::{SegmentFile, parse_segment_name};
use serde::{Serialize, Serializer};
use std::io;
use std::path::{Path, PathBuf};

/// One batch. Serializes to one JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BatchDump {
    /// Name of the file.
    pub segment: String,
    /// Byte of the file where it begins.
    pub position: u64,
    /// Size in bytes.
    pub size: usize,
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// Leader epoch.
    pub epoch: i32,
    /// How many records.
    pub count: i32,
    /// CRC-32C, as stored; it was checked.
    pub crc: u32,
    /// How the records are compressed.
    #[serde(serialize_with = "as_text")]
    pub codec: Codec,
    /// Largest timestamp in ms.
    pub max_timestamp: i64,
    /// Of an idempotent producer, else -1.
    pub producer_id: i64,
    /// Of an idempotent producer, else -1.
    pub producer_epoch: i16,
    /// Of an idempotent producer, else -1.
    pub base_sequence: i32,
    /// Control records, decoded, if it is a control batch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<String>,
    /// The records, if they were asked for and are not compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<RecordDump>>,
}

/// One record. Keys, values and headers are text where they are UTF-8, else hexadecimal after `0x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordDump {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp in ms.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<String>,
    /// Its value.
    pub value: Option<String>,
    /// Its headers, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, Option<String>)>,
}

fn as_text<S: Serializer>(codec: &Codec, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(codec)
}

/// Why a dump ended.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The disk failed, or there is no such file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// What stands there is no batch.
    #[error("{} at byte {position}: {fault}", path.display())]
    Fault {
        /// The file.
        path: PathBuf,
        /// Where.
        position: u64,
        /// What is wrong.
        fault: crate::format::BatchError,
    },
}

/// Lists the batches of a segment (`.log`), a snapshot (`.checkpoint`) or all segments of a
/// directory, in order. The zeros behind the end of an active segment end it; after an error
/// nothing more comes.
///
/// # Errors
/// If `path` cannot be read.
pub fn dump(path: &Path, with_records: bool) -> Result<Dump, DumpError> {
    let failed = |source| DumpError::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut files = if path.is_dir() {
        segment_files(path).map_err(failed)?
    } else {
        std::fs::metadata(path).map_err(failed)?;
        vec![path.to_path_buf()]
    };
    files.reverse();
    Ok(Dump {
        files,
        current: None,
        with_records,
    })
}

fn segment_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = FileDisk.list(dir)?;
    let is_log =
        |name: &&String| parse_segment_name(name).is_some_and(|(_, file)| file == SegmentFile::Log);
    Ok(names
        .iter()
        .filter(is_log)
        .map(|name| dir.join(name))
        .collect())
}

/// See [`dump`].
#[derive(Debug)]
pub struct Dump {
    /// Still to come, last first.
    files: Vec<PathBuf>,
    current: Option<Current>,
    with_records: bool,
}

#[derive(Debug)]
struct Current {
    path: PathBuf,
    scanner: Scanner<Box<LogFile>>,
}

impl Iterator for Dump {
    type Item = Result<BatchDump, DumpError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.current.is_none() {
                let path = self.files.pop()?;
                let opened = FileDisk.open(&path, OpenMode::Read);
                match opened.and_then(|file| Scanner::new(Box::new(file), 0, u64::MAX)) {
                    Ok(scanner) => self.current = Some(Current { path, scanner }),
                    Err(source) => return self.end(DumpError::Io { path, source }),
                }
            }
            match self.next_batch() {
                Ok(Some(batch)) => return Some(Ok(batch)),
                Ok(None) => self.current = None,
                Err(error) => return self.end(error),
            }
        }
    }
}

impl Dump {
    fn end<T>(&mut self, error: DumpError) -> Option<Result<T, DumpError>> {
        self.files.clear();
        self.current = None;
        Some(Err(error))
    }

    fn next_batch(&mut self) -> Result<Option<BatchDump>, DumpError> {
        let with_records = self.with_records;
        let Some(current) = &mut self.current else {
            return Ok(None);
        };
        let (path, position) = (&current.path, current.scanner.position());
        let io_error = |source| DumpError::Io {
            path: path.clone(),
            source,
        };
        let fault = match current.scanner.next() {
            Ok(None) => return Ok(None),
            Ok(Some(batch)) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let listed = describe(&name, position, &batch.header, batch.bytes, with_records);
                return Ok(Some(listed));
            }
            Err(ScanError::Io(source)) => return Err(io_error(source)),
            Err(ScanError::Fault(fault)) => fault,
        };
        if is_zeros(current.scanner.file(), position).map_err(io_error)? {
            return Ok(None);
        }
        Err(DumpError::Fault {
            path: path.clone(),
            position,
            fault,
        })
    }
}

/// Whether a header's worth of zeros stands there: the unused part of an active segment.
fn is_zeros(file: &LogFile, position: u64) -> io::Result<bool> {
    let mut header = [0; crate::format::BATCH_HEADER_BYTES];
    let count = file.read_at(&mut header, position)?;
    Ok(count > 0 && header.iter().all(|&byte| byte == 0))
}

fn describe(
    segment: &str,
    position: u64,
    header: &BatchHeader,
    bytes: &[u8],
    with_records: bool,
) -> BatchDump {
    let is_plain = header.codec() == Codec::None;
    BatchDump {
        segment: segment.to_owned(),
        position,
        size: header.size,
        base_offset: header.base_offset.0,
        last_offset: header.last_offset().0,
        epoch: header.epoch.0,
        count: header.count,
        crc: header.crc,
        codec: header.codec(),
        max_timestamp: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        control: if header.is_control() {
            control(bytes)
        } else {
            Vec::new()
        },
        records: (with_records && is_plain).then(|| record_dumps(bytes)),
    }
}

fn control(bytes: &[u8]) -> Vec<String> {
    let Ok(records) = records(bytes) else {
        return Vec::new();
    };
    let describe = |record| match decode_control_record(&record) {
        Ok(control) => describe_control(&control),
        Err(error) => error.to_string(),
    };
    records.flatten().map(describe).collect()
}

fn describe_control(control: &ControlRecord) -> String {
    match control {
        ControlRecord::LeaderChange(change) => format!(
            "LEADER_CHANGE leader {} voters {:?} granting {:?}",
            change.leader_id, change.voters, change.granting_voters
        ),
        ControlRecord::SnapshotHeader {
            last_contained_log_timestamp,
        } => format!("SNAPSHOT_HEADER last timestamp {last_contained_log_timestamp}"),
        ControlRecord::SnapshotFooter => "SNAPSHOT_FOOTER".into(),
        ControlRecord::KRaftVersion(version) => format!("KRAFT_VERSION {version}"),
        ControlRecord::KRaftVoters { count } => format!("KRAFT_VOTERS {count} voters"),
        ControlRecord::Unknown(kind) => format!("UNKNOWN type {kind}"),
    }
}

fn record_dumps(bytes: &[u8]) -> Vec<RecordDump> {
    let Ok(records) = records(bytes) else {
        return Vec::new();
    };
    let describe = |record: crate::format::Record<'_>| RecordDump {
        offset: record.offset.0,
        timestamp: record.timestamp,
        key: record.key.map(printable),
        value: record.value.map(printable),
        headers: (record.headers.iter())
            .map(|(key, value)| (printable(key), value.map(printable)))
            .collect(),
    };
    records.flatten().map(describe).collect()
}

fn printable(bytes: &[u8]) -> String {
    use fmt::Write;
    use std::fmt;
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testdata(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("testdata")
            .join(name)
    }

    #[test]
    fn kafkas_segment_is_listed_with_its_control_record() {
        let listed = dump(&testdata("testraftserver-single-node.log"), false).unwrap();
        let batches: Vec<_> = listed.map(Result::unwrap).collect();
        assert_eq!(
            batches[0].control,
            ["LEADER_CHANGE leader 1 voters [1] granting [1]"]
        );
        assert_eq!((batches[1].position, batches[1].base_offset), (91, 1));
        let json = serde_json::to_value(&batches[0]).unwrap();
        assert_eq!(json["codec"], "none");
        assert_eq!(json["crc"], 0xa174_0fe5_u32);
        assert!(json.get("records").is_none());
    }

    #[test]
    fn kafkas_snapshot_is_listed_with_records() {
        let path = testdata("bootstrap-standalone-0-0.checkpoint");
        let batches: Vec<_> = dump(&path, true).unwrap().map(Result::unwrap).collect();
        assert!(batches[0].control[0].starts_with("SNAPSHOT_HEADER"));
        assert!(batches.iter().all(|batch| {
            batch
                .records
                .as_ref()
                .is_some_and(|records| records.len() == batch.count as usize)
        }));
    }

    #[test]
    fn a_fault_is_named_and_ends_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = std::fs::read(testdata("testraftserver-single-node.log")).unwrap();
        content[150] ^= 1;
        let path = dir.path().join("00000000000000000000.log");
        std::fs::write(&path, content).unwrap();
        let listed: Vec<_> = dump(dir.path(), false).unwrap().collect();
        assert_eq!(listed.len(), 2);
        assert!(matches!(
            listed[1],
            Err(DumpError::Fault { position: 91, .. })
        ));
        assert!(dump(Path::new("/no/such/file"), false).is_err());
    }
}
