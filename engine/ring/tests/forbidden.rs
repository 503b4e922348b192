//! Where io_uring is forbidden, one clear sentence says so.
//!
//! Each case runs in a child process (this same test binary), since a seccomp filter stays.

#![allow(unsafe_code)] // prctl

use quorate_ring::{Engine, Ring, RingConfig, RingError, probe};
use std::process::Command;

const CASE: &str = "QUORATE_RING_FORBIDDEN_CASE";

/// Answers `errno` to the system call `number`, lets all others through.
fn install_filter(number: libc::c_long, errno: i32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        // The system call's number is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            number as u32,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    // SAFETY: the filter and its program live through the call, which copies them.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(result, 0);
}

/// What `probe` says in a process to which `case` ("CALL ERRNO") applies.
fn message_in_child(case: &str) -> String {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args([
            "--exact",
            "child_prints_what_probe_says",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CASE, case)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.split_once("probe says: "));
    line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

#[test]
fn child_prints_what_probe_says() {
    let Ok(case) = std::env::var(CASE) else {
        return; // run by the others only
    };
    let (call, errno) = case.split_once(' ').unwrap();
    let number = match call {
        "setup" => libc::SYS_io_uring_setup,
        "register" => libc::SYS_io_uring_register,
        _ => libc::SYS_io_uring_enter,
    };
    install_filter(number, errno.parse().unwrap());
    let said = probe().map_or_else(|error| error.to_string(), |()| "all is well".to_owned());
    println!("probe says: {said}");
}

#[test]
fn refusal_by_a_seccomp_filter_names_cause_and_remedy() {
    for call in ["setup", "register", "enter"] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            let message = message_in_child(&format!("{call} {errno}"));
            let start = format!("io_uring is not allowed here (io_uring_{call}: ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("a seccomp filter forbids it"), "{message}");
            assert!(message.contains("--security-opt seccomp="), "{message}");
        }
    }
}

#[test]
fn other_failures_keep_their_reason() {
    let message = message_in_child(&format!("setup {}", libc::EMFILE));
    assert_eq!(
        message,
        "cannot open a ring: Too many open files (os error 24)"
    );
}

#[test]
fn kernel_without_a_flag_is_told_by_the_flags_name() {
    // EINVAL to every set-up is what a kernel without any of our flags answers.
    let message = message_in_child(&format!("setup {}", libc::EINVAL));
    assert!(
        message.contains("lacks IORING_SETUP_SUBMIT_ALL (Linux 5.18)"),
        "{message}"
    );
}

#[test]
fn probe_and_new_succeed_here() {
    probe().unwrap();
    let ring: Result<Ring, RingError> = Ring::new(&RingConfig {
        engine: Engine::Uring,
        entries: 1,
        ..RingConfig::default()
    });
    assert!(ring.is_ok());
}
