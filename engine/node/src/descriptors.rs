//! Shares out the process's file descriptors, so that clients can't take those that the log and the
//! peers need.
//!
//! The soft limit is raised to the hard one first; that needs no right. It is about numbers only:
//! sockets are accepted and closed in `connections`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the log's files, rings, peer links, the admin listener and standard streams. A node uses
/// some thirty; a connection that is refused needs one for a moment.
const OWN: usize = 96;

/// Connections to controller listeners: peers, observers, tools.
const CONTROLLERS_MAX: usize = 1024;

/// How many connections each kind of listener may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionShares {
    /// Client listeners together.
    pub clients: usize,
    /// Controller listeners together.
    pub controllers: usize,
}

impl ConnectionShares {
    /// What can be had of `clients_wanted`, with a warning if that is less.
    #[must_use]
    pub fn of_process(clients_wanted: usize) -> Self {
        let descriptors = raise_limit();
        let shares = Self::of(descriptors, clients_wanted);
        if shares.clients < clients_wanted {
            tracing::warn!(
                descriptors,
                wanted = clients_wanted,
                connections = shares.clients,
                "fewer client connections than configured: the limit of open files is too low"
            );
        }
        shares
    }

    /// A quarter of what the node itself can spare goes to controller listeners, at least one
    /// connection to each kind.
    fn of(descriptors: usize, clients_wanted: usize) -> Self {
        let spare = descriptors.saturating_sub(OWN);
        let controllers = (spare / 4).clamp(1, CONTROLLERS_MAX);
        let clients = spare
            .saturating_sub(controllers)
            .clamp(1, clients_wanted.max(1));
        Self {
            clients,
            controllers,
        }
    }
}

/// Raises the soft limit of open files as far as it goes. What it is then.
fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    // None: without limit.
    now.map_or(usize::MAX, |now| usize::try_from(now).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_the_node_its_own() {
        for descriptors in [0, 96, 100, 256, 1024, 1_000_000, usize::MAX] {
            let shares = ConnectionShares::of(descriptors, 1000);
            assert!(shares.clients >= 1 && shares.controllers >= 1);
            if descriptors >= 100 {
                let sum = shares.clients + shares.controllers;
                assert!(sum + OWN <= descriptors, "{shares:?} of {descriptors}");
            }
        }
        let plenty = ConnectionShares {
            clients: 1000,
            controllers: 1024,
        };
        assert_eq!(ConnectionShares::of(1_000_000, 1000), plenty);
    }
}
