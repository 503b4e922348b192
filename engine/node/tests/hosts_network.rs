//! Addresses of every kind: IPv6, names that come late, names that move, resolvers that hang.
//!
//! Names are given by a hosts file of the test's own, bound over /etc/hosts in a mount namespace
//! that only the processes under test are in.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{MachineLock, PortBlock, Servers, s, scratch_dir, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_quorum_lives_on_ipv6() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        println!("skipped: this host has no IPv6 loopback address ({error})");
        return;
    }
    let (_machine, ports, dir) = (MachineLock::acquire(), PortBlock::acquire(), scratch_dir());
    let client = |id: u16| format!("[::1]:{}", ports.base() + id);
    let peer = |id: u16| format!("[::1]:{}", ports.base() + 100 + id);
    let voters: Vec<_> = (1..=3).map(|id| format!("{id}@{}", peer(id))).collect();
    let bootstrap: Vec<_> = (1..=3).map(client).collect();
    let mut servers = Servers::new(dir.path(), &bootstrap.join(","), |_| ());
    for id in 1..=3 {
        let listeners = format!(
            "listeners=CLIENT://{},CONTROLLER://{}",
            client(id),
            peer(id)
        );
        servers.add(&voters.join(","), &listeners);
    }
    servers.start_all();
    (1..=3).for_each(|id| servers.append_and_reach("over IPv6", id));
    let before = servers.leader_after(0);
    servers.kill(before.leader_id as usize);
    let after = servers.leader_after(before.leader_epoch);
    assert_ne!(after.leader_id, before.leader_id);
    servers.start(before.leader_id as usize);
    servers.append_and_reach("and on", before.leader_id as usize);
}

#[test]
fn a_server_on_all_interfaces_is_reached_by_ipv4_and_ipv6() {
    let (ports, dir) = (PortBlock::acquire(), scratch_dir());
    let (client, peer) = (ports.base(), ports.base() + 100);
    let bootstrap = format!("127.0.0.1:{client}");
    let mut servers = Servers::new(dir.path(), &bootstrap, |_| ());
    let listeners = format!(
        "listeners=CLIENT://:{client},CONTROLLER://:{peer}\n\
         advertised.listeners=CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{peer}"
    );
    servers.add(&format!("1@127.0.0.1:{peer}"), &listeners);
    servers.start_all();
    servers.append_and_reach("by IPv4", 1);
    if TcpListener::bind("[::1]:0").is_ok() {
        let by_ipv6 = Servers::new(dir.path(), &format!("[::1]:{client}"), |_| ());
        assert_eq!(by_ipv6.leader_after(0).leader_id, 1);
    }
}

/// Where names lead, for the processes that are run by its launcher.
struct Names {
    dir: PathBuf,
}

impl Names {
    /// Files to bind over /etc/hosts and /etc/resolv.conf, no name in them; and a program that runs
    /// another with them. None, with a printed reason, where namespaces are not to be had.
    fn new(dir: &Path) -> Option<Self> {
        let names = Self { dir: dir.into() };
        names.set(&[]);
        names.set_resolver("127.0.0.1");
        // A user namespace makes up for a user's missing rights.
        let user = match rustix::process::getuid().is_root() {
            true => "",
            false => "--map-root-user",
        };
        let script = format!(
            "#!/bin/sh\nexec unshare {user} --mount --propagation private /bin/sh -c '\n\
             mount --bind {dir}/hosts /etc/hosts || exit 99\n\
             mount --bind {dir}/resolv.conf /etc/resolv.conf || exit 99\n\
             exec \"$@\"' sh \"$@\"\n",
            dir = dir.display()
        );
        fs::write(names.launcher(), script).expect("a script");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(names.launcher(), executable).expect("its mode");
        let mut trial = Command::new(names.launcher());
        match trial.arg("true").stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Some(names),
            other => {
                println!("skipped: no mount namespace of one's own to be had here ({other:?})");
                None
            }
        }
    }

    fn launcher(&self) -> PathBuf {
        self.dir.join("with-names")
    }

    /// Writes the hosts file in place, since a mount is of the file and not of its name.
    fn set(&self, names: &[(u16, &str)]) {
        let line = |(id, address): &(u16, &str)| format!("{address} {}\n", name(*id));
        let lines: String = names.iter().map(line).collect();
        let text = format!("127.0.0.1 localhost\n{lines}");
        fs::write(self.dir.join("hosts"), text).expect("a hosts file");
    }

    fn set_resolver(&self, address: &str) {
        let text = format!("nameserver {address}\n");
        fs::write(self.dir.join("resolv.conf"), text).expect("a resolver's configuration");
    }
}

fn name(id: u16) -> String {
    format!("voter-{id}.quorate.test")
}

fn listeners(id: u16, address: &str, ports: &PortBlock) -> String {
    let (client, peer) = (ports.base() + id, ports.base() + 100 + id);
    let name = name(id);
    format!(
        "listeners=CLIENT://{address}:{client},CONTROLLER://{address}:{peer}\n\
         advertised.listeners=CLIENT://{name}:{client},CONTROLLER://{name}:{peer}\n\
         admin.listener={}\n",
        admin(id, ports)
    )
}

fn admin(id: u16, ports: &PortBlock) -> String {
    format!("127.0.0.1:{}", ports.base() + 150 + id)
}

/// Whether a server says that it is ready; it must say something.
fn is_ready(id: u16, ports: &PortBlock) -> bool {
    let mut stream = TcpStream::connect(admin(id, ports)).expect("an admin listener");
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n");
    asked.expect("a question");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).expect("a status");
    assert!(matches!(status, "200" | "503"), "{answer}");
    status == "200"
}

/// Three servers that know each other by name; server N listens on 127.0.0.N.
fn servers_by_name(dir: &Path, names: &Names, ports: &PortBlock) -> Servers {
    let voter = |id: u16| format!("{id}@{}:{}", name(id), ports.base() + 100 + id);
    let voters: Vec<_> = (1..=3).map(voter).collect();
    let client = |id: u16| format!("127.0.0.{id}:{}", ports.base() + id);
    let bootstrap: Vec<_> = (1..=3).map(client).collect();
    let mut servers = Servers::new(dir, &bootstrap.join(","), |command| {
        command.env("RUST_LOG", "quorate=debug");
    });
    servers.run_by(names.launcher());
    for id in 1..=3 {
        let address = format!("127.0.0.{id}");
        servers.add(&voters.join(","), &listeners(id, &address, ports));
    }
    servers
}

const ALL: [(u16, &str); 3] = [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.3")];

#[test]
fn names_that_come_late_or_move_are_found() {
    let (_machine, ports, dir) = (MachineLock::acquire(), PortBlock::acquire(), scratch_dir());
    let Some(names) = Names::new(dir.path()) else {
        return;
    };
    let mut servers = servers_by_name(dir.path(), &names, &ports);
    servers.start_all();
    for id in 1..=3 {
        wait_for("each server has asked for names in vain", s(30), || {
            let failed = servers.log(id).matches("cannot look a peer").count();
            (failed >= 8).then_some(())
        });
    }
    assert!(
        (1..=3).all(|id| !is_ready(id, &ports)),
        "ready without a leader"
    );
    names.set(&ALL);
    let resolvable = Instant::now();
    let first = servers.leader_after(0);
    let took = resolvable.elapsed();
    println!("a leader {took:?} after the names came");
    // Two retries (1 s each at most) and an election or two (2 s each at most), on a busy machine.
    assert!(took < s(12), "{took:?}");

    wait_for("all are ready", s(20), || {
        (1..=3).all(|id| is_ready(id, &ports)).then_some(())
    });

    // A follower moves; the others look its name up again.
    let moved = 1 + first.leader_id % 3;
    servers.stop(moved as usize);
    let config = fs::read_to_string(servers.config(moved as usize)).expect("a configuration");
    let (old, new) = (
        format!("//127.0.0.{moved}:"),
        format!("//127.0.0.1{moved}:"),
    );
    let config = config.replace(&old, &new);
    fs::write(servers.config(moved as usize), config).expect("a configuration");
    let new_address = format!("127.0.0.1{moved}");
    let mut elsewhere = ALL;
    elsewhere[moved as usize - 1].1 = &new_address;
    names.set(&elsewhere);
    servers.start(moved as usize);
    servers.append_and_reach("after the move", moved as usize);

    // And when the leader dies, only the two that are left can elect another: they find each other.
    servers.kill(first.leader_id as usize);
    let second = servers.leader_after(first.leader_epoch);
    assert_ne!(second.leader_id, first.leader_id);
    servers.append_and_reach("without the first leader", moved as usize);
}

#[test]
fn a_resolver_that_hangs_holds_nobody_up() {
    let (_machine, ports, dir) = (MachineLock::acquire(), PortBlock::acquire(), scratch_dir());
    // Takes questions and never answers.
    let resolver = match UdpSocket::bind("127.0.0.253:53") {
        Ok(resolver) => resolver,
        Err(error) => {
            println!("skipped: no resolver can be put on port 53 ({error})");
            return;
        }
    };
    let Some(names) = Names::new(dir.path()) else {
        return;
    };
    names.set_resolver("127.0.0.253");
    names.set(&ALL[..2]);
    let mut servers = servers_by_name(dir.path(), &names, &ports);
    servers.start(1);
    servers.start(2);
    let leader = servers.leader_after(0);
    resolver.set_nonblocking(true).expect("a socket");
    wait_for("somebody asks for the third name", s(20), || {
        resolver.recv(&mut [0; 512]).ok()
    });
    for round in 0..20 {
        let start = Instant::now();
        servers.append_and_reach(&format!("line {round}"), 3 - leader.leader_id as usize);
        let took = start.elapsed();
        assert!(took < s(4), "an append took {took:?}");
    }
    let last = servers.leader_after(0);
    assert_eq!(last.leader_epoch, leader.leader_epoch, "no election");
    // The third is found when its name is there, though questions for it still hang.
    names.set(&ALL);
    servers.start(3);
    servers.append_and_reach("all three", 3);
}
