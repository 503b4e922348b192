//! What a commit costs in computing: encoding a batch, checksums, the scan of a log at recovery,
//! and a leader's step. Under `cargo test` each runs once and checks its result; `cargo bench`
//! measures.

#![allow(missing_docs)] // criterion's macros make functions without

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quorate_raft::{
    Config, DirectoryId, ElectionState, Endpoint, Epoch, ErrorCode, FetchRequest, Instant,
    LeaderInfo, LogState, NodeId, Offset, Output, Outputs, Raft, ReplicaKey, Request, RequestToken,
    Response, Role, VoteResponse, Voter, VoterSet,
};
use quorate_storage::format::{BatchBuilder, NewRecord, batches, check_produced, crc32c, stamp};
use std::hint::black_box;

const RECORD: [u8; 256] = [7; 256];

fn batch_of(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::produced();
    (0..records).for_each(|_| builder.push(NewRecord::value(1_000, &RECORD)));
    builder.build()
}

fn encode_batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch encode");
    for records in [1, 16, 128] {
        let batch = batch_of(records);
        assert_eq!(
            check_produced(&batch).map(|info| info.count),
            Ok(records as i32)
        );
        group.throughput(Throughput::Bytes(batch.len() as u64));
        group.bench_function(format!("{records} records of 256 bytes"), |bencher| {
            bencher.iter(|| batch_of(black_box(records)));
        });
    }
    group.finish();
}

fn check_batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("produced batch check");
    for records in [1, 128] {
        let batch = batch_of(records);
        group.throughput(Throughput::Bytes(batch.len() as u64));
        group.bench_function(format!("{records} records of 256 bytes"), |bencher| {
            bencher.iter(|| check_produced(black_box(&batch)).is_ok());
        });
    }
    group.finish();
}

fn checksums(criterion: &mut Criterion) {
    // RFC 3720, B.4: 32 bytes of zeros.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    let mut group = criterion.benchmark_group("crc32c");
    for len in [256, 4096, 1 << 20] {
        let bytes = vec![0xa5; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len} bytes"), |bencher| {
            bencher.iter(|| crc32c(black_box(&bytes)));
        });
    }
    group.finish();
}

/// `count` batches of one record each, as they lie in a segment.
fn segment(count: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for offset in 0..count {
        let start = bytes.len();
        bytes.extend_from_slice(&batch_of(1));
        stamp(&mut bytes[start..], Offset(offset), Epoch(3));
    }
    bytes
}

/// Walks a segment as recovery does: each batch whole, its checksum right, offsets without a gap.
fn scan(bytes: &[u8]) -> Offset {
    batches(bytes).fold(Offset(0), |expected, batch| {
        let (header, _) = batch.expect("nothing was changed");
        assert_eq!(header.base_offset, expected);
        header.end_offset()
    })
}

fn recovery_scan(criterion: &mut Criterion) {
    const BATCHES: i64 = 10_000;
    let bytes = segment(BATCHES);
    assert_eq!(scan(&bytes), Offset(BATCHES));
    let mut group = criterion.benchmark_group("recovery scan");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("10,000 batches of one record", |bencher| {
        bencher.iter(|| scan(black_box(&bytes)));
    });
    group.finish();
}

fn endpoint(id: NodeId) -> Endpoint {
    Endpoint {
        host: format!("node{id}").into(),
        port: 9093,
    }
}

fn config() -> Config {
    let voter = |id| Voter {
        key: ReplicaKey::of(id),
        endpoint: endpoint(id),
    };
    Config {
        local: ReplicaKey {
            id: 1,
            directory_id: DirectoryId([1; 16]),
        },
        voters: VoterSet::new(vec![voter(1), voter(2), voter(3)]),
        bootstrap: Vec::new(),
        local_endpoint: endpoint(1),
        election_timeout_ms: 1000,
        fetch_timeout_ms: 2000,
        election_backoff_max_ms: 1000,
        request_timeout_ms: 2000,
        retry_backoff_ms: 20,
        retry_backoff_max_ms: 1000,
        fetch_max_wait_ms: 500,
        fetch_max_bytes: 1 << 20,
        fetch_hw_linger_ms: 0,
        seed: 1,
    }
}

/// A leader of three voters with nothing to do, the time it stopped at, and what it last asked for.
struct Leader {
    raft: Raft,
    now: Instant,
    out: Outputs,
    token: u64,
}

impl Leader {
    /// Lets time pass, grants every vote and makes every write durable until it leads.
    fn elected() -> Leader {
        let (now, mut out) = (Instant::default(), Outputs::new());
        let (election, log) = (ElectionState::default(), LogState::default());
        let raft = Raft::new(config(), election, log, now, &mut out);
        let mut leader = Leader {
            raft,
            now,
            out,
            token: 0,
        };
        for _ in 0..1000 {
            if leader.raft.role() == Role::Leader && leader.out.is_empty() {
                return leader;
            }
            for output in std::mem::take(&mut leader.out) {
                leader.carry_out(output);
            }
            if leader.raft.role() != Role::Leader {
                leader.now = leader.now.plus_ms(100);
                leader.raft.on_tick(leader.now, &mut leader.out);
            }
        }
        panic!("not elected: {:?}", leader.raft.role());
    }

    fn carry_out(&mut self, output: Output) {
        let Leader { raft, now, out, .. } = self;
        match output {
            Output::PersistElection { seq, .. } => raft.on_election_persisted(*now, seq, out),
            Output::AppendLeaderChange { .. } => {
                raft.on_flushed(*now, raft.generation(), raft.log_end_offset(), out);
            }
            Output::Send {
                to,
                id,
                request: Request::Vote(vote),
            } => {
                let leader = LeaderInfo {
                    epoch: vote.epoch,
                    ..LeaderInfo::default()
                };
                let granted = VoteResponse {
                    error: ErrorCode::NONE,
                    leader,
                    granted: true,
                };
                raft.on_response(*now, to.id, id, &Response::Vote(granted), &[], out);
            }
            _ => (),
        }
    }

    /// One commit: an append, its flush here, and the Fetch by which a follower acknowledges it.
    fn commit(&mut self) -> Offset {
        let Leader { raft, now, out, .. } = self;
        out.clear();
        raft.append(*now, 1).expect("it leads");
        raft.finish_turn(*now, out);
        raft.on_flushed(*now, raft.generation(), raft.log_end_offset(), out);
        self.token += 1;
        let fetch = Request::Fetch(FetchRequest {
            replica: ReplicaKey {
                id: 2,
                directory_id: DirectoryId([2; 16]),
            },
            current_leader_epoch: raft.epoch(),
            fetch_offset: raft.log_end_offset(),
            last_fetched_epoch: raft.epoch(),
            max_wait_ms: 500,
            max_bytes: 1 << 20,
            high_watermark: raft.high_watermark(),
        });
        raft.on_request(*now, RequestToken(self.token), &fetch, out);
        raft.finish_turn(*now, out);
        raft.high_watermark().unwrap_or_default()
    }
}

fn raft_step(criterion: &mut Criterion) {
    let mut leader = Leader::elected();
    let first = leader.commit();
    assert_eq!(
        leader.commit(),
        Offset(first.0 + 1),
        "each step commits one record"
    );
    let mut group = criterion.benchmark_group("raft step");
    group.bench_function("append, flush and a follower's fetch", |bencher| {
        bencher.iter(|| leader.commit());
    });
    group.finish();
}

criterion_group!(
    hot_path,
    encode_batches,
    check_batches,
    checksums,
    recovery_scan,
    raft_step
);
criterion_main!(hot_path);
