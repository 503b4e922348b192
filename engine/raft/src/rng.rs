//! The only source of chance in the protocol: a seeded generator (splitmix64).
//!
//! The same seed gives the same elections, so that a run can be repeated. Not for secrets.

/// A splitmix64 generator (Steele, Lea, Flood 2014): one word of state, good enough for jitter.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number in `[0, bound)`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is far below what a timer could show.
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// An index into something with `count` elements; 0 if there are none.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        let bound = u64::try_from(count).expect("a count fits 64 bits");
        usize::try_from(self.below(bound)).expect("below a count")
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn same_seed_gives_the_same_numbers_and_another_seed_others() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.below(1000), rng.below(1000), rng.below(1000)]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn numbers_reach_both_ends_of_the_range_and_stay_inside() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.index(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
