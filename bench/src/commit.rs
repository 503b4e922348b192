//! The load generator: how long a commit takes, and how many a second there are.
//!
//! A client is one outstanding Produce with acks=all: it sends the next when the last was answered.
//! Clients share a few connections, as threads of a program share a producer. Every answer is
//! checked: no error, and offsets that rise on each connection and are given out once.
//!
//! With a reader, rounds with and without it take turns, and the ratio of their 99th percentiles is
//! what counts.
//!
//! `cluster` starts three voters of its own, `leader` finds out where to send, `load` drives the
//! connections of `session` through one ring.

mod cluster;
mod leader;
mod load;
mod reader;
mod session;
#[cfg(test)]
mod tests;

use crate::latency::Latencies;
use cluster::Cluster;
use reader::Reader;
use serde::Serialize;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Most connections, however many clients there are.
const CONNECTIONS_MAX: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Numbers of clients, each measured in turn
    #[arg(long, value_delimiter = ',', default_value = "1,16,128")]
    clients: Vec<usize>,
    /// Size of a record's value, in bytes
    #[arg(long, default_value_t = 256, value_name = "BYTES")]
    record_size: usize,
    /// How long each number of clients is measured
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How long it runs before that
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    warmup_seconds: f64,
    /// Servers to ask for the leader; without it, three voters are started here
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    bootstrap_server: Vec<String>,
    /// Topic to write to
    #[arg(long, default_value = "__cluster_metadata")]
    topic: String,
    /// How long a client's thread spins before it sleeps
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    spin_us: u64,
    /// Where voters started here keep their data; must be on the disk that is meant
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Program to start voters with; default: `quorate` beside this program, built if need be
    #[arg(long, value_name = "PATH")]
    quorate: Option<PathBuf>,
    /// Read the log from its start at this rate meanwhile, in every second round
    #[arg(long, value_name = "MB_PER_S")]
    reader: Option<u64>,
    /// Fill the log with this much before, for the reader
    #[arg(long, default_value_t = 256, value_name = "MB", requires = "reader")]
    fill: u64,
    /// Rounds with the reader and as many without
    #[arg(long, default_value_t = 5, requires = "reader")]
    rounds: usize,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// What is sent, and for how long.
pub(crate) struct Plan {
    pub(crate) clients: usize,
    pub(crate) record_size: usize,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    pub(crate) spin: Duration,
}

/// What one number of clients came to. Times in microseconds.
#[derive(Debug, Serialize)]
struct Figures {
    clients: usize,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    commits_per_s: f64,
    /// With a reader: what it read, in MB/s, and the median of the rounds' ratios of 99th
    /// percentiles, with it to without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reader_mb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ratio_with_reader: Option<f64>,
}

/// Measures each number of clients and prints the figures.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.clients.contains(&0) {
        return Err("--clients: at least 1".into());
    }
    if arguments.rounds == 0 || arguments.reader == Some(0) {
        return Err("--rounds and --reader: at least 1".into());
    }
    let cluster = match arguments.bootstrap_server.is_empty() {
        true => Some(Cluster::start(
            arguments.quorate.as_deref(),
            &arguments.dir,
        )?),
        false => None,
    };
    let servers = cluster
        .as_ref()
        .map_or(&arguments.bootstrap_server, |own| &own.servers);
    let leader = leader::find(servers, &arguments.topic)?;
    if arguments.reader.is_some() {
        eprintln!("filling the log with {} MB", arguments.fill);
        reader::fill(servers, &arguments.topic, arguments.fill * 1_000_000)?;
    }
    let mut all = Vec::new();
    for &clients in &arguments.clients {
        let plan = plan(arguments, clients);
        let figures = match arguments.reader {
            Some(rate) => beside_reader(arguments, servers, &leader, &plan, rate)?,
            None => figures(&plan, &load::run(&leader, &plan)?),
        };
        match arguments.json {
            true => eprintln!("{}", text(&figures)),
            false => println!("{}", text(&figures)),
        }
        all.push(figures);
    }
    if let Some(cluster) = cluster {
        cluster.stop()?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&all)?);
    }
    Ok(())
}

/// Rounds without and with a reader, in turn. The figures are of those with it.
fn beside_reader(
    arguments: &Arguments,
    servers: &[String],
    leader: &leader::Leader,
    plan: &Plan,
    mb_per_s: u64,
) -> Result<Figures, Box<dyn Error>> {
    let mut with_reader = Latencies::new();
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let quiet = load::run(leader, plan)?;
        let reader = Reader::start(servers, &arguments.topic, mb_per_s * 1_000_000);
        let read = load::run(leader, plan)?;
        rates.push(reader.stop()? / 1e6);
        ratios.push(read.quantile_us(0.99) / quiet.quantile_us(0.99));
        with_reader.add(&read);
        eprintln!(
            "p99 {} us, with the reader {} us",
            quiet.quantile_us(0.99),
            read.quantile_us(0.99)
        );
    }
    ratios.sort_unstable_by(f64::total_cmp);
    rates.sort_unstable_by(f64::total_cmp);
    let median = |sorted: &[f64]| (sorted[sorted.len() / 2] * 100.0).round() / 100.0;
    let one = figures(plan, &with_reader);
    Ok(Figures {
        commits_per_s: (one.commits_per_s / arguments.rounds as f64).round(),
        reader_mb_per_s: Some(median(&rates)),
        p99_ratio_with_reader: Some(median(&ratios)),
        ..one
    })
}

fn plan(arguments: &Arguments, clients: usize) -> Plan {
    Plan {
        clients,
        record_size: arguments.record_size,
        warm_up: Duration::from_secs_f64(arguments.warmup_seconds),
        duration: Duration::from_secs_f64(arguments.seconds),
        spin: Duration::from_micros(arguments.spin_us),
    }
}

fn figures(plan: &Plan, latencies: &Latencies) -> Figures {
    Figures {
        clients: plan.clients,
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
        max_us: latencies.max_us(),
        commits_per_s: (latencies.count() as f64 / plan.duration.as_secs_f64()).round(),
        reader_mb_per_s: None,
        p99_ratio_with_reader: None,
    }
}

fn text(figures: &Figures) -> String {
    let Figures {
        clients,
        p50_us,
        p99_us,
        p999_us,
        max_us,
        commits_per_s,
        reader_mb_per_s,
        p99_ratio_with_reader,
    } = figures;
    let mut text = format!(
        "{clients:5} clients: p50 {p50_us} us, p99 {p99_us} us, p99.9 {p999_us} us, \
         max {max_us} us, {commits_per_s} commits/s"
    );
    if let (Some(rate), Some(ratio)) = (reader_mb_per_s, p99_ratio_with_reader) {
        text += &format!("; beside a reader at {rate} MB/s: p99 {ratio} times that without");
    }
    text
}
