//! A node of the quorum: the loops, the replica they drive, client sessions, configuration, CLI.
//!
//! The append path runs through five files: `quorate_net::connection` (1), [`raft_loop`] (2),
//! `quorate_raft` (3), `quorate_storage::log_writer` (4), `quorate_storage::segment` (5).
#![forbid(unsafe_code)]

pub mod admin;
pub mod background;
pub mod cli;
pub mod client_loop;
pub mod client_service;
pub mod clock;
pub mod config;
pub mod connections;
pub mod describe_client;
pub mod descriptors;
pub mod dev;
pub mod directory;
pub mod disk_io;
pub mod flush_probe;
pub mod format;
pub mod io_engine;
pub mod log_loop;
pub mod logging;
pub mod lone_log;
pub mod meta_properties;
pub mod metrics;
pub mod peers;
pub mod properties;
pub mod raft_loop;
pub mod raft_service;
pub mod raft_wire;
pub mod replica;
pub mod server;
pub mod tail;
