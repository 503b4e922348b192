//! The ring against plain system calls: the same operations give the same file.

mod common;

use common::{Numbers, ring, run, shared};
use quorate_ring::{AlignedBuf, Completion, CompletionKind, Engine, Ring};
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

on_both_engines! {
    random_writes_give_the_file_that_pwrite_gives,
    reads_return_what_was_written_and_end_at_the_end,
    failed_write_returns_its_buffer_and_its_errno,
    short_write_is_told_and_breaks_its_chain,
    dropping_the_ring_waits_for_its_writes,
    registered_buffers_and_files_write_what_others_write,
}

const BLOCK: u64 = 4096;
const FILE_BLOCKS: u64 = 64;

fn open_direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    options.custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// A directory on a real disk: the build's own, since /tmp may be a tmpfs.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// One of the operations that both sides carry out.
struct Write {
    position: u64,
    len: usize,
    fill: u8,
    kind: u64,
}

impl Write {
    fn random(numbers: &mut Numbers, block: u64) -> Write {
        let blocks_max = (FILE_BLOCKS - block).min(4);
        Write {
            position: block * BLOCK,
            len: ((1 + numbers.below(blocks_max)) * BLOCK) as usize,
            fill: numbers.below(255) as u8 + 1,
            kind: numbers.below(3),
        }
    }

    fn push(&self, ring: &mut Ring, file: &Arc<OwnedFd>) -> usize {
        let mut buf = AlignedBuf::zeroed(self.len);
        buf.fill(self.fill);
        match self.kind {
            0 => ring.write(file, self.position, buf, 0, false),
            1 => ring.write_dsync(file, self.position, buf, 0, false),
            _ => {
                ring.write(file, self.position, buf, 0, true);
                ring.fdatasync(file, 0);
                return 2;
            }
        }
        1
    }
}

fn assert_succeeded(done: &Completion) {
    match &done.kind {
        CompletionKind::Wrote { buf, result } => assert_eq!(*result.as_ref().unwrap(), buf.len()),
        CompletionKind::Flushed(result) => assert!(result.is_ok()),
        other => panic!("{other:?}"),
    }
}

fn random_writes_give_the_file_that_pwrite_gives(engine: Engine) {
    let dir = scratch();
    let by_ring = shared(open_direct(&dir.path().join("ring")));
    let by_calls = open_direct(&dir.path().join("calls"));
    let (mut ring, mut numbers) = (ring(engine, 8), Numbers(2026));
    for _round in 0..40 {
        // Writes of one round may run in any order, so they do not overlap: each has its 4 blocks.
        let mut pushed = 0;
        for group in 0..FILE_BLOCKS / 4 {
            let write = Write::random(&mut numbers, group * 4);
            pushed += write.push(&mut ring, &by_ring);
            let mut buf = AlignedBuf::zeroed(write.len);
            buf.fill(write.fill);
            by_calls.write_all_at(&buf, write.position).unwrap();
        }
        run(&mut ring, pushed).iter().for_each(assert_succeeded);
    }
    let read = |name| std::fs::read(dir.path().join(name)).unwrap();
    assert!(read("ring") == read("calls"));
}

fn registered_buffers_and_files_write_what_others_write(engine: Engine) {
    let dir = scratch();
    let open = |name: &str| shared(open_direct(&dir.path().join(name)));
    let (mut ring, files) = (ring(engine, 8), [open("0"), open("1"), open("2")]);
    let mut registered = AlignedBuf::zeroed(4 * BLOCK as usize);
    ring.register_buffers(&mut [&mut registered]).unwrap();
    for (fill, file) in files.iter().enumerate().take(2) {
        // In place of the one before, whose number must not be used any more.
        ring.register_file(file).unwrap();
        registered.set_len((fill + 1) * BLOCK as usize);
        registered.fill(fill as u8 + 1);
        ring.write(file, 0, registered, 0, true);
        ring.fdatasync(file, 0);
        let mut done = run(&mut ring, 2);
        done.iter().for_each(assert_succeeded);
        registered = taken_back(done.remove(0));
    }
    // A file that is not registered, and another ring that does not know the buffer.
    ring.write(&files[2], 0, registered, 0, false);
    let mut done = run(&mut ring, 1);
    assert_succeeded(&done[0]);
    let mut other = common::ring(engine, 8);
    other
        .register_buffers(&mut [&mut AlignedBuf::zeroed(4096)])
        .unwrap();
    other.write(&files[2], 2 * BLOCK, taken_back(done.remove(0)), 0, false);
    assert_succeeded(&run(&mut other, 1)[0]);
    let lengths = [(0, 1, 1), (1, 2, 2), (2, 4, 2)];
    for (name, blocks, fill) in lengths {
        let found = std::fs::read(dir.path().join(name.to_string())).unwrap();
        assert_eq!(found.len(), blocks * BLOCK as usize, "file {name}");
        assert!(found.iter().all(|&byte| byte == fill), "file {name}");
    }
}

fn taken_back(done: Completion) -> AlignedBuf {
    match done.kind {
        CompletionKind::Wrote { buf, .. } => buf,
        other => panic!("{other:?}"),
    }
}

fn reads_return_what_was_written_and_end_at_the_end(engine: Engine) {
    let dir = scratch();
    let path = dir.path().join("file");
    let bytes: Vec<u8> = (0..3 * BLOCK).map(|at| ((at * 31) >> 3) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let (mut ring, file) = (ring(engine, 8), shared(file));
    for (position, len, got) in [(0, 4096, 4096), (4096, 8192, 8192), (8192, 8192, 4096)] {
        ring.read(&file, position, AlignedBuf::zeroed(len), 9);
        let done = run(&mut ring, 1).remove(0);
        let CompletionKind::Read { buf, result } = done.kind else {
            panic!("{:?}", done.kind)
        };
        assert_eq!(result.unwrap(), got);
        assert!(buf[..got] == bytes[position as usize..position as usize + got]);
    }
    ring.read(&file, 3 * BLOCK, AlignedBuf::zeroed(4096), 9);
    let done = run(&mut ring, 1).remove(0);
    assert!(matches!(
        done.kind,
        CompletionKind::Read { result: Ok(0), .. }
    ));
}

fn failed_write_returns_its_buffer_and_its_errno(engine: Engine) {
    let mut ring = ring(engine, 8);
    let full = shared(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(0xdd);
    ring.write(&full, 0, buf, 3, false);
    let done = run(&mut ring, 1).remove(0);
    let CompletionKind::Wrote { buf, result } = done.kind else {
        panic!("{:?}", done.kind)
    };
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert!(buf.iter().all(|&byte| byte == 0xdd));
}

/// A file in memory of one block that cannot grow: of two blocks, one is written.
fn file_that_is_full() -> Arc<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let file = memfd_create("full", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, BLOCK).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    shared(file)
}

fn short_write_is_told_and_breaks_its_chain(engine: Engine) {
    let file = file_that_is_full();
    let mut ring = ring(engine, 8);
    ring.write(&file, 0, AlignedBuf::zeroed(2 * BLOCK as usize), 1, true);
    ring.fdatasync(&file, 2);
    let mut done = run(&mut ring, 2);
    done.sort_by_key(|done| done.user);
    let CompletionKind::Wrote { buf, result } = &done[0].kind else {
        panic!("{:?}", done[0].kind)
    };
    assert_eq!(buf.len(), 2 * BLOCK as usize);
    assert_eq!(*result.as_ref().unwrap(), BLOCK as usize);
    let CompletionKind::Flushed(Err(error)) = &done[1].kind else {
        panic!("{:?}", done[1].kind)
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
}

fn dropping_the_ring_waits_for_its_writes(engine: Engine) {
    let dir = scratch();
    let path = dir.path().join("file");
    let file = shared(open_direct(&path));
    let mut ring = ring(engine, 64);
    for block in 0..FILE_BLOCKS {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(7);
        ring.write(&file, block * BLOCK, buf, 0, false);
    }
    ring.turn(quorate_ring::Wait::No, &mut Vec::new()).unwrap();
    drop(ring);
    assert_eq!(Arc::strong_count(&file), 1, "nothing was leaked");
    assert!(
        std::fs::read(&path)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0 || byte == 7)
    );
}

#[test]
fn disk_threads_serve_a_kernel_ring_as_well() {
    let dir = scratch();
    let file = shared(open_direct(&dir.path().join("file")));
    let mut ring = Ring::new(&quorate_ring::RingConfig {
        entries: 8,
        disk_threads: true,
        ..quorate_ring::RingConfig::default()
    })
    .unwrap();
    for round in 0..200 {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(round as u8);
        ring.write(&file, round * BLOCK, buf, round, true);
        ring.fdatasync(&file, round);
        run(&mut ring, 2).iter().for_each(assert_succeeded);
    }
    assert_eq!(
        std::fs::metadata(dir.path().join("file")).unwrap().len(),
        200 * BLOCK
    );
    let kernel = ring.counters().submissions;
    assert!(
        kernel <= 201,
        "the kernel's ring only carries wake-ups: {kernel}"
    );
}
