//! The configuration of a node: Kafka's keys from a Java properties file, checked and typed.
//!
//! [`ServerConfig::from_file`] is the only way in. It refuses what it does not understand, since a
//! key that is silently ignored is a setting the operator believes in. It opens nothing but that
//! one file, resolves no names and starts nothing. All keys: [`keys`], printed as
//! docs/configuration.md.

pub mod docs;
mod endpoints;
pub mod keys;
mod listeners;
pub mod uuid;
mod values;

pub use endpoints::{ValueFault, parse_endpoint, parse_remote, parse_remotes};
pub use listeners::Listener;

use crate::disk_io::FlushMethod;
use crate::properties::{PropertiesError, Property};
use listeners::WildcardHosts;
use quorate_raft::{Endpoint, NodeId, VoterSet};
use quorate_storage::ProducerLimits;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;
use values::Values;

/// Everything a node is told. Times are in milliseconds, sizes in bytes; the meaning, default and
/// range of each field is that of its key in docs/configuration.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The file that was read.
    pub path: PathBuf,
    /// `node.id`
    pub node_id: NodeId,
    /// Listeners for peers and administration. Never empty; the first is the raft default listener.
    pub controller_listeners: Vec<Listener>,
    /// Listeners for clients. May be empty.
    pub client_listeners: Vec<Listener>,
    /// The data directory: `metadata.log.dir`, else `log.dirs`. It holds meta.properties.
    pub log_dir: PathBuf,
    /// `controller.quorum.voters`, directory ids undefined. May be empty if there are bootstrap
    /// servers. This node is an observer if it is not among them.
    pub voters: VoterSet,
    /// `controller.quorum.bootstrap.servers`; empty: the voters.
    pub bootstrap_servers: Vec<Endpoint>,
    /// `controller.quorum.election.timeout.ms`
    pub election_timeout_ms: u64,
    /// `controller.quorum.fetch.timeout.ms`
    pub fetch_timeout_ms: u64,
    /// `controller.quorum.progress.timeout.ms`
    pub progress_timeout_ms: u64,
    /// `controller.quorum.election.backoff.max.ms`
    pub election_backoff_max_ms: u64,
    /// `controller.quorum.request.timeout.ms`
    pub request_timeout_ms: u64,
    /// `controller.quorum.retry.backoff.ms`
    pub retry_backoff_ms: u64,
    /// `controller.quorum.retry.backoff.max.ms`; never below `retry_backoff_ms`.
    pub retry_backoff_max_ms: u64,
    /// `controller.quorum.fetch.max.bytes`
    pub fetch_bytes_max: i32,
    /// `fetch.hw.linger.ms`
    pub fetch_hw_linger_ms: u64,
    /// `quorum.topic.name`
    pub topic_name: String,
    /// `quorum.topic.id`
    pub topic_id: [u8; 16],
    /// `cluster.id.strict`
    pub cluster_id_strict: bool,
    /// `metadata.log.segment.bytes` or its internal twin.
    pub segment_bytes: u64,
    /// `log.group.max.bytes`
    pub group_bytes_max: usize,
    /// `log.flush.method`; `None` is auto.
    pub flush_method: Option<FlushMethod>,
    /// `log.unflushed.max.bytes`; never below `group_bytes_max`.
    pub unflushed_bytes_max: usize,
    /// `log.max.bytes`, if there is a bound.
    pub log_bytes_max: Option<u64>,
    /// `log.tail.bytes`; never below `unflushed_bytes_max`.
    pub tail_bytes: usize,
    /// `produce.decompressed.max.bytes`
    pub decompressed_bytes_max: u64,
    /// `producer.ids.max` and `producer.id.expiration.ms`
    pub producers: ProducerLimits,
    /// `io.engine`
    pub io_engine: IoEngine,
    /// `quorate.cores`
    pub cores: Cores,
    /// `quorate.wait`
    pub wait: Wait,
    /// `quorate.pin.cpus`; empty: no pinning.
    pub pin_cpus: Vec<usize>,
    /// `quorate.client.loops`
    pub client_loops: usize,
    /// `quorate.frame.max.bytes`
    pub frame_bytes_max: usize,
    /// `quorate.connections.max`
    pub connections_max: usize,
    /// `quorate.in.flight.max.bytes`; never below `frame_bytes_max`.
    pub in_flight_bytes_max: usize,
    /// `quorate.answers.max.bytes`
    pub answers_bytes_max: usize,
    /// `quorate.connection.idle.ms`
    pub connection_idle_ms: u64,
    /// `admin.listener`; `None`: there is none. Port 0: whichever is free.
    pub admin_listener: Option<Endpoint>,
    /// `commit.slow.ms`; 0: slow commits are not told of.
    pub commit_slow_ms: u64,
}

/// `io.engine`: what carries I/O out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the host offers it, else threads.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll and threads.
    Threads,
}

/// `quorate.cores`: how raft loop and log writer are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// As the machine suggests.
    Auto,
    /// One thread for both.
    Fused,
    /// A thread each.
    Split,
}

/// `quorate.wait`: how a loop waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As the placement suggests.
    Auto,
    /// In the kernel, at once.
    Block,
    /// Looks around for a bounded time, then in the kernel.
    Adaptive,
}

/// Why a file is no configuration. Every message names the file and, where there is one, the line.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read (or is not UTF-8).
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no properties file.
    #[error("{}:{}: {source}", path.display(), source.line())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        source: PropertiesError,
    },
    /// A key that does not exist.
    #[error(
        "{}:{line}: there is no key {key:?} (value {value:?}); the nearest one is {nearest:?}",
        path.display()
    )]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The key that is spelt most like it.
        nearest: &'static str,
    },
    /// A value that its key does not take.
    #[error(
        "{}:{}: {}",
        path.display(), entry.line, invalid_value(entry, *allowed, fault.as_deref())
    )]
    InvalidValue {
        /// The file.
        path: PathBuf,
        /// The entry.
        entry: Box<Property>,
        /// What the key takes.
        allowed: keys::Kind,
        /// What exactly is wrong, if more can be said.
        fault: Option<Box<ValueFault>>,
    },
    /// A key that must be given.
    #[error("{}: {key} is missing; it takes {allowed}", path.display())]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What it takes.
        allowed: keys::Kind,
    },
    /// Neither of two keys of which one is needed.
    #[error("{}: neither {key} nor {or} is given; one of them is needed", path.display())]
    MissingEither {
        /// The file.
        path: PathBuf,
        /// One.
        key: &'static str,
        /// The other.
        or: &'static str,
    },
    /// A key under two names, with two values.
    #[error(
        "{}: {} (line {}, {:?}) and {} (line {}, {:?}) mean the same and differ; \
         remove one of them",
        path.display(), first.key, first.line, first.value, second.key, second.line, second.value
    )]
    AliasConflict {
        /// The file.
        path: PathBuf,
        /// The earlier one.
        first: Box<Property>,
        /// The later one.
        second: Box<Property>,
    },
}

fn invalid_value(entry: &Property, allowed: keys::Kind, fault: Option<&ValueFault>) -> String {
    let mut text = format!("{} = {:?} is not allowed", entry.key, entry.value);
    if let Some(fault) = fault {
        write!(text, ": {fault}").expect("a String takes everything");
    }
    write!(text, "; it takes {allowed}").expect("a String takes everything");
    text
}

impl ServerConfig {
    /// Reads and checks the configuration file at `path`.
    ///
    /// # Errors
    /// The first fault found, in words an operator can act on.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let text = fs::read_to_string(path).map_err(read)?;
        let host_name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self::from_text(path, &text, host_name.trim())
    }

    /// The configuration that `text` says. `path` is for messages; `host_name` is advertised for
    /// listeners on all interfaces (empty: `localhost`).
    ///
    /// # Errors
    /// As [`ServerConfig::from_file`].
    pub fn from_text(path: &Path, text: &str, host_name: &str) -> Result<Self, ConfigError> {
        let values = Values::new(path, text)?;
        check_roles(&values)?;
        let node_id = values.set_int(&keys::NODE_ID)?;
        let voters = read_voters(&values)?;
        let bootstrap_servers = read_bootstrap_servers(&values)?;
        if voters.is_empty() && bootstrap_servers.is_empty() {
            return Err(missing_either(
                &values,
                &keys::VOTERS,
                &keys::BOOTSTRAP_SERVERS,
            ));
        }
        let hosts = WildcardHosts::new(node_id, &voters, host_name);
        let (controller_listeners, client_listeners) = listeners::read(&values, &hosts)?;
        // Accepted for Kafka's sake; the number is checked and has no effect.
        values.set_int::<u64>(&keys::APPEND_LINGER)?;
        let config = Self {
            path: values.path().to_owned(),
            node_id,
            controller_listeners,
            client_listeners,
            log_dir: read_log_dir(&values)?,
            voters,
            bootstrap_servers,
            election_timeout_ms: values.set_int(&keys::ELECTION_TIMEOUT)?,
            fetch_timeout_ms: values.set_int(&keys::FETCH_TIMEOUT)?,
            progress_timeout_ms: read_progress_timeout(&values)?,
            election_backoff_max_ms: values.set_int(&keys::ELECTION_BACKOFF_MAX)?,
            request_timeout_ms: values.set_int(&keys::REQUEST_TIMEOUT)?,
            retry_backoff_ms: values.set_int(&keys::RETRY_BACKOFF)?,
            retry_backoff_max_ms: values.set_int(&keys::RETRY_BACKOFF_MAX)?,
            fetch_bytes_max: values.set_int(&keys::FETCH_MAX_BYTES)?,
            fetch_hw_linger_ms: values.set_int(&keys::FETCH_HW_LINGER)?,
            topic_name: read_topic_name(&values)?,
            topic_id: read_topic_id(&values)?,
            cluster_id_strict: values.bool(&keys::CLUSTER_ID_STRICT)?,
            segment_bytes: read_segment_bytes(&values)?,
            group_bytes_max: values.set_int(&keys::GROUP_BYTES_MAX)?,
            flush_method: values.one_of(&keys::FLUSH_METHOD, FLUSH_METHODS)?,
            unflushed_bytes_max: values.set_int(&keys::UNFLUSHED_BYTES_MAX)?,
            log_bytes_max: u64::try_from(values.set_int::<i64>(&keys::LOG_BYTES_MAX)?).ok(),
            tail_bytes: values.set_int(&keys::TAIL_BYTES)?,
            decompressed_bytes_max: values.set_int(&keys::DECOMPRESSED_BYTES_MAX)?,
            producers: ProducerLimits {
                ids_max: values.set_int(&keys::PRODUCER_IDS_MAX)?,
                expiration_ms: values.set_int(&keys::PRODUCER_ID_EXPIRATION)?,
            },
            io_engine: values.one_of(&keys::IO_ENGINE, IO_ENGINES)?,
            cores: values.one_of(&keys::CORES, CORES)?,
            wait: values.one_of(&keys::WAIT, WAITS)?,
            pin_cpus: read_pin_cpus(&values)?,
            client_loops: values.set_int(&keys::CLIENT_LOOPS)?,
            frame_bytes_max: values.set_int(&keys::FRAME_BYTES_MAX)?,
            connections_max: values.set_int(&keys::CONNECTIONS_MAX)?,
            in_flight_bytes_max: values.set_int(&keys::IN_FLIGHT_BYTES_MAX)?,
            answers_bytes_max: values.set_int(&keys::ANSWERS_BYTES_MAX)?,
            connection_idle_ms: values.set_int(&keys::CONNECTION_IDLE)?,
            admin_listener: parsed(
                &values,
                &keys::ADMIN_LISTENER,
                endpoints::parse_admin_listener,
            )?
            .flatten(),
            commit_slow_ms: values.set_int(&keys::COMMIT_SLOW)?,
        };
        check_order_of_limits(&values)?;
        Ok(config)
    }

    /// The raft default listener: where the other voters reach this node.
    #[must_use]
    pub fn raft_listener(&self) -> &Listener {
        &self.controller_listeners[0]
    }

    /// Where the log's files are: `<log_dir>/<topic>-0`.
    #[must_use]
    pub fn topic_dir(&self) -> PathBuf {
        self.log_dir.join(format!("{}-0", self.topic_name))
    }
}

const IO_ENGINES: &[(&str, IoEngine)] = &[
    ("auto", IoEngine::Auto),
    ("uring", IoEngine::Uring),
    ("threads", IoEngine::Threads),
];

const FLUSH_METHODS: &[(&str, Option<FlushMethod>)] = &[
    ("auto", None),
    ("parallel", Some(FlushMethod::Parallel)),
    ("linked", Some(FlushMethod::Linked)),
    ("dsync", Some(FlushMethod::Dsync)),
    ("thread", Some(FlushMethod::Thread)),
];

const CORES: &[(&str, Cores)] = &[
    ("auto", Cores::Auto),
    ("fused", Cores::Fused),
    ("split", Cores::Split),
];

const WAITS: &[(&str, Wait)] = &[
    ("auto", Wait::Auto),
    ("block", Wait::Block),
    ("adaptive", Wait::Adaptive),
];

fn missing_either(values: &Values, key: &keys::Key, or: &keys::Key) -> ConfigError {
    ConfigError::MissingEither {
        path: values.path().to_owned(),
        key: key.name,
        or: or.name,
    }
}

/// Runs `parse` on the value of `key`; a fault becomes the error that names key and line.
fn parsed<T>(
    values: &Values,
    key: &'static keys::Key,
    parse: impl FnOnce(&str) -> Result<T, ValueFault>,
) -> Result<Option<T>, ConfigError> {
    let parse = |text| parse(text).map_err(|fault| values.invalid(key, Some(fault)));
    values.text(key)?.map(parse).transpose()
}

fn check_roles(values: &Values) -> Result<(), ConfigError> {
    let roles = parsed(values, &keys::PROCESS_ROLES, |text| {
        let roles = endpoints::items(text)?;
        if roles.contains(&"broker") {
            return Err(ValueFault::BrokerRole);
        }
        Ok(roles == ["controller"])
    })?;
    match roles {
        Some(true) => Ok(()),
        _ => Err(values.invalid(&keys::PROCESS_ROLES, None)),
    }
}

fn read_voters(values: &Values) -> Result<VoterSet, ConfigError> {
    let voters = parsed(values, &keys::VOTERS, endpoints::parse_voters)?;
    Ok(voters.unwrap_or_default())
}

fn read_bootstrap_servers(values: &Values) -> Result<Vec<Endpoint>, ConfigError> {
    let servers = parsed(values, &keys::BOOTSTRAP_SERVERS, parse_remotes)?;
    Ok(servers.unwrap_or_default())
}

fn read_log_dir(values: &Values) -> Result<PathBuf, ConfigError> {
    if let Some(dir) = values.text(&keys::METADATA_LOG_DIR)? {
        return Ok(dir.into());
    }
    match values.text(&keys::LOG_DIRS)? {
        Some(dirs) if dirs.contains(',') => Err(values.invalid(&keys::LOG_DIRS, None)),
        Some(dir) => Ok(dir.into()),
        None => Err(missing_either(
            values,
            &keys::LOG_DIRS,
            &keys::METADATA_LOG_DIR,
        )),
    }
}

/// A leader gives up after one and a half fetch timeouts, as Kafka's (LeaderState). The key of the
/// KIP's drafts is understood, and refused if it asks for anything else.
fn read_progress_timeout(values: &Values) -> Result<u64, ConfigError> {
    let fetch_timeout: i64 = values.set_int(&keys::FETCH_TIMEOUT)?;
    let value = fetch_timeout * 3 / 2;
    let given = values.int(&keys::PROGRESS_TIMEOUT)?;
    if given.is_some_and(|given: i64| given != value) {
        let other = keys::FETCH_TIMEOUT.name;
        let fault = ValueFault::NotOneAndAHalf { other, value };
        return Err(values.invalid(&keys::PROGRESS_TIMEOUT, Some(fault)));
    }
    Ok(value.unsigned_abs())
}

/// Kafka's rule for topic names (org.apache.kafka.common.internals.Topic); it also keeps the name
/// from being a path.
fn read_topic_name(values: &Values) -> Result<String, ConfigError> {
    let name = values.text(&keys::TOPIC_NAME)?.unwrap_or_default();
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let valid = (1..=249).contains(&name.len()) && name.bytes().all(legal);
    if !valid || matches!(name, "." | "..") {
        return Err(values.invalid(&keys::TOPIC_NAME, None));
    }
    Ok(name.into())
}

fn read_topic_id(values: &Values) -> Result<[u8; 16], ConfigError> {
    let id = values.text(&keys::TOPIC_ID)?.and_then(uuid::decode);
    id.filter(|id| *id != [0; 16])
        .ok_or_else(|| values.invalid(&keys::TOPIC_ID, None))
}

fn read_segment_bytes(values: &Values) -> Result<u64, ConfigError> {
    let bytes = values.set_int(&keys::SEGMENT_BYTES)?;
    Ok(values.int(&keys::INTERNAL_SEGMENT_BYTES)?.unwrap_or(bytes))
}

fn read_pin_cpus(values: &Values) -> Result<Vec<usize>, ConfigError> {
    /// Linux counts no further (CPU_SETSIZE).
    const CPU_COUNT_MAX: usize = 1024;
    let Some(text) = values.text(&keys::PIN_CPUS)? else {
        return Ok(Vec::new());
    };
    let items = text.split(',').map(|item| item.trim().parse().ok());
    let cpus: Option<Vec<usize>> = items.collect();
    cpus.filter(|cpus| cpus.iter().all(|cpu| *cpu < CPU_COUNT_MAX))
        .filter(|cpus| endpoints::refuse_twice(cpus, ToString::to_string).is_ok())
        .ok_or_else(|| values.invalid(&keys::PIN_CPUS, None))
}

/// Limits of which one must fit into another.
fn check_order_of_limits(values: &Values) -> Result<(), ConfigError> {
    let pairs: [(&'static keys::Key, &'static keys::Key); 4] = [
        (&keys::RETRY_BACKOFF, &keys::RETRY_BACKOFF_MAX),
        (&keys::GROUP_BYTES_MAX, &keys::UNFLUSHED_BYTES_MAX),
        (&keys::UNFLUSHED_BYTES_MAX, &keys::TAIL_BYTES),
        (&keys::FRAME_BYTES_MAX, &keys::IN_FLIGHT_BYTES_MAX),
    ];
    for (small, large) in pairs {
        let (least, most): (i64, i64) = (values.set_int(small)?, values.set_int(large)?);
        if least > most {
            return Err(limits_out_of_order(values, (small, least), (large, most)));
        }
    }
    Ok(())
}

/// Blames the larger limit if the file sets it, else the smaller one.
fn limits_out_of_order(
    values: &Values,
    (small, least): (&'static keys::Key, i64),
    (large, most): (&'static keys::Key, i64),
) -> ConfigError {
    if values.entry(large).is_some() {
        let (other, value) = (small.name, least);
        return values.invalid(large, Some(ValueFault::BelowOther { other, value }));
    }
    let (other, value) = (large.name, most);
    values.invalid(small, Some(ValueFault::AboveOther { other, value }))
}

#[cfg(test)]
mod tests;
