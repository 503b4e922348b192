//! The files of docs/deploy: a node lives under the seccomp profile, on either engine, and systemd
//! understands the unit.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{Filter, MachineLock, PortBlock, QUORATE, Servers, run, s, scratch_dir};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/deploy")
        .join(name)
}

macro_rules! numbers {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name).trim_start_matches("SYS_"), libc::$name)),*]
    };
}

/// The numbers of all calls that the profile names and this architecture has.
fn numbers() -> BTreeMap<&'static str, libc::c_long> {
    let everywhere = numbers![
        SYS_accept,
        SYS_accept4,
        SYS_bind,
        SYS_brk,
        SYS_capget,
        SYS_capset,
        SYS_chdir,
        SYS_clock_getres,
        SYS_clock_gettime,
        SYS_clock_nanosleep,
        SYS_clone,
        SYS_clone3,
        SYS_close,
        SYS_connect,
        SYS_dup,
        SYS_dup3,
        SYS_epoll_create1,
        SYS_epoll_ctl,
        SYS_epoll_pwait,
        SYS_eventfd2,
        SYS_execve,
        SYS_exit,
        SYS_exit_group,
        SYS_faccessat,
        SYS_faccessat2,
        SYS_fchdir,
        SYS_fchown,
        SYS_fcntl,
        SYS_fdatasync,
        SYS_flock,
        SYS_fstat,
        SYS_fstatfs,
        SYS_fsync,
        SYS_ftruncate,
        SYS_futex,
        SYS_get_robust_list,
        SYS_getcpu,
        SYS_getcwd,
        SYS_getdents64,
        SYS_getegid,
        SYS_geteuid,
        SYS_getgid,
        SYS_getpeername,
        SYS_getpid,
        SYS_getppid,
        SYS_getpriority,
        SYS_getrandom,
        SYS_getrusage,
        SYS_getsockname,
        SYS_getsockopt,
        SYS_gettid,
        SYS_gettimeofday,
        SYS_getuid,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_io_uring_setup,
        SYS_ioctl,
        SYS_kill,
        SYS_listen,
        SYS_lseek,
        SYS_madvise,
        SYS_membarrier,
        SYS_mkdirat,
        SYS_mmap,
        SYS_mprotect,
        SYS_mremap,
        SYS_munmap,
        SYS_nanosleep,
        SYS_newfstatat,
        SYS_openat,
        SYS_pidfd_open,
        SYS_ppoll,
        SYS_prctl,
        SYS_pread64,
        SYS_prlimit64,
        SYS_pwrite64,
        SYS_pwritev2,
        SYS_read,
        SYS_readlinkat,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_renameat,
        SYS_renameat2,
        SYS_restart_syscall,
        SYS_rseq,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigreturn,
        SYS_rt_sigtimedwait,
        SYS_sched_getaffinity,
        SYS_sched_setaffinity,
        SYS_sched_yield,
        SYS_sendmmsg,
        SYS_sendmsg,
        SYS_sendto,
        SYS_set_robust_list,
        SYS_set_tid_address,
        SYS_setgid,
        SYS_setgroups,
        SYS_setpriority,
        SYS_setsockopt,
        SYS_setuid,
        SYS_shutdown,
        SYS_sigaltstack,
        SYS_socket,
        SYS_socketpair,
        SYS_statfs,
        SYS_statx,
        SYS_sysinfo,
        SYS_tgkill,
        SYS_times,
        SYS_umask,
        SYS_uname,
        SYS_unlinkat,
        SYS_write,
        SYS_writev,
    ];
    #[cfg(target_arch = "x86_64")]
    let here = numbers![
        SYS_access,
        SYS_arch_prctl,
        SYS_dup2,
        SYS_epoll_wait,
        SYS_getpgrp,
        SYS_getrlimit,
        SYS_lstat,
        SYS_mkdir,
        SYS_open,
        SYS_poll,
        SYS_readlink,
        SYS_rename,
        SYS_stat,
        SYS_unlink,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let here = [];
    everywhere.into_iter().chain(here).collect()
}

/// Calls that newer architectures never had.
const X86_ONLY: &[&str] = &[
    "access",
    "arch_prctl",
    "dup2",
    "epoll_wait",
    "getpgrp",
    "getrlimit",
    "lstat",
    "mkdir",
    "open",
    "poll",
    "readlink",
    "rename",
    "stat",
    "unlink",
];

fn profile() -> Value {
    let text = fs::read_to_string(deploy("seccomp.json")).expect("the profile");
    serde_json::from_str(&text).expect("JSON")
}

/// The names that the profile allows.
fn allowed(profile: &Value) -> Vec<&str> {
    let groups = profile["syscalls"].as_array().expect("groups");
    let names = groups.iter().flat_map(|group| {
        assert_eq!(group["action"], "SCMP_ACT_ALLOW");
        group["names"].as_array().expect("names")
    });
    names.map(|name| name.as_str().expect("a name")).collect()
}

#[test]
fn the_profile_is_well_formed_and_names_real_calls_once() {
    let profile = profile();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let (names, numbers) = (allowed(&profile), numbers());
    for name in &names {
        let is_known = numbers.contains_key(name) || X86_ONLY.contains(name);
        assert!(is_known, "{name} is not in this test's table");
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len(), "a call stands there twice");
    for dangerous in [
        "ptrace",
        "mount",
        "bpf",
        "unshare",
        "setns",
        "init_module",
        "kexec_load",
    ] {
        assert!(!names.contains(&dangerous), "{dangerous}");
    }
}

/// The profile as a filter for this machine.
fn filter() -> Filter {
    let (profile, numbers) = (profile(), numbers());
    let errno = profile["defaultErrnoRet"].as_i64().expect("a number");
    let names = allowed(&profile);
    let calls: Vec<_> = names
        .iter()
        .filter_map(|name| numbers.get(name).copied())
        .collect();
    Filter::allow_only(&calls, errno as i32)
}

#[test]
fn nodes_live_under_the_profile_on_either_engine() {
    let (_machine, ports, dir) = (MachineLock::acquire(), PortBlock::acquire(), scratch_dir());
    let client = |id: u16| format!("127.0.0.1:{}", ports.base() + id);
    // By name, so that the C library's look-ups are under it too.
    let peer = |id: u16| format!("localhost:{}", ports.base() + 100 + id);
    let voters: Vec<_> = (1..=3).map(|id| format!("{id}@{}", peer(id))).collect();
    let bootstrap: Vec<_> = (1..=3).map(client).collect();
    let mut servers = Servers::new(dir.path(), &bootstrap.join(","), |_| ());
    for (id, engine) in [(1, "uring"), (2, "threads"), (3, "auto")] {
        let more = match id {
            1 => "quorate.cores=split\nquorate.wait=adaptive\nquorate.client.loops=1\n",
            2 => "quorate.cores=split\nquorate.pin.cpus=0\n",
            _ => "",
        };
        let lines = format!(
            "listeners=CLIENT://{},CONTROLLER://{}\nadmin.listener=127.0.0.1:{}\n\
             io.engine={engine}\ninternal.metadata.log.segment.bytes=262144\n{more}",
            client(id),
            peer(id),
            ports.base() + 150 + id,
        );
        servers.add(&voters.join(","), &lines);
    }
    let filter = filter();
    servers.prepare_servers(move |command| filter.apply_to(command));
    servers.start_all();
    servers.leader_after(0);
    // Enough for several segments: created ahead, sealed, renamed.
    for round in 0..4 {
        let lines = format!("{round} {}\n", "x".repeat(1000)).repeat(300);
        servers.client(&["append"], &lines).expect_success();
    }
    (1..=3).for_each(|id| servers.append_and_reach("everywhere", id));
    let has_ring = |servers: &Servers, id: usize| {
        let files = fs::read_dir(format!("/proc/{}/fd", servers.pid(id))).expect("its files");
        let mut files = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.any(|to| to.to_string_lossy().contains("io_uring"))
    };
    assert_eq!(
        (1..=3).map(|id| has_ring(&servers, id)).collect::<Vec<_>>(),
        [true, false, true]
    );
    let metrics = reads_metrics(ports.base() + 151);
    assert!(metrics.contains("200 OK"), "{metrics}");

    let before = servers.leader_after(0);
    let leader = before.leader_id as usize;
    servers.kill(leader);
    servers.leader_after(before.leader_epoch);
    servers.start(leader);
    servers.append_and_reach("after the restart", leader);
    (1..=3).for_each(|id| servers.stop(id));
}

fn reads_metrics(port: u16) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("an admin listener");
    let question = b"GET /metrics HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n";
    stream.write_all(question).expect("a question");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn systemd_understands_the_unit() {
    let tool = Command::new("systemd-analyze")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if tool.is_err() {
        println!("skipped: systemd-analyze is not here");
        return;
    }
    let dir = scratch_dir();
    let unit = fs::read_to_string(deploy("quorate.service")).expect("the unit");
    let installed = unit.replace("/usr/bin/quorate", QUORATE);
    assert_ne!(installed, unit);
    let path = dir.path().join("quorate.service");
    fs::write(&path, installed).expect("a unit");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&path);
    let verified = run(verify, "", s(60));
    assert!(verified.status.success(), "{verified:?}");
    let complaints = verified
        .stderr
        .lines()
        .filter(|line| line.contains("quorate.service"));
    assert_eq!(complaints.collect::<Vec<_>>(), [""; 0]);
}
