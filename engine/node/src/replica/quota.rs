//! How much log there may be (`log.max.bytes`): until snapshots can trim it, the log only grows,
//! and an operator wants to hear of that before the disk is full.
//!
//! Only what clients append is refused, and only by the leader. Records that a leader itself must
//! write, and all that it sends to others, pass: a quota never stands between replicas.

use super::Replica;

/// From here on there is an alarm, in percent of the quota.
const ALARM_PERCENT: u64 = 90;

/// How the size of the log stands to its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaLevel {
    /// Far from it, or there is none.
    Ample,
    /// At 90 % or above.
    Alarm,
    /// Used up: clients' appends are refused.
    UsedUp,
}

/// The size of the log and its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes of all batches, durable or not. Where the log was cut since the start it may say more
    /// than there is, by what was cut off.
    pub bytes: u64,
    /// `log.max.bytes`, if there is a quota.
    pub max: Option<u64>,
}

impl LogSize {
    /// Where it stands.
    #[must_use]
    pub fn level(&self) -> QuotaLevel {
        match self.max {
            Some(max) if self.bytes >= max => QuotaLevel::UsedUp,
            Some(_) if self.percent() >= ALARM_PERCENT => QuotaLevel::Alarm,
            _ => QuotaLevel::Ample,
        }
    }

    /// Percent of the quota that are used; 0 without one.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let Some(max) = self.max else { return 0 };
        let percent = u128::from(self.bytes) * 100 / u128::from(max.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

impl Replica {
    /// Bounds what clients may append. Without a call there is no bound.
    pub fn set_log_bytes_max(&mut self, max: Option<u64>) {
        self.log_bytes_max = max;
    }

    /// The size of the log.
    #[must_use]
    pub fn log_size(&self) -> LogSize {
        LogSize {
            bytes: self.index.bytes() + self.tail.unflushed_bytes() as u64,
            max: self.log_bytes_max,
        }
    }

    /// The quota, if it is used up. It is looked at before a batch, not behind it: the log may be
    /// larger by one batch.
    pub(super) fn used_up_quota(&self) -> Option<u64> {
        let size = self.log_size();
        size.max.filter(|_| size.level() == QuotaLevel::UsedUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(bytes: u64, max: Option<u64>) -> QuotaLevel {
        LogSize { bytes, max }.level()
    }

    #[test]
    fn the_alarm_comes_at_nine_tenths_and_the_end_at_all_of_it() {
        let max = Some(1000);
        assert_eq!(level(899, max), QuotaLevel::Ample);
        assert_eq!(level(900, max), QuotaLevel::Alarm);
        assert_eq!(level(999, max), QuotaLevel::Alarm);
        assert_eq!(level(1000, max), QuotaLevel::UsedUp);
        assert_eq!(level(5000, max), QuotaLevel::UsedUp);
        assert_eq!(level(0, Some(0)), QuotaLevel::UsedUp);
        assert_eq!(level(u64::MAX, None), QuotaLevel::Ample);
        assert_eq!(level(u64::MAX - 1, Some(u64::MAX)), QuotaLevel::Alarm);
    }
}
