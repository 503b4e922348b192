//! (to come)
#![forbid(unsafe_code)]

pub mod config;
pub mod properties;
