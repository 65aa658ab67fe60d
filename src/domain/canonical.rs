//! RFC 8785.
use serde::Serialize;
/// No canonical form.
#[derive(Debug, thiserror::Error)]
#[error("the value has no canonical form")]
pub struct CanonicalError;
/// RFC 8785 bytes.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    serde_jcs::to_vec(value).map_err(|_| CanonicalError)
}
