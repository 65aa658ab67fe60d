//! workers.
