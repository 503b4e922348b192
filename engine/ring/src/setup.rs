//! Opening a ring, and saying clearly why it can't be opened.
//!
//! Reads like a checklist: set-up flags, features, opcodes, one round trip. Each item that is
//! missing is named, with what to do about it. Never falls back to less by itself.

use crate::ring::{Ring, Wait};
use io_uring::{Builder, IoUring, Probe, opcode};
use std::{fmt, fs, io};

/// Least size of a submission queue: room for a chain of a few operations and the internal ones.
const ENTRIES_MIN: u32 = 8;

/// Largest submission queue the kernel grants (IORING_MAX_ENTRIES).
const ENTRIES_MAX: u32 = 32_768;

/// Completion queue entries per submission queue entry. One connection has up to two operations
/// in flight, and all may end at once; beyond this the kernel keeps completions on a slower list.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// What carries a ring's operations out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring.
    #[default]
    Uring,
    /// epoll for sockets, threads for files: slower, for hosts that forbid io_uring. What a flush
    /// promises is the same.
    Threads,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "io_uring",
            Self::Threads => "threads",
        })
    }
}

/// How large a ring is, and what it stands on.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// What carries its operations out. Never falls back from one to the other.
    pub engine: Engine,
    /// Size of the submission queue: operations handed to the kernel by one system call. Rounded up
    /// to a power of two within 8..=32768. The completion queue has four times as many. Means
    /// nothing to threads.
    pub entries: u32,
    /// Whether disk operations run on threads of their own, in blocking system calls, even where
    /// the rest is io_uring's. Threads do so always.
    pub disk_threads: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            engine: Engine::Uring,
            entries: 256,
            disk_threads: false,
        }
    }
}

/// Why there is no ring. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Somebody decided against io_uring for this process.
    #[error(
        "io_uring is not allowed here ({call}: {}): {hint}",
        io::Error::from_raw_os_error(*errno)
    )]
    Forbidden {
        /// The system call that was refused.
        call: &'static str,
        /// EPERM, EACCES or ENOSYS.
        errno: i32,
        /// Cause and remedy.
        hint: &'static str,
    },
    /// The kernel is too old.
    #[error("this kernel's io_uring lacks {feature}; Linux 6.1 or later is needed")]
    Unsupported {
        /// Flag, feature or opcode, with the release that brought it.
        feature: &'static str,
    },
    /// Anything else, such as no more file descriptors or memory.
    #[error("cannot open a ring: {0}")]
    Os(#[from] io::Error),
}

const HINT_SYSCTL: &str = "the sysctl kernel.io_uring_disabled forbids it; \
    set it to 0 (1 allows it to CAP_SYS_ADMIN and to the group in kernel.io_uring_group)";
const HINT_SECCOMP: &str = "a seccomp filter forbids it, as the default profiles of Docker and \
    containerd do; run with a profile that allows io_uring_setup, io_uring_enter and \
    io_uring_register (docker run --security-opt seccomp=PROFILE or unconfined)";
const HINT_KERNEL: &str = "the kernel was built without io_uring or is too old; \
    use Linux 6.1 or later with CONFIG_IO_URING";
const HINT_MODULE: &str = "a security module (SELinux, AppArmor) seems to forbid it; \
    see the audit log";

/// Finds out whether an io_uring can be opened and used, and closes it again. For start-up checks,
/// before anything on disk is touched.
///
/// # Errors
/// What [`Ring::new`] returns, and what the first system call on the ring returns.
pub fn probe() -> Result<(), RingError> {
    let mut ring = Ring::new(&RingConfig {
        engine: Engine::Uring,
        entries: ENTRIES_MIN,
        disk_threads: false,
    })?;
    // The first turn submits the read that wakers complete, so it does enter the kernel.
    ring.turn(Wait::No, &mut Vec::new())
        .map_err(|error| explain("io_uring_enter", error))
}

/// Opens the kernel's ring and checks everything that the rest of the package relies on.
pub(crate) fn open(config: &RingConfig) -> Result<IoUring, RingError> {
    let entries = config
        .entries
        .clamp(ENTRIES_MIN, ENTRIES_MAX)
        .next_power_of_two();
    let uring = build(entries).map_err(|error| name_missing_flag(entries, error))?;
    check_features(&uring)?;
    check_opcodes(&uring)?;
    Ok(uring)
}

fn build(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_cqsize(entries * COMPLETIONS_PER_ENTRY)
        .setup_clamp()
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
}

/// EINVAL does not say which flag is unknown: tries them in the order in which they came to Linux.
fn name_missing_flag(entries: u32, error: io::Error) -> RingError {
    if error.raw_os_error() != Some(libc::EINVAL) {
        return explain("io_uring_setup", error);
    }
    let mut builder: Builder = IoUring::builder();
    if builder.setup_submit_all().build(entries).is_err() {
        return RingError::Unsupported {
            feature: "IORING_SETUP_SUBMIT_ALL (Linux 5.18)",
        };
    }
    if builder
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(entries)
        .is_err()
    {
        return RingError::Unsupported {
            feature: "IORING_SETUP_COOP_TASKRUN (Linux 5.19)",
        };
    }
    if builder.setup_single_issuer().build(entries).is_err() {
        return RingError::Unsupported {
            feature: "IORING_SETUP_SINGLE_ISSUER (Linux 6.0)",
        };
    }
    RingError::Unsupported {
        feature: "IORING_SETUP_DEFER_TASKRUN (Linux 6.1)",
    }
}

fn check_features(uring: &IoUring) -> Result<(), RingError> {
    let params = uring.params();
    let needed = [
        (params.is_feature_nodrop(), "IORING_FEAT_NODROP (Linux 5.5)"),
        (
            params.is_feature_submit_stable(),
            "IORING_FEAT_SUBMIT_STABLE (Linux 5.5)",
        ),
        (
            params.is_feature_fast_poll(),
            "IORING_FEAT_FAST_POLL (Linux 5.7)",
        ),
        (
            params.is_feature_ext_arg(),
            "IORING_FEAT_EXT_ARG (Linux 5.11)",
        ),
    ];
    first_missing(&needed)
}

fn check_opcodes(uring: &IoUring) -> Result<(), RingError> {
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|error| explain("io_uring_register", error))?;
    let needed = [
        (
            probe.is_supported(opcode::Accept::CODE),
            "IORING_OP_ACCEPT (Linux 5.5)",
        ),
        (
            probe.is_supported(opcode::Connect::CODE),
            "IORING_OP_CONNECT (Linux 5.5)",
        ),
        (
            probe.is_supported(opcode::AsyncCancel::CODE),
            "IORING_OP_ASYNC_CANCEL (Linux 5.5)",
        ),
        (
            probe.is_supported(opcode::Fsync::CODE),
            "IORING_OP_FSYNC (Linux 5.1)",
        ),
        (
            probe.is_supported(opcode::Read::CODE),
            "IORING_OP_READ (Linux 5.6)",
        ),
        (
            probe.is_supported(opcode::Write::CODE),
            "IORING_OP_WRITE (Linux 5.6)",
        ),
        (
            probe.is_supported(opcode::Recv::CODE),
            "IORING_OP_RECV (Linux 5.6)",
        ),
        (
            probe.is_supported(opcode::Send::CODE),
            "IORING_OP_SEND (Linux 5.6)",
        ),
    ];
    first_missing(&needed)
}

fn first_missing(needed: &[(bool, &'static str)]) -> Result<(), RingError> {
    match needed.iter().find(|(there, _)| !there) {
        Some(&(_, feature)) => Err(RingError::Unsupported { feature }),
        None => Ok(()),
    }
}

fn explain(call: &'static str, error: io::Error) -> RingError {
    let errno = error.raw_os_error().unwrap_or(0);
    let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match hint(errno, sysctl.trim(), seccomp_filter_active()) {
        Some(hint) => RingError::Forbidden { call, errno, hint },
        None => RingError::Os(error),
    }
}

/// Who forbids io_uring, told by the error and what /proc says; None if it is not forbidden.
fn hint(errno: i32, sysctl: &str, filtered: bool) -> Option<&'static str> {
    match errno {
        libc::EPERM | libc::EACCES if !matches!(sysctl, "" | "0") => Some(HINT_SYSCTL),
        libc::EPERM | libc::EACCES | libc::ENOSYS if filtered => Some(HINT_SECCOMP),
        libc::EPERM | libc::EACCES => Some(HINT_MODULE),
        libc::ENOSYS => Some(HINT_KERNEL),
        _ => None,
    }
}

fn seccomp_filter_active() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status
        .lines()
        .any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_who_forbids_it() {
        // Setting the sysctl would take io_uring from everything on the machine, so it is not
        // tried out.
        for (errno, sysctl, filtered, expected) in [
            (libc::EPERM, "1", true, Some(HINT_SYSCTL)),
            (libc::EPERM, "2", false, Some(HINT_SYSCTL)),
            (libc::EPERM, "0", true, Some(HINT_SECCOMP)),
            (libc::ENOSYS, "0", true, Some(HINT_SECCOMP)),
            (libc::EACCES, "0", false, Some(HINT_MODULE)),
            (libc::EPERM, "", false, Some(HINT_MODULE)),
            (libc::ENOSYS, "", false, Some(HINT_KERNEL)),
            (libc::EMFILE, "2", true, None),
        ] {
            let hint = hint(errno, sysctl, filtered);
            assert_eq!(hint, expected, "{errno} {sysctl} {filtered}");
        }
        assert!(HINT_SYSCTL.contains("kernel.io_uring_disabled"));
        assert!(HINT_SECCOMP.contains("--security-opt seccomp="));
    }
}
