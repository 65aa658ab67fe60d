//! The far ends, played: what the demo shows and what the tests talk to, behind HTTP as the real ones are.
//!
//! Nothing here is reachable from `serve`: only `cli` may import this module, and it does so for `demo` and
//! `with-postgres` alone (`tests/layering.rs`).

pub mod cluster;
pub mod gate;
pub mod shop;
pub mod slack;
pub mod with_postgres;
