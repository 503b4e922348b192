//! The floor: a commit with no protocol, as fast as this machine makes it.
//!
//! This file tries the ways and reports; `way` lists them, `client` measures one, `member_ring` and
//! `member_blocking` are the leader and the followers, `quorum` counts flushes, `disk` prepares the
//! file they write. A frame is [`FRAME_BYTES`] long and carries a rising number; an answer is that
//! number.

mod client;
mod disk;
mod member_blocking;
mod member_ring;
mod quorum;
mod way;

use crate::latency::Latencies;
use serde::Serialize;
use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use way::{Engine, Way};

/// Length of what the client sends and the leader forwards, in bytes.
const FRAME_BYTES: usize = 256;

/// Length of an answer, in bytes: the frame's number.
const ANSWER_BYTES: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long each way is measured
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    seconds: f64,
    /// Where the three members write; must be on the disk that is meant
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Only the ways whose description contains this, such as "ring, sleep"
    #[arg(long, default_value = "", value_name = "TEXT")]
    method: String,
    /// Print one JSON object instead of a line of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(crate) struct MemberArguments {
    #[arg(long)]
    engine: Engine,
    #[arg(long)]
    spin: bool,
    #[arg(long)]
    cpu: Option<usize>,
    #[arg(long)]
    dir: PathBuf,
    /// Followers to forward to; with none, the member is a follower itself.
    #[arg(long)]
    follower: Vec<SocketAddr>,
}

/// What one way came to. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    method: String,
    commits: u64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
}

/// The best way's figures, with all that were tried.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    best: &'a Figures,
    tried: &'a [Figures],
}

/// Tries all ways and prints the best.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let cpus = std::thread::available_parallelism()?.get();
    let mut tried = Vec::new();
    for way in way::all(cpus) {
        if !way.to_string().contains(&arguments.method) {
            continue;
        }
        let figures = measure(&way, arguments)?;
        eprintln!(
            "{:60} p50 {:7.1} us   p99 {:7.1} us   p99.9 {:7.1} us",
            figures.method, figures.p50_us, figures.p99_us, figures.p999_us
        );
        tried.push(figures);
    }
    let best = tried.iter().min_by(|a, b| a.p50_us.total_cmp(&b.p50_us));
    let best = best.ok_or("no way to try")?;
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&Report {
                best,
                tried: &tried
            })?
        );
    } else {
        println!(
            "floor: p50 {} us, p99 {} us, p99.9 {} us ({})",
            best.p50_us, best.p99_us, best.p999_us, best.method
        );
    }
    Ok(())
}

/// One of the three members, until its upstream closes the connection.
pub(crate) fn run_member(arguments: &MemberArguments) -> Result<(), Box<dyn Error>> {
    if let Some(cpu) = arguments.cpu {
        quorate_ring::pin_to_cpu(cpu)?;
    }
    let sockets = member_blocking::connect(&arguments.follower)?;
    let served = match arguments.engine {
        Engine::Blocking => member_blocking::serve(sockets, &arguments.dir),
        Engine::Ring => member_ring::serve(sockets, &arguments.dir, arguments.spin),
    };
    served.or_else(|error| {
        if is_hang_up(error.as_ref()) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Whether the other side just went away, as it does when a way has been measured.
fn is_hang_up(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    )
}

fn measure(way: &Way, arguments: &Arguments) -> Result<Figures, Box<dyn Error>> {
    let followers = [
        Member::start(way, way.placement.followers, &arguments.dir, &[])?,
        Member::start(way, way.placement.followers, &arguments.dir, &[])?,
    ];
    let addresses = [followers[0].address, followers[1].address];
    let leader = Member::start(way, way.placement.leader, &arguments.dir, &addresses)?;
    let duration = Duration::from_secs_f64(arguments.seconds);
    let latencies = client::measure(leader.address, way, duration)?;
    Ok(figures(way, &latencies))
}

fn figures(way: &Way, latencies: &Latencies) -> Figures {
    Figures {
        method: way.to_string(),
        commits: latencies.count(),
        p50_us: latencies.quantile_us(0.5),
        p99_us: latencies.quantile_us(0.99),
        p999_us: latencies.quantile_us(0.999),
    }
}

/// A member's process. Ends with its value at the latest.
struct Member {
    child: Child,
    address: SocketAddr,
}

impl Member {
    fn start(
        way: &Way,
        cpu: Option<usize>,
        dir: &Path,
        followers: &[SocketAddr],
    ) -> Result<Member, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor-member").arg("--dir").arg(dir);
        command.arg("--engine").arg(way.engine.to_string());
        command.args(way.spin.then_some("--spin"));
        command.args(cpu.map(|cpu| format!("--cpu={cpu}")));
        command.args(
            followers
                .iter()
                .map(|address| format!("--follower={address}")),
        );
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped above");
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().parse() {
            Ok(address) => Ok(Member { child, address }),
            Err(_) => {
                let status = child.wait()?;
                Err(format!("a member of the floor did not start ({status})").into())
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself when its upstream did.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
