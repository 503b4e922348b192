//! The vocabulary of the quorum: offsets, epochs, replicas, time.
//!
//! Kafka's names throughout. Every other package builds on these; nothing here does any work.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// Id of a node, as `node.id` in the configuration. Never negative for a replica; negative ids
/// (-2, -3, ...) stand for bootstrap servers whose real id is not known.
pub type NodeId = i32;

/// A position in the log, in records. An "end" (log end offset, high watermark) is exclusive:
/// the first offset that is not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub i64);

/// A leader epoch (Raft's term). Never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i32);

/// An offset with the epoch of the record before it: what logs are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OffsetAndEpoch {
    /// Exclusive end.
    pub offset: Offset,
    /// Epoch of the last record below `offset`; 0 for an empty log.
    pub epoch: Epoch,
}

/// Identity of a data directory (`directory.id` in meta.properties). All zero: undefined.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub [u8; 16]);

/// A replica: node id and directory id. In kraft.version 0 voter sets the directory is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey {
    /// `node.id`; -1 for an observer that gave none.
    pub id: NodeId,
    /// Zero if undefined.
    pub directory_id: DirectoryId,
}

/// Host and port. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

/// Somebody to send a request to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Node id, or a negative number for a bootstrap server.
    pub id: NodeId,
    /// Where its controller listener is.
    pub endpoint: Endpoint,
}

/// One member of the voter set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The replica; its directory id is undefined in kraft.version 0.
    pub key: ReplicaKey,
    /// Its endpoint on the default controller listener.
    pub endpoint: Endpoint,
}

/// The voters of a quorum, ascending by node id, no id twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSet {
    voters: Vec<Voter>,
}

/// Monotonic time in nanoseconds from an arbitrary zero. The loop reads the clock and hands it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The instant `ms` milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Whole milliseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

impl DirectoryId {
    /// "No directory id."
    pub const UNDEFINED: Self = Self([0; 16]);

    /// Whether an id is there.
    #[must_use]
    pub fn is_defined(self) -> bool {
        self != Self::UNDEFINED
    }
}

impl ReplicaKey {
    /// A replica whose directory is not known.
    #[must_use]
    pub fn of(id: NodeId) -> Self {
        Self {
            id,
            directory_id: DirectoryId::UNDEFINED,
        }
    }

    /// Whether `other` is this voter: same id, and the same directory unless this entry has none
    /// (kraft.version 0 sets name no directories).
    #[must_use]
    pub fn matches(self, other: Self) -> bool {
        self.id == other.id
            && (!self.directory_id.is_defined() || self.directory_id == other.directory_id)
    }
}

impl VoterSet {
    /// A set of these voters.
    ///
    /// # Panics
    /// If an id stands there twice: configuration is checked before it gets here.
    #[must_use]
    pub fn new(mut voters: Vec<Voter>) -> Self {
        voters.sort_by_key(|voter| voter.key.id);
        assert!(
            voters
                .windows(2)
                .all(|pair| pair[0].key.id != pair[1].key.id),
            "voter id twice"
        );
        Self { voters }
    }

    /// The voters, ascending by id.
    #[must_use]
    pub fn voters(&self) -> &[Voter] {
        &self.voters
    }

    /// Number of voters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.voters.len()
    }

    /// Whether there is no voter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.voters.is_empty()
    }

    /// How many voters are a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The entry with this id.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Option<&Voter> {
        self.voters.iter().find(|voter| voter.key.id == id)
    }

    /// Whether `key` is a voter.
    #[must_use]
    pub fn contains(&self, key: ReplicaKey) -> bool {
        self.get(key.id).is_some_and(|voter| voter.key.matches(key))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
