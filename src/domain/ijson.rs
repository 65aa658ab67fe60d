//! ijson.
