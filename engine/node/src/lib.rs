//! (to come)
#![forbid(unsafe_code)]

pub mod config;
pub mod format;
pub mod meta_properties;
pub mod properties;
