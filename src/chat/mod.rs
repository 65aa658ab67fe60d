//! chat.

/// Proof that a value came in a callback whose signature is right and fresh. Made by the `verify` modules alone.
#[derive(Debug)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// What was verified.
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// The one way in for every transport: a verified press becomes durable and is decided.
pub async fn ingest(app: &crate::app::App, press: Verified<crate::domain::press::Press>) -> Result<(), crate::app::NotStored> {
    app.take_press(press.0).await
}
