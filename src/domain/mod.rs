//! What is true, given facts: no I/O, no async, no clock and no randomness of its own.
pub mod canonical;
pub mod ijson;
pub mod visible;
