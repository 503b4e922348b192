//! A member as one thread of plain system calls: read, forward, write, flush, answer.
//!
//! The leader's own flush is always among the two it waits for, since the thread is in it.

use super::quorum::Quorum;
use super::{ANSWER_BYTES, FRAME_BYTES, disk};
use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A member's connections before it serves.
pub(crate) struct Sockets {
    pub(crate) listener: TcpListener,
    pub(crate) followers: Vec<TcpStream>,
}

impl Sockets {
    /// Says where this member listens, now that it can serve, and waits for its one upstream.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        println!("{}", self.listener.local_addr()?);
        let upstream = self.listener.accept()?.0;
        upstream.set_nodelay(true)?;
        Ok(upstream)
    }
}

/// Connects to the followers and opens a port.
pub(crate) fn connect(followers: &[SocketAddr]) -> io::Result<Sockets> {
    let connect = |address| -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let followers = followers.iter().map(connect).collect::<io::Result<_>>()?;
    Ok(Sockets {
        listener: TcpListener::bind("127.0.0.1:0")?,
        followers,
    })
}

/// Serves until the upstream closes, which is an error of that kind.
pub(crate) fn serve(sockets: Sockets, dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = disk::prepare(dir)?;
    let mut upstream = sockets.accept()?;
    let mut followers = sockets.followers;
    let mut quorum = Quorum::new(1 + followers.len());
    let mut frame = [0; FRAME_BYTES];
    loop {
        upstream.read_exact(&mut frame)?;
        for follower in &mut followers {
            follower.write_all(&frame)?;
        }
        let number = u64::from_le_bytes(frame[..8].try_into()?);
        file.write_all_at(&disk::block(number), disk::position(number))?;
        file.sync_data()?;
        quorum.on_flushed(0, number);
        while quorum.committed() < number {
            read_answers(&mut followers, &mut quorum)?;
        }
        upstream.write_all(&number.to_le_bytes())?;
    }
}

/// Waits for answers and takes one from each follower that has sent any.
fn read_answers(followers: &mut [TcpStream], quorum: &mut Quorum) -> Result<(), Box<dyn Error>> {
    let mut polled: Vec<_> = followers
        .iter()
        .map(|stream| PollFd::new(stream, PollFlags::IN))
        .collect();
    poll(&mut polled, None)?;
    let readable: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
    for (index, _) in readable
        .iter()
        .enumerate()
        .filter(|(_, readable)| **readable)
    {
        let mut answer = [0; ANSWER_BYTES];
        followers[index].read_exact(&mut answer)?;
        quorum.on_flushed(1 + index, u64::from_le_bytes(answer));
    }
    Ok(())
}
