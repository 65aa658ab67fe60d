//! The one canonical form of a JSON value, RFC 8785: what is hashed, shown, stored and executed.
//!
//! A canonical form tells values apart only as far as a double does, so two values share one unless the byte gate
//! ([`ijson`](super::ijson)) refused what a double would change. Two kinds of input keep that true: values that came
//! through the gate, and structs of ours that hold strings and integers within ±(2^53-1). Not for floating-point fields
//! of our own (one that is not finite becomes `null` inside a struct), nor for a `Serialize` that may emit a name twice
//! (the last one stays), nor for values nested without limit (writing them is recursive).

use serde::Serialize;

/// The value has no canonical form: a number that is not finite, or a `Serialize` that failed. What the value was is
/// not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value has no canonical form")]
pub struct CanonicalError;

/// RFC 8785 bytes of a value that came through the gate, or of a struct of ours that holds strings and integers.
///
/// # Errors
/// When the value has none.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    serde_jcs::to_vec(value).map_err(|_| CanonicalError)
}

#[cfg(test)]
mod tests;
