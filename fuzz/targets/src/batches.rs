//! Record batches as a producer or a peer sends them, and the marks of an active segment.

use crate::recovery::sign_mark;
use crate::source::Source;
use quorate_raft::Offset;
use quorate_storage::format::{
    BATCH_HEADER_BYTES, BatchHeader, Codec, Decompressor, LogIdentity, MARK_BYTES, Mark,
    batches as walk, check_produced, crc32c, decode_control_record, records,
};

/// So that an input takes no more than some milliseconds.
const DECOMPRESSED_BYTES_MAX: u64 = 1024 * 1024;

/// Where the CRC stands in a batch, and where what it covers begins.
const CRC_AT: usize = 17;
const CHECKED_FROM: usize = 21;

/// Input: a flag (1: sign every batch anew, so that changes get past the CRC), then batches.
pub fn batches(data: &[u8]) {
    let mut source = Source::new(data);
    let signs = source.byte() & 1 != 0;
    let mut bytes = source.rest().to_vec();
    if signs {
        sign_all(&mut bytes);
    }
    let mut end = 0;
    for found in walk(&bytes) {
        let Ok((header, range)) = found else { break };
        assert_eq!(range.start, end, "batches follow each other");
        assert_eq!(range.len(), header.size);
        end = range.end;
        read(&bytes[range]);
    }
    assert!(end <= bytes.len());
    read(&bytes);
    let Ok(info) = check_produced(&bytes) else {
        return;
    };
    assert_eq!(info.size, bytes.len());
    let header = BatchHeader::parse_whole(&bytes).expect("it was checked");
    assert_eq!(header.end_offset(), Offset(i64::from(info.count)));
    assert!(!header.is_control() && !header.is_transactional());
    let checked = Decompressor::new().check(&bytes, DECOMPRESSED_BYTES_MAX);
    assert!(checked.is_err() || checked.is_ok_and(|count| count <= DECOMPRESSED_BYTES_MAX));
    if info.codec == Codec::None {
        let all: Result<Vec<_>, _> = records(&bytes).expect("they were checked").collect();
        assert_eq!(all.map(|all| all.len()), Ok(info.count as usize));
    }
}

fn read(batch: &[u8]) {
    let _ = BatchHeader::parse(batch);
    let Ok(all) = records(batch) else { return };
    for record in all.flatten() {
        let _ = decode_control_record(&record);
    }
}

/// Gives each batch, as far as its length makes sense, the CRC of its content.
pub(crate) fn sign_all(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + BATCH_HEADER_BYTES) {
        let length: [u8; 4] = head[8..12].try_into().expect("4 bytes");
        let size = (u32::from_be_bytes(length) as usize).saturating_add(12);
        let end = at.saturating_add(size);
        if size < BATCH_HEADER_BYTES || end > bytes.len() {
            return;
        }
        let crc = crc32c(&bytes[at + CHECKED_FROM..end]);
        bytes[at + CRC_AT..at + CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        at = end;
    }
}

/// Input: a flag (1: seal it anew), then the block of a mark.
pub fn marks(data: &[u8]) {
    const IDENTITY: LogIdentity = LogIdentity([7; 16]);
    const BASE: Offset = Offset(100);
    let mut source = Source::new(data);
    let signs = source.byte() & 1 != 0;
    let mut block = source.rest().to_vec();
    block.resize(MARK_BYTES, 0);
    if signs {
        sign_mark(&mut block);
    }
    let Some(mark) = Mark::decode(&block, IDENTITY, BASE) else {
        return;
    };
    let mut again = vec![0; MARK_BYTES];
    mark.encode(IDENTITY, &mut again);
    assert_eq!(Mark::decode(&again, IDENTITY, BASE), Some(mark));
}
