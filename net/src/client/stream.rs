//! The loop a client runs on, and its sockets: tokio-uring, or plain tokio where the host forbids
//! io_uring. Which of them it is shows nowhere else.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::ClientError;

thread_local! {
    /// Whether the loop of this thread is plain tokio.
    static IS_PLAIN: Cell<bool> = const { Cell::new(false) };
}

/// Runs a client's future on a loop of its own, to its end: on io_uring where the host offers it,
/// else without.
///
/// # Errors
/// `Runtime` if there is no loop to be had.
pub fn run<F: Future>(future: F) -> Result<F::Output, ClientError> {
    match quorate_ring::probe() {
        Ok(()) => run_on_uring(future),
        Err(_) => run_without(future),
    }
}

fn run_on_uring<F: Future>(future: F) -> Result<F::Output, ClientError> {
    let runtime = tokio_uring::Runtime::new(&tokio_uring::builder());
    Ok(runtime.map_err(ClientError::Runtime)?.block_on(future))
}

fn run_without<F: Future>(future: F) -> Result<F::Output, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let before = IS_PLAIN.replace(true);
    let output = runtime.block_on(future);
    IS_PLAIN.set(before);
    Ok(output)
}

/// A TCP connection.
pub(super) enum Stream {
    Uring(tokio_uring::net::TcpStream),
    Plain(tokio::net::TcpStream),
}

impl Stream {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let stream = if IS_PLAIN.get() {
            Stream::Plain(tokio::net::TcpStream::connect(address).await?)
        } else {
            Stream::Uring(tokio_uring::net::TcpStream::connect(address).await?)
        };
        // Requests are small and awaited: never held back for more to come.
        match &stream {
            Stream::Uring(stream) => stream.set_nodelay(true)?,
            Stream::Plain(stream) => stream.set_nodelay(true)?,
        }
        Ok(stream)
    }

    /// Writes all of `bytes`, and gives them back.
    pub(super) async fn write_all(&mut self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        match self {
            Stream::Uring(stream) => stream.write_all(bytes).await,
            Stream::Plain(stream) => (stream.write_all(&bytes).await, bytes),
        }
    }

    /// Reads into the capacity of `buffer`, which is empty, and gives it back; 0 is the end.
    pub(super) async fn read(&mut self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        match self {
            Stream::Uring(stream) => stream.read(buffer).await,
            Stream::Plain(stream) => (stream.read_buf(&mut buffer).await, buffer),
        }
    }
}

impl Drop for Stream {
    /// Ends a read that a cancelled caller left behind in the kernel, for which the socket would
    /// stay open.
    fn drop(&mut self) {
        if let Stream::Uring(stream) = self {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Sends and receives 300,000 bytes, more than a socket's buffers hold at once.
    async fn echo(address: SocketAddr) {
        let mut stream = Stream::connect(address).await.unwrap();
        let bytes = vec![7; 300_000];
        let (result, bytes) = stream.write_all(bytes).await;
        result.unwrap();
        let mut got = 0;
        while got < bytes.len() {
            let (result, buffer) = stream.read(Vec::with_capacity(65_536)).await;
            let count = result.unwrap();
            assert!(count > 0 && buffer[..count].iter().all(|&byte| byte == 7));
            got += count;
        }
        assert_eq!(got, bytes.len());
    }

    fn echo_server() -> (SocketAddr, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut bytes = vec![0; 300_000];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            assert_eq!(stream.read(&mut bytes).unwrap(), 0, "the client closed");
        });
        (address, server)
    }

    #[test]
    fn both_loops_carry_the_same_bytes() {
        let (address, server) = echo_server();
        run_on_uring(echo(address)).unwrap();
        server.join().unwrap();
        let (address, server) = echo_server();
        run_without(async {
            assert!(IS_PLAIN.get());
            echo(address).await;
        })
        .unwrap();
        server.join().unwrap();
        assert!(!IS_PLAIN.get());
    }
}
