//! What a host takes from processes under test: system calls, by seccomp filters as container
//! run-times set them, and locked memory.

#![allow(unsafe_code)] // set between fork and exec

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The three calls of io_uring.
pub const IO_URING: [libc::c_long; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Which system calls fail, and how.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Vec<libc::sock_filter>,
}

/// `skip`: how many statements are left out if a comparison fails.
fn statement(code: u32, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip,
        k,
    }
}

impl Filter {
    /// Answers `errno` to `calls` and lets all others through.
    pub fn forbid(calls: &[libc::c_long], errno: i32) -> Self {
        let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
        Self::new(calls, refused, libc::SECCOMP_RET_ALLOW)
    }

    /// Lets `calls` through and answers `errno` to all others.
    pub fn allow_only(calls: &[libc::c_long], errno: i32) -> Self {
        let refused = libc::SECCOMP_RET_ERRNO | errno as u32;
        Self::new(calls, libc::SECCOMP_RET_ALLOW, refused)
    }

    fn new(calls: &[libc::c_long], to_them: u32, to_others: u32) -> Self {
        // The call's number is the first word of what a filter sees. Each call has its own return,
        // since a jump reaches 255 statements only.
        let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
        for call in calls {
            let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
            program.push(statement(jump, 1, *call as u32));
            program.push(statement(libc::BPF_RET | libc::BPF_K, 0, to_them));
        }
        program.push(statement(libc::BPF_RET | libc::BPF_K, 0, to_others));
        Self { program }
    }

    /// Sets it for what `command` executes, and for all children of that.
    pub fn apply_to(&self, command: &mut Command) {
        let filter = self.clone();
        // SAFETY: between fork and exec only system calls are made: no allocation, no lock.
        unsafe { command.pre_exec(move || filter.install()) };
    }

    fn install(&self) -> io::Result<()> {
        let filter = libc::sock_fprog {
            len: self.program.len() as u16,
            // The kernel only reads it.
            filter: self.program.as_ptr().cast_mut(),
        };
        // SAFETY: takes no pointers.
        let no_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: the filter and its program outlive the call, which copies them.
        let filtered = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
        };
        match (no_privileges, filtered) {
            (0, 0) => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Lets what `command` executes lock at most `bytes` of memory.
pub fn limit_locked_memory(command: &mut Command, bytes: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    let set = move || Ok(setrlimit(Resource::Memlock, limit)?);
    // SAFETY: between fork and exec only a system call is made: no allocation, no lock.
    unsafe { command.pre_exec(set) };
}
