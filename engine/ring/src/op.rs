//! Operations in flight: each owns its buffer and its file until the kernel is done with both.
//!
//! An [`Op`] is what a slot holds. For io_uring it turns into a submission entry, and later, with
//! the kernel's result, into a completion. Nothing here talks to the kernel.

use crate::buffer::AlignedBuf;
use crate::completion::CompletionKind;
use crate::waker::WakeState;
use io_uring::{opcode, squeue, types};
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Linux moves at most this many bytes in one call (MAX_RW_COUNT for 4 KiB pages).
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// An operation and everything that must live until it ends.
pub(crate) enum Op {
    Accept {
        listener: Arc<OwnedFd>,
    },
    Connect {
        socket: Arc<OwnedFd>,
        address: SocketAddr,
        /// The same in the kernel's form, once io_uring needs it.
        raw: Option<Box<SockAddr>>,
        /// Whether the kernel was asked already, by the engine with threads.
        begun: bool,
    },
    Recv {
        socket: Arc<OwnedFd>,
        buf: Vec<u8>,
    },
    Send {
        socket: Arc<OwnedFd>,
        buf: Vec<u8>,
        from: usize,
        /// Bytes taken so far. io_uring keeps count itself and leaves it at 0.
        sent: usize,
    },
    Write {
        file: Arc<OwnedFd>,
        position: u64,
        buf: AlignedBuf,
        dsync: bool,
    },
    Flush {
        file: Arc<OwnedFd>,
    },
    Read {
        file: Arc<OwnedFd>,
        position: u64,
        buf: AlignedBuf,
    },
    /// Internal: the read that a wake-up completes.
    Wake {
        state: Arc<WakeState>,
    },
    /// Internal: ends the ring's sleep at a time.
    Timer {
        after: Box<types::Timespec>,
    },
    /// Internal: cancels the operation whose entry carries `key`.
    Cancel {
        key: u64,
    },
}

/// By what numbers a ring knows an operation's buffer and file, where it was told of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) buffer: Option<u16>,
    pub(crate) file: Option<u32>,
}

/// `$entry` with `$fd` as the file's registered number or, if it has none, its descriptor: two
/// types that the entries' constructors take alike.
macro_rules! on_file {
    ($known:expr, $file:expr, |$fd:ident| $entry:expr) => {
        match $known.file {
            Some(number) => {
                let $fd = types::Fixed(number);
                $entry
            }
            None => {
                let $fd = fd($file);
                $entry
            }
        }
    };
}

impl Op {
    /// Whether it ends by itself in bounded time, whatever a peer does. Only such operations may be
    /// counted against the completion queue: waiting for the others to end could last for ever.
    pub(crate) fn ends_by_itself(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::Flush { .. } | Op::Read { .. })
    }

    /// Whether `cancel_all_of` reaches it.
    pub(crate) fn is_cancellable(&self) -> bool {
        self.socket().is_some()
    }

    /// Whether it is to be submitted again by whoever got `result`: a signal interrupted it before
    /// anything was moved. Disk operations are left to the caller, who must know; a connection that
    /// is being made goes on, and can't be begun again.
    pub(crate) fn is_interrupted(&self, result: i32) -> bool {
        result == -libc::EINTR && matches!(self, Op::Recv { .. } | Op::Send { .. })
    }

    /// Whether `result` is all it was to do: what a link asks of a disk operation.
    pub(crate) fn is_complete(&self, result: i32) -> bool {
        match self {
            Op::Write { buf, .. } | Op::Read { buf, .. } => {
                usize::try_from(result).is_ok_and(|count| count == buf.len())
            }
            _ => result >= 0,
        }
    }

    /// The socket that it waits for; None for disk and internal operations.
    pub(crate) fn socket(&self) -> Option<&Arc<OwnedFd>> {
        use Op::*;
        match self {
            Accept { listener } => Some(listener),
            Connect { socket, .. } | Recv { socket, .. } | Send { socket, .. } => Some(socket),
            _ => None,
        }
    }

    /// The buffer that it writes from, if it is a write to a file.
    pub(crate) fn written_buffer(&self) -> Option<&AlignedBuf> {
        match self {
            Op::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// The file that it works on; None for socket and internal operations.
    pub(crate) fn file(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Op::Write { file, .. } | Op::Flush { file } | Op::Read { file, .. } => Some(file),
            _ => None,
        }
    }

    /// The submission entry, for a ring that knows the operation's buffer and file by these
    /// numbers, if it knows them. Its pointers lead into heap memory that `self` owns and that does
    /// not move when `self` does.
    pub(crate) fn entry(&mut self, known: Known) -> squeue::Entry {
        match self {
            Op::Accept { listener } => {
                let accept = opcode::AcceptMulti::new(fd(listener));
                accept.flags(libc::SOCK_CLOEXEC).build()
            }
            Op::Connect {
                socket,
                address,
                raw,
                ..
            } => {
                let (start, len) = raw.insert(SockAddr::new(*address)).as_raw();
                opcode::Connect::new(fd(socket), start, len).build()
            }
            Op::Recv { socket, buf } => {
                let spare = buf.spare_capacity_mut();
                let len = transfer_len(spare.len());
                opcode::Recv::new(fd(socket), spare.as_mut_ptr().cast(), len).build()
            }
            Op::Send {
                socket, buf, from, ..
            } => {
                let rest = &buf[*from..];
                let send = opcode::Send::new(fd(socket), rest.as_ptr(), transfer_len(rest.len()));
                send.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build()
            }
            Op::Write {
                file,
                position,
                buf,
                dsync,
            } => {
                let (start, len) = (buf.as_ptr(), transfer_len(buf.len()));
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                on_file!(known, file, |fd| match known.buffer {
                    Some(index) => opcode::WriteFixed::new(fd, start, len, index)
                        .offset(*position)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, start, len)
                        .offset(*position)
                        .rw_flags(flags)
                        .build(),
                })
            }
            Op::Flush { file } => on_file!(known, file, |fd| opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build()),
            Op::Read {
                file,
                position,
                buf,
            } => {
                let len = transfer_len(buf.len());
                opcode::Read::new(fd(file), buf.as_mut_ptr(), len)
                    .offset(*position)
                    .build()
            }
            Op::Wake { state } => {
                let fd = types::Fd(state.raw_fd());
                opcode::Read::new(fd, state.count_ptr(), 8).build()
            }
            Op::Timer { after } => opcode::Timeout::new(&raw const **after).build(),
            Op::Cancel { key } => opcode::AsyncCancel::new(*key).build(),
        }
    }

    /// The end of the operation as its caller hears it. `result` is the kernel's: a count or a
    /// negated errno. None for internal operations.
    pub(crate) fn finish(self, result: i32) -> Option<CompletionKind> {
        Some(match self {
            Op::Accept { .. } => CompletionKind::AcceptEnded {
                error: count(result).err(),
            },
            Op::Connect { .. } => CompletionKind::Connected(count(result).map(drop)),
            Op::Recv { mut buf, .. } => {
                let result = count(result);
                advance(&mut buf, *result.as_ref().unwrap_or(&0));
                CompletionKind::Received { buf, result }
            }
            Op::Send { buf, .. } => CompletionKind::Sent {
                buf,
                result: count(result),
            },
            Op::Write { buf, .. } => CompletionKind::Wrote {
                buf,
                result: count(result),
            },
            Op::Flush { .. } => CompletionKind::Flushed(count(result).map(drop)),
            Op::Read { buf, .. } => CompletionKind::Read {
                buf,
                result: count(result),
            },
            Op::Wake { .. } | Op::Timer { .. } | Op::Cancel { .. } => return None,
        })
    }
}

/// The socket that a successful accept returned.
pub(crate) fn accepted(result: i32) -> OwnedFd {
    assert!(result >= 0, "not a descriptor: {result}");
    // SAFETY: the kernel just opened this descriptor for us and told nobody else.
    unsafe { OwnedFd::from_raw_fd(result) }
}

fn fd(fd: &Arc<OwnedFd>) -> types::Fd {
    types::Fd(fd.as_raw_fd())
}

fn transfer_len(len: usize) -> u32 {
    len.min(TRANSFER_BYTES_MAX) as u32
}

fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Takes in `count` bytes that the kernel wrote behind the end of `buf`.
fn advance(buf: &mut Vec<u8>, count: usize) {
    let spare = buf.capacity() - buf.len();
    assert!(count <= spare, "{count} bytes received into {spare}");
    let len = buf.len() + count;
    // SAFETY: within capacity (just checked); the kernel initialised these bytes.
    unsafe { buf.set_len(len) }
}

/// A socket address in the kernel's form.
pub(crate) enum SockAddr {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl SockAddr {
    fn new(address: SocketAddr) -> Box<SockAddr> {
        Box::new(match address {
            SocketAddr::V4(v4) => SockAddr::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => SockAddr::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        })
    }

    fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            SockAddr::V4(v4) => (
                (&raw const *v4).cast(),
                size_of::<libc::sockaddr_in>() as u32,
            ),
            SockAddr::V6(v6) => (
                (&raw const *v6).cast(),
                size_of::<libc::sockaddr_in6>() as u32,
            ),
        }
    }
}
