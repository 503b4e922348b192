//! `meta.properties`: whose data directory this is (Kafka's MetaProperties, version 1).
//!
//! Written once, by formatting, and never changed afterwards. Reading understands what Kafka
//! writes; unknown keys are passed over, as Kafka does. Nothing here decides whether a node may
//! start.

use crate::config::uuid;
use crate::properties::{self, PropertiesError};
use quorate_raft::NodeId;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "meta.properties";

/// The identity of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// `cluster.id`: the same on all nodes of a cluster. Any text; mostly 22 characters of
    /// base64url.
    pub cluster_id: String,
    /// `node.id`
    pub node_id: NodeId,
    /// `directory.id`: this directory among all others, ever.
    pub directory_id: [u8; 16],
}

/// Why a meta.properties cannot be used.
#[derive(Debug, Error)]
pub enum MetaError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no properties file.
    #[error("{}:{}: {source}", path.display(), source.line())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PropertiesError,
    },
    /// It has a version that is not known.
    #[error("{} has version {version:?}; this release knows version 1", path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: String,
    },
    /// A key is not there.
    #[error("{} has no {key}", path.display())]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// Which.
        key: &'static str,
    },
    /// A value is not one.
    #[error("{}: {key} is {value:?}, which is no {expected}", path.display())]
    InvalidValue {
        /// The file.
        path: PathBuf,
        /// Which.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Meta {
    /// The identity that `text`, read from `path`, states.
    ///
    /// # Errors
    /// Another version than 1, a key missing or malformed.
    pub fn parse(path: &Path, text: &str) -> Result<Self, MetaError> {
        let syntax = |source| MetaError::Syntax {
            path: path.to_owned(),
            source,
        };
        let properties = properties::parse(text).map_err(syntax)?;
        let get = |key: &'static str| {
            let found = properties.iter().find(|property| property.key == key);
            found
                .map(|property| property.value.trim())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| MetaError::MissingKey {
                    path: path.to_owned(),
                    key,
                })
        };
        let invalid = |key, value: &str, expected| MetaError::InvalidValue {
            path: path.to_owned(),
            key,
            value: value.to_owned(),
            expected,
        };
        match get("version")? {
            "1" => {}
            version => {
                return Err(MetaError::UnknownVersion {
                    path: path.to_owned(),
                    version: version.to_owned(),
                });
            }
        }
        let (node_id, directory_id) = (get("node.id")?, get("directory.id")?);
        let node = node_id.parse().ok().filter(|id: &NodeId| *id >= 0);
        let directory = uuid::decode(directory_id);
        Ok(Self {
            cluster_id: get("cluster.id")?.to_owned(),
            node_id: node.ok_or_else(|| invalid("node.id", node_id, "node id"))?,
            directory_id: directory
                .ok_or_else(|| invalid("directory.id", directory_id, "22-character id"))?,
        })
    }

    /// The text of the file, with the time of writing (seconds since 1970, UTC) as Java has it.
    #[must_use]
    pub fn encode(&self, written_at_s: u64) -> String {
        let (node_id, directory_id) = (self.node_id.to_string(), uuid::encode(self.directory_id));
        properties::write(
            &["", &java_date(written_at_s)],
            &[
                ("node.id", &node_id),
                ("directory.id", &directory_id),
                ("version", "1"),
                ("cluster.id", &self.cluster_id),
            ],
        )
    }

    /// The identity of the data directory `dir`; `None` if it has no meta.properties (or is not
    /// there at all).
    ///
    /// # Errors
    /// The file is there and cannot be read or used.
    pub fn read(dir: &Path) -> Result<Option<Self>, MetaError> {
        let path = dir.join(FILE_NAME);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(MetaError::Read { path, source }),
        }
    }

    /// Writes the file into `dir`. After success it is durable; after a crash it is whole or
    /// absent.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, dir: &Path, written_at_s: u64) -> io::Result<()> {
        write_durably(dir, FILE_NAME, self.encode(written_at_s).as_bytes())
    }
}

/// Replaces the file `name` in `dir`: temporary name, flush, rename, flush of the directory.
pub(crate) fn write_durably(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    sync_dir(dir)
}

/// Makes what was created or renamed in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// `java.util.Date.toString` in UTC: `Mon Nov 30 16:47:11 UTC 2026`.
fn java_date(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = unix_s / 86_400;
    let second = unix_s % 86_400;
    let (year, month, day) = civil_from_days(days);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// Year, month from 0, day from 1 of the `days`-th day after 1 January 1970.
fn civil_from_days(mut days: u64) -> (u64, usize, u64) {
    /// Days of four hundred years: the calendar repeats itself after them.
    const ERA_DAYS: u64 = 146_097;
    let divides = |divisor: u64, year: u64| year.is_multiple_of(divisor);
    let is_leap = |year: u64| divides(4, year) && (!divides(100, year) || divides(400, year));
    let mut year = 1970 + days / ERA_DAYS * 400;
    days %= ERA_DAYS;
    loop {
        let length = 365 + u64::from(is_leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `kafka-storage format` of Kafka 4.4.0 wrote.
    const GOLDEN: &str = "#\n#Mon Nov 30 16:47:11 UTC 2026\nnode.id=7\n\
        directory.id=HSf8pubbSH2hrykbyaOraA\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n";
    const GOLDEN_TIME: u64 = 1_796_057_231;

    fn parse(text: &str) -> Result<Meta, String> {
        Meta::parse(Path::new("/d/meta.properties"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn kafkas_file_is_read_and_written_byte_for_byte() {
        let meta = parse(GOLDEN).unwrap();
        assert_eq!(meta.node_id, 7);
        assert_eq!(meta.cluster_id, "MkU3OEVBNTcwNTJENDM2Qg");
        assert_eq!(meta.encode(GOLDEN_TIME), GOLDEN);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_735_689_599, "Tue Dec 31 23:59:59 UTC 2024"),
            (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(java_date(unix_s), date);
        }
    }

    #[test]
    fn unknown_keys_are_passed_over() {
        assert!(parse(&format!("{GOLDEN}future.key=1\n")).is_ok());
    }

    #[test]
    fn faults_name_the_file_and_the_key() {
        for (from, to, says) in [
            ("version=1\n", "", "has no version"),
            ("version=1", "version=2", "version \"2\""),
            ("cluster.id=M", "cluster=M", "has no cluster.id"),
            ("node.id=7", "node.id=-7", "node.id is \"-7\""),
            ("node.id=7", "broker.id=7", "has no node.id"),
            ("HSf8pubb", "HSf8", "directory.id is \"HSf8SH2"),
            (
                "version=1",
                "version=1\nversion=1",
                "stands already on line 5",
            ),
        ] {
            assert!(GOLDEN.contains(from));
            let fault = parse(&GOLDEN.replace(from, to)).unwrap_err();
            assert!(fault.contains(says), "{says}: {fault}");
            assert!(fault.contains("/d/meta.properties"), "{fault}");
        }
    }

    #[test]
    fn a_written_file_is_read_back_and_leaves_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Meta::read(dir.path()).unwrap(), None);
        let meta = parse(GOLDEN).unwrap();
        meta.write(dir.path(), GOLDEN_TIME).unwrap();
        assert_eq!(Meta::read(dir.path()).unwrap(), Some(meta));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        assert!(matches!(
            Meta::read(dir.path()),
            Err(MetaError::Read { .. })
        ));
    }
}
