//! Formatting and its refusals, on real directories.

use super::*;
use std::collections::BTreeMap;

const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

fn config(dir: &Path, node_id: NodeId) -> ServerConfig {
    let text = format!(
        "node.id={node_id}\nprocess.roles=controller\nlisteners=C://h:1\n\
         controller.listener.names=C\ncontroller.quorum.voters={node_id}@h:1\nlog.dirs={}\n",
        dir.display()
    );
    ServerConfig::from_text(Path::new("server.properties"), &text, "").unwrap()
}

fn request(cluster_id: Option<&str>) -> FormatRequest<'_> {
    FormatRequest {
        cluster_id,
        ignore_formatted: false,
        now_s: 0,
    }
}

fn ignoring(cluster_id: Option<&str>) -> FormatRequest<'_> {
    FormatRequest {
        ignore_formatted: true,
        ..request(cluster_id)
    }
}

fn new(result: Result<Formatted, FormatError>) -> Meta {
    match result.unwrap() {
        Formatted::New(meta) => meta,
        Formatted::Already(meta) => panic!("was formatted: {meta:?}"),
    }
}

/// All files below `dir` with their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn refused<T: std::fmt::Debug>(result: Result<T, FormatError>, parts: &[&str]) {
    let message = result.unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_formatted_directory_may_be_started_on() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir.path().join("a/b"), 1);
    let meta = new(format(&config, request(Some(CLUSTER))));
    assert_eq!(meta.cluster_id, CLUSTER);
    assert_eq!(check_formatted(&config).unwrap(), meta);
    let topic = fs::read(config.topic_dir().join(PARTITION_METADATA)).unwrap();
    assert_eq!(topic, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
}

#[test]
fn without_a_cluster_id_a_random_one_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let first = new(format(&config(&dir.path().join("1"), 1), request(None)));
    let second = new(format(&config(&dir.path().join("2"), 2), request(None)));
    assert!(uuid::decode(&first.cluster_id).is_some());
    assert_ne!(first.cluster_id, second.cluster_id);
    assert_ne!(first.directory_id, second.directory_id);
}

#[test]
fn a_formatted_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 1);
    let meta = new(format(&config, request(Some(CLUSTER))));
    let before = files(dir.path());
    refused(
        format(&config, request(Some(CLUSTER))),
        &["already formatted", CLUSTER, "--ignore-formatted"],
    );
    for cluster_id in [Some(CLUSTER), None] {
        let again = format(&config, ignoring(cluster_id)).unwrap();
        assert_eq!(again, Formatted::Already(meta.clone()));
    }
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_directory_of_another_node_or_cluster_is_refused_with_both_values() {
    let dir = tempfile::tempdir().unwrap();
    let own = config(dir.path(), 1);
    let other = config(dir.path(), 2);
    new(format(&own, request(Some(CLUSTER))));
    let before = files(dir.path());
    let path = meta_path(&own).display().to_string();
    let nodes = ["node.id=1", "node.id=2", "server.properties", &path];
    refused(format(&other, ignoring(None)), &nodes);
    refused(check_formatted(&other), &nodes);
    let clusters = [CLUSTER, "OTHER", &path];
    refused(format(&own, ignoring(Some("OTHER"))), &clusters);
    assert_eq!(files(dir.path()), before);
}

#[test]
fn an_unformatted_directory_is_not_started_on() {
    let dir = tempfile::tempdir().unwrap();
    let says = ["not formatted", "quorate format --config server.properties"];
    refused(check_formatted(&config(dir.path(), 1)), &says);
    refused(check_formatted(&config(&dir.path().join("no"), 1)), &says);
    assert!(files(dir.path()).is_empty());
}

#[test]
fn an_identity_whose_log_is_missing_is_not_started_on() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 1);
    new(format(&config, request(None)));
    fs::remove_dir_all(config.topic_dir()).unwrap();
    refused(check_formatted(&config), &["its log is missing"]);
    fs::create_dir(config.topic_dir()).unwrap();
    refused(check_formatted(&config), &["its log is missing"]);
}

#[test]
fn a_log_without_identity_is_not_formatted_over() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 1);
    new(format(&config, request(None)));
    fs::remove_file(meta_path(&config)).unwrap();
    fs::write(config.topic_dir().join("00000000000000000000.log"), "x").unwrap();
    refused(format(&config, request(None)), &["holds data"]);
}

#[test]
fn an_interrupted_formatting_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 1);
    new(format(&config, request(None)));
    fs::remove_file(meta_path(&config)).unwrap();
    fs::write(config.topic_dir().join("partition.metadata.tmp"), "").unwrap();
    new(format(&config, request(None)));
    check_formatted(&config).unwrap();
}

#[test]
fn a_log_of_another_topic_id_is_not_started_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), 1);
    new(format(&config, request(None)));
    config.topic_id[15] = 2;
    let ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"];
    refused(check_formatted(&config), &ids);
    fs::write(config.topic_dir().join(PARTITION_METADATA), "version: 1").unwrap();
    refused(check_formatted(&config), &["partition.metadata is damaged"]);
}

#[test]
fn cluster_ids_that_would_break_a_line_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), 1);
    for given in ["", "a b", "a\nb", "ä", &"x".repeat(256)] {
        refused(format(&config, request(Some(given))), &["is no cluster id"]);
    }
    assert!(files(dir.path()).is_empty());
}
