//! `quorate quorum describe`: what the leader says of the quorum.

use super::CliError;
use super::args::{Addresses, DescribeArgs};
use super::connect::{connect, options, unix_ms};
use super::output::Output;
use quorate_net::ListenerKind;
use quorate_net::client;
use quorate_net::wire::describe_quorum::{
    DescribeQuorumPartitionResponse, DescribeQuorumResponse, DescribedReplica,
};
use quorate_raft::NodeId;
use serde::Serialize;

/// The quorum, as printed. Offsets are exclusive ends; -1 stands for "unknown".
#[derive(Debug, Serialize)]
struct Quorum {
    leader_id: NodeId,
    leader_epoch: i32,
    high_watermark: i64,
    voters: Vec<Replica>,
    observers: Vec<Replica>,
}

#[derive(Debug, Serialize)]
struct Replica {
    id: NodeId,
    log_end_offset: i64,
    /// Records behind the leader's log end.
    lag: i64,
    /// In ms since 1970.
    last_fetch_timestamp: i64,
    /// In ms since 1970.
    last_caught_up_timestamp: i64,
}

/// Asks and prints.
pub(super) fn run(args: &DescribeArgs) -> Result<(), CliError> {
    let (Addresses(bootstrap), kind) = match (&args.bootstrap_server, &args.bootstrap_controller) {
        (Some(servers), _) => (servers, ListenerKind::Client),
        (None, Some(controllers)) => (controllers, ListenerKind::Controller),
        (None, None) => panic!("the command line asks for one of them"),
    };
    let response = client::run(async {
        let mut client = connect(bootstrap, kind, options(&args.topic)).await?;
        client.describe_quorum().await
    })??;
    let quorum = Quorum::of(&response).ok_or(CliError::NoQuorum)?;
    let mut out = Output::new();
    if args.json {
        out.json(&quorum)?;
    } else {
        for line in quorum.table(unix_ms()) {
            out.line(line)?;
        }
    }
    Ok(out.flush()?)
}

impl Quorum {
    fn of(response: &DescribeQuorumResponse) -> Option<Self> {
        let partition = response.topics.first()?.partitions.first()?;
        let leader_end = leader_end(partition);
        let replica = |replica: &DescribedReplica| Replica::of(replica, leader_end);
        Some(Self {
            leader_id: partition.leader_id,
            leader_epoch: partition.leader_epoch.0,
            high_watermark: partition.high_watermark.0,
            voters: partition.current_voters.iter().map(replica).collect(),
            observers: partition.observers.iter().map(replica).collect(),
        })
    }

    fn table(&self, now_ms: i64) -> Vec<String> {
        let mut lines = vec![
            format!(
                "leader {}   epoch {}   high watermark {}",
                self.leader_id, self.leader_epoch, self.high_watermark
            ),
            format!(
                "{:>5}  {:<8}  {:>12}  {:>10}  {:>14}  {:>14}",
                "node", "is", "log end", "lag", "last fetch", "last caught up"
            ),
        ];
        let leads = |replica: &Replica| replica.id == self.leader_id;
        for voter in &self.voters {
            let role = if leads(voter) { "leader" } else { "voter" };
            lines.push(voter.row(role, now_ms));
        }
        for observer in &self.observers {
            lines.push(observer.row("observer", now_ms));
        }
        lines
    }
}

impl Replica {
    fn of(replica: &DescribedReplica, leader_end: Option<i64>) -> Self {
        let end = replica.log_end_offset.0;
        let lag = leader_end.filter(|_| end >= 0);
        Self {
            id: replica.replica_id,
            log_end_offset: end,
            lag: lag.map_or(-1, |leader| leader.saturating_sub(end).max(0)),
            last_fetch_timestamp: replica.last_fetch_timestamp,
            last_caught_up_timestamp: replica.last_caught_up_timestamp,
        }
    }

    fn row(&self, role: &str, now_ms: i64) -> String {
        let known = |number: i64| match number {
            0.. => number.to_string(),
            _ => "-".to_owned(),
        };
        let ago = |at_ms: i64| match at_ms {
            0.. => format!("{} ms ago", now_ms.saturating_sub(at_ms).max(0)),
            _ => "-".to_owned(),
        };
        format!(
            "{:>5}  {role:<8}  {:>12}  {:>10}  {:>14}  {:>14}",
            self.id,
            known(self.log_end_offset),
            known(self.lag),
            ago(self.last_fetch_timestamp),
            ago(self.last_caught_up_timestamp),
        )
    }
}

/// The log end of the leader, which is one of its own voters.
fn leader_end(partition: &DescribeQuorumPartitionResponse) -> Option<i64> {
    let mut voters = partition.current_voters.iter();
    let leader = voters.find(|voter| voter.replica_id == partition.leader_id)?;
    (leader.log_end_offset.0 >= 0).then_some(leader.log_end_offset.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_net::wire::describe_quorum::DescribeQuorumTopicResponse;
    use quorate_raft::{Epoch, Offset};

    fn replica(id: NodeId, end: i64, at: i64) -> DescribedReplica {
        DescribedReplica {
            replica_id: id,
            log_end_offset: Offset(end),
            last_fetch_timestamp: at,
            last_caught_up_timestamp: at,
            ..DescribedReplica::default()
        }
    }

    fn response() -> DescribeQuorumResponse {
        let partition = DescribeQuorumPartitionResponse {
            leader_id: 2,
            leader_epoch: Epoch(7),
            high_watermark: Offset(90),
            current_voters: vec![
                replica(1, 90, 500),
                replica(2, 100, 1000),
                replica(3, -1, -1),
            ],
            observers: vec![replica(9, 40, 900)],
            ..DescribeQuorumPartitionResponse::default()
        };
        DescribeQuorumResponse {
            topics: vec![DescribeQuorumTopicResponse {
                partitions: vec![partition],
                ..DescribeQuorumTopicResponse::default()
            }],
            ..DescribeQuorumResponse::default()
        }
    }

    #[test]
    fn json_has_the_promised_keys() {
        let quorum = Quorum::of(&response()).unwrap();
        let json: serde_json::Value = serde_json::to_value(&quorum).unwrap();
        let expected = serde_json::json!({
            "leader_id": 2,
            "leader_epoch": 7,
            "high_watermark": 90,
            "voters": [
                {"id": 1, "log_end_offset": 90, "lag": 10,
                 "last_fetch_timestamp": 500, "last_caught_up_timestamp": 500},
                {"id": 2, "log_end_offset": 100, "lag": 0,
                 "last_fetch_timestamp": 1000, "last_caught_up_timestamp": 1000},
                {"id": 3, "log_end_offset": -1, "lag": -1,
                 "last_fetch_timestamp": -1, "last_caught_up_timestamp": -1},
            ],
            "observers": [
                {"id": 9, "log_end_offset": 40, "lag": 60,
                 "last_fetch_timestamp": 900, "last_caught_up_timestamp": 900},
            ],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn the_table_has_a_row_per_replica() {
        let lines = Quorum::of(&response()).unwrap().table(1000);
        assert_eq!(lines[0], "leader 2   epoch 7   high watermark 90");
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(words[..4], ["1", "voter", "90", "10"]);
        assert!(lines[2].contains("500 ms ago"));
        assert!(lines[3].contains("leader"));
        assert!(lines[5].contains("observer"));
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn an_answer_without_the_partition_is_none() {
        assert!(Quorum::of(&DescribeQuorumResponse::default()).is_none());
    }
}
