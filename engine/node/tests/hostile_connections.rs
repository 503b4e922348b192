//! Connections that mean harm, or nothing: idle ones, slow ones, ones that vanish, ones that do not
//! read. Others are served as before, memory and descriptors stay bounded.
//!
//! "As before" is measured in one run, in turns: while strangers do their worst, and while as many
//! well-meant clients do the same amount of honest work, since on a small machine any work at all
//! costs the others time. Compared are the 99th percentiles of the best round of each kind: what
//! else runs on the machine spoils rounds at random, what strangers can do spoils them all. Rounds
//! are added, up to a bound, as long as the comparison fails.

#![allow(clippy::disallowed_methods)] // deadlines of the harness
#![allow(unsafe_code)] // a limit of open files, set between fork and exec

mod common;

use common::lone::{Lone, Serving, format};
use common::stranger::{Stranger, at_pace, descriptors, frame, processor_time, resident_bytes};
use common::{
    Background, MachineLock, PROBE_VALUE, Probe, RawClient, TOPIC, batch, pause, s, scrape,
    wait_for,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How much longer than beside honest clients the slowest of a hundred requests may take.
const RATIO_MAX: u32 = 3; // halves: 1.5 times
/// Differences below this are the machine's.
const NOISE: Duration = Duration::from_millis(5);

const ROUNDS_MIN: usize = 3;
const ROUNDS_MAX: usize = 25;
const ROUND: Duration = Duration::from_millis(600);

/// A voter on its own with more lines in its configuration.
struct Besieged {
    lone: Lone,
    serving: Serving,
    _machine: MachineLock,
}

impl Besieged {
    fn start(more: &str) -> Self {
        Self::start_prepared(more, &|_| ())
    }

    fn start_prepared(more: &str, prepare: &dyn Fn(&mut Command)) -> Self {
        let machine = MachineLock::acquire();
        let lone = Lone::new();
        let config: PathBuf = lone.config("server.properties", &lone.data_dir(), 0);
        let text = fs::read_to_string(&config).expect("a configuration");
        fs::write(&config, text + more).expect("a configuration");
        format(&config, &[]).expect_success();
        let address = format!("127.0.0.1:{}", lone.ports.base());
        let log = fs::File::create(lone.dir.path().join("log.txt")).expect("a log");
        let serving = Serving::start_prepared(&config, &address, Stdio::from(log), prepare);
        let besieged = Self {
            lone,
            serving,
            _machine: machine,
        };
        // It answers as the leader before it has written down that it is.
        wait_for("the leader takes appends", s(20), || {
            let mut client = RawClient::connect(&address).ok()?;
            let produced = client.produce(&batch(PROBE_VALUE)).ok()?;
            (produced.error == 0).then_some(())
        });
        besieged
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.lone.ports.base())
    }

    fn peer_address(&self) -> String {
        format!("127.0.0.1:{}", self.lone.ports.base() + 100)
    }

    /// A sample of its metrics of connections, over all listeners.
    fn connections(&self, name: &str) -> f64 {
        let samples = scrape(&format!("127.0.0.1:{}", self.lone.ports.base() + 150));
        let name = format!("quorate_connections_{name}");
        let samples = samples.iter().filter(|(key, _)| key.starts_with(&name));
        samples.map(|(_, value)| value).sum()
    }

    fn resident(&self) -> u64 {
        resident_bytes(self.serving.pid())
    }

    fn append(&self, value: &[u8]) {
        let mut client = RawClient::connect(&self.address()).expect("a connection");
        let produced = client.produce(&batch(value)).expect("an answer");
        assert_eq!(produced.error, 0);
    }
}

impl Drop for Besieged {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.lone.dir.path().join("log.txt"));
            eprintln!("--- the voter's log\n{}", log.unwrap_or_default());
        }
    }
}

/// Compares what a well-meant client feels of `hostile` and of `friendly`, in turns.
fn compare(address: &str, what: &str, mut friendly: impl FnMut(), mut hostile: impl FnMut()) {
    let probe = Probe::start(address);
    let (mut friends, mut strangers) = (Duration::MAX, Duration::MAX);
    let mut rounds = 0;
    let is_fair = |friends: Duration, strangers: Duration| {
        strangers <= (friends * RATIO_MAX / 2).max(friends + NOISE)
    };
    while rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && !is_fair(friends, strangers)) {
        friends = friends.min(probe.p99_during(&mut friendly));
        strangers = strangers.min(probe.p99_during(&mut hostile));
        rounds += 1;
    }
    let worst = probe.finish();
    let told = format!(
        "{what}: p99 {strangers:?}, beside honest clients {friends:?} (best of {rounds}), \
         worst {worst:?}"
    );
    println!("{told}");
    assert!(is_fair(friends, strangers), "{told}");
}

/// ApiVersions 0, the shortest question there is.
fn question() -> Vec<u8> {
    frame(18, 0, &[])
}

fn ask_and_leave(address: &str) {
    let mut client = Stranger::connect(address);
    client.send(&question());
    client.receive().expect("an answer");
}

#[test]
fn clients_that_vanish_cost_others_no_more_than_clients_that_ask() {
    let besieged = Besieged::start("");
    let address = besieged.address();
    compare(
        &address,
        "connect and vanish",
        || at_pace(ROUND, 400, || ask_and_leave(&address)),
        || {
            let mut number = 0;
            at_pace(ROUND, 400, || {
                let mut stranger = Stranger::connect(&address);
                number += 1;
                match number % 4 {
                    0 => {}
                    1 => stranger.send(&question()[..9]),
                    2 => stranger.send(&question()),
                    _ => stranger.half_close(),
                }
            });
        },
    );
}

#[test]
fn damaged_requests_cost_others_no_more_than_good_ones() {
    let besieged = Besieged::start("");
    let address = besieged.address();
    let mut chance = common::stranger::Chance(3);
    compare(
        &address,
        "damaged requests",
        || at_pace(ROUND, 400, || ask_and_leave(&address)),
        || {
            at_pace(ROUND, 400, || {
                let mut bytes = frame(3, 12, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                chance.damage(&mut bytes);
                let mut stranger = Stranger::connect(&address);
                stranger.send(&bytes);
                stranger.half_close();
                stranger.is_ended();
            });
        },
    );
}

#[test]
fn two_thousand_idle_connections_cost_little() {
    /// Per connection: 4 KiB to receive into, and what the node knows of it.
    const BYTES_EACH: u64 = 12 * 1024;
    const IDLE: usize = 2_000;
    raise_own_limit();
    let besieged = Besieged::start("quorate.connections.max=3000\n");
    let address = besieged.address();
    let before = besieged.resident();
    let open = || {
        (0..IDLE)
            .map(|_| Stranger::connect(&address))
            .collect::<Vec<_>>()
    };
    let mut idle = open();
    wait_for("all are accepted", s(10), || {
        (descriptors(besieged.serving.pid()) >= IDLE).then_some(())
    });
    let grown = besieged.resident().saturating_sub(before);
    println!("{IDLE} idle connections take {grown} bytes");
    assert!(
        grown < IDLE as u64 * BYTES_EACH,
        "{grown} bytes for {IDLE} idle connections"
    );
    // With a request each they have had their buffers, and keep little.
    for client in &mut idle {
        client.send(&question());
    }
    for client in &mut idle {
        client.receive().expect("an answer");
    }
    let grown = besieged.resident().saturating_sub(before);
    println!("after a request each {grown} bytes");
    assert!(
        grown < 4 * IDLE as u64 * BYTES_EACH,
        "{grown} bytes after a request each"
    );
    drop(idle);

    let kept = std::cell::RefCell::new(Vec::new());
    let wait = || at_pace(ROUND, 200, || ());
    compare(
        &address,
        "2,000 idle connections",
        || {
            kept.borrow_mut().clear();
            wait();
        },
        || {
            *kept.borrow_mut() = open();
            wait();
        },
    );
}

#[test]
fn a_byte_a_second_disturbs_nobody() {
    let besieged = Besieged::start("");
    let address = besieged.address();
    let slow: Vec<Stranger> = (0..300).map(|_| Stranger::connect(&address)).collect();
    let slow = std::cell::RefCell::new(slow);
    let bytes = frame(0, 3, &[0; 1000]);
    let sent = std::cell::Cell::new(0);
    compare(
        &address,
        "a byte a second from 300 clients",
        || at_pace(ROUND, 200, || ()),
        || {
            let at = sent.replace(sent.get() + 1);
            for stranger in slow.borrow_mut().iter_mut() {
                stranger.send(&bytes[at..=at]);
            }
            at_pace(ROUND, 200, || ());
        },
    );
    assert!(
        descriptors(besieged.serving.pid()) > 300,
        "slow is no crime"
    );
}

/// Fetch 4 from the log's start, a megabyte at most.
fn fetch_all() -> Vec<u8> {
    let mut body = vec![0xff; 4];
    for number in [0, 1, 1 << 20] {
        body.extend_from_slice(&i32::to_be_bytes(number));
    }
    body.push(0);
    body.extend_from_slice(&[0, 0, 0, 1, 0, TOPIC.len() as u8]);
    body.extend_from_slice(TOPIC.as_bytes());
    body.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    body.extend_from_slice(&0_i64.to_be_bytes());
    body.extend_from_slice(&(1_i32 << 20).to_be_bytes());
    frame(1, 4, &body)
}

/// 200 consumers ask for all of the log a hundred times each and never read: 20 GB of answers.
#[test]
fn consumers_that_do_not_read_are_bounded_and_closed_and_others_are_served() {
    const DEAF: usize = 200;
    const ANSWERS_MAX: u64 = 16 << 20;
    /// Receive buffers, the tail of the log, and what the allocator keeps.
    const BESIDES: u64 = 40 << 20;
    let besieged = Besieged::start(&format!(
        "quorate.answers.max.bytes={ANSWERS_MAX}\nquorate.connection.idle.ms=3000\n"
    ));
    let address = besieged.address();
    for _ in 0..40 {
        besieged.append(&vec![b'x'; 100_000]);
    }
    let before = besieged.resident();
    let base = descriptors(besieged.serving.pid());
    let requests = fetch_all().repeat(100);
    let mut deaf: Vec<Stranger> = (0..DEAF).map(|_| Stranger::connect(&address)).collect();
    let worst = Background::start(move |stop| {
        let mut client = RawClient::connect(&address).expect("a connection");
        let mut worst = Duration::ZERO;
        while !stop.load(Ordering::Acquire) {
            let start = Instant::now();
            assert_eq!(
                client
                    .produce(&batch(PROBE_VALUE))
                    .expect("an answer")
                    .error,
                0
            );
            assert_eq!(client.fetch(0, 0).expect("an answer").error, 0);
            worst = worst.max(start.elapsed());
            pause(Duration::from_millis(5));
        }
        worst
    });
    for stranger in &mut deaf {
        stranger.send(&requests);
    }
    let start = Instant::now();
    let mut most = 0;
    while start.elapsed() < s(2) {
        most = most.max(besieged.resident().saturating_sub(before));
        pause(Duration::from_millis(10));
    }
    println!("{DEAF} consumers that do not read: {most} bytes more");
    let bound = ANSWERS_MAX * 3 / 2 + BESIDES;
    assert!(
        most < bound,
        "{most} bytes for answers that nobody reads, {bound} are allowed"
    );
    wait_for("those that do not read are closed", s(20), || {
        (descriptors(besieged.serving.pid()) <= base + 5).then_some(())
    });
    worst.stop();
    let worst = worst.join();
    println!("the slowest append and read beside them took {worst:?}");
    assert!(worst < s(4), "a client that reads waited {worst:?}");
}

/// Produce 3 with acks=all.
fn large_produce(bytes: usize) -> Vec<u8> {
    let batch = batch(&vec![b'x'; bytes]);
    let mut body = vec![0xff; 4];
    body.extend_from_slice(&5_000_i32.to_be_bytes());
    body.extend_from_slice(&[0, 0, 0, 1, 0, TOPIC.len() as u8]);
    body.extend_from_slice(TOPIC.as_bytes());
    body.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    body.extend_from_slice(&(batch.len() as i32).to_be_bytes());
    body.extend_from_slice(&batch);
    frame(0, 3, &body)
}

/// Room for requests of a megabyte, and clients that have sent halves of requests: as much beyond
/// their shares as fits in twice.
fn half_requests(loops: usize) -> (Besieged, Vec<Stranger>, Vec<u8>) {
    const HALVES: usize = 64;
    let besieged = Besieged::start(&format!(
        "quorate.frame.max.bytes=1048576\nquorate.in.flight.max.bytes=1048576\n\
         quorate.client.loops={loops}\n"
    ));
    let request = large_produce(200_000);
    let address = besieged.address();
    let mut strangers: Vec<Stranger> = (0..HALVES).map(|_| Stranger::connect(&address)).collect();
    for stranger in &mut strangers {
        stranger.send(&request[..request.len() / 2]);
    }
    (besieged, strangers, request)
}

/// Gives the node time to read from all connections as far as it will. Less time only tests less.
fn let_all_be_read() {
    (0..6).for_each(|_| pause(Duration::from_millis(50)));
}

/// Memory for requests that is full of halves must not keep the other halves out.
#[test]
fn half_requests_that_use_up_all_memory_are_finished() {
    for loops in [0, 2] {
        let (_besieged, mut strangers, request) = half_requests(loops);
        let_all_be_read();
        for stranger in &mut strangers {
            stranger.send(&request[request.len() / 2..]);
        }
        let error_at = 4 + 4 + 2 + TOPIC.len() + 4 + 4;
        for stranger in &mut strangers {
            let answer = stranger.receive().expect("an answer");
            assert_eq!(answer[error_at..error_at + 2], [0, 0]);
        }
    }
}

#[test]
fn half_requests_that_use_up_all_memory_are_closed_for_others() {
    let (besieged, strangers, _) = half_requests(0);
    let_all_be_read();
    let mut client = RawClient::connect(&besieged.address()).expect("a connection");
    client.wait_for_answers(s(30)).expect("a socket");
    let produced = client.produce(&batch(&[b'x'; 100_000]));
    assert_eq!(produced.expect("an answer").error, 0);
    assert!(besieged.connections("shed_total") > 0.0);
    drop(strangers);
}

fn raise_own_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("as many files as are allowed");
}

/// Half-open sockets piled up in others, and at the limit of descriptors they could neither accept
/// nor open a segment any more.
#[test]
fn descriptors_are_kept_for_the_log_and_come_back_from_clients() {
    const LIMIT: u64 = 256;
    let limit_files = |command: &mut Command| {
        let limited = || {
            let limit = Rlimit {
                current: Some(LIMIT),
                maximum: Some(LIMIT),
            };
            Ok(setrlimit(Resource::Nofile, limit)?)
        };
        // SAFETY: between fork and exec only a system call is made: no allocation, no lock.
        unsafe { command.pre_exec(limited) };
    };
    let more = "quorate.connection.idle.ms=3000\ninternal.metadata.log.segment.bytes=65536\n";
    let besieged = Besieged::start_prepared(more, &limit_files);
    let (address, peers) = (besieged.address(), besieged.peer_address());
    let pid = besieged.serving.pid();
    let base = descriptors(pid);
    let mut client = RawClient::connect(&address).expect("a connection");
    // Its place is taken before the strangers come.
    assert!(client.produce(&batch(PROBE_VALUE)).is_ok());
    let rolling = {
        Background::start(move |stop| {
            let mut appended = 0_usize;
            while !stop.load(Ordering::Acquire) {
                let produced = client.produce(&batch(&[b'x'; 8000])).expect("an answer");
                assert_eq!(produced.error, 0, "an append was refused");
                appended += 1;
            }
            appended
        })
    };
    for round in 0..6 {
        let mut open = Vec::new();
        for number in 0..250 {
            // What is beyond the node's share is closed at once; both are fine here.
            let to = if number % 5 == 4 { &peers } else { &address };
            let Ok(mut stranger) = Stranger::try_connect(to) else {
                continue;
            };
            stranger.send(&question()[..7]);
            if number % 2 == 0 {
                stranger.half_close();
            }
            open.push(stranger);
        }
        let now = descriptors(pid);
        assert!(now < LIMIT as usize, "round {round}: {now} descriptors");
        if round % 2 == 0 {
            drop(open);
        } else {
            // Half a request and nothing more: closed for being idle.
            wait_for("idle connections are closed", s(10), || {
                (descriptors(pid) <= base + 8).then_some(())
            });
        }
        wait_for("descriptors come back", s(10), || {
            (descriptors(pid) <= base + 8).then_some(())
        });
    }
    rolling.stop();
    let appended = rolling.join();
    assert!(
        appended * 8000 > 3 * 65536,
        "only {appended} appends, no segment was rolled"
    );
    ask_and_leave(&address);
    ask_and_leave(&peers);
    // Nobody is there and nothing happens: no loop may turn for it.
    let (used, start) = (processor_time(pid), Instant::now());
    while start.elapsed() < s(1) {
        pause(Duration::from_millis(50));
    }
    let used = processor_time(pid) - used;
    assert!(
        used < Duration::from_millis(300),
        "{used:?} of processor time for nothing"
    );
}
