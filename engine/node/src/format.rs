//! Formatting: giving a data directory its identity, and checking it before a node starts.
//!
//! Formatting is always an operator's explicit act. A node never creates a log that is missing: an
//! unmounted volume would turn a voter that promised votes and acknowledged records into one that
//! remembers nothing, and a majority of such voters elects a leader without the committed records.
//!
//! On disk a formatted directory has `meta.properties` and `<topic>-0/partition.metadata`; the
//! latter is written first, so a directory with the former but not the latter has lost its log.

pub use crate::meta_properties::Meta;

use crate::config::{ServerConfig, uuid};
use crate::meta_properties::{self, MetaError};
use quorate_raft::NodeId;
use quorate_storage::format::{
    FileFormatError, decode_partition_metadata, encode_partition_metadata,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Names the topic id inside the log's directory, as Kafka does for every partition.
const PARTITION_METADATA: &str = "partition.metadata";

/// What an operator asks for.
#[derive(Clone, Copy, Debug)]
pub struct FormatRequest<'a> {
    /// The cluster id; `None`: a random one, or that of a directory that is formatted already.
    pub cluster_id: Option<&'a str>,
    /// Whether a directory that is formatted already, for this node and cluster, is fine.
    pub ignore_formatted: bool,
    /// The time, in seconds since 1970.
    pub now_s: u64,
}

/// What formatting found or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formatted {
    /// The directory got this identity.
    New(Meta),
    /// It had this one, and nothing was changed.
    Already(Meta),
}

/// Why a directory is not formatted, or not for this node.
#[derive(Debug, Error)]
pub enum FormatError {
    /// No meta.properties.
    #[error(
        "{} is not formatted (it has no meta.properties). If this node is new, run: \
         quorate format --config {}. If it ran before, its volume may not be mounted",
        dir.display(), config.display()
    )]
    NotFormatted {
        /// The data directory.
        dir: PathBuf,
        /// The configuration file.
        config: PathBuf,
    },
    /// It is formatted, and `--ignore-formatted` was not given.
    #[error(
        "{} is already formatted, for node {node_id} of cluster {cluster_id}; --ignore-formatted \
         leaves it as it is and succeeds",
        dir.display()
    )]
    AlreadyFormatted {
        /// The data directory.
        dir: PathBuf,
        /// Its node.
        node_id: NodeId,
        /// Its cluster.
        cluster_id: String,
    },
    /// It belongs to another node.
    #[error(
        "{} has node.id={found}, but {} has node.id={configured}: this directory belongs to \
         another node; correct node.id or the directory in the configuration",
        path.display(), config.display()
    )]
    OtherNode {
        /// The meta.properties.
        path: PathBuf,
        /// Its node.
        found: NodeId,
        /// The configuration file.
        config: PathBuf,
        /// The node configured there.
        configured: NodeId,
    },
    /// It belongs to another cluster.
    #[error(
        "{} has cluster.id={found}, but the cluster id given is {given}: this directory belongs to \
         another cluster",
        path.display()
    )]
    OtherCluster {
        /// The meta.properties.
        path: PathBuf,
        /// Its cluster.
        found: String,
        /// The one asked for.
        given: String,
    },
    /// It has a log of another topic id.
    #[error(
        "{} has topic_id {found}, but quorum.topic.id in {} is {configured}",
        path.display(), config.display()
    )]
    OtherTopic {
        /// The partition.metadata.
        path: PathBuf,
        /// Its id.
        found: String,
        /// The configuration file.
        config: PathBuf,
        /// The id configured there.
        configured: String,
    },
    /// Identity without a log.
    #[error(
        "{} says that this directory is node {node_id}'s, but its log is missing ({} is not \
         there): the data is lost, or another topic name or directory is configured; this node \
         does not start, since it would forget what it promised",
        meta.display(), missing.display()
    )]
    LogMissing {
        /// The meta.properties.
        meta: PathBuf,
        /// Its node.
        node_id: NodeId,
        /// What was looked for.
        missing: PathBuf,
    },
    /// A log without an identity.
    #[error(
        "{} holds data, but {} has no meta.properties; formatting would take a log of unknown \
         origin for this node's: move it away first",
        log.display(), dir.display()
    )]
    LogWithoutMeta {
        /// The log's directory.
        log: PathBuf,
        /// The data directory.
        dir: PathBuf,
    },
    /// A cluster id with characters that cannot be one.
    #[error(
        "{given:?} is no cluster id: 1 to 255 visible characters without spaces; \
         quorate random-uuid makes a good one"
    )]
    BadClusterId {
        /// The one given.
        given: String,
    },
    /// meta.properties cannot be used.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// partition.metadata cannot be used.
    #[error("{} is damaged: {source}", path.display())]
    BadPartitionMetadata {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: FileFormatError,
    },
    /// The file system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Formats the data directory of `config`, creating it if need be. Nothing is changed on an error
/// other than [`FormatError::Io`]; after that one, formatting again is safe.
///
/// # Errors
/// The directory is formatted already (for somebody else, or without `ignore_formatted`), holds
/// data of unknown origin, or cannot be written.
pub fn format(config: &ServerConfig, request: FormatRequest<'_>) -> Result<Formatted, FormatError> {
    if let Some(given) = request.cluster_id {
        check_cluster_id(given)?;
    }
    if let Some(meta) = Meta::read(&config.log_dir)? {
        check_node(config, &meta)?;
        check_cluster(config, &meta, request.cluster_id)?;
        if !request.ignore_formatted {
            return Err(FormatError::AlreadyFormatted {
                dir: config.log_dir.clone(),
                node_id: meta.node_id,
                cluster_id: meta.cluster_id,
            });
        }
        return Ok(Formatted::Already(meta));
    }
    refuse_foreign_log(config)?;
    let meta = new_meta(config, request.cluster_id)?;
    write_directory(config, &meta, request.now_s)?;
    Ok(Formatted::New(meta))
}

/// The identity of the data directory of `config`, if a node with this configuration may start on
/// it. Changes nothing.
///
/// # Errors
/// Not formatted, formatted for another node or topic, or its log is missing.
pub fn check_formatted(config: &ServerConfig) -> Result<Meta, FormatError> {
    let Some(meta) = Meta::read(&config.log_dir)? else {
        return Err(FormatError::NotFormatted {
            dir: config.log_dir.clone(),
            config: config.path.clone(),
        });
    };
    check_node(config, &meta)?;
    let missing = config.topic_dir().join(PARTITION_METADATA);
    let Some(topic_id) = read_topic_id(&missing)? else {
        return Err(FormatError::LogMissing {
            meta: meta_path(config),
            node_id: meta.node_id,
            missing,
        });
    };
    if topic_id != config.topic_id {
        return Err(FormatError::OtherTopic {
            path: missing,
            found: uuid::encode(topic_id),
            config: config.path.clone(),
            configured: uuid::encode(config.topic_id),
        });
    }
    Ok(meta)
}

fn meta_path(config: &ServerConfig) -> PathBuf {
    config.log_dir.join(meta_properties::FILE_NAME)
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FormatError {
    let path = path.to_owned();
    move |source| FormatError::Io {
        operation,
        path,
        source,
    }
}

/// Kafka takes any text; what cannot stand in an argument or a line is refused.
fn check_cluster_id(given: &str) -> Result<(), FormatError> {
    if (1..=255).contains(&given.len()) && given.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let given = given.to_owned();
    Err(FormatError::BadClusterId { given })
}

fn check_node(config: &ServerConfig, meta: &Meta) -> Result<(), FormatError> {
    if meta.node_id == config.node_id {
        return Ok(());
    }
    Err(FormatError::OtherNode {
        path: meta_path(config),
        found: meta.node_id,
        config: config.path.clone(),
        configured: config.node_id,
    })
}

fn check_cluster(
    config: &ServerConfig,
    meta: &Meta,
    given: Option<&str>,
) -> Result<(), FormatError> {
    match given {
        Some(given) if given != meta.cluster_id => Err(FormatError::OtherCluster {
            path: meta_path(config),
            found: meta.cluster_id.clone(),
            given: given.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// A log's directory may hold what an interrupted formatting leaves, and nothing else.
fn refuse_foreign_log(config: &ServerConfig) -> Result<(), FormatError> {
    let log = config.topic_dir();
    let entries = match fs::read_dir(&log) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("read the directory", &log)(error)),
    };
    for entry in entries {
        let name = entry
            .map_err(io_error("read the directory", &log))?
            .file_name();
        if !name.to_string_lossy().starts_with(PARTITION_METADATA) {
            let dir = config.log_dir.clone();
            return Err(FormatError::LogWithoutMeta { log, dir });
        }
    }
    Ok(())
}

fn new_meta(config: &ServerConfig, cluster_id: Option<&str>) -> Result<Meta, FormatError> {
    let source = Path::new("/dev/urandom");
    let random = || uuid::random().map_err(io_error("read", source));
    let cluster_id = match cluster_id {
        Some(given) => given.to_owned(),
        None => uuid::encode(random()?),
    };
    Ok(Meta {
        cluster_id,
        node_id: config.node_id,
        directory_id: random()?,
    })
}

/// The log's directory first, the identity last: what is there without it is not formatted.
fn write_directory(config: &ServerConfig, meta: &Meta, now_s: u64) -> Result<(), FormatError> {
    let log = config.topic_dir();
    fs::create_dir_all(&log).map_err(io_error("create the directory", &log))?;
    let content = encode_partition_metadata(config.topic_id);
    meta_properties::write_durably(&log, PARTITION_METADATA, &content)
        .map_err(io_error("write partition.metadata in", &log))?;
    sync_with_parent(&config.log_dir)?;
    meta.write(&config.log_dir, now_s)
        .map_err(io_error("write meta.properties in", &config.log_dir))
}

/// Makes `dir` and its own entry durable. Directories further up are the operator's.
fn sync_with_parent(dir: &Path) -> Result<(), FormatError> {
    let parent = dir.parent().filter(|parent| *parent != Path::new(""));
    for dir in [dir, parent.unwrap_or(Path::new("."))] {
        meta_properties::sync_dir(dir).map_err(io_error("flush the directory", dir))?;
    }
    Ok(())
}

/// The topic id that `path` names; `None` if there is no such file.
fn read_topic_id(path: &Path) -> Result<Option<[u8; 16]>, FormatError> {
    let content = match fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    let damaged = |source| FormatError::BadPartitionMetadata {
        path: path.to_owned(),
        source,
    };
    decode_partition_metadata(&content)
        .map(Some)
        .map_err(damaged)
}

#[cfg(test)]
mod tests;
