//! mcp.
