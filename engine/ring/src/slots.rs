//! Where operations live while the kernel has them, each under a key that is never used twice.
//!
//! A key is a slot's index and its generation, so that a completion can't be taken for that of an
//! operation that sits in the same slot later.

use crate::op::Op;

/// Names one operation; travels through the kernel as `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) fn to_user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_user_data(user_data: u64) -> Key {
        Key {
            index: user_data as u32,
            generation: (user_data >> 32) as u32,
        }
    }
}

/// An operation with its caller's name for it.
pub(crate) struct Slot {
    pub(crate) op: Op,
    pub(crate) user: u64,
    /// Whether its entry is in the submission queue or beyond: the kernel may touch its memory.
    pub(crate) submitted: bool,
}

struct Place {
    generation: u32,
    slot: Option<Slot>,
}

/// All operations of a ring. Grows with them; never shrinks.
#[derive(Default)]
pub(crate) struct Slots {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn insert(&mut self, op: Op, user: u64) -> Key {
        let slot = Some(Slot {
            op,
            user,
            submitted: false,
        });
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            assert!(place.slot.is_none(), "slot {index} was free and is taken");
            place.slot = slot;
            return Key {
                index,
                generation: place.generation,
            };
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 operations");
        self.places.push(Place {
            generation: 0,
            slot,
        });
        Key {
            index,
            generation: 0,
        }
    }

    /// # Panics
    /// If `key` names no operation: the kernel completed one twice, or we mixed them up.
    pub(crate) fn get_mut(&mut self, key: Key) -> &mut Slot {
        let place = &mut self.places[key.index as usize];
        assert_eq!(
            place.generation, key.generation,
            "slot {} was reused",
            key.index
        );
        place
            .slot
            .as_mut()
            .unwrap_or_else(|| panic!("slot {} is empty", key.index))
    }

    /// Takes the operation out; its key is void from then on. Panics as `get_mut` does.
    pub(crate) fn remove(&mut self, key: Key) -> Slot {
        self.get_mut(key);
        let place = &mut self.places[key.index as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        place.slot.take().expect("looked at it above")
    }

    /// Keys of all operations that `matches` accepts.
    pub(crate) fn find(&self, matches: impl Fn(&Slot) -> bool) -> Vec<Key> {
        let key = |(index, place): (usize, &Place)| {
            let found = place.slot.as_ref().is_some_and(&matches);
            found.then_some(Key {
                index: index as u32,
                generation: place.generation,
            })
        };
        self.places.iter().enumerate().filter_map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_key() {
        let mut slots = Slots::default();
        let first = slots.insert(Op::Cancel { key: 1 }, 10);
        assert_eq!(slots.remove(first).user, 10);
        let second = slots.insert(Op::Cancel { key: 2 }, 20);
        assert_eq!(first.index, second.index);
        assert_ne!(first, second);
        assert_eq!(Key::from_user_data(second.to_user_data()), second);
        assert_eq!(slots.get_mut(second).user, 20);
    }

    #[test]
    #[should_panic(expected = "was reused")]
    fn a_completion_of_an_ended_operation_is_noticed() {
        let mut slots = Slots::default();
        let first = slots.insert(Op::Cancel { key: 1 }, 10);
        slots.remove(first);
        slots.insert(Op::Cancel { key: 2 }, 20);
        slots.remove(first);
    }
}
