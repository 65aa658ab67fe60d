//! undersign: a person's approval, bound to the exact call, in front of MCP servers.
//!
//! The layers, each of which may use only those below it (`tests/layering.rs`):
//!
//! ```text
//!              cli                  composition root: the only place that builds everything
//!    http   workers   chat   mcp    adapters: bytes in, bytes out
//!              app                  use cases; declares the ports
//!            storage                the only SQL
//!            domain                 what is true, given facts: no I/O, no clock, no randomness of its own
//!    config -> domain      telemetry -> nothing      demo -> storage, used by cli alone
//! ```
//!
//! The life of one call: bytes, `mcp::strict`, an authenticated agent, a [`domain`] call, the policy's decision, a
//! parked action; then a verified press, an admitted approver, a vote, a token; then the same call with the token, a
//! claim, one upstream call, a settled outcome. Each step takes a value that only the step before it can make.

pub mod app;
pub mod chat;
pub mod cli;
pub mod config;
pub mod demo;
pub mod domain;
pub mod http;
pub mod mcp;
pub mod storage;
pub mod telemetry;
pub mod workers;
