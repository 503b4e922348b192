//! What a leader knows of the replicas that fetch from it.

use crate::types::{Instant, Offset, ReplicaKey};
use alloc::collections::BTreeMap;

/// An observer that has not fetched for this long is forgotten (Kafka
/// `LeaderState.OBSERVER_SESSION_TIMEOUT_MS`).
pub(crate) const OBSERVER_SESSION_TIMEOUT_MS: u64 = 300_000;

/// Observers that are remembered at once; more are served all the same. A bound, not a limit that
/// anybody should reach: a thousand observers make fifty thousand Fetches a second.
const OBSERVERS_MAX: usize = 1000;

/// One replica's log as its Fetches have shown it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// With the directory id that it fetches with.
    pub(crate) key: ReplicaKey,
    /// Its flushed end (exclusive). May go back: a voter can lose its disk.
    pub(crate) end: Option<Offset>,
    pub(crate) last_fetch: Option<Instant>,
    pub(crate) last_caught_up: Option<Instant>,
    /// The leader's log end at the last Fetch.
    leader_end: Offset,
    /// Voters only: is to be told of this epoch by BeginQuorumEpoch.
    pub(crate) is_silent: bool,
}

impl Progress {
    pub(crate) fn new(key: ReplicaKey) -> Self {
        Self {
            key,
            end: None,
            last_fetch: None,
            last_caught_up: None,
            leader_end: Offset(0),
            is_silent: false,
        }
    }

    /// Takes a valid Fetch at `offset`. The replica had caught up now if it has all of `log_end`,
    /// and at its last Fetch if it has what the leader had then.
    pub(crate) fn on_fetch(&mut self, now: Instant, offset: Offset, log_end: Offset) {
        if offset >= log_end {
            self.last_caught_up = Some(now);
        } else if self.last_fetch.is_some() && offset >= self.leader_end {
            self.last_caught_up = self.last_caught_up.max(self.last_fetch);
        }
        self.end = Some(offset);
        self.last_fetch = Some(now);
        self.leader_end = log_end;
        self.is_silent = false;
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        let idle_ms = self.last_fetch.map_or(0, |fetched| now.ms_since(fetched));
        idle_ms > OBSERVER_SESSION_TIMEOUT_MS
    }
}

/// Replicas that fetch without being voters; at most [`OBSERVERS_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    by_key: BTreeMap<ReplicaKey, Progress>,
}

impl Observers {
    /// The entry of `key`, made if there is room for it.
    pub(crate) fn track(&mut self, now: Instant, key: ReplicaKey) -> Option<&mut Progress> {
        if !self.by_key.contains_key(&key) && self.by_key.len() >= OBSERVERS_MAX {
            self.by_key
                .retain(|_, progress| !progress.is_forgotten(now));
            if self.by_key.len() >= OBSERVERS_MAX {
                return None;
            }
        }
        Some(self.by_key.entry(key).or_insert_with(|| Progress::new(key)))
    }

    /// Those that are not forgotten, ascending.
    pub(crate) fn active(&self, now: Instant) -> impl Iterator<Item = &Progress> {
        let all = self.by_key.values();
        all.filter(move |progress| !progress.is_forgotten(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::default().plus_ms(ms)
    }

    #[test]
    fn caught_up_means_having_what_the_leader_had_at_the_fetch_before() {
        let mut progress = Progress::new(ReplicaKey::of(2));
        progress.on_fetch(ms(1), Offset(5), Offset(9));
        assert_eq!(progress.last_caught_up, None);
        progress.on_fetch(ms(2), Offset(9), Offset(12));
        assert_eq!(progress.last_caught_up, Some(ms(1)));
        progress.on_fetch(ms(3), Offset(10), Offset(14));
        assert_eq!(progress.last_caught_up, Some(ms(1)));
        progress.on_fetch(ms(4), Offset(14), Offset(14));
        assert_eq!(progress.last_caught_up, Some(ms(4)));
        assert_eq!(progress.last_fetch, Some(ms(4)));
    }

    #[test]
    fn observers_are_bounded_and_idle_ones_make_room() {
        let mut observers = Observers::default();
        for id in 0..1000 {
            let progress = observers.track(ms(0), ReplicaKey::of(id)).unwrap();
            progress.on_fetch(ms(0), Offset(0), Offset(0));
        }
        assert!(observers.track(ms(300_000), ReplicaKey::of(5)).is_some());
        assert!(observers.track(ms(300_000), ReplicaKey::of(5000)).is_none());
        assert_eq!(observers.active(ms(300_000)).count(), 1000);
        assert_eq!(observers.active(ms(300_001)).count(), 0);
        assert!(observers.track(ms(300_001), ReplicaKey::of(5000)).is_some());
    }
}
