//! One voter as a child process: started, watched, ended.

use super::layout::VoterPlan;
use super::{DevError, VoterLogging};
use quorate_raft::NodeId;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// At most this much of a log's end is searched for the reason of an exit.
const LOG_SEARCHED_MAX: u64 = 64 << 10;

/// From so many CPUs on voters are left to the scheduler.
const CPUS_ENOUGH: usize = 4;

/// Keeps a voter (this process if `None`) to one CPU where the voters of a machine share few.
///
/// A commit wakes each of them several times. Moved about between two CPUs, a voter finds the other
/// one asleep again and again: commits of one client took 553 us at the median instead of 489.
pub(super) fn keep_to_one_cpu(process: Option<Pid>, id: NodeId) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let rank = usize::try_from(id - 1).unwrap_or(0);
    if (1..CPUS_ENOUGH).contains(&cpus.len()) {
        let mut one = CpuSet::new();
        one.set(cpus[rank % cpus.len()]);
        // Only a matter of speed.
        let _ = sched_setaffinity(process, &one);
    }
}

/// A voter's process, running or ended.
pub(super) struct VoterProcess {
    pub plan: VoterPlan,
    child: Child,
    ended: Option<ExitStatus>,
    /// Where this run's part of the log begins.
    log_start: u64,
}

impl VoterProcess {
    /// Starts the voter as a process of `program`, in a process group of its own so that Ctrl-C in
    /// the terminal reaches the supervisor only.
    pub(super) fn start(
        program: &Path,
        plan: VoterPlan,
        logging: VoterLogging,
    ) -> Result<Self, DevError> {
        let path = plan.log_path();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(DevError::io("open", &path))?;
        let log_start = log
            .metadata()
            .map_err(DevError::io("look at", &path))?
            .len();
        let copy = log.try_clone().map_err(DevError::io("open", &path))?;
        let mut command = Command::new(program);
        command
            .arg("server")
            .arg("--config")
            .arg(&plan.config.path)
            .arg("--die-with-parent")
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(log)
            .process_group(0);
        if let Some(level) = logging.level {
            command.arg("--log-level").arg(level);
        }
        if let Some(format) = logging.format {
            command.arg("--log-format").arg(format);
        }
        let child = command.spawn().map_err(DevError::io("run", program))?;
        // Before it makes threads, which take it over.
        keep_to_one_cpu(Some(Pid::from_child(&child)), plan.id);
        Ok(Self {
            plan,
            child,
            ended: None,
            log_start,
        })
    }

    /// The process's id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not been seen to end.
    pub(super) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// How it ended, once, when it has.
    pub(super) fn poll_end(&mut self) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return None;
        }
        // An error would mean that somebody else waited for our child; there is nobody.
        self.ended = self.child.try_wait().ok().flatten();
        self.ended
    }

    /// Sends a signal if it still runs. It is not waited for in between, so the id is still its
    /// own.
    pub(super) fn signal(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
        {
            // It may be ending just now: nothing left to do then.
            let _ = kill_process(pid, signal);
        }
    }

    /// The last line of this run that the program wrote as the reason of its failure.
    pub(super) fn last_words(&self) -> Option<String> {
        last_words(&self.plan.log_path(), self.log_start).ok()?
    }
}

/// How a process ended, in words.
pub(super) fn describe_end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "stopped by itself".into(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(9)) => "killed by SIGKILL".into(),
        (None, Some(15)) => "killed by SIGTERM".into(),
        (None, Some(6)) => "killed by SIGABRT".into(),
        (None, Some(11)) => "killed by SIGSEGV".into(),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

fn last_words(path: &Path, from: u64) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let length = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(
        from.max(length.saturating_sub(LOG_SEARCHED_MAX)),
    ))?;
    let mut bytes = Vec::new();
    file.take(LOG_SEARCHED_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines().rev();
    Ok(lines.find_map(|line| line.strip_prefix("quorate: ").map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_last_one_of_this_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.txt");
        let old = "quorate: an older reason\n";
        fs::write(&path, old).unwrap();
        let from = old.len() as u64;
        assert_eq!(last_words(&path, from).unwrap(), None);
        let text = format!("{old}INFO quorate: not a reason\nquorate: first\nquorate: second\nx\n");
        fs::write(&path, text).unwrap();
        assert_eq!(last_words(&path, from).unwrap().as_deref(), Some("second"));
    }

    #[test]
    fn ends_are_told_in_words() {
        for (raw, words) in [
            (0, "stopped by itself"),
            (256, "exit code 1"),
            (9, "killed by SIGKILL"),
            (8, "killed by signal 8"),
        ] {
            assert_eq!(describe_end(ExitStatus::from_raw(raw)), words);
        }
    }
}
