//! MCP on both sides: the server that agents talk to, and the client that talks to upstreams.
//!
//! Keeps true: what rmcp reads has passed [`strict`]; nothing of an agent's request but name, arguments, our own `_meta`
//! keys and what a call that policy allows [takes along](crate::app::ports::Passing) goes further than this layer; nothing
//! an upstream starts by itself is answered. Not for HTTP routes and not for decisions.

pub mod server;
pub mod strict;
pub mod upstream;
