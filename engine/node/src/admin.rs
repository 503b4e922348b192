//! The operator's eyes: a small HTTP listener with health, metrics and a page.
//!
//! One thread of its own, on plain sockets, so that whatever a stranger does here meets neither the
//! raft loop nor the disk. It reads the loops' counters and asks the raft loop for its state; it
//! changes nothing.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that shows the quorum live |
//! | `/livez` | 200 while the raft loop turns, else 503 |
//! | `/readyz` | 200 while the node is of use, else 503; `?verbose` says why |
//! | `/metrics` | Prometheus' text format |
//! | `/api/status`, `/api/history` | what the page shows, as JSON |

mod connections;
mod exposition;
mod health;
mod history;
mod http;
pub mod inquiry;
mod leader_view;
mod process;
mod prometheus;
mod status;

use crate::background::BackgroundCounts;
use crate::clock::{Clock, Now};
use crate::metrics::Metrics;
use connections::Connections;
use health::Check;
use history::History;
use http::{HTML, JSON, METRICS, Request, Response};
use inquiry::{Inquirer, NodeStatus, Silence};
use leader_view::LeaderView;
use prometheus::Scrape;
use quorate_raft::{Endpoint, NodeId};
use serde::Serialize;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a request waits for the raft loop. A turn takes well under a millisecond; more than
/// this is worth telling, and other requests wait meanwhile.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);

/// A state that is younger than this is shown again: however many ask, the raft loop is asked
/// fifty times a second at most.
const FRESH_MS: u64 = 20;

/// What does not change while a node runs.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `node.id`
    pub node_id: NodeId,
    /// `cluster.id`
    pub cluster_id: String,
    /// `directory.id`
    pub directory_id: String,
    /// When the process started, in ms since 1970.
    pub started_ms: i64,
    /// Name of the log's topic.
    pub topic: String,
    /// Where the log's files are.
    pub log_dir: PathBuf,
    /// Threads for clients.
    pub client_loops: usize,
}

/// Counts that several threads write.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// The background threads' queues.
    pub background: Arc<BackgroundCounts>,
}

/// Everything the admin listener shows.
pub struct Admin {
    /// What does not change.
    pub facts: Facts,
    /// What the loops count.
    pub metrics: Arc<Metrics>,
    /// What several threads count.
    pub shared: Shared,
    /// Asks the raft loop.
    pub inquirer: Inquirer,
    /// The clock that the loops go by.
    pub clock: Clock,
}

/// What the listener makes of the bytes that a connection has sent so far: `None` while it waits
/// for more, else whether they are a request that it answers. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn is_request(bytes: &[u8]) -> Option<bool> {
    match http::parse(bytes) {
        http::Parsed::Partial => None,
        http::Parsed::Get(request) => {
            let _ = request.has("verbose");
            Some(true)
        }
        http::Parsed::Refused(response) => {
            assert!(!response.into_bytes().is_empty());
            Some(false)
        }
    }
}

/// Binds the listener; a busy port is the caller's to tell.
///
/// # Errors
/// The name cannot be resolved or the address cannot be bound.
pub fn bind(endpoint: &Endpoint) -> io::Result<TcpListener> {
    if endpoint.host.is_empty() {
        // A host without IPv6: all interfaces means all of IPv4.
        return match TcpListener::bind(("::", endpoint.port)) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(("0.0.0.0", endpoint.port))
            }
            bound => bound,
        };
    }
    let addresses: Vec<_> = (&*endpoint.host, endpoint.port)
        .to_socket_addrs()?
        .collect();
    TcpListener::bind(&addresses[..])
}

/// Starts the thread. It ends with the process.
///
/// # Errors
/// If it cannot be started.
pub fn start(listener: TcpListener, admin: Admin) -> io::Result<()> {
    let connections = Connections::new(listener)?;
    let eyes = Eyes {
        leader_view: LeaderView::start(admin.facts.topic.clone())?,
        admin,
        history: History::default(),
        asked: None,
    };
    let thread = thread::Builder::new().name("admin".into());
    thread.spawn(move || eyes.run(connections)).map(drop)
}

/// The thread.
struct Eyes {
    admin: Admin,
    leader_view: LeaderView,
    history: History,
    /// When the state was asked for last, and what came of it.
    asked: Option<(quorate_raft::Instant, Option<Silence>)>,
}

impl Eyes {
    #[allow(clippy::disallowed_methods)] // this loop is where its time comes in
    fn run(mut self, mut connections: Connections) {
        // Scrapes can wait; commits cannot.
        let _ = rustix::process::setpriority_process(None, 10);
        let mut next_sample = Instant::now();
        loop {
            let begun = Instant::now();
            if begun >= next_sample {
                let wall_ms = self.admin.clock.read().wall_ms;
                self.history.take(wall_ms, &self.admin.metrics);
                next_sample = begun + history::INTERVAL;
            }
            let turned =
                connections.turn(next_sample, Instant::now, |request| self.answer(request));
            if let Err(error) = turned {
                tracing::error!(%error, "the admin listener ends: its sockets cannot be polled");
                return;
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Response {
        match &*request.path {
            "/" => Response::new(200, HTML, PAGE),
            "/livez" => {
                let now = self.ask();
                let check = health::liveness(now.instant, self.silence());
                verdict(&[check], request.has("verbose"))
            }
            "/readyz" => {
                let now = self.ask();
                verdict(&self.readiness(now), request.has("verbose"))
            }
            "/metrics" => {
                let now = self.ask();
                Response::new(200, METRICS, self.scrape(now).text())
            }
            "/api/status" => self.status(),
            "/api/history" => {
                let from = request.value("from").and_then(|from| from.parse().ok());
                json(&self.history.from(from.unwrap_or(0)))
            }
            _ => Response::text(404, "there is /, /livez, /readyz, /metrics, /api/status\n"),
        }
    }

    /// Asks the raft loop, unless that was done a moment ago.
    fn ask(&mut self) -> Now {
        let now = self.admin.clock.read();
        let is_fresh = |at: quorate_raft::Instant| now.instant.ms_since(at) < FRESH_MS;
        if !self
            .asked
            .is_some_and(|(at, silence)| silence.is_none() && is_fresh(at))
        {
            let asked = self.admin.inquirer.ask(now.instant, ANSWER_PATIENCE);
            self.asked = Some((now.instant, asked.err()));
        }
        // The answer took its time.
        self.admin.clock.read()
    }

    fn silence(&self) -> Option<Silence> {
        self.asked.and_then(|(_, silence)| silence)
    }

    fn known(&self) -> Result<&NodeStatus, Silence> {
        match (self.silence(), self.admin.inquirer.last()) {
            (None, Some(status)) => Ok(status),
            (silence, _) => Err(silence.unwrap_or(Silence::NotStarted)),
        }
    }

    fn readiness(&self, now: Now) -> Vec<Check> {
        health::readiness(now.instant, self.known())
    }

    fn scrape(&self, now: Now) -> Scrape<'_> {
        Scrape {
            now: now.instant,
            facts: &self.admin.facts,
            metrics: &self.admin.metrics,
            shared: &self.admin.shared,
            status: self.known(),
            last: self.admin.inquirer.last(),
        }
    }

    fn status(&mut self) -> Response {
        let now = self.ask();
        let checks = self.readiness(now);
        let facts = &self.admin.facts;
        let last = self.admin.inquirer.last();
        let quorum = last.map(|last| {
            let of_leader = match last.hears_leader {
                true => self.leader_view.replicas(last),
                false => None,
            };
            status::Quorum::of(facts, last, of_leader)
        });
        json(&status::Status {
            version: env!("CARGO_PKG_VERSION"),
            node: status::Node {
                id: facts.node_id,
                cluster_id: &facts.cluster_id,
                directory_id: &facts.directory_id,
                started_ms: facts.started_ms,
                now_ms: now.wall_ms,
            },
            live: health::liveness(now.instant, self.silence()).ok,
            ready: checks.iter().all(|check| check.ok),
            checks,
            quorum,
        })
    }
}

/// The page: one file, which asks for nothing but what this listener has.
const PAGE: &str = include_str!("admin/page.html");

/// 200 if all is well, else 503, in words if asked for or bad.
fn verdict(checks: &[Check], verbose: bool) -> Response {
    let ok = checks.iter().all(|check| check.ok);
    let shown = checks.iter().filter(|check| verbose || !check.ok);
    let mut text: String = shown.map(Check::line).collect();
    text.push_str(if ok { "ok\n" } else { "not ok\n" });
    Response::text(if ok { 200 } else { 503 }, text)
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => Response::new(200, JSON, text),
        Err(error) => Response::text(500, format!("{error}\n")),
    }
}
