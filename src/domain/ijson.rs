//! The byte gate: looks at raw JSON text before any parser does, so that gateway, approver and upstream read the same.
//!
//! Two classes of fault. An *envelope* fault makes parsers differ or costs too much: the whole request is refused,
//! whatever it asks. A *value* fault is a number or a character that RFC 8785 or Postgres can't carry without loss: it
//! is refused in the arguments of a gated call and nowhere else. The scan is iterative and allocates for names
//! only (a set of them for each open object).
//! Not a parser: it yields no values.

mod number;
mod pointer;
mod scan;
mod text;

use std::ops::Range;

pub use pointer::Pointer;
use scan::{Scan, Subject};

/// Largest request body, in bytes (DESIGN.md section 12).
pub const MAX_BODY: usize = 1024 * 1024;

/// Largest arguments of a gated call, in bytes (DESIGN.md section 12).
pub const MAX_ARGUMENTS: usize = 256 * 1024;

/// Largest line of an audit export, or receipt, in bytes.
pub const MAX_RECORD: usize = 16 * 1024 * 1024;

/// Deepest nesting of a body.
pub const MAX_BODY_DEPTH: usize = 80;

/// Deepest nesting of arguments, the arguments object counting as 1.
pub const MAX_ARGUMENTS_DEPTH: usize = 64;

/// Why a request is refused whole. `at` is a byte position. No text repeats anything of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeFault {
    /// Longer than allowed.
    #[error("the text is longer than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("the text is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Where.
        at: usize,
    },
    /// Begins with a byte order mark.
    #[error("the text begins with a byte order mark: leave it out")]
    ByteOrderMark,
    /// Not one JSON text.
    #[error("the text is not JSON at byte {at}")]
    Grammar {
        /// Where.
        at: usize,
    },
    /// Nested too deeply.
    #[error("the text is nested more deeply than {limit} levels at byte {at}")]
    TooDeep {
        /// Where.
        at: usize,
        /// The limit.
        limit: usize,
    },
    /// A name occurs twice in one object.
    #[error("an object has the same name twice, again at byte {at}")]
    DuplicateName {
        /// Where.
        at: usize,
    },
    /// A name that means something else to the parser.
    #[error("an object has a reserved name at byte {at}")]
    ReservedName {
        /// Where.
        at: usize,
    },
    /// Half of a surrogate pair.
    #[error("a string has half of a surrogate pair at byte {at}")]
    LoneSurrogate {
        /// Where.
        at: usize,
    },
    /// A JSON-RPC batch.
    #[error("a batch of requests is not accepted: send one at a time")]
    Batch,
}

/// Why a value can't be bound. The texts hold no name and no value of the arguments; [`ValueFault::pointer`] holds
/// names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// `-0` in any spelling.
    #[error("the number at byte {at} is a negative zero: send 0, or send it as a string")]
    NegativeZero {
        /// Where, as a byte position in the arguments.
        at: usize,
        /// Where, as the agent would look for it.
        pointer: Pointer,
    },
    /// An integer beyond ±(2^53-1), however it is spelled.
    #[error(
        "the number at byte {at} is an integer beyond 2^53-1, which not every program reads alike: send it as a string"
    )]
    UnsafeInteger {
        /// Where, as a byte position in the arguments.
        at: usize,
        /// Where, as the agent would look for it.
        pointer: Pointer,
    },
    /// Beyond the range of a double.
    #[error("the number at byte {at} is too large for a double: send it as a string")]
    NotFinite {
        /// Where, as a byte position in the arguments.
        at: usize,
        /// Where, as the agent would look for it.
        pointer: Pointer,
    },
    /// A number that a double would change.
    #[error(
        "the number at byte {at} would not keep its value as a double: send it with fewer digits, or as a string"
    )]
    Inexact {
        /// Where, as a byte position in the arguments.
        at: usize,
        /// Where, as the agent would look for it.
        pointer: Pointer,
    },
    /// U+0000 in a string or name.
    #[error("the string at byte {at} holds the character U+0000: leave it out")]
    NulCharacter {
        /// Where, as a byte position in the arguments.
        at: usize,
        /// Where, as the agent would look for it.
        pointer: Pointer,
    },
}

impl ValueFault {
    /// Where the value is. Only for the agent that sent the arguments.
    #[must_use]
    pub fn pointer(&self) -> &Pointer {
        match self {
            Self::NegativeZero { pointer, .. }
            | Self::UnsafeInteger { pointer, .. }
            | Self::NotFinite { pointer, .. }
            | Self::Inexact { pointer, .. }
            | Self::NulCharacter { pointer, .. } => pointer,
        }
    }
}

/// A fault of either class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request.
    #[error(transparent)]
    Envelope(#[from] EnvelopeFault),
    /// A value.
    #[error(transparent)]
    Value(#[from] ValueFault),
}

/// What a body scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Where the raw text of `params.arguments` is, when the body has it.
    pub arguments: Option<Range<usize>>,
}

/// Scans a request body for envelope faults. A body that is no object, except for an array, has none of its own: what
/// a request must be is the caller's question.
///
/// # Errors
/// The first envelope fault.
pub fn scan_body(body: &[u8]) -> Result<Envelope, EnvelopeFault> {
    let mut scan = Scan::begin(body, Subject::Body)?;
    if scan.peek() == Some(b'[') {
        return Err(EnvelopeFault::Batch);
    }
    scan.run()?;
    Ok(Envelope { arguments: scan.arguments })
}

/// Scans a line of an audit export, or a receipt, for what makes parsers read it differently.
///
/// # Errors
/// The first envelope fault.
pub fn scan_record(text: &[u8]) -> Result<(), EnvelopeFault> {
    Scan::begin(text, Subject::Record)?.run()
}

/// Scans the raw text of a gated call's arguments for faults of both classes.
///
/// # Errors
/// The first fault; an envelope fault anywhere comes before a value fault.
pub fn scan_arguments(raw: &[u8]) -> Result<(), Fault> {
    let mut scan = Scan::begin(raw, Subject::Arguments)?;
    scan.run()?;
    match scan.value_fault {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
