//! The two clocks, read once per turn by a loop and handed down to everything that needs time.

use quorate_raft::Instant;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic; all timers.
    pub instant: Instant,
    /// Wall clock in ms since the Unix epoch; only for record timestamps and for people.
    pub wall_ms: i64,
}

impl Now {
    /// The wall-clock ms of an earlier (or later) `instant`.
    #[must_use]
    pub fn wall_ms_of(self, instant: Instant) -> i64 {
        let elapsed_ns = i128::from(self.instant.0) - i128::from(instant.0);
        self.wall_ms - i64::try_from(elapsed_ns / 1_000_000).unwrap_or(0)
    }
}

/// The real clocks. Only loops own one.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: std::time::Instant,
}

impl Clock {
    /// A clock whose monotonic zero is now.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // the one place where loops get their time from
    pub fn new() -> Self {
        Self {
            zero: std::time::Instant::now(),
        }
    }

    /// Reads the monotonic clock only.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn instant(&self) -> Instant {
        let elapsed = self.zero.elapsed();
        Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Reads both clocks.
    #[must_use]
    #[allow(clippy::disallowed_methods)]
    pub fn read(&self) -> Now {
        let wall = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            instant: self.instant(),
            wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
