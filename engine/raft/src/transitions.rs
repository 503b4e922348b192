//! Which state may follow which, as one table. Every change of state is asserted against it.
//!
//! Kafka `QuorumState`, transitions; the rows are in the order of its state diagram. Adding a vote
//! in the same epoch is not a change of state here.

use crate::output::Role;
use crate::types::Epoch;

/// How the epoch moves along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpochRule {
    /// Stays.
    Same,
    /// Rises by one.
    Next,
    /// Rises.
    Higher,
    /// Stays or rises.
    SameOrHigher,
}

use EpochRule::{Higher, Next, Same, SameOrHigher};
use Role::{Candidate, Follower, Leader, Prospective, Resigned, Unattached};

/// All that is legal; what is not here is a fault of this program.
const TABLE: &[(Role, Role, EpochRule)] = &[
    // A newer epoch without a leader.
    (Unattached, Unattached, Higher),
    (Candidate, Unattached, Higher),
    (Leader, Unattached, Higher),
    (Follower, Unattached, Higher),
    // The election timer of a resigned leader counts here: it gives its own epoch up for good.
    (Resigned, Unattached, Higher),
    // A pre-vote that found no majority.
    (Prospective, Unattached, SameOrHigher),
    // Timers.
    (Unattached, Prospective, Same),
    (Candidate, Prospective, Same),
    (Follower, Prospective, Same),
    // Only at the start of an only voter: there is nobody to hear of a newer leader from.
    (Resigned, Prospective, Same),
    // Majorities.
    (Prospective, Candidate, Next),
    (Candidate, Leader, Same),
    // A leader made itself known.
    (Unattached, Follower, SameOrHigher),
    (Prospective, Follower, SameOrHigher),
    (Candidate, Follower, SameOrHigher),
    (Leader, Follower, Higher),
    (Resigned, Follower, Higher),
    (Follower, Follower, Higher),
    // Leadership given up.
    (Leader, Resigned, Same),
];

/// Whether a replica may go from one state to the other.
pub(crate) fn is_legal(from: (Role, Epoch), to: (Role, Epoch)) -> bool {
    let rule = TABLE.iter().find(|row| row.0 == from.0 && row.1 == to.0);
    rule.is_some_and(|(_, _, rule)| match rule {
        Same => to.1 == from.1,
        Next => from.1.0.checked_add(1) == Some(to.1.0),
        Higher => to.1 > from.1,
        SameOrHigher => to.1 >= from.1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use core::fmt::Write;

    const ROLES: [Role; 6] = [
        Unattached,
        Prospective,
        Candidate,
        Leader,
        Follower,
        Resigned,
    ];

    /// Columns: the next state; letters: may the epoch stay (s), rise by one (n), rise by two (h).
    #[test]
    fn matrix_of_transitions_is_as_written_here() {
        let mut matrix = String::new();
        for from in ROLES {
            for to in ROLES {
                let legal = |epoch| is_legal((from, Epoch(5)), (to, Epoch(epoch)));
                let letter = |epoch, letter| if legal(epoch) { letter } else { '.' };
                let letters = [letter(5, 's'), letter(6, 'n'), letter(7, 'h')];
                matrix.extend(letters);
                matrix.push(' ');
            }
            writeln!(matrix, "{from:?}").unwrap();
        }
        assert_eq!(
            matrix,
            "\
.nh s.. ... ... snh ... Unattached
snh ... .n. ... snh ... Prospective
.nh s.. ... s.. snh ... Candidate
.nh ... ... ... .nh s.. Leader
.nh s.. ... ... .nh ... Follower
.nh s.. ... ... .nh ... Resigned
"
        );
    }

    #[test]
    fn epoch_never_goes_back() {
        for from in ROLES {
            for to in ROLES {
                assert!(
                    !is_legal((from, Epoch(5)), (to, Epoch(4))),
                    "{from:?} {to:?}"
                );
            }
        }
    }
}
