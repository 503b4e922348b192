//! HTTP as a stranger speaks it to the admin listener: what is decided about the first bytes stays
//! decided, whatever follows.

use quorate::admin::is_request;

/// Input: the bytes of a connection.
pub fn admin(data: &[u8]) {
    let mut decided = None;
    for end in 0..=data.len() {
        let now = is_request(&data[..end]);
        if decided.is_some() {
            assert!(now.is_some(), "a decision was taken back after {end} bytes");
        }
        decided = now.or(decided);
    }
}
