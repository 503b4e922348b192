//! Every configuration key in one table: name, older names, what is allowed, default, meaning.
//!
//! Reading ([`super::values`]), error messages and `docs/configuration.md` all come from here, so
//! none of them can tell another story. Nothing here reads a file.

use std::fmt;

/// One key of the configuration file.
#[derive(Debug)]
pub struct Key {
    /// The name, Kafka's where Kafka has one.
    pub name: &'static str,
    /// Older names of KIP-595 that mean the same.
    pub aliases: &'static [&'static str],
    /// What values there are.
    pub kind: Kind,
    /// What holds when the key is absent.
    pub default: Absent,
    /// What it is for.
    pub doc: &'static str,
}

/// The value when a key is absent.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// There is none: the key must be given.
    Required,
    /// Written as in a file.
    Value(&'static str),
    /// Derived from other keys; the words say how.
    Derived(&'static str),
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number in `min..=max`.
    Int {
        /// Least.
        min: i64,
        /// Greatest.
        max: i64,
        /// What it counts: `ms`, `bytes`, or nothing.
        unit: &'static str,
    },
    /// `true` or `false`.
    Bool,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Text; the words say of what form.
    Text(&'static str),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int { min, max, unit } => {
                let space = if unit.is_empty() { "" } else { " " };
                write!(f, "a whole number from {min} to {max}{space}{unit}")
            }
            Self::Bool => f.write_str("true or false"),
            Self::OneOf([only]) => f.write_str(only),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text(form) => f.write_str(form),
        }
    }
}

const MIB: i64 = 1024 * 1024;
/// Batches are at most this large (Kafka's internal.metadata.max.batch.size.in.bytes).
const BATCH_BYTES_MAX: i64 = 8 * MIB;

const fn ms(min: i64) -> Kind {
    let max = i32::MAX as i64;
    Kind::Int {
        min,
        max,
        unit: "ms",
    }
}

const fn bytes(min: i64, max: i64) -> Kind {
    Kind::Int {
        min,
        max,
        unit: "bytes",
    }
}

const fn count(min: i64, max: i64) -> Kind {
    Kind::Int { min, max, unit: "" }
}

macro_rules! keys {
    ($(
        $id:ident = $name:literal $(also $alias:literal)*,
        $kind:expr,
        $default:expr,
        $doc:literal;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub static $id: Key = Key {
                name: $name,
                aliases: &[$($alias),*],
                kind: $kind,
                default: $default,
                doc: $doc,
            };
        )*
        /// All keys, in the order of the documentation.
        pub static ALL: &[&Key] = &[$(&$id),*];
    };
}

use Absent::{Derived, Required, Value};

keys! {
    NODE_ID = "node.id", count(0, i32::MAX as i64), Required,
        "Id of this node, unique in the cluster. It is stored when the directory is formatted and \
         cannot change afterwards.";
    PROCESS_ROLES = "process.roles", Kind::OneOf(&["controller"]), Required,
        "What this process is. Quorate is a metadata quorum and has no brokers.";
    LISTENERS = "listeners", Kind::Text("NAME://host:port, separated by commas"), Required,
        "Where this node listens. No host: on all interfaces. IPv6 addresses stand in brackets. \
         Listeners that controller.listener.names does not name serve clients (Produce, Fetch as \
         a consumer); without any, this node serves peers only.";
    ADVERTISED_LISTENERS = "advertised.listeners",
        Kind::Text("NAME://host:port, separated by commas"),
        Derived("as `listeners`"),
        "What others are told to connect to, by listener name. A listener on all interfaces that \
         is not named here is advertised as this node's entry in controller.quorum.voters (first \
         controller listener), else by the host name, else as localhost.";
    CONTROLLER_LISTENER_NAMES = "controller.listener.names",
        Kind::Text("names from listeners, separated by commas"),
        Required,
        "The listeners for peers and for administration with --bootstrap-controller. The first is \
         the one that voters use among themselves.";
    LISTENER_SECURITY_PROTOCOL_MAP = "listener.security.protocol.map",
        Kind::Text("NAME:PLAINTEXT, separated by commas"),
        Derived("PLAINTEXT for every name"),
        "The security protocol of each listener. A listener in use must be PLAINTEXT; entries of \
         unused names may say anything.";
    LOG_DIRS = "log.dirs",
        Kind::Text("the path of one directory"),
        Derived("must be given unless metadata.log.dir is"),
        "The data directory. There is one log, so there is one directory.";
    METADATA_LOG_DIR = "metadata.log.dir",
        Kind::Text("the path of one directory"),
        Derived("as `log.dirs`"),
        "The data directory. If it is given, log.dirs is not used.";
    VOTERS = "controller.quorum.voters" also "quorum.voters",
        Kind::Text("id@host:port, separated by commas"),
        Derived("must be given unless controller.quorum.bootstrap.servers is"),
        "The voters, the same on every node. A node whose id is not among them is an observer: it \
         follows the log and does not vote.";
    BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers" also "bootstrap.servers",
        Kind::Text("host:port, separated by commas"),
        Derived("the voters"),
        "Where to ask for the leader. May name observers or one virtual address.";
    ELECTION_TIMEOUT = "controller.quorum.election.timeout.ms" also "quorum.election.timeout.ms",
        ms(1),
        Value("1000"),
        "How long a candidate waits for a majority of votes before it tries again. A random time \
         up to the same length is added.";
    FETCH_TIMEOUT = "controller.quorum.fetch.timeout.ms" also "quorum.fetch.timeout.ms",
        ms(1),
        Value("2000"),
        "How long a voter goes without an answer of the leader before it starts an election.";
    PROGRESS_TIMEOUT = "controller.quorum.progress.timeout.ms" also "quorum.progress.timeout.ms",
        ms(1),
        Derived("1.5 x `controller.quorum.fetch.timeout.ms`"),
        "How long a leader goes without a Fetch from a majority before it resigns. Fixed at its \
         default, as in Kafka: any other value is refused.";
    ELECTION_BACKOFF_MAX = "controller.quorum.election.backoff.max.ms"
        also "quorum.election.jitter.max.ms",
        ms(0),
        Value("1000"),
        "Upper bound of the wait of a voter that is not the first successor a resigning leader \
         names.";
    REQUEST_TIMEOUT = "controller.quorum.request.timeout.ms" also "quorum.request.timeout.ms",
        ms(1),
        Value("2000"),
        "How long a request to a peer may go unanswered before its connection is given up.";
    RETRY_BACKOFF = "controller.quorum.retry.backoff.ms" also "quorum.retry.backoff.ms",
        ms(0),
        Value("20"),
        "Wait before a request to a peer is tried again; doubles with each failure, with jitter.";
    RETRY_BACKOFF_MAX = "controller.quorum.retry.backoff.max.ms" also "quorum.retry.backoff.max.ms",
        ms(0),
        Value("1000"),
        "Upper bound of that wait. Not below controller.quorum.retry.backoff.ms.";
    APPEND_LINGER = "controller.quorum.append.linger.ms", ms(0), Value("0"),
        "Accepted so that Kafka's files can be used as they are. It has no effect: appends are \
         grouped while the group before them is being written, without a timer. (Kafka's default \
         is 25.)";
    FETCH_MAX_BYTES = "controller.quorum.fetch.max.bytes",
        bytes(1, BATCH_BYTES_MAX),
        Value("1048576"),
        "Records asked for in one Fetch from the leader. One whole batch is always sent.";
    TOPIC_NAME = "quorum.topic.name",
        Kind::Text("1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'"),
        Value("__cluster_metadata"),
        "Name of the log's topic, the same on every node. Names the directory \
         <log.dirs>/<name>-0.";
    TOPIC_ID = "quorum.topic.id",
        Kind::Text("22 characters of base64url, not all zero"),
        Value("AAAAAAAAAAAAAAAAAAAAAQ"),
        "Id of the log's topic, the same on every node.";
    CLUSTER_ID_STRICT = "cluster.id.strict", Kind::Bool, Value("false"),
        "Whether requests of peers that name no cluster id are refused. A wrong one always is.";
    SEGMENT_BYTES = "metadata.log.segment.bytes",
        bytes(BATCH_BYTES_MAX, i32::MAX as i64),
        Value("67108864"),
        "Size of a segment file. It is zeroed ahead of use, so Kafka's default of 1 GiB would \
         cost its size in writes per roll; this one is smaller.";
    INTERNAL_SEGMENT_BYTES = "internal.metadata.log.segment.bytes",
        bytes(65536, i32::MAX as i64),
        Derived("as `metadata.log.segment.bytes`"),
        "The same without the lower limit, for tests. Overrides metadata.log.segment.bytes.";
    FETCH_HW_LINGER = "fetch.hw.linger.ms", ms(0), Value("5"),
        "How long a leader may hold an answer to a follower that would carry nothing but a newer \
         high watermark. Records that come meanwhile take it with them. 0: it is sent at once.";
    GROUP_BYTES_MAX = "log.group.max.bytes", bytes(4096, BATCH_BYTES_MAX), Value("1048576"),
        "Most bytes of appends written and flushed as one group. A single larger batch is a group \
         of its own.";
    FLUSH_METHOD = "log.flush.method",
        Kind::OneOf(&["auto", "parallel", "linked", "dsync", "thread"]), Value("auto"),
        "By which operations a group becomes durable. parallel: its writes side by side, then \
         fdatasync. linked: a chain of both, in one submission. dsync: forced writes. thread: a \
         thread in plain system calls. auto: what `quorate format` found to be best on this disk \
         and stored in the file flush-method of log.dirs, else parallel.";
    UNFLUSHED_BYTES_MAX = "log.unflushed.max.bytes", bytes(MIB, 1024 * MIB), Value("16777216"),
        "Appends waiting for their flush above which a leader takes no more for now. Not below \
         log.group.max.bytes.";
    LOG_BYTES_MAX = "log.max.bytes", bytes(-1, i64::MAX), Value("-1"),
        "Size of the log from which on its leader refuses what clients append (POLICY_VIOLATION); \
         from 90 % of it on there is an alarm. What leaders themselves write, and replication, go \
         on whatever the size. -1: no bound.";
    TAIL_BYTES = "log.tail.bytes", bytes(MIB, 16 * 1024 * MIB), Value("33554432"),
        "Newest part of the log kept in memory for followers and consumers that keep up. Not \
         below log.unflushed.max.bytes.";
    DECOMPRESSED_BYTES_MAX = "produce.decompressed.max.bytes", bytes(MIB, 1024 * MIB),
        Value("67108864"),
        "Records of a compressed batch, decompressed: every record is looked at before the batch \
         is appended. A larger batch is answered MESSAGE_TOO_LARGE.";
    PRODUCER_IDS_MAX = "producer.ids.max", count(16, 16_777_216), Value("65536"),
        "Idempotent producers that are remembered, some 200 bytes each. Of more than that, the one \
         that wrote least recently is forgotten: a batch that it sends again then is a new one. \
         The same on all nodes.";
    PRODUCER_ID_EXPIRATION = "producer.id.expiration.ms", ms(1), Value("86400000"),
        "Silence after which an idempotent producer is forgotten, by the leader's own clock. It \
         may go on at any sequence number then.";
    IO_ENGINE = "io.engine", Kind::OneOf(&["auto", "uring", "threads"]), Value("auto"),
        "What carries reads, writes and flushes out. uring: io_uring, or the node does not start. \
         threads: epoll and plain system calls on threads, slower and as durable. auto: io_uring, \
         and threads, with a warning, where the host forbids io_uring or is too old for it.";
    CORES = "quorate.cores", Kind::OneOf(&["auto", "fused", "split"]), Value("auto"),
        "Whether raft loop and log writer share a thread (fused) or have one each (split). auto: \
         split with at least four CPUs.";
    WAIT = "quorate.wait", Kind::OneOf(&["auto", "block", "adaptive"]), Value("auto"),
        "How a loop waits for work: block sleeps in the kernel at once, adaptive looks around for \
         some 30 us first. auto: adaptive for split loops on at least four CPUs, else block.";
    PIN_CPUS = "quorate.pin.cpus",
        Kind::Text("CPU numbers, separated by commas, none twice"),
        Derived("no pinning"),
        "CPUs for the raft loop, the log writer (when split) and the client loops, in this order. \
         Loops beyond the list are not pinned.";
    CLIENT_LOOPS = "quorate.client.loops", count(0, 64), Value("0"),
        "Threads that serve client connections. 0: the raft loop does it itself.";
    FRAME_BYTES_MAX = "quorate.frame.max.bytes", bytes(65536, 128 * MIB), Value("9437184"),
        "Largest request. The default fits the largest batch, 8 MiB.";
    CONNECTIONS_MAX = "quorate.connections.max", count(1, 1_000_000), Value("4000"),
        "Client connections that are served at once; further ones are closed. Fewer, with a \
         warning, where the limit of open files leaves no room for them beside the log and the \
         peers.";
    IN_FLIGHT_BYTES_MAX = "quorate.in.flight.max.bytes",
        bytes(65536, 64 * 1024 * MIB),
        Value("67108864"),
        "Requests in memory, those that arrive and those that are not answered, above which \
         senders wait; 64 KiB of each connection are not counted. All client loops together. While \
         some wait, clients that do not go on with a large request for 5 s are closed. Not below \
         quorate.frame.max.bytes.";
    ANSWERS_BYTES_MAX = "quorate.answers.max.bytes",
        bytes(MIB, 64 * 1024 * MIB),
        Value("134217728"),
        "Answers in memory that clients have not read, over all connections. Above it a client \
         with unread answers is not served further, and consumers get 64 KiB at a time. Above one \
         and a half times as much nobody is served, and clients that have not read for 5 s are \
         closed. Peers have as much of their own.";
    CONNECTION_IDLE = "quorate.connection.idle.ms", ms(1000), Value("600000"),
        "A connection without a request for so long is closed, and so is one that does not take \
         an answer for so long.";
    ADMIN_LISTENER = "admin.listener",
        Kind::Text("host:port, or none"),
        Value("127.0.0.1:9644"),
        "Where the node shows itself over HTTP: /livez, /readyz, /metrics and a page at /. Anybody \
         who reaches it may read, and nobody can change anything. Port 0: whichever is free, named \
         in the log. No host: on all interfaces. none: nowhere.";
    COMMIT_SLOW = "commit.slow.ms", ms(0), Value("1000"),
        "A commit that takes longer, from the receipt of its request to its answer, is told in the \
         log with the stage that took longest; once a second at most. 0: none is.";
}

/// The key called `name`, by its own or an older name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    let is_it = |key: &Key| key.name == name || key.aliases.contains(&name);
    ALL.iter().copied().find(|key| is_it(key))
}

/// The name, older ones included, that differs from `name` in the fewest letters.
#[must_use]
pub fn nearest(name: &str) -> &'static str {
    // Bounded: an edit distance costs the product of both lengths.
    let name: String = name.chars().take(100).collect();
    ALL.iter()
        .flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied()))
        .min_by_key(|known| edit_distance(&name.to_lowercase(), known))
        .expect("the table is not empty")
}

/// Insertions, deletions and substitutions that turn `a` into `b` (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn edit_distance_counts_single_letter_changes() {
        for (a, b, distance) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("same", "same", 0),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        for (wrong, right) in [
            ("node.ids", "node.id"),
            ("contoller.quorum.voter", "controller.quorum.voters"),
            ("Log.Dirs", "log.dirs"),
            ("quorum.fetch.timeout", "quorum.fetch.timeout.ms"),
        ] {
            assert_eq!(nearest(wrong), right);
        }
    }

    #[test]
    fn no_name_stands_for_two_keys() {
        let mut names = BTreeSet::new();
        for key in ALL {
            for name in std::iter::once(&key.name).chain(key.aliases) {
                assert!(names.insert(name), "{name} twice");
            }
        }
    }

    #[test]
    fn every_default_is_allowed() {
        for key in ALL {
            let Value(default) = key.default else {
                continue;
            };
            let allowed = match key.kind {
                Kind::Int { min, max, .. } => (min..=max).contains(&default.parse().unwrap()),
                Kind::Bool => matches!(default, "true" | "false"),
                Kind::OneOf(words) => words.contains(&default),
                Kind::Text(_) => !default.is_empty(),
            };
            assert!(allowed, "{}", key.name);
        }
    }
}
