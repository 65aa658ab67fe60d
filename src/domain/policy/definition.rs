//! The policy as teams write it, already read from its files but not yet compiled.
