//! The ways to wait and to place the four processes that the floor tries.

use clap::ValueEnum;
use std::fmt;

/// By what a member receives, writes and flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// One thread of plain system calls.
    Blocking,
    /// One io_uring, a write linked to its flush.
    Ring,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Blocking => "blocking",
            Engine::Ring => "ring",
        })
    }
}

/// Processors by role; None leaves the choice to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) client: Option<usize>,
    pub(crate) leader: Option<usize>,
    pub(crate) followers: Option<usize>,
}

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) engine: Engine,
    /// Whether who waits spins for a while first: the client, and members on a ring.
    pub(crate) spin: bool,
    pub(crate) placement: Placement,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = |cpu: Option<usize>| cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        let Placement {
            client,
            leader,
            followers,
        } = self.placement;
        let wait = if self.spin { "spin" } else { "sleep" };
        write!(f, "{}, {wait}, cpu of ", self.engine)?;
        write!(f, "client {}, leader {}, ", cpu(client), cpu(leader))?;
        write!(f, "followers {}", cpu(followers))
    }
}

/// All ways for a machine with `cpus` processors.
pub(crate) fn all(cpus: usize) -> Vec<Way> {
    let mut ways = Vec::new();
    for placement in placements(cpus) {
        for engine in [Engine::Blocking, Engine::Ring] {
            for spin in [false, true] {
                ways.push(Way {
                    engine,
                    spin,
                    placement,
                });
            }
        }
    }
    ways
}

/// Left alone, all on one, and each split of the roles over two: which processor takes the disk's
/// interrupts is not known, so both are tried for each side.
fn placements(cpus: usize) -> Vec<Placement> {
    let place = |client, leader, followers| Placement {
        client,
        leader,
        followers,
    };
    let mut placements = vec![place(None, None, None), place(Some(0), Some(0), Some(0))];
    if cpus >= 2 {
        for (here, there) in [(Some(0), Some(1)), (Some(1), Some(0))] {
            placements.push(place(here, here, there));
            placements.push(place(here, there, there));
            placements.push(place(here, there, here));
        }
    }
    placements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_differ_and_use_only_processors_that_are_there() {
        let two = all(2);
        assert_eq!(two.len(), 32);
        assert!((0..two.len()).all(|index| !two[..index].contains(&two[index])));
        let one = all(1);
        assert_eq!(one.len(), 8);
        assert!(one.iter().all(|way| way.placement.leader.unwrap_or(0) == 0));
    }
}
