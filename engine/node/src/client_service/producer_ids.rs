//! Hands out producer ids, which no two producers may share: not from two nodes, not before and
//! after a restart.
//!
//! So that no node has to ask another, an id is 63 random bits, from a generator that the kernel
//! seeds at each start. With a million ids in use, a new one is another's with a chance of one in
//! nine million millions.

use super::ClientService;
use crate::replica::Replica;
use quorate_net::wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use quorate_raft::ErrorCode;
use std::fs::File;
use std::io::{self, Read};

/// A source of producer ids: splitmix64 (Steele, Lea, Flood 2014), which comes around only after
/// 2^64 numbers.
#[derive(Clone, Debug)]
pub struct ProducerIds(u64);

impl ProducerIds {
    /// A source that depends on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A source that is like no other.
    ///
    /// # Errors
    /// The kernel's random source cannot be read.
    pub fn random() -> io::Result<Self> {
        let mut seed = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self::new(u64::from_ne_bytes(seed)))
    }

    /// The next id; never negative.
    fn next(&mut self) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^= word >> 31;
        (word >> 1).cast_signed()
    }
}

impl ClientService {
    /// Whatever id and epoch the producer has had, it gets a new one, as in Kafka
    /// (`TransactionCoordinator.handleInitProducerId` without a transactional id).
    pub(super) fn init_producer_id(
        &mut self,
        replica: &Replica,
        request: &InitProducerIdRequest,
    ) -> InitProducerIdResponse {
        // There are no transactions. Of the errors that say no, this is the one that clients
        // take for final and tell their user, instead of asking again.
        if request.transactional_id.is_some() {
            return InitProducerIdResponse {
                error_code: ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                producer_epoch: -1,
                ..Default::default()
            };
        }
        let mut producer_id = self.producer_ids.next();
        while replica.knows_producer(producer_id) {
            producer_id = self.producer_ids.next();
        }
        InitProducerIdResponse {
            producer_id,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_not_negative_and_differ() {
        let (mut one, mut other) = (ProducerIds::new(1), ProducerIds::new(2));
        let ids: HashSet<i64> = (0..1000).flat_map(|_| [one.next(), other.next()]).collect();
        assert_eq!(ids.len(), 2000);
        assert!(ids.iter().all(|id| *id >= 0));
    }

    #[test]
    fn every_start_has_ids_of_its_own() {
        let first = || ProducerIds::random().unwrap().next();
        assert_ne!(first(), first());
    }
}
