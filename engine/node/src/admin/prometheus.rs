//! Everything that /metrics shows, and what it is called.
//!
//! KRaft's own metrics (`org.apache.kafka.raft.internals.KafkaRaftMetrics`, JMX group raft-metrics)
//! have the names that the usual configuration of Prometheus' JMX exporter gives them, so that
//! dashboards made for Kafka work. All others begin with `quorate_` and use Prometheus' base units.

use super::exposition::{BYTES, Exposition, Kind, NUMBERS, SECONDS};
use super::health;
use super::inquiry::{NodeStatus, Silence};
use super::process::{LogFiles, Process};
use super::{Facts, Shared};
use crate::metrics::{CommitStages, LogMetrics, Metrics, ROLES, RaftMetrics, SetMetrics};
use crate::replica::{LogSize, QuotaLevel};
use quorate_raft::{Instant, ReplicaDescription, Role};
use std::sync::atomic::Ordering;

/// What a scrape is made of.
pub(super) struct Scrape<'a> {
    pub now: Instant,
    pub facts: &'a Facts,
    pub metrics: &'a Metrics,
    pub shared: &'a Shared,
    /// The node's state, or that its loop does not answer.
    pub status: Result<&'a NodeStatus, Silence>,
    /// The last state that is known.
    pub last: Option<&'a NodeStatus>,
}

/// Kafka's name of a metric in raft-metrics.
macro_rules! kafka {
    ($name:literal) => {
        concat!("kafka_server_raftmetrics_", $name)
    };
}

impl Scrape<'_> {
    /// The page.
    pub(super) fn text(&self) -> String {
        let mut page = Exposition::default();
        self.write_process(&mut page);
        self.write_health(&mut page);
        if let Some(status) = self.last {
            write_state(&mut page, status);
            write_replicas(&mut page, status);
        }
        write_kafka_sensors(&mut page, self.now, self.metrics);
        write_commits(&mut page, &self.metrics.commits);
        write_raft(&mut page, &self.metrics.raft);
        write_log(&mut page, &self.metrics.log);
        if let Some(files) = LogFiles::read(&self.facts.log_dir) {
            write_log_files(&mut page, files);
        }
        self.write_queues(&mut page);
        self.write_connections(&mut page);
        page.into_text()
    }

    fn write_process(&self, page: &mut Exposition) {
        let facts = self.facts;
        page.family(
            "quorate_build_info",
            Kind::Gauge,
            "Always 1; says which build this is.",
        );
        page.sample(
            "quorate_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1,
        );
        page.family(
            "quorate_node_info",
            Kind::Gauge,
            "Always 1; says which node this is.",
        );
        let labels = [
            ("node_id", &*facts.node_id.to_string()),
            ("cluster_id", &*facts.cluster_id),
            ("directory_id", &*facts.directory_id),
        ];
        page.sample("quorate_node_info", &labels, 1);
        let help = "When the process started, in seconds since 1970.";
        let started = facts.started_ms as f64 / 1000.0;
        page.one("process_start_time_seconds", Kind::Gauge, help, started);
        if let Some(process) = Process::read() {
            let help = "Processor time used.";
            page.one(
                "process_cpu_seconds_total",
                Kind::Counter,
                help,
                process.cpu_s,
            );
            let help = "Memory in use (resident set).";
            page.one(
                "process_resident_memory_bytes",
                Kind::Gauge,
                help,
                process.resident_bytes,
            );
            page.one(
                "process_open_fds",
                Kind::Gauge,
                "Open descriptors.",
                process.open_fds,
            );
        }
        let help = "Lines that the log's reader was too slow for.";
        let dropped = crate::logging::dropped_lines();
        page.one(
            "quorate_logging_dropped_lines_total",
            Kind::Counter,
            help,
            dropped,
        );
    }

    fn write_health(&self, page: &mut Exposition) {
        let live = health::liveness(self.now, self.status.err());
        let checks = health::readiness(self.now, self.status);
        let help = "Whether /livez says yes.";
        page.one("quorate_live", Kind::Gauge, help, u8::from(live.ok));
        let help = "Whether /readyz says yes.";
        let ready = checks.iter().all(|check| check.ok);
        page.one("quorate_ready", Kind::Gauge, help, u8::from(ready));
        page.family("quorate_ready_check", Kind::Gauge, "Each check of /readyz.");
        for check in &checks {
            page.sample(
                "quorate_ready_check",
                &[("check", check.name)],
                u8::from(check.ok),
            );
        }
    }

    fn write_queues(&self, page: &mut Exposition) {
        let raft = &self.metrics.raft;
        let background = &self.shared.background;
        let pending = |counter: &std::sync::atomic::AtomicI64| counter.load(Ordering::Relaxed);
        page.family(
            "quorate_queue_depth",
            Kind::Gauge,
            "What waits, by where it waits.",
        );
        for (queue, depth) in [
            ("appends", raft.waiting_appends.get()),
            ("consumer_fetches", raft.waiting_fetches.get()),
            ("log_commands", raft.log_commands.get()),
            ("client_requests", raft.client_requests.get()),
            ("background_files", pending(&background.files)),
            ("background_reads", pending(&background.reads)),
            ("background_checks", pending(&background.checks)),
            ("background_names", pending(&background.names)),
            ("log_lines", crate::logging::waiting_lines()),
        ] {
            page.sample("quorate_queue_depth", &[("queue", queue)], depth);
        }
        let help = "Bytes appended and not flushed.";
        page.one(
            "quorate_unflushed_bytes",
            Kind::Gauge,
            help,
            raft.unflushed_bytes.get(),
        );
    }

    fn write_connections(&self, page: &mut Exposition) {
        type Value = fn(&SetMetrics) -> i64;
        let families: [(&str, Kind, &str, Value); 7] = [
            ("open", Kind::Gauge, "Connections open now.", |set| {
                set.open.get()
            }),
            (
                "in_flight_bytes",
                Kind::Gauge,
                "Bytes of requests that are not answered yet.",
                |set| set.in_flight_bytes.get(),
            ),
            (
                "accepted_total",
                Kind::Counter,
                "Connections accepted.",
                |set| count_of(set.accepted.get()),
            ),
            (
                "refused_total",
                Kind::Counter,
                "Connections refused because there were too many.",
                |set| count_of(set.refused.get()),
            ),
            (
                "broken_total",
                Kind::Counter,
                "Connections closed for what they sent.",
                |set| count_of(set.broken.get()),
            ),
            (
                "idle_closed_total",
                Kind::Counter,
                "Connections closed for being idle.",
                |set| count_of(set.idle_closed.get()),
            ),
            (
                "shed_total",
                Kind::Counter,
                "Connections closed because memory was short and they kept some without using it.",
                |set| count_of(set.shed.get()),
            ),
        ];
        let name = "quorate_connections_answer_bytes";
        page.family(
            name,
            Kind::Gauge,
            "Bytes of answers that nobody has taken yet.",
        );
        let clients = &self.metrics.clients[0];
        for (listener, set) in [
            ("controller", &self.metrics.controllers),
            ("client", clients),
        ] {
            page.sample(name, &[("listener", listener)], set.answer_bytes.get());
        }
        for (name, kind, help, value) in families {
            let name = format!("quorate_connections_{name}");
            page.family(&name, kind, help);
            let labels = [("listener", "controller"), ("loop", "raft")];
            page.sample(&name, &labels, value(&self.metrics.controllers));
            for (index, set) in self.metrics.clients.iter().enumerate() {
                let own_loop = self.facts.client_loops > 0;
                let served_by = if own_loop {
                    format!("client-{index}")
                } else {
                    "raft".to_owned()
                };
                let labels = [("listener", "client"), ("loop", &*served_by)];
                page.sample(&name, &labels, value(set));
            }
        }
    }
}

fn count_of(total: u64) -> i64 {
    i64::try_from(total).unwrap_or(i64::MAX)
}

/// The state as Kafka names it. An observer is a follower that is no voter; who voted is not told
/// apart from who did not, since current-vote says it.
fn state_name(status: &NodeStatus) -> &'static str {
    match status.role {
        Role::Follower if !status.is_voter => "observer",
        Role::Unattached => ROLES[0],
        Role::Prospective => ROLES[1],
        Role::Candidate => ROLES[2],
        Role::Leader => ROLES[3],
        Role::Follower => ROLES[4],
        Role::Resigned => ROLES[5],
    }
}

fn write_state(page: &mut Exposition, status: &NodeStatus) {
    let name = kafka!("current_state");
    page.family(name, Kind::Gauge, "The state of this node, as a label.");
    page.sample(name, &[("current_state", state_name(status))], 1);
    let leader = status.leader.leader_id.unwrap_or(-1);
    let high_watermark = status.high_watermark.map_or(-1, |offset| offset.0);
    for (name, help, value) in [
        (
            kafka!("current_leader"),
            "Id of the leader; -1 if unknown.",
            i64::from(leader),
        ),
        (
            kafka!("current_vote"),
            "Whom this node voted for in its epoch; -1 if nobody.",
            i64::from(vote_of(status)),
        ),
        (
            kafka!("current_epoch"),
            "The epoch.",
            i64::from(status.epoch.0),
        ),
        (
            kafka!("high_watermark"),
            "First offset that is not known to be committed; -1 if unknown.",
            high_watermark,
        ),
        (
            kafka!("log_end_offset"),
            "End of the log (exclusive).",
            status.log_end.0,
        ),
        (
            kafka!("log_end_epoch"),
            "Epoch of the last record.",
            i64::from(status.last_epoch.0),
        ),
        (
            kafka!("number_unknown_voter_connections"),
            "Voters whose endpoint is not known. Always 0: the configuration names them.",
            0,
        ),
        (
            "quorate_log_start_offset",
            "First offset of the log.",
            status.log_start.0,
        ),
        (
            "quorate_log_flushed_offset",
            "End of what this node has on stable storage (exclusive).",
            status.flushed.0,
        ),
    ] {
        page.one(name, Kind::Gauge, help, value);
    }
    write_log_size(page, status.log_size);
    if let Some(offset) = status.leader_high_watermark {
        let help = "The leader's high watermark, as it last told this follower.";
        page.one("quorate_leader_high_watermark", Kind::Gauge, help, offset);
    }
}

fn write_log_size(page: &mut Exposition, size: LogSize) {
    let help = "Bytes of all batches in the log.";
    page.one("quorate_log_batch_bytes", Kind::Gauge, help, size.bytes);
    let help = "How much of log.max.bytes is used, in percent; 0 without a bound.";
    let percent = size.percent();
    page.one("quorate_log_quota_percent", Kind::Gauge, help, percent);
    let help = "Whether clients' appends are refused for the size of the log.";
    let is_used_up = u8::from(size.level() == QuotaLevel::UsedUp);
    page.one("quorate_log_read_only", Kind::Gauge, help, is_used_up);
}

/// A leader has voted for itself.
fn vote_of(status: &NodeStatus) -> i32 {
    let own = status
        .leader
        .leader_id
        .filter(|_| status.role == Role::Leader);
    own.or(status.voted).unwrap_or(-1)
}

fn write_replicas(page: &mut Exposition, status: &NodeStatus) {
    let Some(quorum) = &status.quorum else {
        return;
    };
    let voters = quorum.voters.iter().map(|replica| (replica, "voter"));
    let observers = quorum.observers.iter().map(|replica| (replica, "observer"));
    let all: Vec<_> = voters.chain(observers).collect();
    let seconds = |at: Option<Instant>| Some(status.at.ms_since(at?) as f64 / 1000.0);
    type Value<'a> = &'a dyn Fn(&ReplicaDescription) -> Option<f64>;
    let end = |replica: &ReplicaDescription| Some(replica.log_end_offset?.0 as f64);
    let lag = |replica: &ReplicaDescription| Some((status.log_end.0 as f64) - end(replica)?);
    let families: [(&str, &str, Value<'_>); 4] = [
        (
            "quorate_replica_log_end_offset",
            "End of what a replica has flushed, as its last Fetch said.",
            &end,
        ),
        (
            "quorate_replica_lag_records",
            "Records behind the leader's log end.",
            &lag,
        ),
        (
            "quorate_replica_last_fetch_seconds",
            "Since a replica last fetched.",
            &|replica| seconds(replica.last_fetch),
        ),
        (
            "quorate_replica_caught_up_seconds",
            "Since a replica last had everything that its leader had.",
            &|replica| seconds(replica.last_caught_up),
        ),
    ];
    for (name, help, value) in families {
        page.family(name, Kind::Gauge, help);
        for (replica, kind) in &all {
            let id = replica.replica.id.to_string();
            if let Some(value) = value(replica) {
                page.sample(name, &[("replica", &*id), ("kind", kind)], value);
            }
        }
    }
}

fn write_kafka_sensors(page: &mut Exposition, now: Instant, metrics: &Metrics) {
    let raft = &metrics.raft;
    let commits = metrics.commits.commit_window.read(now);
    let elections = raft.elections.read(now);
    let ms = |ns: f64| ns / 1e6;
    for (name, help, value) in [
        (
            kafka!("commit_latency_avg"),
            "Time from append to commit, in ms, over the last half minute.",
            ms(commits.average()),
        ),
        (
            kafka!("commit_latency_max"),
            "The longest of it, in ms.",
            ms(commits.max as f64),
        ),
        (
            kafka!("election_latency_avg"),
            "Time from standing for election to a known leader, in ms, over the last half minute.",
            ms(elections.average()),
        ),
        (
            kafka!("election_latency_max"),
            "The longest of it, in ms.",
            ms(elections.max as f64),
        ),
        (
            kafka!("append_records_rate"),
            "Records appended as leader per second, over the last half minute.",
            raft.appended.read(now).per_second(),
        ),
        (
            kafka!("fetch_records_rate"),
            "Records fetched from the leader per second, over the last half minute.",
            raft.fetched.read(now).per_second(),
        ),
        (
            kafka!("poll_idle_ratio_avg"),
            "Share of time in which the raft loop was in the kernel, waiting or submitting.",
            raft.idle_ratio(now),
        ),
    ] {
        page.one(name, Kind::Gauge, help, value);
    }
}

fn write_commits(page: &mut Exposition, commits: &CommitStages) {
    let name = "quorate_commit_seconds";
    let help = "From the append of a batch to its commit, at the leader.";
    page.family(name, Kind::Histogram, help);
    page.histogram(name, &[], &SECONDS, &commits.commit);
    let name = "quorate_commit_stage_seconds";
    let help = "Stages of a commit at the leader: queue (received to appended), group (to the log \
                writer's start), write, flush (this node's disk), acknowledge (from its flush to \
                the majority's), answer (from commit to answered), total (received to answered).";
    page.family(name, Kind::Histogram, help);
    for (stage, histogram) in [
        ("queue", &commits.queue),
        ("group", &commits.group),
        ("write", &commits.write),
        ("flush", &commits.flush),
        ("acknowledge", &commits.acknowledge),
        ("answer", &commits.answer),
        ("total", &commits.total),
    ] {
        page.histogram(name, &[("stage", stage)], &SECONDS, histogram);
    }
    let help = "Commits that took longer than commit.slow.ms.";
    page.one(
        "quorate_slow_commits_total",
        Kind::Counter,
        help,
        commits.slow.get(),
    );
}

fn write_raft(page: &mut Exposition, raft: &RaftMetrics) {
    let name = "quorate_state_changes_total";
    let help = "Changes of state by the new state and why; elections are those to prospective.";
    page.family(name, Kind::Counter, help);
    for (state, counters) in ROLES.iter().zip(&raft.transitions) {
        page.named(name, &[("state", state)], "reason", counters);
    }
    let name = "quorate_refused_requests_total";
    page.family(
        name,
        Kind::Counter,
        "Requests answered with an error, by the error.",
    );
    for (error, count) in raft.refusals.read() {
        let code = error.0.to_string();
        page.sample(name, &[("error", error.name()), ("code", &code)], count);
    }
    for (name, help, counter) in [
        (
            "quorate_appended_batches_total",
            "Batches appended as leader.",
            &raft.append_batches,
        ),
        (
            "quorate_appended_records_total",
            "Records appended as leader.",
            &raft.append_records,
        ),
        (
            "quorate_appended_bytes_total",
            "Bytes of batches appended as leader.",
            &raft.append_bytes,
        ),
        (
            "quorate_fetched_records_total",
            "Records fetched from a leader.",
            &raft.fetch_records,
        ),
        (
            "quorate_conflicts_total",
            "Messages that conflict with what this node knows to be true. Anything but 0 is a \
             wrong or hostile peer.",
            &raft.conflicts,
        ),
        (
            "quorate_log_read_faults_total",
            "Reads of the log that found damage on this node's disk.",
            &raft.read_faults,
        ),
        (
            "quorate_log_truncations_total",
            "Times the log was cut because it diverged from the leader's.",
            &raft.truncations,
        ),
        (
            "quorate_loop_turns_total",
            "Turns of the raft loop.",
            &raft.turns,
        ),
        (
            "quorate_ring_enters_total",
            "System calls of the raft loop's ring.",
            &raft.ring.enters,
        ),
        (
            "quorate_ring_submissions_total",
            "Operations that the raft loop gave to the kernel.",
            &raft.ring.submissions,
        ),
        (
            "quorate_ring_completions_total",
            "Operations of the raft loop that ended.",
            &raft.ring.completions,
        ),
        (
            "quorate_ring_wakes_total",
            "Waits of the raft loop that another thread ended.",
            &raft.ring.wakes,
        ),
        (
            "quorate_ring_overflows_total",
            "Turns in which the raft loop's completion queue was too small.",
            &raft.ring.overflows,
        ),
    ] {
        page.one(name, Kind::Counter, help, counter.get());
    }
}

fn write_log(page: &mut Exposition, log: &LogMetrics) {
    for (name, help, scale, histogram) in [
        (
            "quorate_log_write_seconds",
            "Writing one group.",
            SECONDS,
            &log.write,
        ),
        (
            "quorate_log_flush_seconds",
            "Flushing one group.",
            SECONDS,
            &log.flush,
        ),
        (
            "quorate_log_group_bytes",
            "Bytes of a group's batches.",
            BYTES,
            &log.group_bytes,
        ),
        (
            "quorate_log_group_batches",
            "Batches of a group.",
            NUMBERS,
            &log.group_batches,
        ),
    ] {
        page.family(name, Kind::Histogram, help);
        page.histogram(name, &[], &scale, histogram);
    }
    let help = "Segments sealed because they were full.";
    page.one(
        "quorate_log_rolls_total",
        Kind::Counter,
        help,
        log.rolls.get(),
    );
}

fn write_log_files(page: &mut Exposition, files: LogFiles) {
    let help = "Segments, the active one included.";
    page.one("quorate_log_segments", Kind::Gauge, help, files.segments);
    let help = "Bytes of the segments; the active one counts whole, since it is made ahead.";
    page.one("quorate_log_bytes", Kind::Gauge, help, files.bytes);
}
