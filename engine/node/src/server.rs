//! One node: checks the host, opens the log, makes the loops and waits for them.
//!
//! Start-up goes from what changes nothing to what does: ring, directory, identity, ports are
//! checked before the log is opened, so that a node that cannot run leaves everything as it was.

use crate::admin::{self, Admin, Facts, Shared, inquiry};
use crate::background::{Background, Mailbox};
use crate::client_loop::{ClientLane, ClientLoop, LANE_MAX, LaneOut};
use crate::client_service::{ClientService, ProducerIds};
use crate::clock::Clock;
use crate::config::{Cores, Listener, ServerConfig, uuid};
use crate::connections::{AnswerBudget, ConnectionCount, ConnectionSet, RequestBudget, SetLimits};
use crate::descriptors::ConnectionShares;
use crate::directory::Directory;
use crate::disk_io::{DiskOps, FlushMethod};
use crate::flush_probe;
use crate::format::{FormatError, Meta, check_formatted};
use crate::io_engine::{self, NoUring};
use crate::log_loop::{COMMANDS_MAX, LogDriver, LogLoop, REPORTS_MAX};
use crate::logging;
use crate::metrics::{LogMetrics, Metrics};
use crate::peers::Peers;
use crate::raft_loop::{Log, LoopError, Observer, Parts, RaftLoop, WaitKind, tags};
use crate::raft_service::RaftService;
use crate::raft_wire::Identity;
use crate::replica::Replica;
use quorate_net::{Limits, ListenerKind};
use quorate_raft::{DirectoryId, ElectionState, LogState, NodeId, Outputs, Peer, Raft, ReplicaKey};
use quorate_ring::{Engine, Ring, RingConfig, RingError, Waker};
use quorate_storage::{
    DataDirError, DirLock, FileDisk, LockError, LogConfig, OpenedLog, RecoveryError,
    StateFileError, check_data_dir, lock_dir, open_log, open_quorum_state,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The longest an adaptive wait spins. Longer spins were measured to turn a disk write of 90 us
/// into 4 ms when they share a CPU with the disk's interrupts.
const SPIN: Duration = Duration::from_micros(30);

/// Operations of a loop that may be in flight at once.
const RING_ENTRIES: u32 = 4096;

/// How often a busy port is tried again, and how long after: for half a second together, so that a
/// node can be started the moment another one was killed, and a port that is really taken is told.
const BUSY_PORT_TRIES: u32 = 50;
const BUSY_PORT_PAUSE: Duration = Duration::from_millis(10);

/// Connections that may wait to be accepted; the kernel has a limit of its own (somaxconn).
const BACKLOG: i32 = 4096;

/// Requests of one connection that may be answered out of order inside; more wait in the socket.
const REQUESTS_IN_FLIGHT_MAX: usize = 1024;
/// Answers of one connection that its client has not read; above, it is not read from.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Largest request that is not a Produce.
const QUESTION_BYTES_MAX: usize = 64 * 1024;
/// Buffers that a connection keeps for its next answers are at most so large: of clients there are
/// many, of peers a few, with large answers.
const CLIENT_BUFFER_BYTES: usize = 16 * 1024;
const PEER_BUFFER_BYTES: usize = 256 * 1024;

/// Why a node could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// io_uring is asked for and not to be had.
    #[error(transparent)]
    NoUring(#[from] NoUring),
    /// A ring can't be opened.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The directory is not formatted, or belongs to somebody else.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The directory's file system can't hold a log.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The log can't be opened.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The quorum-state file can't be used.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// A listener can't be bound.
    #[error("cannot listen on {name}://{address}: {source}")]
    Listen {
        /// The listener's name.
        name: String,
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The admin listener can't be bound.
    #[error(
        "cannot listen on {address}, the admin.listener: {source}; each node of a machine needs \
         one of its own, or none"
    )]
    ListenAdmin {
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// A thread or a signal handler can't be set up.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A loop failed while running.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// A bug: a thread panicked. Its message is in the log.
    #[error("the {0} thread panicked: this is a bug; its message is in the log above")]
    Panicked(&'static str),
}

/// Runs a node until SIGTERM or SIGINT has stopped it gracefully.
///
/// # Errors
/// If it can't start, or had to stop because the disk failed.
pub fn run(config: ServerConfig) -> Result<(), ServerError> {
    stop_all_on_panic();
    let engine = io_engine::choose(config.io_engine)?;
    let meta = check_formatted(&config)?;
    let data_dir = check_data_dir(&config.log_dir)?;
    let flush_method = flush_probe::choose(&config);
    let lock = lock_dir(&config.log_dir)?;
    let controller_listeners = listen_all(&config.controller_listeners)?;
    let client_listeners = listen_all(&config.client_listeners)?;
    let admin_listener = listen_for_admin(&config)?;
    tracing::info!(
        node = config.node_id,
        cluster = %meta.cluster_id,
        dir = %config.log_dir.display(),
        file_system = %data_dir.fs_kind,
        io_engine = %engine,
        flush_method = %flush_method,
        "starting"
    );
    let node = Node {
        engine,
        flush_method,
        metrics: Arc::new(Metrics::new(config.client_loops)),
        shared: Shared::default(),
        clock: Clock::new(),
        config,
        meta,
        _lock: lock,
        controller_listeners,
        client_listeners,
    };
    node.run(admin_listener)
}

/// A panic is a bug, and a node that has one must not go on with the threads that are left: to the
/// quorum it is then a node that crashed, which it can stand.
fn stop_all_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        logging::tell_panic(info);
        std::process::abort();
    }));
}

struct Node {
    engine: Engine,
    flush_method: FlushMethod,
    config: ServerConfig,
    meta: Meta,
    _lock: DirLock,
    controller_listeners: Vec<Arc<OwnedFd>>,
    client_listeners: Vec<Arc<OwnedFd>>,
    metrics: Arc<Metrics>,
    shared: Shared,
    clock: Clock,
}

/// What was read from the disk.
struct Opened {
    log: OpenedLog<FileDisk>,
    election: ElectionState,
}

impl Node {
    fn run(self, admin_listener: Option<TcpListener>) -> Result<(), ServerError> {
        let waker = Arc::new(OnceLock::<Waker>::new());
        let (inquirer, respondent) = inquiry::inquiry(Arc::clone(&waker));
        // Before the log is opened, which may take long.
        if let Some(listener) = admin_listener {
            self.start_admin(listener, inquirer)?;
        }
        let opened = self.open()?;
        let stop = Arc::new(AtomicBool::new(false));
        stop_on_signals(Arc::clone(&stop), Arc::clone(&waker))?;
        let raft_thread = thread::Builder::new()
            .name("raft".into())
            .spawn(move || self.run_raft_loop(opened, stop, &waker, respondent))
            .map_err(|source| ServerError::Os {
                what: "start the raft thread",
                source,
            })?;
        raft_thread
            .join()
            .map_err(|_| ServerError::Panicked("raft"))?
    }

    fn start_admin(
        &self,
        listener: TcpListener,
        inquirer: inquiry::Inquirer,
    ) -> Result<(), ServerError> {
        let os = |source| ServerError::Os {
            what: "start the admin listener",
            source,
        };
        let address = listener.local_addr().map_err(os)?;
        tracing::info!("admin listener on http://{address}/");
        let admin = Admin {
            facts: Facts {
                node_id: self.config.node_id,
                cluster_id: self.meta.cluster_id.clone(),
                directory_id: uuid::encode(self.meta.directory_id),
                started_ms: self.clock.read().wall_ms,
                topic: self.config.topic_name.clone(),
                log_dir: self.config.topic_dir(),
                client_loops: self.config.client_loops,
            },
            metrics: Arc::clone(&self.metrics),
            shared: self.shared.clone(),
            inquirer,
            clock: self.clock,
        };
        admin::start(listener, admin).map_err(os)
    }

    fn open(&self) -> Result<Opened, ServerError> {
        let dir = self.config.topic_dir();
        let election = open_quorum_state(&FileDisk, &dir, &self.voter_ids())?;
        let log = open_log(FileDisk, self.log_config(), election.epoch)?;
        tracing::info!(end_offset = %log.log_end, "log opened: {}", log.report);
        Ok(Opened { log, election })
    }

    fn voter_ids(&self) -> Vec<NodeId> {
        let voters = self.config.voters.voters();
        voters.iter().map(|voter| voter.key.id).collect()
    }

    fn log_config(&self) -> LogConfig {
        LogConfig {
            dir: self.config.topic_dir(),
            topic_id: self.config.topic_id,
            segment_bytes: self.config.segment_bytes,
            group_bytes_max: self.config.group_bytes_max,
            index_interval_bytes: 4096,
            producers: self.config.producers,
        }
    }

    /// The raft thread: makes the rings' users on the thread that runs them.
    fn run_raft_loop(
        self,
        opened: Opened,
        stop: Arc<AtomicBool>,
        waker: &OnceLock<Waker>,
        respondent: inquiry::Respondent,
    ) -> Result<(), ServerError> {
        let placement = Placement::of(&self.config, self.engine, self.flush_method);
        placement.pin(0);
        let clock = self.clock;
        let now = clock.read();
        let mut ring = Ring::new(&match placement.split {
            true => placement.ring(RING_ENTRIES),
            false => placement.disk_ring(RING_ENTRIES),
        })?;
        let _ = waker.set(ring.waker());
        let background = Background::start(
            self.config.topic_dir(),
            self.voter_ids(),
            Arc::clone(&self.shared.background),
            ring.waker(),
        )
        .map_err(|source| ServerError::Os {
            what: "start the background threads",
            source,
        })?;

        let producer_ids = ProducerIds::random().map_err(|source| ServerError::Os {
            what: "read the kernel's source of random numbers",
            source,
        })?;
        let mut outputs = Outputs::new();
        let log_state = LogState {
            start_offset: opened.log.log_start,
            end_offset: opened.log.log_end,
            epochs: opened.log.epochs,
        };
        let config = self.raft_config(now.instant.0 ^ now.wall_ms.unsigned_abs());
        let raft = Raft::new(
            config,
            opened.election,
            log_state,
            now.instant,
            &mut outputs,
        );
        let mut replica = Replica::new(
            raft,
            outputs,
            opened.log.index,
            opened.log.producers,
            self.config.tail_bytes,
            now,
        );
        replica.set_log_bytes_max(self.config.log_bytes_max);

        let identity = Arc::new(self.identity());
        let directory = Directory::new(
            self.config.node_id,
            self.config
                .client_listeners
                .first()
                .map(|listener| listener.advertised.clone()),
        );
        let log_metrics = Arc::clone(&self.metrics.log);
        let writer = opened.log.writer;
        let log = placement.start_log(writer, clock, &mut ring, &background, log_metrics)?;
        let client_stop = Arc::new(AtomicBool::new(false));
        let shares = ConnectionShares::of_process(self.config.connections_max);
        let limits = self.limits(shares.clients, CLIENT_BUFFER_BYTES);
        let lanes = self.start_client_loops(&placement, clock, &ring, &client_stop, &limits)?;
        let clients = lanes.is_empty().then(|| {
            let listeners = self.client_listeners.clone();
            ConnectionSet::new(
                ListenerKind::Client,
                tags::CLIENTS,
                listeners,
                limits.clone(),
            )
        });
        let controllers = ConnectionSet::new(
            ListenerKind::Controller,
            tags::CONTROLLERS,
            self.controller_listeners.clone(),
            self.limits(shares.controllers, PEER_BUFFER_BYTES),
        );
        let parts = Parts {
            ring,
            clock,
            replica,
            raft_service: RaftService::new(Arc::clone(&identity)),
            client_service: ClientService::new(
                Arc::clone(&identity),
                directory,
                producer_ids,
                self.config.decompressed_bytes_max,
            ),
            controllers,
            clients,
            answers: limits.answers,
            lanes,
            peers: Peers::new(tags::PEERS, identity),
            log,
            background,
            stop,
            wait: placement.wait,
            unflushed_bytes_max: self.config.unflushed_bytes_max,
            observer: Observer::new(
                Arc::clone(&self.metrics),
                respondent,
                self.config.commit_slow_ms,
            ),
        };
        let result = RaftLoop::new(parts).run();
        client_stop.store(true, Ordering::Release);
        Ok(result?)
    }

    fn limits(&self, connections_max: usize, kept_bytes_max: usize) -> SetLimits {
        SetLimits {
            connections: ConnectionCount::new(connections_max),
            requests: RequestBudget::new(self.config.in_flight_bytes_max),
            answers: AnswerBudget::new(self.config.answers_bytes_max),
            idle_ms: self.config.connection_idle_ms,
            connection: Limits {
                frame_bytes_max: self.config.frame_bytes_max,
                question_bytes_max: QUESTION_BYTES_MAX,
                requests_in_flight_max: REQUESTS_IN_FLIGHT_MAX,
                output_bytes_max: OUTPUT_BYTES_MAX,
                kept_bytes_max,
            },
        }
    }

    fn identity(&self) -> Identity {
        Identity {
            node_id: self.config.node_id,
            directory_id: DirectoryId(self.meta.directory_id),
            cluster_id: self.meta.cluster_id.clone(),
            cluster_id_strict: self.config.cluster_id_strict,
            topic_name: self.config.topic_name.clone(),
            topic_id: self.config.topic_id,
            listener_name: self.config.raft_listener().name.clone(),
            voters: self.config.voters.clone(),
        }
    }

    fn raft_config(&self, seed: u64) -> quorate_raft::Config {
        let config = &self.config;
        let own = &config.raft_listener().advertised;
        let bootstrap = config
            .bootstrap_servers
            .iter()
            .filter(|server| *server != own);
        quorate_raft::Config {
            local: ReplicaKey {
                id: config.node_id,
                directory_id: DirectoryId(self.meta.directory_id),
            },
            voters: config.voters.clone(),
            // Kafka numbers bootstrap servers -2, -3, ...
            bootstrap: (2..)
                .zip(bootstrap)
                .map(|(number, endpoint): (NodeId, _)| Peer {
                    id: -number,
                    endpoint: endpoint.clone(),
                })
                .collect(),
            local_endpoint: own.clone(),
            election_timeout_ms: config.election_timeout_ms,
            fetch_timeout_ms: config.fetch_timeout_ms,
            election_backoff_max_ms: config.election_backoff_max_ms,
            request_timeout_ms: config.request_timeout_ms,
            retry_backoff_ms: config.retry_backoff_ms,
            retry_backoff_max_ms: config.retry_backoff_max_ms,
            fetch_max_wait_ms: 500,
            fetch_max_bytes: config.fetch_bytes_max,
            fetch_hw_linger_ms: config.fetch_hw_linger_ms,
            seed: seed ^ (u64::from(config.node_id.unsigned_abs()) << 48),
        }
    }

    fn start_client_loops(
        &self,
        placement: &Placement,
        clock: Clock,
        ring: &Ring,
        stop: &Arc<AtomicBool>,
        limits: &SetLimits,
    ) -> Result<Vec<ClientLane>, ServerError> {
        let mut lanes = Vec::new();
        for index in 0..self.config.client_loops {
            let requests = Mailbox::new(LANE_MAX, ring.waker());
            let (made, waker) = sync_channel(1);
            let (answers_out, answers_in) = sync_channel::<Arc<Mailbox<LaneOut>>>(1);
            let (listeners, limits) = (self.client_listeners.clone(), limits.clone());
            let (stop, wait) = (Arc::clone(stop), placement.wait);
            let to_raft = Arc::clone(&requests);
            let metrics = Arc::clone(&self.metrics.clients[index]);
            let placement = placement.clone();
            spawn("client", move || {
                placement.pin(2 + index);
                let Some(ring) = make_ring(&placement.ring(RING_ENTRIES), &made) else {
                    return;
                };
                let Ok(answers) = answers_in.recv() else {
                    return;
                };
                let lane = ClientLane {
                    requests: to_raft,
                    answers,
                };
                let looped =
                    ClientLoop::new(ring, clock, listeners, limits, lane, stop, wait, metrics);
                // Its listeners would take clients in and never serve them.
                if let Err(error) = looped.run() {
                    panic!("a client loop's ring failed: {error}");
                }
            })?;
            let waker = waker
                .recv()
                .map_err(|_| ServerError::Panicked("client"))??;
            let answers = Mailbox::new(LANE_MAX, waker);
            let _ = answers_out.send(Arc::clone(&answers));
            lanes.push(ClientLane { requests, answers });
        }
        Ok(lanes)
    }
}

/// Which loop runs where, on what its ring stands, and how loops wait.
#[derive(Clone, Debug)]
struct Placement {
    engine: Engine,
    flush_method: FlushMethod,
    split: bool,
    wait: WaitKind,
    cpus: Vec<usize>,
}

impl Placement {
    /// `auto` splits only where every loop gets a core of its own and one is left for the rest.
    fn of(config: &ServerConfig, engine: Engine, flush_method: FlushMethod) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let split = match config.cores {
            Cores::Fused => false,
            Cores::Split => true,
            Cores::Auto => cores >= 4,
        };
        let wait = match config.wait {
            crate::config::Wait::Block => WaitKind::Block,
            crate::config::Wait::Adaptive => WaitKind::Adaptive { spin: SPIN },
            crate::config::Wait::Auto if split && cores >= 4 => WaitKind::Adaptive { spin: SPIN },
            crate::config::Wait::Auto => WaitKind::Block,
        };
        Self {
            engine,
            flush_method,
            split,
            wait,
            cpus: config.pin_cpus.clone(),
        }
    }

    fn ring(&self, entries: u32) -> RingConfig {
        RingConfig {
            engine: self.engine,
            entries,
            disk_threads: false,
        }
    }

    /// For the loop that writes the log.
    fn disk_ring(&self, entries: u32) -> RingConfig {
        RingConfig {
            disk_threads: self.flush_method.needs_disk_threads(),
            ..self.ring(entries)
        }
    }

    /// Pins the calling thread to the `index`-th of the configured CPUs: raft loop, log writer,
    /// client loops, in this order.
    fn pin(&self, index: usize) {
        if let Some(&cpu) = self.cpus.get(index)
            && let Err(error) = quorate_ring::pin_to_cpu(cpu)
        {
            tracing::warn!(cpu, %error, "cannot pin a loop to its CPU");
        }
    }

    fn start_log(
        &self,
        writer: quorate_storage::LogWriter<FileDisk>,
        clock: Clock,
        ring: &mut Ring,
        background: &Background,
        metrics: Arc<LogMetrics>,
    ) -> Result<Log, ServerError> {
        if !self.split {
            let tag = u64::from(tags::LOG) << 56;
            let ops = DiskOps {
                data: tag | 1,
                mark: tag | 2,
                flush: tag | 3,
            };
            return Ok(Log::Fused(Box::new(LogDriver::new(
                writer,
                ring,
                ops,
                self.flush_method,
                background.clone(),
                metrics,
            ))));
        }
        let reports = Mailbox::new(REPORTS_MAX, ring.waker());
        let (made, waker) = sync_channel(1);
        let (commands_out, commands_in) = sync_channel(1);
        let to_raft = Arc::clone(&reports);
        let (background, wait) = (background.clone(), self.wait.forever());
        let placement = self.clone();
        spawn("log", move || {
            placement.pin(1);
            let Some(ring) = make_ring(&placement.disk_ring(LogLoop::RING_ENTRIES), &made) else {
                return;
            };
            let Ok(commands) = commands_in.recv() else {
                return;
            };
            let background = background.for_loop(ring.waker());
            LogLoop::new(
                ring,
                clock,
                writer,
                placement.flush_method,
                background,
                metrics,
                commands,
                to_raft,
                wait,
            )
            .run();
        })?;
        let waker = waker.recv().map_err(|_| ServerError::Panicked("log"))??;
        let commands = Mailbox::new(COMMANDS_MAX, waker);
        let _ = commands_out.send(Arc::clone(&commands));
        Ok(Log::Split {
            commands,
            pending: Vec::new(),
            reports,
        })
    }
}

fn spawn(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map(|_| ())
        .map_err(|source| ServerError::Os {
            what: "start a thread",
            source,
        })
}

/// Makes a ring on the calling thread and tells the one that waits for it how to wake it.
fn make_ring(config: &RingConfig, made: &SyncSender<Result<Waker, RingError>>) -> Option<Ring> {
    match Ring::new(config) {
        Ok(ring) => {
            let _ = made.send(Ok(ring.waker()));
            Some(ring)
        }
        Err(error) => {
            let _ = made.send(Err(error));
            None
        }
    }
}

/// Sets `stop` and wakes the raft loop on SIGTERM or SIGINT; a second signal ends the process.
fn stop_on_signals(stop: Arc<AtomicBool>, waker: Arc<OnceLock<Waker>>) -> Result<(), ServerError> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|source| ServerError::Os {
        what: "handle signals",
        source,
    })?;
    spawn("signals", move || {
        for _ in signals.forever() {
            if stop.swap(true, Ordering::AcqRel) {
                tracing::warn!("stopping at once: a second signal");
                logging::flush(logging::EXIT_PATIENCE);
                std::process::exit(1);
            }
            if let Some(waker) = waker.get() {
                waker.wake();
            }
        }
    })
}

fn listen_all(listeners: &[Listener]) -> Result<Vec<Arc<OwnedFd>>, ServerError> {
    let mut sockets = Vec::new();
    for listener in listeners {
        let bound = patiently(|| listen(listener)).map_err(|source| ServerError::Listen {
            name: listener.name.clone(),
            address: listener.bind.to_string(),
            source,
        })?;
        // Many may come at one moment, after a leader change for one; std asks for 128.
        let _ = rustix::net::listen(&bound, BACKLOG);
        sockets.push(Arc::new(OwnedFd::from(bound)));
    }
    Ok(sockets)
}

fn listen_for_admin(config: &ServerConfig) -> Result<Option<TcpListener>, ServerError> {
    let Some(endpoint) = &config.admin_listener else {
        return Ok(None);
    };
    let bound = patiently(|| admin::bind(endpoint));
    bound.map(Some).map_err(|source| ServerError::ListenAdmin {
        address: endpoint.to_string(),
        source,
    })
}

/// Waits a moment for a busy port: the kernel takes the ring of a killed
/// process down in the background, and with it the listeners that were waiting for connections
/// there. That was measured to last up to 12 ms after the process itself was gone.
#[allow(clippy::disallowed_methods)] // the node does not run yet
fn patiently(listen: impl Fn() -> io::Result<TcpListener>) -> io::Result<TcpListener> {
    for _ in 0..BUSY_PORT_TRIES {
        match listen() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                thread::sleep(BUSY_PORT_PAUSE);
            }
            decided => return decided,
        }
    }
    listen()
}

fn listen(listener: &Listener) -> io::Result<TcpListener> {
    let host: &str = if listener.bind.host.is_empty() {
        "::"
    } else {
        &listener.bind.host
    };
    let addresses: Vec<SocketAddr> = match (host, listener.bind.port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(error),
    };
    match TcpListener::bind(&addresses[..]) {
        // A host without IPv6: all interfaces means all of IPv4.
        Err(error) if listener.bind.host.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", listener.bind.port))
        }
        bound => bound,
    }
}
