//! stub until the gate lands
/// E.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("x")]
pub struct EnvelopeFault;
/// V.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("x")]
pub struct ValueFault;
/// Either.
#[derive(Debug)]
pub enum Fault {
    /// E.
    Envelope(EnvelopeFault),
    /// V.
    Value(ValueFault),
}
/// Envelope.
pub struct Envelope {
    /// Range of params.arguments.
    pub arguments: Option<std::ops::Range<usize>>,
}
/// Scan.
pub fn scan_body(_body: &[u8]) -> Result<Envelope, EnvelopeFault> {
    Ok(Envelope { arguments: None })
}
/// Scan.
pub fn scan_arguments(_raw: &[u8]) -> Result<(), Fault> {
    Ok(())
}
