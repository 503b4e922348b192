//! A small host: a user without rights, little memory to lock, disks with other sectors.

#![allow(clippy::disallowed_methods)] // deadlines of the harness

mod common;

use common::{
    Lone, MachineLock, PortBlock, QUORATE, Servers, Serving, format, limit_locked_memory, run, s,
    scratch_dir,
};
use quorate_storage::check_data_dir;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A user without any rights, `nobody` on most systems.
const NOBODY: u32 = 65_534;
/// The limit that most systems give a user.
const LOCKED_BYTES: u64 = 8 << 20;

/// A directory on a disk in which anybody may work: the builder's own may be closed to others.
fn public_dir() -> Option<TempDir> {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/var/tmp", "/tmp"] {
        let open = |dir: &Path| {
            let mode = fs::metadata(dir).map_or(0, |found| found.permissions().mode());
            mode & 0o001 != 0
        };
        if !Path::new(root).ancestors().all(open) {
            continue;
        }
        let dir = tempfile::tempdir_in(root).ok()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).ok()?;
        if check_data_dir(dir.path()).is_ok() {
            return Some(dir);
        }
    }
    None
}

/// A line of /proc/<pid>/<file> without its first word.
fn proc_line(pid: u32, file: &str, start: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
    let line = text.lines().find(|line| line.starts_with(start));
    line.expect("a line of it")[start.len()..].trim().to_owned()
}

#[test]
fn three_servers_of_a_user_without_rights_live_with_8_mib_of_locked_memory() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let Some(dir) = public_dir() else {
        println!("skipped: no directory on a disk in which another user may work");
        return;
    };
    let (_machine, ports) = (MachineLock::acquire(), PortBlock::acquire());
    let client = |id: u16| format!("127.0.0.1:{}", ports.base() + id);
    let peer = |id: u16| format!("127.0.0.1:{}", ports.base() + 100 + id);
    let voters: Vec<_> = (1..=3).map(|id| format!("{id}@{}", peer(id))).collect();
    let bootstrap: Vec<_> = (1..=3).map(client).collect();
    let mut servers = Servers::new(dir.path(), &bootstrap.join(","), |command| {
        command.uid(NOBODY).gid(NOBODY);
        limit_locked_memory(command, LOCKED_BYTES);
    });
    let copy = dir.path().join("quorate");
    // By another process: a child that a test beside this one starts would inherit the open file,
    // and as long as it is open for writing nobody can execute it.
    succeeds(Command::new("cp").arg(QUORATE).arg(&copy)).expect("a copy of the program");
    servers.run_from(copy);
    for id in 1..=3 {
        let (client, peer) = (client(id), peer(id));
        let lines = format!(
            "listeners=CLIENT://{client},CONTROLLER://{peer}\nio.engine=uring\n\
             quorate.cores=split\nquorate.client.loops=2\n"
        );
        servers.add(&voters.join(","), &lines);
    }
    servers.start_all();
    (1..=3).for_each(|id| servers.append_and_reach("a line", id));
    for id in 1..=3 {
        let pid = servers.pid(id);
        let limit = proc_line(pid, "limits", "Max locked memory");
        assert!(limit.starts_with("8388608 "), "{limit}");
        assert!(proc_line(pid, "status", "Uid:").starts_with("65534"));
        assert_eq!(proc_line(pid, "status", "CapEff:"), "0".repeat(16));
        let rings = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files");
        let rings = rings.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let count = rings.filter(|to| to.to_string_lossy().contains("io_uring"));
        assert!(count.count() >= 4, "four loops, four rings");
    }
    let before = servers.leader_after(0);
    servers.kill(before.leader_id as usize);
    servers.leader_after(before.leader_epoch);
}

/// A file system on a loop device with sectors of a given size. Dropped, all of it goes.
struct LoopDisk {
    device: String,
    at: PathBuf,
}

fn succeeds(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

impl LoopDisk {
    fn new(dir: &Path, sector_bytes: u32) -> Result<Self, String> {
        let image = dir.join(format!("image-{sector_bytes}"));
        let file = File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(96 << 20).map_err(|error| error.to_string())?;
        let sector = sector_bytes.to_string();
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--sector-size", &sector]);
        let device = succeeds(losetup.arg(&image))?;
        let at = dir.join(format!("mount-{sector_bytes}"));
        fs::create_dir(&at).map_err(|error| error.to_string())?;
        let disk = Self { device, at };
        succeeds(Command::new("mkfs.ext4").args(["-q", "-b", "4096", &disk.device]))?;
        succeeds(Command::new("mount").arg(&disk.device).arg(&disk.at))?;
        Ok(disk)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).output();
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .output();
    }
}

#[test]
fn a_directory_moves_between_disks_with_sectors_of_512_and_4096_bytes() {
    let dir = scratch_dir();
    let disks = LoopDisk::new(dir.path(), 512)
        .and_then(|small| Ok((small, LoopDisk::new(dir.path(), 4096)?)));
    let (small, large) = match disks {
        Ok(disks) => disks,
        Err(reason) => {
            println!("skipped: no disk can be made here ({reason})");
            return;
        }
    };
    let align = |disk: &LoopDisk| check_data_dir(&disk.at).expect("a disk").alignment;
    assert_eq!((align(&small), align(&large)), (512, 4096));

    let lone = Lone::new();
    let address = format!("127.0.0.1:{}", lone.ports.base());
    let mut at = small.at.join("data");
    let mut expected = String::new();
    for (round, disk) in [&small, &large, &small].into_iter().enumerate() {
        let next = disk.at.join("data");
        if round == 0 {
            fs::create_dir(&next).expect("a data directory");
        } else {
            succeeds(
                Command::new("cp")
                    .arg("-a")
                    .arg(&at)
                    .arg(disk.at.join("new")),
            )
            .expect("a copy");
            fs::remove_dir_all(&at).expect("the old directory to go");
            fs::rename(disk.at.join("new"), &next).expect("a place");
        }
        at = next;
        let config = lone.config(&format!("{round}.properties"), &at, 0);
        let text = fs::read_to_string(&config).expect("a configuration");
        let small_segments = "internal.metadata.log.segment.bytes=1048576\n";
        fs::write(&config, text + small_segments).expect("a configuration");
        if round == 0 {
            format(&config, &[]).expect_success();
        }
        let mut serving = Serving::start(&config, lone.ports.base());
        let line = format!("{round} {}", "x".repeat(1000 + 777 * round));
        let mut append = Command::new(QUORATE);
        append.args(["append", "--bootstrap-server", &address]);
        run(append, &format!("{line}\n"), s(20)).expect_success();
        expected.push_str(&line);
        expected.push('\n');
        let mut tail = Command::new(QUORATE);
        tail.args(["tail", "--bootstrap-server", &address, "--from", "0"]);
        let printed = run(tail, "", s(20)).expect_success();
        for line in expected.lines() {
            assert!(printed.contains(line), "{line} is not in {printed}");
        }
        serving.stop();
    }
}
