//! At most one leader per epoch, ever.

use super::Violation;
use quorate_raft::{Epoch, NodeId};
use std::collections::BTreeMap;

/// Who led which epoch.
#[derive(Debug, Default)]
pub struct Leaders {
    by_epoch: BTreeMap<Epoch, NodeId>,
}

impl Leaders {
    /// `node` says that it leads `epoch`. Whether that epoch has its leader only now.
    ///
    /// # Errors
    /// If another node led it.
    pub fn on_leader(&mut self, node: NodeId, epoch: Epoch) -> Result<bool, Violation> {
        match self.by_epoch.insert(epoch, node) {
            Some(first) if first != node => Err(Violation::TwoLeaders {
                epoch,
                first,
                second: node,
            }),
            before => Ok(before.is_none()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_leader_of_an_epoch_is_found() {
        let mut leaders = Leaders::default();
        assert_eq!(leaders.on_leader(1, Epoch(3)), Ok(true));
        assert_eq!(leaders.on_leader(1, Epoch(3)), Ok(false));
        assert_eq!(leaders.on_leader(2, Epoch(4)), Ok(true));
        let found = leaders.on_leader(2, Epoch(3));
        assert_eq!(
            found,
            Err(Violation::TwoLeaders {
                epoch: Epoch(3),
                first: 1,
                second: 2
            })
        );
    }
}
