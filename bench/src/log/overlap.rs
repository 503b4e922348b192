//! Whether the write of a group should overlap the flush of the one before: bare rings doing both,
//! block by block in turn. One group at a time is what the engine does.
//!
//! Overlapping makes more groups a second and each of them slower. What a commit sees is how long
//! it waits for the next group to start and then for that group: half the distance between two
//! groups on average, and the latency of one.

use quorate_ring::{AlignedBuf, Completion, CompletionKind, Ring, RingConfig, Wait};
use serde::Serialize;
use std::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::raw::zeroed;

const BLOCK: u64 = 4096;
const FILE_BYTES: u64 = 64 << 20;
const DATA: u64 = 1;
const MARK: u64 = 2;
const FLUSH: u64 = 3;

/// One size of group. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overlap {
    group_bytes: u64,
    serial_groups_per_s: f64,
    serial_p50_us: f64,
    /// What a commit sees under load: half the distance of two groups and the latency of one.
    serial_commit_us: f64,
    overlapped_groups_per_s: f64,
    overlapped_p50_us: f64,
    overlapped_commit_us: f64,
}

/// Compares for some sizes.
pub(crate) fn measure(
    blocks: usize,
    groups: usize,
    dir: &Path,
) -> Result<Vec<Overlap>, Box<dyn Error>> {
    let sizes = [BLOCK, 16 * BLOCK, 256 * BLOCK];
    sizes
        .into_iter()
        .map(|bytes| one_size(bytes, blocks, groups, dir))
        .collect()
}

fn one_size(
    bytes: u64,
    blocks: usize,
    groups: usize,
    dir: &Path,
) -> Result<Overlap, Box<dyn Error>> {
    let mut disk = Disk::open(bytes, dir)?;
    let groups = groups.min((64 << 20) / bytes as usize).max(16);
    let (mut serial, mut overlapped) = (Way::default(), Way::default());
    for _ in 0..blocks {
        disk.block(groups, false, &mut serial)?;
        disk.block(groups, true, &mut overlapped)?;
    }
    Ok(Overlap {
        group_bytes: bytes,
        serial_groups_per_s: serial.per_s(),
        serial_p50_us: serial.p50_us(),
        serial_commit_us: serial.commit_us(),
        overlapped_groups_per_s: overlapped.per_s(),
        overlapped_p50_us: overlapped.p50_us(),
        overlapped_commit_us: overlapped.commit_us(),
    })
}

/// What one way of doing it took.
#[derive(Default)]
struct Way {
    times: Vec<Duration>,
    total: Duration,
}

impl Way {
    fn per_s(&self) -> f64 {
        (self.times.len() as f64 / self.total.as_secs_f64()).round()
    }

    fn p50_us(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        (times[times.len() / 2].as_nanos() as f64 / 100.0).round() / 10.0
    }

    fn commit_us(&self) -> f64 {
        let distance = 1e6 / self.per_s();
        ((distance / 2.0 + self.p50_us()) * 10.0).round() / 10.0
    }
}

struct Disk {
    ring: Ring,
    file: Arc<OwnedFd>,
    /// At home: the group's data and its mark.
    data: Option<AlignedBuf>,
    mark: Option<AlignedBuf>,
    bytes: u64,
    position: u64,
    groups: u64,
    done: Vec<Completion>,
}

impl Disk {
    fn open(bytes: u64, dir: &Path) -> Result<Self, Box<dyn Error>> {
        let mut ring = Ring::new(&RingConfig {
            entries: 16,
            ..RingConfig::default()
        })?;
        let file: Arc<OwnedFd> = Arc::new(zeroed(&dir.join("overlap"), FILE_BYTES)?.into());
        let mut data = AlignedBuf::zeroed(bytes as usize);
        ring.register_file(&file)?;
        ring.register_buffers(&mut [&mut data])?;
        Ok(Self {
            ring,
            file,
            data: Some(data),
            mark: Some(AlignedBuf::zeroed(BLOCK as usize)),
            bytes,
            position: 0,
            groups: 0,
            done: Vec::new(),
        })
    }

    /// Starts both writes of the next group.
    fn write(&mut self) -> Result<(), Box<dyn Error>> {
        let data_bytes = FILE_BYTES - 4 * BLOCK;
        if self.position + self.bytes > data_bytes {
            self.position = 0;
        }
        let data = self.data.take().ok_or("two groups are written together")?;
        let mark = self.mark.take().ok_or("two groups are written together")?;
        // Overlapping takes a third slot: two marks may be not durable yet.
        let mark_at = data_bytes + self.groups % 3 * BLOCK;
        self.ring
            .write(&self.file, self.position, data, DATA, false);
        self.ring.write(&self.file, mark_at, mark, MARK, false);
        self.position += self.bytes;
        self.groups += 1;
        Ok(())
    }

    /// Writes and flushes `groups` groups without a pause. With `overlaps`, a group is written
    /// while the one before is flushed; never two are written together, or flushed.
    fn block(
        &mut self,
        groups: usize,
        overlaps: bool,
        way: &mut Way,
    ) -> Result<(), Box<dyn Error>> {
        let begin = Instant::now();
        let mut starts = std::collections::VecDeque::new();
        let (mut started, mut ended) = (0, 0);
        let (mut writing, mut written, mut flushing) = (0, false, false);
        while ended < groups {
            if writing == 0 && !written && (overlaps || !flushing) && started < groups {
                starts.push_back(Instant::now());
                self.write()?;
                writing = 2;
                started += 1;
            }
            if written && !flushing {
                self.ring.fdatasync(&self.file, FLUSH);
                (written, flushing) = (false, true);
                if overlaps {
                    continue;
                }
            }
            self.ring
                .turn(Wait::Until { timeout: None }, &mut self.done)?;
            for Completion { user, kind } in std::mem::take(&mut self.done) {
                match kind {
                    CompletionKind::Wrote { buf, result } => {
                        result?;
                        let place = if user == DATA {
                            &mut self.data
                        } else {
                            &mut self.mark
                        };
                        *place = Some(buf);
                        writing -= 1;
                        written = writing == 0;
                    }
                    CompletionKind::Flushed(result) => {
                        result?;
                        flushing = false;
                        ended += 1;
                        let start = starts.pop_front().ok_or("a flush of nothing")?;
                        way.times.push(start.elapsed());
                    }
                    other => return Err(format!("never asked for: {other:?}").into()),
                }
            }
        }
        way.total += begin.elapsed();
        Ok(())
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "overlap, {:8} bytes: serial {:6} groups/s, commit {:7.1} us; overlapped {:6} \
             groups/s, commit {:7.1} us",
            self.group_bytes,
            self.serial_groups_per_s,
            self.serial_commit_us,
            self.overlapped_groups_per_s,
            self.overlapped_commit_us
        )
    }
}
