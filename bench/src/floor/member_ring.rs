//! A member on one io_uring: forwards are submitted ahead of its own write, and any two flushes
//! answer, whether its own is among them or not.

use super::member_blocking::Sockets;
use super::quorum::Quorum;
use super::{ANSWER_BYTES, FRAME_BYTES, disk};
use quorate_ring::{Completion, CompletionKind, Ring, RingConfig, Wait};
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// As long as a flush takes, at most: a longer spin would only heat the processor.
const SPIN: Duration = Duration::from_micros(50);

/// User data of receives is the peer's index: 0 the upstream, from 1 on the followers.
const UPSTREAM: usize = 0;
const SENT: u64 = 1000;
const DISK: u64 = 1001;

struct Member {
    ring: Ring,
    peers: Vec<Arc<OwnedFd>>,
    file: Arc<OwnedFd>,
    quorum: Quorum,
    /// Highest number received, written, answered.
    received: u64,
    in_disk: Option<u64>,
    answered: u64,
    upstream_closed: bool,
}

/// Serves until the upstream closes.
pub(crate) fn serve(sockets: Sockets, dir: &Path, spin: bool) -> Result<(), Box<dyn Error>> {
    let ring = Ring::new(&RingConfig {
        entries: 32,
        ..RingConfig::default()
    })?;
    let file = Arc::new(disk::prepare(dir)?.into());
    let mut peers: Vec<Arc<OwnedFd>> = vec![Arc::new(sockets.accept()?.into())];
    peers.extend(
        sockets
            .followers
            .into_iter()
            .map(|stream| Arc::new(stream.into())),
    );
    let quorum = Quorum::new(peers.len());
    let (received, in_disk, answered, upstream_closed) = (0, None, 0, false);
    let mut member = Member {
        ring,
        peers,
        file,
        quorum,
        received,
        in_disk,
        answered,
        upstream_closed,
    };
    member.run(spin)
}

impl Member {
    fn run(&mut self, spin: bool) -> Result<(), Box<dyn Error>> {
        for peer in 0..self.peers.len() {
            self.receive(peer, Vec::with_capacity(16 * FRAME_BYTES));
        }
        let wait = match spin {
            true => Wait::Spin {
                for_: SPIN,
                timeout: None,
            },
            false => Wait::Until { timeout: None },
        };
        let mut done = Vec::new();
        while !self.upstream_closed {
            self.ring.turn(wait, &mut done)?;
            for completion in done.drain(..) {
                self.on_completion(completion)?;
            }
            self.write_received();
            self.answer_committed();
        }
        Ok(())
    }

    fn receive(&mut self, peer: usize, buf: Vec<u8>) {
        self.ring.recv(&self.peers[peer], buf, peer as u64);
    }

    fn send(&mut self, peer: usize, bytes: Vec<u8>) {
        self.ring.send(&self.peers[peer], bytes, 0, SENT);
    }

    fn on_completion(&mut self, completion: Completion) -> io::Result<()> {
        match completion.kind {
            CompletionKind::Received { buf, result } => {
                if result? == 0 {
                    self.upstream_closed = true;
                } else {
                    self.on_bytes(completion.user as usize, buf);
                }
            }
            CompletionKind::Sent { result, .. } => drop(result?),
            CompletionKind::Wrote { buf, result } => assert_eq!(result?, buf.len()),
            CompletionKind::Flushed(result) => {
                result?;
                let number = self.in_disk.take().expect("one write at a time");
                self.quorum.on_flushed(0, number);
            }
            other => panic!("never asked for: {other:?}"),
        }
        Ok(())
    }

    fn on_bytes(&mut self, peer: usize, mut buf: Vec<u8>) {
        let size = if peer == UPSTREAM {
            FRAME_BYTES
        } else {
            ANSWER_BYTES
        };
        let whole = buf.len() / size * size;
        for message in buf[..whole].chunks_exact(size) {
            let number = u64::from_le_bytes(message[..8].try_into().expect("8 bytes"));
            if peer == UPSTREAM {
                self.received = number;
                (1..self.peers.len()).for_each(|follower| self.send(follower, message.to_vec()));
            } else {
                self.quorum.on_flushed(peer, number);
            }
        }
        buf.drain(..whole);
        self.receive(peer, buf);
    }

    /// One write and flush at a time; what comes meanwhile goes with the next.
    fn write_received(&mut self) {
        if self.in_disk.is_none() && self.received > self.quorum.flushed_by(0) {
            let number = self.received;
            let position = disk::position(number);
            self.ring
                .write(&self.file, position, disk::block(number), DISK, true);
            self.ring.fdatasync(&self.file, DISK);
            self.in_disk = Some(number);
        }
    }

    fn answer_committed(&mut self) {
        let committed = self.quorum.committed();
        if committed > self.answered {
            self.answered = committed;
            self.send(UPSTREAM, committed.to_le_bytes().to_vec());
        }
    }
}
