//! What a configuration file says, and how its faults are told.

use super::*;

const MINIMAL: &str = "\
node.id=1
process.roles=controller
controller.quorum.voters=1@one:9093,2@two:9093
listeners=CLIENT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs=/data
";

fn read(text: &str) -> Result<ServerConfig, ConfigError> {
    ServerConfig::from_text(Path::new("server.properties"), text, "host.example")
}

/// The minimal file with `lines` after it.
fn with(lines: &str) -> Result<ServerConfig, ConfigError> {
    read(&format!("{MINIMAL}{lines}\n"))
}

/// The minimal file with the line of `key` replaced.
fn replaced(key: &str, line: &str) -> Result<ServerConfig, ConfigError> {
    let is_key = |l: &&str| l.split('=').next() == Some(key);
    assert!(MINIMAL.lines().any(|l| is_key(&l)), "{key}");
    let lines: Vec<_> = MINIMAL
        .lines()
        .map(|l| if is_key(&l) { line } else { l })
        .collect();
    read(&lines.join("\n"))
}

fn message(result: Result<ServerConfig, ConfigError>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    assert!(message.starts_with("server.properties"), "{message}");
    message
}

#[test]
fn the_minimal_file_has_the_documented_defaults() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.node_id, 1);
    assert_eq!(config.voters.len(), 2);
    assert_eq!(config.log_dir, Path::new("/data"));
    assert_eq!(config.topic_dir(), Path::new("/data/__cluster_metadata-0"));
    assert_eq!(config.topic_id[..15], [0; 15]);
    assert_eq!(config.topic_id[15], 1);
    assert_eq!(config.election_timeout_ms, 1000);
    assert_eq!(config.fetch_timeout_ms, 2000);
    assert_eq!(config.progress_timeout_ms, 3000);
    assert_eq!(config.segment_bytes, 64 << 20);
    assert_eq!(config.io_engine, IoEngine::Auto);
    assert_eq!(config.cores, Cores::Auto);
    assert_eq!(config.pin_cpus, [0; 0]);
    assert!(config.bootstrap_servers.is_empty());
}

#[test]
fn listeners_that_no_controller_name_names_are_for_clients() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.raft_listener().name, "CONTROLLER");
    assert_eq!(config.raft_listener().bind.to_string(), ":9093");
    assert_eq!(config.client_listeners.len(), 1);
    assert_eq!(config.client_listeners[0].name, "CLIENT");
}

#[test]
fn the_first_controller_name_is_the_raft_listener() {
    let text = MINIMAL
        .replace("listeners=", "listeners=ADMIN://h:1,")
        .replace("names=", "names=controller, admin\n#");
    let config = read(&text).unwrap();
    let names: Vec<_> = config
        .controller_listeners
        .iter()
        .map(|l| &l.name)
        .collect();
    assert_eq!(names, ["CONTROLLER", "ADMIN"]);
    assert_eq!(config.client_listeners.len(), 1);
}

#[test]
fn a_listener_on_all_interfaces_is_advertised_by_a_name() {
    let config = read(MINIMAL).unwrap();
    assert_eq!(config.raft_listener().advertised.to_string(), "one:9093");
    let client = &config.client_listeners[0];
    assert_eq!(client.advertised.to_string(), "host.example:9092");
    let nameless = ServerConfig::from_text(Path::new("f"), MINIMAL, "").unwrap();
    let client = &nameless.client_listeners[0];
    assert_eq!(client.advertised.to_string(), "localhost:9092");
}

#[test]
fn advertised_listeners_are_told_as_given() {
    let config = with("advertised.listeners=client://[::1]:19092").unwrap();
    let client = &config.client_listeners[0];
    assert_eq!(client.advertised.to_string(), "[::1]:19092");
    assert_eq!(client.bind.to_string(), ":9092");
    let wildcard = message(with("advertised.listeners=CLIENT://0.0.0.0:1"));
    assert!(wildcard.contains("has no host"), "{wildcard}");
    let unknown = message(with("advertised.listeners=OTHER://h:1"));
    assert!(unknown.contains("OTHER is not in listeners (CLIENT, CONTROLLER)"));
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_the_nearest_right_key() {
    let message = message(with("\ncontroller.quorum.electon.timeout.ms=500"));
    for part in [
        "server.properties:8: ",
        "\"controller.quorum.electon.timeout.ms\"",
        "\"500\"",
        "\"controller.quorum.election.timeout.ms\"",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn every_older_name_sets_its_key() {
    for key in keys::ALL {
        for alias in key.aliases {
            let (value, line) = match key.name {
                "controller.quorum.voters" => ("1@x:1", "controller.quorum.voters"),
                "controller.quorum.bootstrap.servers" => ("x:1", "log.dirs"),
                "controller.quorum.retry.backoff.ms" => ("500", "log.dirs"),
                // 1.5 x the default of the fetch timeout.
                _ => ("3000", "log.dirs"),
            };
            let (old, new) = (format!("{alias}={value}"), format!("{}={value}", key.name));
            let rest = if line == "log.dirs" {
                "log.dirs=/d\n"
            } else {
                ""
            };
            let old = replaced(line, &format!("{rest}{old}")).unwrap();
            let new = replaced(line, &format!("{rest}{new}")).unwrap();
            assert_eq!(old, new, "{alias}");
        }
    }
    let config = with("quorum.election.jitter.max.ms=7").unwrap();
    assert_eq!(config.election_backoff_max_ms, 7);
}

#[test]
fn a_key_under_both_names_must_have_one_value() {
    let config = with("quorum.request.timeout.ms=9\ncontroller.quorum.request.timeout.ms=9 ");
    assert_eq!(config.unwrap().request_timeout_ms, 9);
    let message = message(with(
        "quorum.request.timeout.ms=9\ncontroller.quorum.request.timeout.ms=10",
    ));
    for part in [
        "quorum.request.timeout.ms (line 7, \"9\")",
        "controller.quorum.request.timeout.ms (line 8, \"10\")",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn required_keys_are_named_when_missing() {
    for key in [
        "node.id",
        "process.roles",
        "listeners",
        "controller.listener.names",
        "log.dirs",
        "controller.quorum.voters",
    ] {
        for line in [String::new(), format!("{key}=")] {
            let message = message(replaced(key, &line));
            assert!(message.contains(key), "{key}: {message}");
            assert!(!message.contains("is not allowed"), "{key}: {message}");
        }
    }
}

#[test]
fn wrong_values_are_told_with_key_line_value_and_what_is_allowed() {
    for (line, says) in [
        ("log.tail.bytes=lots", "a whole number from 1048576"),
        (
            "metadata.log.segment.bytes=4096",
            "a whole number from 8388608",
        ),
        (
            "controller.quorum.append.linger.ms=-1",
            "a whole number from 0",
        ),
        ("cluster.id.strict=yes", "true or false"),
        ("quorate.cores=both", "one of auto, fused, split"),
        ("quorate.pin.cpus=0,0", "CPU numbers"),
        ("quorate.pin.cpus=0,x", "CPU numbers"),
        ("quorum.topic.id=AAAAAAAAAAAAAAAAAAAAAA", "not all zero"),
        ("quorum.topic.name=../etc", "1 to 249 of"),
        ("quorum.topic.name=..", "1 to 249 of"),
        (
            "controller.quorum.bootstrap.servers=a:1,b",
            "\"b\" does not end in a port",
        ),
        (
            "listener.security.protocol.map=CLIENT:SSL",
            "listener CLIENT would be SSL",
        ),
        (
            "log.group.max.bytes=2097152\nlog.unflushed.max.bytes=1048576",
            "not be below log.group.max.bytes",
        ),
        (
            "log.tail.bytes=1048576",
            "not be below log.unflushed.max.bytes (16777216)",
        ),
        (
            "quorum.fetch.timeout.ms=1000\nquorum.progress.timeout.ms=3000",
            "1.5 x controller.quorum.fetch.timeout.ms, here 1500",
        ),
        (
            "controller.quorum.retry.backoff.ms=2000",
            "not be above controller.quorum.retry.backoff.max.ms (1000)",
        ),
    ] {
        let message = message(with(line));
        let last = line.lines().last().unwrap();
        let (key, value) = last.split_once('=').unwrap();
        let number = format!("server.properties:{}: ", 6 + line.lines().count());
        for part in [key, &format!("{value:?}"), &number, says] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn wrong_values_of_required_keys_are_told() {
    for (key, line, says) in [
        ("node.id", "node.id=-1", "a whole number from 0"),
        (
            "process.roles",
            "process.roles=broker,controller",
            "runs no brokers",
        ),
        (
            "process.roles",
            "process.roles=controler",
            "it takes controller",
        ),
        ("log.dirs", "log.dirs=/a,/b", "the path of one directory"),
        (
            "controller.quorum.voters",
            "controller.quorum.voters=1@a:70000",
            "port from 1 to 65535",
        ),
        (
            "controller.listener.names",
            "controller.listener.names=C",
            "C is not in listeners",
        ),
        (
            "listeners",
            "listeners=CONTROLLER://:1,SSL://:2",
            "SSL would be SSL",
        ),
        (
            "listeners",
            "listeners=CONTROLLER://:1,B://:1",
            ":1 stands there twice",
        ),
    ] {
        let message = message(replaced(key, line));
        assert!(message.contains(says), "{line}: {message}");
        assert!(message.contains("server.properties:"), "{line}: {message}");
    }
}

#[test]
fn trailing_spaces_do_not_count() {
    assert_eq!(replaced("node.id", "node.id = 1  \t").unwrap().node_id, 1);
}

#[test]
fn a_node_outside_the_voters_or_with_bootstrap_servers_alone_is_an_observer() {
    assert!(
        replaced("node.id", "node.id=9")
            .unwrap()
            .voters
            .get(9)
            .is_none()
    );
    let line = "controller.quorum.bootstrap.servers=vip:9093";
    let config = replaced("controller.quorum.voters", line).unwrap();
    assert!(config.voters.is_empty());
    assert_eq!(config.bootstrap_servers.len(), 1);
}

#[test]
fn unused_listeners_may_be_mapped_to_anything() {
    let map = "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL";
    with(&format!("listener.security.protocol.map={map}")).unwrap();
}

#[test]
fn the_internal_segment_size_overrides_and_may_be_small() {
    let config = with("internal.metadata.log.segment.bytes=65536").unwrap();
    assert_eq!(config.segment_bytes, 65536);
}

#[test]
fn metadata_log_dir_wins_over_log_dirs() {
    let config = with("metadata.log.dir=/meta").unwrap();
    assert_eq!(config.log_dir, Path::new("/meta"));
}

#[test]
fn faults_of_the_text_itself_name_the_line() {
    let message = message(with("node.id=2"));
    assert!(
        message.contains(":7: ") && message.contains("line 1"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let fault = ServerConfig::from_file(Path::new("/nowhere/f.properties")).unwrap_err();
    let message = fault.to_string();
    assert!(message.contains("/nowhere/f.properties"), "{message}");
}
