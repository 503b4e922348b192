//! An offset and an epoch name one content, everywhere and for ever.

use super::{Entry, Violation};
use quorate_raft::{Epoch, NodeId, Offset};
use std::collections::BTreeMap;

/// Every batch that ever stood in any log.
#[derive(Debug, Default)]
pub struct Contents {
    seen: BTreeMap<(Epoch, Offset), Entry>,
}

impl Contents {
    /// `batch` is in the log of `node`.
    ///
    /// # Errors
    /// If one of its offsets has another content in the same epoch.
    pub fn on_batch(&mut self, node: NodeId, batch: Entry) -> Result<(), Violation> {
        if self.seen.get(&(batch.epoch, batch.base)) == Some(&batch) {
            return Ok(());
        }
        for offset in (batch.base.0..batch.end.0).map(Offset) {
            match self.seen.insert((batch.epoch, offset), batch) {
                Some(first) if first != batch => {
                    let epoch = batch.epoch;
                    let second = batch;
                    return Err(Violation::TwoContents {
                        offset,
                        epoch,
                        first,
                        second,
                        node,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_copy::tests::entry;
    use super::*;

    #[test]
    fn second_content_of_any_offset_is_found() {
        let mut contents = Contents::default();
        contents.on_batch(1, entry(4, 7, 2, 9)).unwrap();
        assert_eq!(contents.on_batch(2, entry(4, 7, 2, 9)), Ok(()));
        assert_eq!(
            contents.on_batch(2, entry(4, 7, 3, 8)),
            Ok(()),
            "another epoch"
        );
        assert!(matches!(
            contents.on_batch(2, entry(6, 8, 2, 9)),
            Err(Violation::TwoContents {
                offset: Offset(6),
                node: 2,
                ..
            })
        ));
    }
}
