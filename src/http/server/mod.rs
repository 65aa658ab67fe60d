//! The server under the routers: sockets, time limits, connection caps, and an end in two stages.
//!
//! Keeps true: no peer holds a connection without making progress, in either direction, for longer than [`Timeouts`]
//! say; no peer and no crowd has more connections than [`Caps`] say; a listener outlives every failure to accept. Not
//! for what a request means.

mod connection;
mod seats;
mod socket;
mod watch;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::TrustedProxies;
use seats::Seats;

/// How long a peer may take over each thing it does.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// From a connection's beginning, or a later request's first byte, to the end of its headers.
    pub header: Duration,
    /// From the end of the headers to the end of the body, however it trickles.
    pub body: Duration,
    /// Between two requests on one connection.
    pub idle: Duration,
    /// To take the next piece of our answer. A peer that stops reading is cut; one that reads slowly is not.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(5),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(15),
        }
    }
}

/// How many connections a listener has at most; further ones are closed at once.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Of one peer (a /64 in IPv6). Half a thousand agents behind one address are ordinary; a thousand idle connections
    /// cost about 20 MiB.
    pub of_peer: usize,
    /// Of all together, so that a crowd leaves file descriptors and memory for the database and the upstreams.
    pub total: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { of_peer: 1_024, total: 4_096 }
    }
}

/// How one listener serves.
#[derive(Debug, Clone)]
pub struct Serving {
    /// Time limits of connections.
    pub timeouts: Timeouts,
    /// How many connections.
    pub caps: Caps,
    /// How long a whole request may take; none where requests are held open on purpose.
    pub request: Option<Duration>,
    /// Proxies in front; their connections count towards the total alone.
    pub proxies: Arc<TrustedProxies>,
}

/// The two stages of an end.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Accept nothing more; what is under way is finished.
    pub soft: CancellationToken,
    /// Drop what is left.
    pub hard: CancellationToken,
}

/// What is known of a request before its headers mean anything; handlers find it in the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    /// Who is counted for it: the peer, or the client that a proxy of ours names.
    pub client: IpAddr,
    /// When its body must have arrived.
    pub body_by: Instant,
    /// One for each body that this connection may send without a seat among the large ones.
    pub small_bodies: Arc<Semaphore>,
}

/// What the kernel holds for each direction of a connection, in bytes, besides what we hold. Enough for 2.5 MB/s over
/// 100 ms; left to itself it grows to megabytes for a peer that never reads.
const SOCKET_BUFFER: u32 = 256 * 1024;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1_024;

/// Listens on an address.
///
/// # Errors
/// It can't be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted service must not wait for the old one's last connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until the soft stop, then finishes what is under way, until the hard stop at the latest.
pub async fn serve(listener: TcpListener, router: Router, serving: Serving, stop: Stop) {
    let seats = Arc::new(Seats::new(serving.caps));
    let connections = TaskTracker::new();
    let http = connection::http();
    while let Some((stream, peer)) = accept(&listener, &stop.soft).await {
        let peer = peer.ip().to_canonical();
        let seat = if serving.proxies.contains(peer) { seats.take_any() } else { seats.take(peer) };
        let Some(seat) = seat else {
            tracing::debug!(%peer, "a connection too many");
            continue;
        };
        let (http, router, serving, stop) = (http.clone(), router.clone(), serving.clone(), stop.clone());
        connections.spawn(async move {
            connection::serve(&http, stream, peer, router, &serving, &stop).await;
            drop(seat);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// How long after a failure to accept it is tried again: the descriptors that are missing come back with connections
/// that end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// The next connection; none once told to stop.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            // The peer was gone before it was its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted");
                tokio::select! {
                    () = stop.cancelled() => return None,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}
