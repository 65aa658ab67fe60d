//! Logs: `tracing`, as text or JSON, to standard error.
//!
//! Libraries that print whole requests at their finer levels are held at `warn`, whatever the user's filter says: no
//! argument, token, signature or header value may reach a log line. rmcp is silent: its warnings hold the error texts of
//! upstreams, and its errors their addresses.

use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt};

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Crates whose finer levels print what must not be printed.
const HELD: [&str; 10] = [
    "slack_morphism",
    "sqlx",
    "hyper",
    "hyper_util",
    "reqwest",
    "tungstenite",
    "tokio_tungstenite",
    "h2",
    "rustls",
    "cel",
];

/// Starts logging for this process. A filter that can't be read counts as `info`.
pub fn start(format: Format, filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = Registry::default();
    let started = match format {
        Format::Text => registry.with(lines.with_filter(ceiling()).with_filter(filter)).try_init(),
        Format::Json => registry.with(lines.json().with_filter(ceiling()).with_filter(filter)).try_init(),
    };
    // A second start in one process keeps the first.
    drop(started);
}

fn ceiling() -> Targets {
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_targets(HELD.map(|target| (target, LevelFilter::WARN)))
        .with_target("rmcp", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn the_users_filter_cannot_raise_what_is_held() {
        let ceiling = ceiling();
        for target in HELD {
            assert!(!ceiling.would_enable(target, &Level::DEBUG), "{target}");
            assert!(!ceiling.would_enable(&format!("{target}::inner"), &Level::INFO), "{target}");
            assert!(ceiling.would_enable(target, &Level::WARN), "{target}");
        }
        assert!(!ceiling.would_enable("rmcp::service", &Level::ERROR));
        assert!(ceiling.would_enable("undersign", &Level::TRACE));
    }
}
