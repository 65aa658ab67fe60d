//! CEL conditions.
