//! The load generator: how long a commit takes, and how many a second there are.
//!
//! A client is one outstanding Produce with acks=all: it sends the next when the last was answered.
//! Clients share a few connections, as threads of a program share a producer. Every answer is
//! checked: no error, and offsets that rise on each connection and are given out once.
//!
//! `cluster` starts three voters of its own, `leader` finds out where to send, `load` drives the
//! connections of `session` through one ring.

mod cluster;
mod leader;
mod load;
mod session;
#[cfg(test)]
mod tests;

use crate::latency::Latencies;
use cluster::Cluster;
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
}

/// Measures each number of clients and prints the figures.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.clients.contains(&0) {
        return Err("--clients: at least 1".into());
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
    let mut all = Vec::new();
    for &clients in &arguments.clients {
        let plan = plan(arguments, clients);
        let latencies = load::run(&leader, &plan)?;
        let figures = figures(&plan, &latencies);
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
    } = figures;
    format!(
        "{clients:5} clients: p50 {p50_us} us, p99 {p99_us} us, p99.9 {p999_us} us, \
         max {max_us} us, {commits_per_s} commits/s"
    )
}
