//! Three to five replicas in memory under random delivery, loss, delay and crashes, against what
//! must always hold: one leader per epoch, one vote per epoch, a committed prefix that never
//! changes, and progress once the faults end.
//!
//! The checks look only at what the replicas did to their logs and files, not at their reasons.

mod common;

use common::{Batch, Cluster, end_of};
use quorate_raft::*;
use std::collections::BTreeMap;

const STEPS: u32 = 3_000;
const CALM_STEPS: u32 = 6_000;

/// Chance of this test alone; the replicas have their own.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let bound = u64::try_from(from.len()).expect("a count");
        from[usize::try_from(self.below(bound)).expect("an index")]
    }
}

/// What has been seen so far, over all replicas.
#[derive(Default)]
struct Seen {
    leaders: BTreeMap<Epoch, NodeId>,
    votes: BTreeMap<(NodeId, Epoch), NodeId>,
    /// Record by record, as first committed anywhere.
    committed: Vec<Batch>,
    /// Content of every (offset, epoch) that was ever in a durable log.
    contents: BTreeMap<(Offset, Epoch), u64>,
}

impl Seen {
    fn check(&mut self, cluster: &Cluster) {
        for (&id, node) in &cluster.nodes {
            let votes = node.disk.election_writes.iter().map(|(_, state)| state);
            for state in votes.chain([&node.disk.durable_election]) {
                if let (Some(key), true) = (state.voted, state == &node.disk.durable_election) {
                    let first = *self.votes.entry((id, state.epoch)).or_insert(key.id);
                    assert_eq!(first, key.id, "{id} voted twice in {}", state.epoch);
                }
            }
            let Some(raft) = &node.raft else {
                continue;
            };
            raft.check_invariants();
            if raft.role() == Role::Leader {
                let first = *self.leaders.entry(raft.epoch()).or_insert(id);
                assert_eq!(first, id, "two leaders in epoch {}", raft.epoch());
            }
            self.check_log(id, raft, &node.disk.log());
        }
        self.check_majority(cluster);
    }

    fn check_log(&mut self, id: NodeId, raft: &Raft, log: &[Batch]) {
        assert_eq!(end_of(log), raft.log_end_offset(), "log end of {id}");
        assert_eq!(common::epochs_of(log), raft.epochs(), "epochs of {id}");
        for batch in log {
            let place = (batch.meta.base_offset, batch.meta.epoch);
            let first = *self.contents.entry(place).or_insert(batch.value);
            assert_eq!(first, batch.value, "two records at {place:?}");
        }
        let Some(high_watermark) = raft.high_watermark() else {
            return;
        };
        let end = usize::try_from(high_watermark.0).expect("an offset");
        for (offset, batch) in log[..end].iter().enumerate() {
            match self.committed.get(offset) {
                Some(first) => assert_eq!(first, batch, "{id} commits another record"),
                None => self.committed.push(*batch),
            }
        }
    }

    /// What is committed is on the disks of a majority, up or down, whatever memory says.
    fn check_majority(&self, cluster: &Cluster) {
        let Some(last) = self.committed.last() else {
            return;
        };
        let voters = cluster.voters.iter();
        let holding = voters.filter(|id| cluster.nodes[*id].disk.durable_log.contains(last));
        assert!(2 * holding.count() > cluster.voters.len(), "lost: {last:?}");
    }
}

fn ids(cluster: &Cluster) -> Vec<NodeId> {
    cluster.nodes.keys().copied().collect()
}

fn random_step(cluster: &mut Cluster, chance: &mut Chance, is_calm: bool) {
    let id = chance.pick(&ids(cluster));
    match chance.below(100) {
        0..55 => deliver_any(cluster, chance, is_calm),
        55..70 => drop(cluster.flush(id)),
        70..80 => drop(cluster.persist(id)),
        80..88 => drop(cluster.append(id)),
        88..96 => {
            for id in ids(cluster) {
                let most = if is_calm { 20 } else { 150 };
                cluster.advance(id, chance.below(most));
            }
        }
        96 if !is_calm => {
            let (log_writes, election_writes) = (chance.below(4), chance.below(3));
            if cluster.is_running(id) {
                let small = |count| usize::try_from(count).expect("a count");
                cluster.crash(id, small(log_writes), small(election_writes));
            }
        }
        97 if !is_calm => match cluster.cut_off.pop() {
            Some(_) => {}
            None => cluster.cut_off.push(id),
        },
        98 if !is_calm => {
            cluster.step(id, &[], |raft, now, out| raft.shutdown(now, out));
            cluster.shutting_down.push(id);
        }
        _ => start_again(cluster, id),
    }
}

/// Starts a replica that is down, or that was asked to shut down, done or not.
fn start_again(cluster: &mut Cluster, id: NodeId) {
    if cluster.shutting_down.contains(&id) && cluster.is_running(id) {
        cluster.crash(id, 0, 0);
    }
    cluster.shutting_down.retain(|other| *other != id);
    if !cluster.is_running(id) {
        cluster.start(id);
    }
}

/// In bad times any message, or none; in calm ones the oldest.
fn deliver_any(cluster: &mut Cluster, chance: &mut Chance, is_calm: bool) {
    let count = u64::try_from(cluster.network.len()).expect("a count");
    if count == 0 {
        return;
    }
    if is_calm {
        cluster.deliver(0);
        return;
    }
    let index = usize::try_from(chance.below(count)).expect("an index");
    match chance.below(20) {
        0 => drop(cluster.network.remove(index)),
        1 => {
            let again = cluster.network[index].clone();
            cluster.deliver(index);
            cluster.network.push_back(again);
        }
        _ => cluster.deliver(index),
    }
}

/// One run; returns how much was committed, and how many epochs it took.
fn run(seed: u64) -> (usize, usize) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let voters: &[NodeId] = [&[1, 2, 3][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5]]
        [usize::try_from(seed % 3).expect("an index")];
    let mut cluster = Cluster::new(voters, seed);
    cluster.is_tracing = false;
    for &id in voters.iter().chain(&[9]) {
        cluster.add(id, &[], ElectionState::default());
        cluster.start(id);
    }
    let mut seen = Seen::default();
    for _ in 0..STEPS {
        random_step(&mut cluster, &mut chance, false);
        seen.check(&cluster);
    }
    let before = seen.committed.len();
    cluster.cut_off.clear();
    for id in ids(&cluster) {
        start_again(&mut cluster, id);
    }
    for _ in 0..CALM_STEPS {
        random_step(&mut cluster, &mut chance, true);
        seen.check(&cluster);
    }
    let after = seen.committed.len();
    assert!(
        after > before + 20,
        "no progress in calm times: {before} to {after}"
    );
    for (id, node) in &cluster.nodes {
        let high_watermark = node.high_watermark.unwrap_or_default();
        assert!(
            usize::try_from(high_watermark.0).expect("an offset") + 60 > after,
            "{id} stays behind: {}",
            cluster.state_of(*id)
        );
        assert_eq!(
            node.conflicts, 0,
            "{id} met a conflict among honest replicas"
        );
    }
    (after, seen.leaders.len())
}

#[test]
fn random_runs_keep_every_promise() {
    let seeds = std::env::var("SEEDS").map_or(40, |seeds| seeds.parse().expect("a number"));
    let first = std::env::var("FIRST").map_or(0, |seed| seed.parse().expect("a number"));
    let mut epochs = 0;
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        match result {
            Ok((_, count)) => epochs += count,
            Err(_) => panic!("seed {seed}: FIRST={seed} SEEDS=1 repeats it"),
        }
    }
    assert!(epochs > 2, "the faults must have caused elections");
}
