//! The story of a run: always hashed, so that two runs of a seed can be compared; told on request.

use crate::queue::{MS, Nanos, US};
use std::fmt;

/// Collects what happened.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    tell: bool,
}

impl Trace {
    /// An empty story, printed to standard output as it happens if `tell`.
    #[must_use]
    pub fn new(tell: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            tell,
        }
    }

    /// Something happened at the node (or to the client) with index `node`, with two numbers that
    /// tell it apart.
    pub fn note(&mut self, at: Nanos, node: usize, what: &'static str, a: u64, b: u64) {
        for word in [at, node as u64, what.len() as u64, a, b] {
            self.mix(word);
        }
        if self.tell {
            self.say(at, node, format_args!("{what} {a} {b}"));
        }
    }

    /// A line for the reader alone.
    pub fn say(&self, at: Nanos, node: usize, what: fmt::Arguments<'_>) {
        if self.tell {
            // By its id, as nodes call each other.
            let (ms, us, id) = (at / MS, at % MS / US, node + 1);
            println!("{ms:6}.{us:03} ms  {id:>2}  {what}");
        }
    }

    /// The hash of everything noted so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_that_differ_in_one_number_or_in_order_have_other_hashes() {
        let hash = |notes: &[(u64, u64)]| {
            let mut trace = Trace::new(false);
            notes
                .iter()
                .for_each(|&(a, b)| trace.note(1, 2, "sent", a, b));
            trace.hash()
        };
        assert_eq!(hash(&[(1, 2), (3, 4)]), hash(&[(1, 2), (3, 4)]));
        assert_ne!(hash(&[(1, 2), (3, 4)]), hash(&[(3, 4), (1, 2)]));
        assert_ne!(hash(&[(1, 2)]), hash(&[(1, 3)]));
    }
}
