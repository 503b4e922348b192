//! What the leader says of the quorum, for the page of a node that does not lead.
//!
//! Only leaders know how far everybody is. A thread of its own asks the leader's controller
//! listener, as anybody may, when somebody looks at the page; whoever looks gets the last answer
//! and waits for nothing.

use super::inquiry::NodeStatus;
use super::status::{Replica, endpoint_of};
use crate::describe_client::DescribeClient;
use quorate_net::wire::describe_quorum::{DescribeQuorumPartitionResponse, DescribedReplica};
use quorate_raft::{Endpoint, Epoch, Instant, NodeId, Offset};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A leader that does not answer within this time is not waited for.
const PATIENCE: Duration = Duration::from_millis(700);

/// An answer that is older is not shown.
const OLD_AFTER_MS: u64 = 5_000;

/// What the leader said.
#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    leader: NodeId,
    epoch: Epoch,
    partition: DescribeQuorumPartitionResponse,
}

/// Whom to ask, and when that was wanted.
struct Question {
    at: Instant,
    leader: NodeId,
    endpoint: Endpoint,
}

/// The asking thread's other end.
pub(super) struct LeaderView {
    questions: SyncSender<Question>,
    answer: Arc<Mutex<Option<Answer>>>,
}

impl LeaderView {
    /// Starts the thread. It ends with this value.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(topic: String) -> io::Result<Self> {
        let (questions, asked) = sync_channel(1);
        let answer = Arc::new(Mutex::new(None));
        let answers = Arc::clone(&answer);
        let thread = thread::Builder::new().name("admin-leader".into());
        thread.spawn(move || run(&topic, &asked, &answers))?;
        Ok(Self { questions, answer })
    }

    /// The replicas as the leader of `status` sees them, if it said so lately. Has it asked anew.
    pub(super) fn replicas(&self, status: &NodeStatus) -> Option<Vec<Replica>> {
        let leader = status.leader.leader_id?;
        let endpoint = status.leader.endpoint.clone()?;
        let question = Question {
            at: status.at,
            leader,
            endpoint,
        };
        match self.questions.try_send(question) {
            // It is being asked already.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answer.as_ref()?;
        let is_current = answer.leader == leader && answer.epoch == status.epoch;
        let age_ms = status.at.ms_since(answer.at);
        (is_current && age_ms < OLD_AFTER_MS).then(|| replicas_of(status, &answer.partition))
    }
}

fn run(topic: &str, questions: &Receiver<Question>, answers: &Mutex<Option<Answer>>) {
    let mut connection: Option<(Endpoint, DescribeClient)> = None;
    while let Ok(question) = questions.recv() {
        let is_same = |(endpoint, _): &(Endpoint, _)| *endpoint == question.endpoint;
        let kept = connection.take().filter(is_same);
        let client = match kept {
            Some((_, client)) => Ok(client),
            None => DescribeClient::open(&question.endpoint, PATIENCE),
        };
        let Ok(mut client) = client else { continue };
        let Ok(Some(partition)) = client.ask(topic) else {
            continue;
        };
        connection = Some((question.endpoint, client));
        let mut answer = answers.lock().unwrap_or_else(PoisonError::into_inner);
        *answer = Some(Answer {
            at: question.at,
            leader: question.leader,
            epoch: partition.leader_epoch,
            partition,
        });
    }
}

/// The leader's answer as the page shows it. Its clock need not be this node's: spans are taken
/// against the leader's own last fetch, which is the moment of its answer.
fn replicas_of(status: &NodeStatus, partition: &DescribeQuorumPartitionResponse) -> Vec<Replica> {
    let voters = partition.current_voters.iter();
    let leader = voters
        .clone()
        .find(|voter| voter.replica_id == partition.leader_id);
    let now_ms = leader.map_or(-1, |leader| leader.last_fetch_timestamp);
    let leader_end = leader.map_or(Offset(-1), |leader| leader.log_end_offset);
    let ago = |at_ms: i64| {
        let is_known = at_ms >= 0 && now_ms >= 0;
        is_known.then(|| u64::try_from(now_ms.saturating_sub(at_ms)).unwrap_or(0))
    };
    let known = |offset: Offset| (offset.0 >= 0).then_some(offset.0);
    let replica = |replica: &DescribedReplica, is_voter| {
        let end = known(replica.log_end_offset);
        let lag = known(leader_end).zip(end);
        Replica {
            id: replica.replica_id,
            is_voter,
            is_leader: replica.replica_id == partition.leader_id,
            endpoint: endpoint_of(status, replica.replica_id),
            log_end_offset: end,
            lag: lag.map(|(leader, end)| leader.saturating_sub(end).max(0)),
            last_fetch_ms_ago: ago(replica.last_fetch_timestamp),
            last_caught_up_ms_ago: ago(replica.last_caught_up_timestamp),
        }
    };
    let observers = partition.observers.iter();
    let observers = observers.map(|one| replica(one, false));
    voters
        .map(|one| replica(one, true))
        .chain(observers)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::health::tests::status;
    use super::*;
    use quorate_raft::Role;

    #[test]
    fn spans_are_those_of_the_leaders_clock() {
        let replica = |replica_id, end, at| DescribedReplica {
            replica_id,
            log_end_offset: Offset(end),
            last_fetch_timestamp: at,
            last_caught_up_timestamp: at,
            ..DescribedReplica::default()
        };
        let partition = DescribeQuorumPartitionResponse {
            leader_id: 2,
            current_voters: vec![replica(1, 90, 4_000), replica(2, 100, 5_000)],
            observers: vec![replica(9, -1, -1)],
            ..DescribeQuorumPartitionResponse::default()
        };
        let replicas = replicas_of(&status(Role::Follower, Some(2)), &partition);
        let lags: Vec<_> = replicas.iter().map(|one| one.lag).collect();
        assert_eq!(lags, [Some(10), Some(0), None]);
        let fetched: Vec<_> = replicas.iter().map(|one| one.last_fetch_ms_ago).collect();
        assert_eq!(fetched, [Some(1_000), Some(0), None]);
        assert!(replicas[1].is_leader && !replicas[2].is_voter);
    }
}
