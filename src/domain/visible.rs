//! visible.
