//! Ten thousand random and damaged requests of every API and version, to a whole node without
//! sockets: nothing panics, every answer can be written, and no client moves the leader.

use quorate_fuzz::{corpus, storm};
use quorate_net::{ApiKey, ListenerKind};

const REQUESTS_EACH: usize = 10_000;

/// Numbers from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// A body from the corpus, damaged in a few places, or of nothing but chance.
    fn body(&mut self, known: &[Vec<u8>]) -> Vec<u8> {
        if known.is_empty() || self.below(8) == 0 {
            return (0..self.below(100)).map(|_| self.next() as u8).collect();
        }
        let mut body = known[self.below(known.len())].clone();
        for _ in 0..self.below(4) {
            let at = self.below(body.len());
            match self.below(4) {
                0 => body.truncate(at),
                1 => body.insert(at, self.next() as u8),
                _ if body.is_empty() => {}
                2 => body[at] = [0, 1, 2, 0x7f, 0xff][self.below(5)],
                _ => body[at] ^= 1 << self.below(8),
            }
        }
        body
    }
}

/// Bodies of requests of this API and version that the fuzzer has found.
fn known_bodies(inputs: &[Vec<u8>], kind: ListenerKind, api: ApiKey, version: i16) -> Vec<Vec<u8>> {
    let of = |input: &&Vec<u8>| quorate_fuzz::addressee(input) == (kind, api, version);
    let inputs = inputs.iter().filter(|input| input.len() > 3).filter(of);
    inputs.map(|input| input[3..].to_vec()).collect()
}

fn withstands(kind: ListenerKind) {
    let inputs = corpus::read("requests").expect("a corpus");
    for (api, versions) in kind.apis() {
        for version in versions.clone() {
            let known = known_bodies(&inputs, kind, *api, version);
            let mut chance = Chance(api.code().unsigned_abs().into());
            storm(kind, *api, version, REQUESTS_EACH, || chance.body(&known));
        }
    }
}

#[test]
fn a_client_listener_withstands_ten_thousand_requests_of_every_kind() {
    withstands(ListenerKind::Client);
}

#[test]
fn a_controller_listener_withstands_ten_thousand_requests_of_every_kind() {
    withstands(ListenerKind::Controller);
}
