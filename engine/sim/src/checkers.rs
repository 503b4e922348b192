//! What must always hold, checked by code that knows nothing of how the quorum does it.
//!
//! The world reports what it sees from outside: what nodes say to each other and to clients, what
//! they append, and what their disks have flushed. Nothing here looks into a replica.

mod acknowledged;
mod committed;
mod content;
mod durable;
mod leaders;
mod log_copy;
mod violation;
mod votes;

pub use acknowledged::{Acknowledged, OpId};
pub use committed::Committed;
pub use content::Contents;
pub use durable::DurableLog;
pub use leaders::Leaders;
pub use log_copy::{Entry, LogCopy, content_of, entries_of};
pub use violation::Violation;
pub use votes::Votes;
