//! Reading a request's body: up to its limit and not a byte further, in time, and within a budget of memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::plain;
use super::server::Arrival;

/// What a body may have without a seat among the large ones, in bytes: the callback of a usual card fits.
const SMALL: usize = 32 * 1024;

/// Bodies beyond that being read at once: at a megabyte each, a quarter of what the process may use under attack.
const LARGE_AT_ONCE: usize = 64;

/// The time for a body that came by no listener of ours.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Large bodies of one client being read at once: whoever sends slowly keeps seats from nobody but themselves.
const LARGE_OF_ONE: usize = 8;

/// The seats of a listener's large bodies. Small ones are read beside any number of large ones that are slow in coming.
pub struct Bodies {
    seats: Semaphore,
    taken: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { seats: Semaphore::new(LARGE_AT_ONCE), taken: Mutex::default() }
    }
}

/// A client's own seats while it uses any.
struct Share<'a> {
    bodies: &'a Bodies,
    client: String,
    seats: Arc<Semaphore>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut taken = self.bodies.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // One is the map's and one is this.
        if Arc::strong_count(&self.seats) <= 2 {
            taken.remove(&self.client);
        }
    }
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoBody {
    /// More than allowed, or declared to be.
    TooLarge,
    /// It took too long, or found no seat in time.
    TooSlow,
    /// It ended before its end.
    BrokeOff,
}

impl IntoResponse for NoBody {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body took too long"),
            Self::BrokeOff => (StatusCode::BAD_REQUEST, "the body broke off"),
        };
        plain(status, text)
    }
}

impl Bodies {
    /// Reads a body of at most `limit` bytes; a declared length beyond that is refused before a byte is read.
    pub(super) async fn read(
        &self,
        client: &str,
        parts: &Parts,
        body: Body,
        limit: usize,
    ) -> Result<Bytes, NoBody> {
        if declared(&parts.headers).is_some_and(|length| length > limit as u64) {
            return Err(NoBody::TooLarge);
        }
        let arrival = parts.extensions.get::<Arrival>();
        let by = arrival.map_or_else(|| Instant::now() + BODY_TIME, |arrival| arrival.body_by);
        let alone = Arc::new(Semaphore::new(1));
        let small = arrival.map_or(&alone, |arrival| &arrival.small_bodies);
        timeout_at(by, self.collect(client, small, body, limit)).await.unwrap_or(Err(NoBody::TooSlow))
    }

    fn share(&self, client: &str) -> Share<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let seats = taken.entry(client.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(LARGE_OF_ONE)));
        Share { bodies: self, client: client.to_owned(), seats: seats.clone() }
    }

    async fn collect(
        &self,
        client: &str,
        small: &Semaphore,
        mut body: Body,
        limit: usize,
    ) -> Result<Bytes, NoBody> {
        // Nobody closes these semaphores.
        let _small = small.acquire().await.map_err(|_| NoBody::BrokeOff)?;
        let share = self.share(client);
        let mut large = None;
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            // Trailers mean nothing here.
            let Ok(data) = frame.map_err(|_| NoBody::BrokeOff)?.into_data() else { continue };
            if read.len() + data.len() > limit {
                return Err(NoBody::TooLarge);
            }
            if read.len() + data.len() > SMALL && large.is_none() {
                let own = share.seats.acquire().await.map_err(|_| NoBody::BrokeOff)?;
                large = Some((own, self.seats.acquire().await.map_err(|_| NoBody::BrokeOff)?));
            }
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    }
}

/// The length that the request declares; hyper has refused a request that declares two.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
