//! One connection: HTTP/1 or HTTP/2, as the peer begins, within the limits of both.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{Request, StatusCode, Version};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::super::plain;
use super::socket::Socket;
use super::watch::{UnderWay, Watch};
use super::{Arrival, Serving, Stop};

/// Header fields of a request; an agent or a platform behind two proxies sends about twenty.
const MAX_HEADERS: usize = 100;

/// The request line and all header fields of a request, in bytes, in HTTP/1 and HTTP/2 alike.
const MAX_HEAD: usize = 32 * 1024;

/// Requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 64;

/// Streams that a peer may reset before we have looked at them; one more ends its connection.
const MAX_RESETS: usize = 20;

/// Streams that we reset for a peer's faults before we end its connection.
const MAX_FAULTS: usize = 64;

/// What a peer may send ahead on one HTTP/2 connection, in bytes: the smallest window that the protocol has.
const WINDOW: u32 = 65_535;

/// After so much silence an HTTP/2 peer is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(20);

/// And given so long to say so.
const PING_WITHIN: Duration = Duration::from_secs(10);

/// Bodies at once on one connection that need no seat among the large ones: only HTTP/2 has more than one.
const SMALL_BODIES: usize = 4;

/// The protocol's limits; what is not set here is as hyper has it.
pub(super) fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The watch does what this does, and tells headers from idleness.
    builder.http1().header_read_timeout(None).max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
    let list = u32::try_from(MAX_HEAD).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_WITHIN)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_FAULTS)
        .max_header_list_size(list)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(MAX_HEAD);
    builder
}

/// Serves a connection to its end, or until it has taken too long over something.
pub(super) async fn serve(
    http: &Builder<TokioExecutor>,
    stream: TcpStream,
    peer: IpAddr,
    router: Router,
    serving: &Serving,
    stop: &Stop,
) {
    // An answer is written whole: waiting for more of it only delays it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let watch = Arc::new(Watch::new(serving.timeouts));
    let small_bodies = Arc::new(Semaphore::new(SMALL_BODIES));
    let service = service_fn(|request: Request<Incoming>| {
        let under_way = watch.begin(request.version() == Version::HTTP_2);
        let mut request = request.map(Body::new);
        let arrival = Arrival {
            client: serving.proxies.client(peer, request.headers()),
            body_by: Instant::now() + serving.timeouts.body,
            small_bodies: small_bodies.clone(),
        };
        request.extensions_mut().insert(arrival);
        let answer = within(serving.request, router.clone().oneshot(request));
        async move { Ok::<_, Infallible>(answer.await.map(|body| Answer { body, _under_way: under_way })) }
    });
    let mut connection =
        pin!(http.serve_connection(TokioIo::new(Socket::new(stream, watch.clone())), service));
    let mut expired = pin!(watch.expired());
    let mut stopping = false;
    loop {
        tokio::select! {
            // The watch looks at what the connection has just done.
            biased;
            () = stop.hard.cancelled() => return,
            () = stop.soft.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended with an error");
                }
                return;
            }
            () = expired.as_mut() => {
                tracing::debug!(%peer, "a connection took too long");
                return;
            }
        }
    }
}

/// The router's answer, or that it took too long.
async fn within(
    limit: Option<Duration>,
    answer: impl Future<Output = Result<Response, Infallible>>,
) -> Response {
    let Some(limit) = limit else { return answer.await.unwrap_or_else(|never| match never {}) };
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.unwrap_or_else(|never| match never {}),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    }
}

/// An answer's body, by whose end the request is over.
struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
