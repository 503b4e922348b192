//! The log on disk: Kafka's record batches in Kafka's segments, group commit, recovery that
//! decides.
//!
//! - [`open_log`] recovers a log (or creates it) and gives a [`LogWriter`] and a [`SegmentIndex`].
//! - The writer is sans-IO: it hands out [`Io`] and takes completions, and tells in [`LogEvent`]s
//!   what is durable. Slow work goes through [`Disk`], the real one or the simulator's
//!   ([`sim_disk`]).
//! - [`format`] has the codecs.
//!
//! What is asked of the disk: D1, what a completed flush covers is durable. D2, after a crash each
//! sector (512 bytes or more) of an unflushed write is old or new, and the others are untouched.
//!
//! It knows no network and no clock, and no thread but one that reads ahead for recovery; it
//! decides nothing about leaders.
#![forbid(unsafe_code)]

mod clean_shutdown;
mod data_dir;
mod disk;
mod dump;
mod error;
mod file_disk;
pub mod format;
mod group;
mod index_file;
mod inspect;
mod job;
mod log;
mod log_writer;
mod marks;
mod producers;
mod read;
mod read_ahead;
mod recovery;
mod scan;
mod seal;
mod segment;
mod segment_index;
pub mod sim_disk;
mod state_file;
mod trust;
mod verify;
mod walk;

pub use data_dir::{DataDir, DataDirError, DirLock, FsKind, LockError, check_data_dir, lock_dir};
pub use disk::{Disk, DiskFile, OpenMode};
pub use dump::{BatchDump, Dump, DumpError, RecordDump, dump};
pub use error::{Operation, ReadError, ReadFault, RecoveryError, StateFileError, StorageError};
pub use file_disk::{FileDisk, LogFile};
pub use group::{GroupIo, GroupLocation};
pub use inspect::Torn;
pub use job::{Job, JobDone};
pub use log::{LogConfig, OpenedLog, open_log};
pub use log_writer::{Flushed, Io, LogEvent, LogWriter, StampedBatch, WriterStats};
pub use producers::{
    BATCHES_KEPT, ProducerBatch, ProducerLimits, ProducerSnapshot, ProducerStates, SequenceCheck,
    SequenceError, sequence_after,
};
pub use read::ReadPlan;
pub use recovery::RecoveryReport;
pub use segment::BLOCK_BYTES;
pub use segment_index::SegmentIndex;
pub use state_file::{open_quorum_state, read_quorum_state, write_quorum_state};
pub use verify::{VerifyFault, VerifyReport, verify_dir};
