//! Which frames are flushed by a majority.

/// Counts flushes: member 0 is the one that counts, the others are those it forwards to.
pub(crate) struct Quorum {
    /// Per member the highest number it has flushed.
    flushed: Vec<u64>,
}

impl Quorum {
    pub(crate) fn new(members: usize) -> Quorum {
        Quorum {
            flushed: vec![0; members],
        }
    }

    pub(crate) fn on_flushed(&mut self, member: usize, number: u64) {
        self.flushed[member] = self.flushed[member].max(number);
    }

    pub(crate) fn flushed_by(&self, member: usize) -> u64 {
        self.flushed[member]
    }

    /// The highest number that more than half of the members have flushed.
    pub(crate) fn committed(&self) -> u64 {
        let mut numbers = self.flushed.clone();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers[numbers.len() / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_of_three_commit() {
        let mut quorum = Quorum::new(3);
        quorum.on_flushed(2, 5);
        assert_eq!(quorum.committed(), 0);
        quorum.on_flushed(1, 4);
        assert_eq!(quorum.committed(), 4);
        quorum.on_flushed(0, 5);
        assert_eq!(quorum.committed(), 5);
        quorum.on_flushed(0, 3);
        assert_eq!(quorum.flushed_by(0), 5);
    }

    #[test]
    fn follower_commits_what_it_flushed() {
        let mut quorum = Quorum::new(1);
        quorum.on_flushed(0, 9);
        assert_eq!(quorum.committed(), 9);
    }
}
