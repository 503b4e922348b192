//! One TCP connection of a client: `Outbound` on a socket.
//!
//! A connection where anything failed, or whose caller was cancelled, must be dropped: bytes may be
//! missing.

use super::error::{Address, ClientError};
use super::stream::Stream;
use crate::apis::{ApiRequest, ApiResponse};
use crate::outbound::Outbound;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Room for one read, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

pub(super) struct Transport {
    stream: Stream,
    address: Address,
    protocol: Outbound,
    receive_buffer: Vec<u8>,
    next_correlation_id: i32,
}

impl Transport {
    /// Connects and negotiates versions.
    pub(super) async fn connect(
        address: &Address,
        client_id: &str,
        limit: Duration,
    ) -> Result<Self, ClientError> {
        let connecting = async {
            let stream = connect_any(address)
                .await
                .map_err(|error| ClientError::Connect {
                    address: address.clone(),
                    error,
                })?;
            let mut transport = Self {
                stream,
                address: address.clone(),
                protocol: Outbound::new(client_id),
                receive_buffer: Vec::with_capacity(RECEIVE_BYTES),
                next_correlation_id: 1,
            };
            transport.negotiate().await?;
            Ok(transport)
        };
        within(limit, address, connecting).await
    }

    /// Where it goes.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Asks and waits for the answer. Nothing else may be in flight.
    pub(super) async fn call<R: TryFrom<ApiResponse>>(
        &mut self,
        request: impl Into<ApiRequest>,
        limit: Duration,
    ) -> Result<R, ClientError> {
        self.queue(&request.into())?;
        self.answer(limit).await
    }

    /// Adds a request to what the next [`Transport::answer`] sends.
    pub(super) fn queue(&mut self, request: &ApiRequest) -> Result<(), ClientError> {
        let id = self.next_correlation_id;
        self.next_correlation_id = id.wrapping_add(1);
        self.protocol
            .enqueue(request, id)
            .map_err(|error| ClientError::Unsupported {
                address: self.address.clone(),
                error,
            })
    }

    /// Sends what is queued and waits for the answer to the oldest request.
    ///
    /// # Panics
    /// If that request was one of another API.
    pub(super) async fn answer<R: TryFrom<ApiResponse>>(
        &mut self,
        limit: Duration,
    ) -> Result<R, ClientError> {
        let address = self.address.clone();
        let response = within(limit, &address, self.next_answer()).await?;
        match R::try_from(response) {
            Ok(response) => Ok(response),
            Err(_) => panic!("the caller waits for an answer to something else"),
        }
    }

    async fn negotiate(&mut self) -> Result<(), ClientError> {
        while !self.protocol.is_ready() {
            self.send().await?;
            self.receive().await?;
            let early = self
                .protocol
                .next_response()
                .map_err(|error| self.protocol_fault(error))?;
            assert!(early.is_none(), "nothing was asked yet");
        }
        Ok(())
    }

    async fn next_answer(&mut self) -> Result<ApiResponse, ClientError> {
        self.send().await?;
        loop {
            let answer = self.protocol.next_response();
            if let Some((_, response)) = answer.map_err(|error| self.protocol_fault(error))? {
                return Ok(response);
            }
            self.receive().await?;
        }
    }

    async fn send(&mut self) -> Result<(), ClientError> {
        while let Some(output) = self.protocol.take_output() {
            let (result, output) = self.stream.write_all(output).await;
            self.protocol.recycle(output);
            result.map_err(|error| self.disconnected(error))?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), ClientError> {
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        buffer.clear();
        let (result, buffer) = self.stream.read(buffer).await;
        match result {
            Ok(0) => Err(self.disconnected(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.protocol.received(&buffer[..count]);
                self.receive_buffer = buffer;
                Ok(())
            }
            Err(error) => Err(self.disconnected(error)),
        }
    }

    fn disconnected(&self, error: io::Error) -> ClientError {
        ClientError::Disconnected {
            address: self.address.clone(),
            error,
        }
    }

    fn protocol_fault(&self, error: crate::outbound::OutboundError) -> ClientError {
        ClientError::Protocol {
            address: self.address.clone(),
            error,
        }
    }
}

async fn within<T>(
    limit: Duration,
    address: &Address,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(ClientError::Timeout {
            address: address.clone(),
            limit,
        }),
    }
}

/// Connects to the first of the host's addresses that takes the connection.
async fn connect_any(address: &Address) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in resolve(address).await? {
        match Stream::connect(candidate).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await?;
    Ok(found.collect())
}
