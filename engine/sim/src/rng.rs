//! The generator behind every choice of a run: delays, faults, workload, what a crash leaves.
//!
//! Small and our own, so that a seed means the same run on every machine and in every year.

/// A xoshiro256++ generator (Blackman, Vigna 2019), filled from its seed by splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose numbers depend on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        Self {
            state: std::array::from_fn(|_| splitmix(&mut word)),
        }
    }

    /// A generator for one purpose, so that more choices in one place do not shift all others.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `[0, bound)`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.next_u64() % bound
        }
    }

    /// A number in `[low, high]`.
    ///
    /// # Panics
    /// If `high` is below `low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "no number between {low} and {high}");
        low + self.below(high - low + 1)
    }

    /// An index into something with `count` elements.
    ///
    /// # Panics
    /// If there are none.
    pub fn index(&mut self, count: usize) -> usize {
        assert!(count > 0, "an index into nothing");
        usize::try_from(self.below(count as u64)).expect("below a usize")
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

fn splitmix(word: &mut u64) -> u64 {
    *word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        let mut rng = Rng::new(0);
        let numbers: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            numbers,
            [
                5_987_356_902_031_041_503,
                7_051_070_477_665_621_255,
                6_633_766_593_972_829_180,
            ]
        );
    }

    #[test]
    fn bounds_are_reached_and_kept() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            let number = rng.between(3, 6);
            seen[usize::try_from(number - 3).unwrap()] = true;
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.below(0), 0);
        assert!(!rng.chance(0));
        assert!(rng.chance(1000));
    }
}
