//! The state that a replica starts in, from what its disk says (Kafka `QuorumState.initialize`).

use crate::config::{Config, LogState};
use crate::follower::Follower;
use crate::held::Election;
use crate::log_view::LogView;
use crate::output::ElectionState;
use crate::raft::{EPOCH_LIMIT, Raft, Shutdown, State};
use crate::requests::{Patience, RequestManager};
use crate::rng::Rng;
use crate::types::{Epoch, Instant, Peer, Voter};
use crate::unattached::Unattached;
use alloc::vec::Vec;

impl Raft {
    pub(crate) fn restored(
        config: Config,
        election: ElectionState,
        log: LogState,
        now: Instant,
    ) -> Self {
        assert!(config.local.id >= 0, "node id {}", config.local.id);
        assert!(
            election.epoch >= Epoch(0) && election.epoch < EPOCH_LIMIT,
            "{election:?}"
        );
        let log = LogView::new(log);
        let patience = Patience {
            request_timeout_ms: config.request_timeout_ms.max(1),
            retry_backoff_ms: config.retry_backoff_ms,
            retry_backoff_max_ms: config.retry_backoff_max_ms,
        };
        let mut raft = Self {
            rng: Rng::new(
                config
                    .seed
                    .wrapping_add(u64::from(config.local.id.unsigned_abs()) << 32),
            ),
            election: Election::new(restored_election(election, &log)),
            discovery: discovery_peers(&config),
            requests: RequestManager::new(patience),
            state: State::Unattached(Unattached {
                election_deadline: None,
            }),
            config,
            log,
            leader_endpoint: None,
            committed: None,
            lost_elections: 0,
            shutdown: Shutdown::NotAsked,
            has_storage_failed: false,
        };
        raft.state = raft.restored_state(now);
        raft
    }

    fn restored_state(&mut self, now: Instant) -> State {
        let ElectionState {
            epoch,
            leader_id,
            voted,
        } = *self.election();
        let is_own_vote = voted.is_some_and(|key| key.matches(self.config.local));
        match leader_id {
            Some(id) if id == self.local_id() && self.is_voter() => {
                return State::Resigned(self.new_resigned(now, Vec::new()));
            }
            // It led before it was taken out of the voters.
            Some(id) if id == self.local_id() => {
                let forgotten = ElectionState {
                    epoch,
                    leader_id: None,
                    voted,
                };
                self.election = Election::new(forgotten);
            }
            Some(id) => {
                if let Some(endpoint) = self.voter_endpoint(id) {
                    self.leader_endpoint = Some(endpoint);
                    let fetch_deadline = now.plus_ms(self.config.fetch_timeout_ms);
                    return State::Follower(Follower::new(fetch_deadline));
                }
            }
            None if is_own_vote && self.is_voter() => {
                return State::Candidate(self.new_candidate(now));
            }
            None => {}
        }
        let deadline = self.random_election_deadline(now);
        State::Unattached(Unattached {
            election_deadline: self.is_voter().then_some(deadline),
        })
    }
}

/// A log that is ahead of the file proves that the file is old: all that is known is the epoch.
fn restored_election(election: ElectionState, log: &LogView) -> ElectionState {
    if election.epoch >= log.last_epoch() {
        return election;
    }
    ElectionState {
        epoch: log.last_epoch(),
        leader_id: None,
        voted: None,
    }
}

/// The bootstrap servers, or the voters, without this replica.
fn discovery_peers(config: &Config) -> Vec<Peer> {
    let voters = config.voters.voters().iter();
    if config.bootstrap.is_empty() {
        let others = voters.filter(|voter| voter.key.id != config.local.id);
        let peer = |voter: &Voter| Peer {
            id: voter.key.id,
            endpoint: voter.endpoint.clone(),
        };
        return others.map(peer).collect();
    }
    let others = config.bootstrap.iter();
    others
        .filter(|peer| peer.id != config.local.id && peer.endpoint != config.local_endpoint)
        .cloned()
        .collect()
}
