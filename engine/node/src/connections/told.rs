//! What is said of strangers in the log: a little of it at level info or warn, since they can cause
//! as much as they like, and the rest at level debug. All of it is counted.

use crate::logging::Throttle;
use quorate_net::ConnectionError;
use quorate_raft::Instant;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// How often lines of one kind may come.
const INTERVAL_MS: u64 = 10_000;

/// What has been said lately.
pub(super) struct Told {
    broken: Throttle,
    refused: Throttle,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            broken: Throttle::new(5, INTERVAL_MS),
            refused: Throttle::new(1, INTERVAL_MS),
        }
    }
}

impl Told {
    /// A connection is closed for what it sent.
    pub(super) fn broken(&mut self, now: Instant, socket: impl AsFd, error: &ConnectionError) {
        match self.broken.admit(now) {
            Some(untold) => {
                let peer = peer_of(socket);
                tracing::info!(%peer, %error, untold, "closing a connection for what it sent");
            }
            None => tracing::debug!(%error, "closing a connection for what it sent"),
        }
    }

    /// A connection is closed at once because there are too many.
    pub(super) fn refused(&mut self, now: Instant, socket: impl AsFd, open: usize) {
        if let Some(untold) = self.refused.admit(now) {
            let peer = peer_of(socket);
            tracing::warn!(%peer, open, untold, "refusing a connection: there are too many");
        }
    }
}

/// Who is at the other end; in words, as somebody may have left already.
fn peer_of(socket: impl AsFd) -> String {
    let name = rustix::net::getpeername(socket).ok().flatten();
    let address = name.and_then(|name| SocketAddr::try_from(name).ok());
    address.map_or_else(|| "gone".to_owned(), |address| address.to_string())
}
