//! A configuration file: Java's properties, and the settings in them.

use quorate::config::ServerConfig;
use quorate::properties;
use std::path::Path;

/// Input: the text of the file.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let path = Path::new("server.properties");
    if let Ok(entries) = properties::parse(&text) {
        let pairs: Vec<(&str, &str)> = entries
            .iter()
            .map(|entry| (&entry.key[..], &entry.value[..]))
            .collect();
        let again = properties::parse(&properties::write(&[], &pairs));
        let again = again.expect("what is written can be read");
        let again: Vec<(&str, &str)> = again
            .iter()
            .map(|entry| (&entry.key[..], &entry.value[..]))
            .collect();
        assert_eq!(again, pairs);
    }
    match ServerConfig::from_text(path, &text, "host") {
        Ok(config) => {
            assert!(!config.controller_listeners.is_empty());
            assert!(config.group_bytes_max <= config.unflushed_bytes_max);
            assert!(config.frame_bytes_max <= config.in_flight_bytes_max);
            let _ = config.topic_dir();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
