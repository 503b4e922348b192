//! Every command and flag, with the help that a stranger reads.

use crate::config::parse_remotes;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use quorate_raft::{Endpoint, NodeId};
use std::path::PathBuf;

/// A metadata quorum: a small replicated, durable, ordered log that speaks Kafka's protocol.
#[derive(Debug, Parser)]
#[command(
    name = "quorate",
    version,
    after_help = "\
Start here:
  quorate dev                                        three voters on this machine, and how they are
  echo hello | quorate append --bootstrap-server 127.0.0.1:9092
  quorate tail --bootstrap-server 127.0.0.1:9092

Any Kafka producer (acks=all) and consumer works as well."
)]
pub(super) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How much to log on standard error. Otherwise RUST_LOG decides
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// How lines of the log look
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// What may be logged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a quorum on this machine: several voters as processes, set up on first use
    Dev(DevArgs),
    /// Give a node's data directory its identity, once, before its first start
    Format(FormatArgs),
    /// Print a random id, good as a cluster id
    #[command(after_help = "Example:\n  quorate random-uuid")]
    RandomUuid,
    /// Run one node until SIGTERM or Ctrl-C
    Server(ServerArgs),
    /// Look after a quorum
    #[command(subcommand)]
    Quorum(QuorumCommand),
    /// Append the lines of standard input, each as one record
    Append(AppendArgs),
    /// Print committed records
    Tail(TailArgs),
    /// Look into log files (of a stopped node)
    #[command(subcommand)]
    Log(LogCommand),
    /// Print a script with which a shell completes these commands
    Completions(CompletionsArgs),
    /// Print the manual page, or write a page for every command
    Man(ManArgs),
}

impl Command {
    /// Whether this process is a node itself, so that its log is what the operator looks at.
    pub(super) fn runs_a_node(&self) -> bool {
        match self {
            Self::Server(_) => true,
            Self::Dev(args) => args.only.is_some(),
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum QuorumCommand {
    /// Print leader, epoch, high watermark, and how far each voter and observer is
    Describe(DescribeArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Print the batches of a segment file, a checkpoint file or a whole log, one line each
    Dump(DumpArgs),
    /// Check a log from its first to its last byte
    Verify(VerifyArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Voter K serves clients on port BASE+K-1, its peers on BASE+99+K and a page for browsers on
BASE+149+K, all on 127.0.0.1. Its data, server.properties and log.txt are in DIR/voter-K. Ctrl-C or
SIGTERM stops all voters gracefully; the data stays for the next start. A voter that is killed stays
gone until --only starts it again.

Examples:
  quorate dev                      three voters, with a live table
  quorate dev --json               for scripts: one JSON line once a leader is elected
  quorate dev --voters 5 --dir /data/five --base-port 19092
  quorate dev --only 2             start voter 2 again, from another terminal")]
pub(super) struct DevArgs {
    /// How many voters to set up, 1 to 15. Default: 3, or as many as DIR has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    pub voters: Option<u8>,
    /// Where the voters' data is
    #[arg(long, value_name = "DIR", default_value = "./quorate-data")]
    pub dir: PathBuf,
    /// Client port of voter 1. Default: 9092, or as in DIR
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    pub base_port: Option<u16>,
    /// Print one JSON line with the leader and all addresses instead of the table
    #[arg(long)]
    pub json: bool,
    /// Start only this voter, in the foreground
    #[arg(long, value_name = "ID", conflicts_with_all = ["voters", "base_port", "json"])]
    pub only: Option<NodeId>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Format a directory only for a node that never ran: a voter that comes back empty has forgotten its
votes and the records it acknowledged. All nodes of a cluster need the same cluster id.

Examples:
  quorate format --config server.properties --cluster-id $(quorate random-uuid)
  quorate format --config server.properties               (makes a cluster id and prints it)")]
pub(super) struct FormatArgs {
    /// The node's configuration file
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// The cluster's id, the same on all nodes. Default: a random one
    #[arg(long, short = 't', value_name = "ID")]
    pub cluster_id: Option<String>,
    /// Succeed if the directory is formatted already, for this node and this cluster
    #[arg(long, short = 'g')]
    pub ignore_formatted: bool,
    /// How the log is flushed on this disk. Default: tried out, in less than two seconds
    ///
    /// The result is stored beside the log and used while log.flush.method is auto. A directory
    /// that is formatted already and has one for its device keeps it.
    #[arg(long, value_name = "METHOD", value_parser = ["parallel", "linked", "dsync", "thread"])]
    pub flush_method: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file has Kafka's keys (node.id, listeners, controller.quorum.voters, log.dirs, ...);
docs/configuration.md lists them all. The directory must have been formatted.

Example:
  quorate server --config server.properties")]
pub(super) struct ServerArgs {
    /// The node's configuration file
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// Stop when the process with this id, the parent, ends
    #[arg(long, hide = true, value_name = "PID")]
    pub die_with_parent: Option<i32>,
}

/// Addresses to begin with, as one argument.
#[derive(Clone, Debug)]
pub(super) struct Addresses(pub Vec<Endpoint>);

fn addresses(text: &str) -> Result<Addresses, crate::config::ValueFault> {
    parse_remotes(text).map(Addresses)
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("bootstrap").required(true)
    .args(["bootstrap_server", "bootstrap_controller"]))]
#[command(after_help = "\
Offsets are exclusive ends. Lag is in records; timestamps are in ms since 1970, -1 if unknown.

Examples:
  quorate quorum describe --bootstrap-server 127.0.0.1:9092,127.0.0.1:9093
  quorate quorum describe --bootstrap-controller 127.0.0.1:9192 --json")]
pub(super) struct DescribeArgs {
    /// Client listeners to ask for the leader
    #[arg(long, value_name = "HOST:PORT,..", value_parser = addresses)]
    pub bootstrap_server: Option<Addresses>,
    /// Controller listeners to ask instead
    #[arg(long, value_name = "HOST:PORT,..", value_parser = addresses)]
    pub bootstrap_controller: Option<Addresses>,
    /// Name of the log's topic (quorum.topic.name)
    #[arg(long, value_name = "NAME", default_value = "__cluster_metadata")]
    pub topic: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A line is printed once its record is committed: on stable storage of a majority. From a pipe or
file several lines are on their way at once, in order. If the leader dies meanwhile, what is on its
way may be appended twice, and lines out of order.

Examples:
  echo hello | quorate append --bootstrap-server 127.0.0.1:9092
  quorate append --bootstrap-server 127.0.0.1:9092 --key config --atomic < changes.txt")]
pub(super) struct AppendArgs {
    /// Client listeners to ask for the leader
    #[arg(long, value_name = "HOST:PORT,..", value_parser = addresses)]
    pub bootstrap_server: Addresses,
    /// Key of every record. Default: none
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Commit all lines as one batch: readers see all of them or none
    #[arg(long)]
    pub atomic: bool,
    /// Name of the log's topic (quorum.topic.name)
    #[arg(long, value_name = "NAME", default_value = "__cluster_metadata")]
    pub topic: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Control records (such as the one that begins each epoch) use offsets but are not printed.

Examples:
  quorate tail --bootstrap-server 127.0.0.1:9092
  quorate tail --bootstrap-server 127.0.0.1:9092 --from 100 --follow --json")]
pub(super) struct TailArgs {
    /// Client listeners to ask for the leader
    #[arg(long, value_name = "HOST:PORT,..", value_parser = addresses)]
    pub bootstrap_server: Addresses,
    /// First offset to print. Default: the first one that the log has
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub from: Option<i64>,
    /// Wait for further records at the end
    #[arg(long)]
    pub follow: bool,
    /// Print one JSON object per record
    #[arg(long)]
    pub json: bool,
    /// Name of the log's topic (quorum.topic.name)
    #[arg(long, value_name = "NAME", default_value = "__cluster_metadata")]
    pub topic: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate log dump quorate-data/voter-1/__cluster_metadata-0
  quorate log dump quorate-data/voter-1/__cluster_metadata-0/00000000000000000000.log --json")]
pub(super) struct DumpArgs {
    /// A segment (.log), a .checkpoint, or the log's directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Print one JSON object per batch
    #[arg(long)]
    pub json: bool,
    /// Print the records of each batch too
    #[arg(long)]
    pub records: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Checks every checksum, offset and epoch, the indexes and the small files beside the segments.
Exits 1 and names file, position and fault if something is wrong. Changes nothing.

Example:
  quorate log verify quorate-data/voter-1/__cluster_metadata-0")]
pub(super) struct VerifyArgs {
    /// The log's directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print what was found as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Show how far it is on standard error even where that is no terminal
    #[arg(long)]
    pub progress: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate completions bash > /etc/bash_completion.d/quorate
  quorate completions zsh > ~/.zfunc/_quorate
  quorate completions fish > ~/.config/fish/completions/quorate.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate man | man -l -
  quorate man --dir /usr/local/share/man/man1      (quorate.1, quorate-server.1, ...)")]
pub(super) struct ManArgs {
    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
