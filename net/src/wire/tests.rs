//! Tests of all codecs at once: against a second implementation, against what Kafka itself sent,
//! and against bytes that mean harm.

mod golden;
mod hostile;
mod oracle;
pub(crate) mod sample;
