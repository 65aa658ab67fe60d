//! Chat platforms: cards go out, verified presses come in.
//!
//! Keeps true: a press reaches the application only as [`Verified`], which the `verify` modules alone make from bytes
//! whose signature they checked. Not for deciding: who may decide, and what a press changes, is the application's.

pub mod slack;

use crate::app::{App, NotStored};
use crate::domain::press::Press;

/// Proof that a value came in a callback whose signature is right and fresh.
#[derive(Debug)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// For the `verify` modules alone, and only after the check.
    pub(in crate::chat) fn new(value: T) -> Self {
        Self(value)
    }

    /// What is read from a verified value is verified.
    pub(in crate::chat) fn read<U, E>(self, read: impl FnOnce(T) -> Result<U, E>) -> Result<Verified<U>, E> {
        read(self.0).map(Verified)
    }

    /// What was verified.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }
}

impl<T> Verified<Option<T>> {
    /// The verified value, if there is one.
    pub(in crate::chat) fn present(self) -> Option<Verified<T>> {
        self.0.map(Verified)
    }
}

/// The one way in for every transport: a verified press becomes durable and is decided.
///
/// # Errors
/// The press was not stored; the platform must show an error, so that the person presses again.
pub async fn ingest(app: &App, press: Verified<Press>) -> Result<(), NotStored> {
    app.take_press(press.0).await
}
