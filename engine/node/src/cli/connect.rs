//! How the commands that speak to a quorum reach it.

use quorate_net::ListenerKind;
use quorate_net::client::{Client, ClientError, ClientOptions};
use quorate_raft::Endpoint;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A person waits: an election takes about a second, a restart of a node some seconds.
const DEADLINE: Duration = Duration::from_secs(15);

/// What a command tells the client library.
pub(super) fn options(topic: &str) -> ClientOptions {
    ClientOptions {
        client_id: "quorate".to_owned(),
        topic: topic.to_owned(),
        deadline: DEADLINE,
        ..ClientOptions::default()
    }
}

/// A client connected to the leader that `bootstrap` leads to.
pub(super) async fn connect(
    bootstrap: &[Endpoint],
    kind: ListenerKind,
    options: ClientOptions,
) -> Result<Client, ClientError> {
    let addresses = bootstrap
        .iter()
        .map(|endpoint| (endpoint.host.to_string(), endpoint.port));
    let addresses: Vec<_> = addresses.collect();
    Client::connect_with(&addresses, kind, options).await
}

/// The time in ms since 1970.
#[allow(clippy::disallowed_methods)] // the command line is where time comes in
pub(super) fn unix_ms() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
