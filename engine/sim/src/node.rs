//! One simulated node: its disk, which outlives it, and while it runs the replica and the log
//! writer that a real node runs, with an inbox in front of them.
//!
//! Starting one does what the server does at its start; what a running one does is `turn.rs`.

use crate::checkers::{LogCopy, Violation, entries_of};
use crate::network::ExchangeId;
use crate::queue::Nanos;
use crate::scenario::Scenario;
use crate::workload::{Pending, Produced};
use bytes::Bytes;
use quorate::clock::Now;
use quorate::replica::{Effect, ReadId, Replica};
use quorate_raft::{
    Config, DirectoryId, ElectionSeq, ElectionState, Endpoint, Instant, LogState, NodeId, Offset,
    Outputs, Peer, Raft, ReplicaKey, Request, RequestFailure, RequestId, Response, Voter, VoterSet,
};
use quorate_storage::sim_disk::SimDisk;
use quorate_storage::{
    Disk, GroupIo, Job, JobDone, LogConfig, LogWriter, OpenedLog, ReadError, ReadPlan,
    RecoveryError, SegmentIndex, StateFileError, StorageError, open_log, open_quorum_state,
    read_quorum_state,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

/// Wall clock at the beginning of a run, in ms since the Unix epoch.
const WALL_MS: i64 = 1_700_000_000_000;

/// Where every simulated disk keeps its log.
pub(crate) fn log_dir() -> PathBuf {
    PathBuf::from("/data/log-0")
}

/// A node, running or not.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) disk: SimDisk,
    /// Counts its starts: what was under way for an earlier life is nobody's.
    pub(crate) life: u64,
    pub(crate) running: Option<Box<Running>>,
    /// A restart is on its way.
    pub(crate) is_starting: bool,
    /// It does nothing until then, as if the process were stopped.
    pub(crate) paused_until: Nanos,
    /// Its disk takes this many times as long until then.
    pub(crate) slow_until: Nanos,
    /// Nanoseconds that its monotonic clock is ahead.
    clock_ahead: u64,
    /// Milliseconds that its wall clock is ahead.
    wall_ahead_ms: i64,
}

/// How far a node is with stopping, as in the raft loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    /// No new appends; those under way are waited for until then.
    Draining(Nanos),
    /// The core was told to shut down.
    Leaving(Nanos),
    /// Last answers leave.
    Lingering(Nanos),
    /// The log is being sealed.
    Closing,
    /// The disk failed; the voters are told.
    Failed(Nanos),
    /// The process ends.
    Done,
}

/// What lives only while a node runs.
pub(crate) struct Running {
    pub(crate) replica: Replica,
    pub(crate) writer: LogWriter<SimDisk>,
    pub(crate) inbox: VecDeque<Input>,
    pub(crate) effects: Vec<Effect>,
    /// When its next turn is, if one is to come.
    pub(crate) next_turn: Option<Nanos>,
    pub(crate) stage: Stage,
    pub(crate) group: Option<GroupInFlight>,
    pub(crate) background: Background,
    /// Appends of clients that are not committed, in order of offset.
    pub(crate) appends: VecDeque<Pending>,
    /// Who waits for which read of the disk, and from where it reads.
    pub(crate) reads: BTreeMap<ReadId, (usize, Offset)>,
}

/// A group on its way to the disk.
pub(crate) struct GroupInFlight {
    pub(crate) io: GroupIo<SimDisk>,
    pub(crate) mark_first: bool,
}

/// The background thread: one task at a time, in order; preparing only when nothing else waits.
#[derive(Default)]
pub(crate) struct Background {
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) prepare: VecDeque<Job<SimDisk>>,
    /// The task that is being done.
    pub(crate) current: Option<Task>,
    /// What came of it, until it is reported.
    pub(crate) result: Option<Input>,
}

impl Background {
    pub(crate) fn is_busy(&self) -> bool {
        self.current.is_some() || self.result.is_some()
    }
}

pub(crate) enum Task {
    Storage(Job<SimDisk>),
    PersistElection {
        seq: ElectionSeq,
        election: ElectionState,
    },
    Read {
        id: ReadId,
        plan: ReadPlan,
    },
}

/// Something that a turn of the node handles.
pub(crate) enum Input {
    Request {
        token: ExchangeId,
        request: Request,
    },
    Forget {
        token: ExchangeId,
    },
    Response {
        from: NodeId,
        id: RequestId,
        response: Response,
        records: Bytes,
    },
    Failed {
        from: NodeId,
        id: RequestId,
        failure: RequestFailure,
    },
    GroupDone {
        io: GroupIo<SimDisk>,
        result: io::Result<()>,
    },
    JobDone(JobDone<SimDisk>),
    Persisted {
        seq: ElectionSeq,
        result: io::Result<()>,
    },
    ReadDone {
        id: ReadId,
        result: Result<Bytes, ReadError>,
    },
    Produce(Produced),
    Consume {
        reader: usize,
        from: Offset,
    },
    Shutdown,
}

/// Why a node did not start.
pub(crate) enum StartError {
    /// Power failed while it recovered.
    Crashed,
    /// Its disk failed an operation while it recovered.
    DiskFailed(StorageError),
    Violation(Violation),
}

impl From<Violation> for StartError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl StartError {
    /// What it means where nothing goes wrong.
    pub(crate) fn into_violation(self, node: NodeId) -> Violation {
        let reason = match self {
            Self::Violation(violation) => return violation,
            Self::Crashed => "a healthy disk crashed".to_owned(),
            Self::DiskFailed(error) => error.to_string(),
        };
        Violation::RecoveryRefused { node, reason }
    }
}

/// What a started node found on its disk.
pub(crate) struct Found {
    pub(crate) election: ElectionState,
    pub(crate) log: LogCopy,
}

impl Node {
    pub(crate) fn new(id: NodeId, disk: SimDisk, clock_ahead: u64, wall_ahead_ms: i64) -> Self {
        Self {
            id,
            disk,
            life: 0,
            running: None,
            is_starting: false,
            paused_until: 0,
            slow_until: 0,
            clock_ahead,
            wall_ahead_ms,
        }
    }

    /// Whether it runs and is not about to stop.
    pub(crate) fn is_up(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.stage == Stage::Running)
    }

    /// What its clocks say at `now`.
    pub(crate) fn clocks(&self, now: Nanos) -> Now {
        let wall_ms = i64::try_from(now / 1_000_000).unwrap_or(i64::MAX);
        Now {
            instant: Instant(now + self.clock_ahead),
            wall_ms: WALL_MS + wall_ms + self.wall_ahead_ms,
        }
    }

    /// When its monotonic clock says `instant`.
    pub(crate) fn time_of(&self, instant: Instant) -> Nanos {
        instant.0.saturating_sub(self.clock_ahead)
    }

    /// Starts the node from its disk. It is in its next life then, even if it failed.
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        scenario: &Scenario,
        seed: u64,
    ) -> Result<Found, StartError> {
        assert!(self.running.is_none(), "node {} runs already", self.id);
        self.life += 1;
        let opened = self.open(scenario)?;
        let log = self.whole_log(&opened.0)?;
        let (
            OpenedLog {
                writer,
                index,
                log_start,
                log_end,
                epochs,
                producers,
                ..
            },
            election,
        ) = opened;
        let now = self.clocks(now);
        let log_state = LogState {
            start_offset: log_start,
            end_offset: log_end,
            epochs,
        };
        let config = raft_config(scenario, self.id, seed);
        let mut outputs = Outputs::new();
        let raft = Raft::new(config, election, log_state, now.instant, &mut outputs);
        let replica = Replica::new(raft, outputs, index, producers, scenario.tail_bytes, now);
        self.running = Some(Box::new(Running::new(replica, writer)));
        Ok(Found { election, log })
    }

    fn open(&self, scenario: &Scenario) -> Result<(OpenedLog<SimDisk>, ElectionState), StartError> {
        let dir = log_dir();
        let voters = voter_ids(scenario);
        let election = open_quorum_state(&self.disk, &dir, &voters);
        let election = election.map_err(|error| match error {
            StateFileError::Storage(error) if !self.disk.is_crashed() => {
                StartError::DiskFailed(error)
            }
            error => self.refused(&error),
        })?;
        let config = log_config(scenario);
        let log = open_log(self.disk.clone(), config, election.epoch);
        let log = log.map_err(|error| match error {
            RecoveryError::Storage(error) if !self.disk.is_crashed() => {
                StartError::DiskFailed(error)
            }
            error => self.refused(&error),
        })?;
        Ok((log, election))
    }

    fn refused(&self, error: &dyn std::error::Error) -> StartError {
        if self.disk.is_crashed() {
            return StartError::Crashed;
        }
        let reason = error.to_string();
        StartError::Violation(Violation::RecoveryRefused {
            node: self.id,
            reason,
        })
    }

    /// Reads the whole log as a lagging replica would get it.
    fn whole_log(&self, opened: &OpenedLog<SimDisk>) -> Result<LogCopy, StartError> {
        let read = read_whole(&self.disk, &opened.index, opened.log_end);
        let bytes = read.map_err(|error| self.refused(&error))?;
        let entries = entries_of(&bytes).map_err(|error| self.refused(&error))?;
        let mut log = LogCopy::default();
        for entry in entries {
            log.push(self.id, entry)?;
        }
        let end = opened.log_end;
        if log.end() != end {
            let reason = format!(
                "the log ends at {end}, and reading it ends at {}",
                log.end()
            );
            return Err(Violation::RecoveryRefused {
                node: self.id,
                reason,
            }
            .into());
        }
        Ok(log)
    }
}

fn read_whole(disk: &SimDisk, index: &SegmentIndex, end: Offset) -> Result<Vec<u8>, ReadError> {
    const READ_BYTES: usize = 256 * 1024;
    let mut whole = Vec::new();
    let mut from = index.log_start();
    while from < end {
        let Some(plan) = index.plan(from, READ_BYTES, end) else {
            break;
        };
        let bytes = plan.run(disk)?;
        let Ok(entries) = entries_of(&bytes) else {
            break;
        };
        let Some(last) = entries.last() else { break };
        from = last.end;
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

impl Running {
    fn new(replica: Replica, writer: LogWriter<SimDisk>) -> Self {
        Self {
            replica,
            writer,
            inbox: VecDeque::new(),
            effects: Vec::new(),
            next_turn: None,
            stage: Stage::Running,
            group: None,
            background: Background::default(),
            appends: VecDeque::new(),
            reads: BTreeMap::new(),
        }
    }

    /// Whether the log writer takes nothing more: what comes in now is never flushed.
    pub(crate) fn is_log_closed(&self) -> bool {
        matches!(self.stage, Stage::Closing | Stage::Failed(_) | Stage::Done)
    }
}

/// Makes a fresh disk ready for its first start.
///
/// # Errors
/// What the disk says.
pub(crate) fn format_disk(disk: &SimDisk) -> io::Result<()> {
    let dir = log_dir();
    disk.create_dir_all(&dir)?;
    disk.sync_dir(dir.parent().unwrap_or(Path::new("/")))
}

/// Opens a log on a disk that nobody uses, and says where it ends.
///
/// # Errors
/// If it can't be opened.
pub(crate) fn log_end_on(disk: SimDisk, scenario: &Scenario) -> Result<Offset, String> {
    let election = read_quorum_state(&disk, &log_dir()).map_err(|error| error.to_string())?;
    let epoch = election.unwrap_or_default().epoch;
    let opened = open_log(disk, log_config(scenario), epoch);
    opened
        .map(|opened| opened.log_end)
        .map_err(|error| error.to_string())
}

fn log_config(scenario: &Scenario) -> LogConfig {
    LogConfig {
        segment_bytes: scenario.segment_bytes,
        group_bytes_max: scenario.group_bytes_max,
        ..LogConfig::new(log_dir(), [7; 16])
    }
}

/// Where a node listens; its index is the port.
pub(crate) fn endpoint(id: NodeId) -> Endpoint {
    let port = u16::try_from(id).expect("a small id");
    Endpoint {
        host: "sim".into(),
        port,
    }
}

/// Ids of the voters.
pub(crate) fn voter_ids(scenario: &Scenario) -> Vec<NodeId> {
    (1..).take(scenario.voters).collect()
}

/// All voters, by address alone: Kafka numbers such servers -2, -3, ...
fn bootstrap_servers(scenario: &Scenario) -> Vec<Peer> {
    let voters = voter_ids(scenario).into_iter();
    voters
        .map(|id| Peer {
            id: -1 - id,
            endpoint: endpoint(id),
        })
        .collect()
}

fn raft_config(scenario: &Scenario, id: NodeId, seed: u64) -> Config {
    let voter = |id: NodeId| Voter {
        key: ReplicaKey::of(id),
        endpoint: endpoint(id),
    };
    Config {
        local: ReplicaKey {
            id,
            directory_id: DirectoryId([id.unsigned_abs() as u8; 16]),
        },
        voters: VoterSet::new(voter_ids(scenario).into_iter().map(voter).collect()),
        bootstrap: if scenario.bootstrap {
            bootstrap_servers(scenario)
        } else {
            Vec::new()
        },
        local_endpoint: endpoint(id),
        election_timeout_ms: scenario.election_timeout_ms,
        fetch_timeout_ms: scenario.fetch_timeout_ms(),
        election_backoff_max_ms: scenario.election_timeout_ms,
        request_timeout_ms: scenario.fetch_timeout_ms(),
        retry_backoff_ms: 20,
        retry_backoff_max_ms: scenario.election_timeout_ms,
        fetch_max_wait_ms: i32::try_from(scenario.election_timeout_ms / 2).unwrap_or(500),
        fetch_max_bytes: 64 * 1024,
        fetch_hw_linger_ms: scenario.fetch_hw_linger_ms,
        seed,
    }
}
