//! Compiles definitions into a policy, with all faults at once.

/// One fault of a policy, with the file and the key it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: String,
    /// The key, as a path.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule;

/// Compiles.
pub fn compile() {}
