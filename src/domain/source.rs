//! Time and randomness as arguments. The real ones are made in `cli`; expiry is judged by the database's clock.

/// The process's clock: for signature windows and schedules, never for expiry.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn unix_millis(&self) -> i64;

    /// Whole seconds since the Unix epoch.
    fn unix_seconds(&self) -> i64 {
        self.unix_millis().div_euclid(1000)
    }
}

/// A source of unpredictable bytes, fit for keys.
pub trait Entropy: Send + Sync + 'static {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}
