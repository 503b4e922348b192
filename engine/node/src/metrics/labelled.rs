//! Counters by a name that is known only when it comes, such as the reason of a state change.
//!
//! The names are the program's own words (`'static`), so there are few; the table holds so many and
//! no more. One thread writes; nothing is allocated or locked.

use super::cell::Counter;
use std::sync::OnceLock;

/// More names than this are counted together, as "other".
const NAMES_MAX: usize = 32;

/// Counts by name.
#[derive(Debug, Default)]
pub struct NamedCounters {
    slots: [(OnceLock<&'static str>, Counter); NAMES_MAX],
    other: Counter,
}

impl NamedCounters {
    /// Adds 1 to `name`.
    pub fn count(&self, name: &'static str) {
        let slot = self.slots.iter().find(|(taken, _)| {
            // Made now if the slot is free.
            *taken.get_or_init(|| name) == name
        });
        slot.map_or(&self.other, |(_, counter)| counter).add(1);
    }

    /// Names and counts, in the order in which they first came.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = self.slots.iter().map_while(|(name, counter)| {
            let name = *name.get()?;
            Some((name, counter.get()))
        });
        let other = self.other.get();
        named.chain((other > 0).then_some(("other", other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_apart_and_the_table_is_bounded() {
        let counters = NamedCounters::default();
        counters.count("a");
        counters.count("b");
        counters.count("a");
        assert_eq!(counters.read().collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
        for number in 0..100 {
            counters.count(Box::leak(format!("n{number}").into_boxed_str()));
        }
        assert_eq!(counters.read().count(), NAMES_MAX + 1);
        assert_eq!(counters.read().last(), Some(("other", 70)));
    }
}
