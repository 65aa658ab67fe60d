//! Logs: `tracing`, as text or JSON, to standard error.
//!
//! Libraries that print whole requests at their finer levels are held at `warn`, whatever the user's filter says: no
//! argument, token, signature or header value may reach a log line. rmcp is silent: its warnings hold the error texts of
//! upstreams, and its errors their addresses.

use std::io::IsTerminal as _;

use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
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
    let colours = std::io::stderr().is_terminal();
    // A second start in one process keeps the first.
    drop(subscriber(format, filter, colours, std::io::stderr).try_init());
}

fn subscriber<W>(format: Format, filter: &str, colours: bool, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt::layer().with_writer(writer).with_ansi(colours);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    // A line needs the consent of both.
    Registry::default().with(lines.with_filter(ceiling().and(filter)))
}

fn ceiling() -> Targets {
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_targets(HELD.map(|target| (target, LevelFilter::WARN)))
        .with_target("rmcp", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What the subscriber has written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is written under a filter while `events` happen.
    fn written(format: Format, filter: &str, events: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = subscriber(format, filter, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// One event at each level from each crate that is held.
    fn held_events() {
        macro_rules! events {
            ($($target:literal),*) => {$(
                tracing::trace!(target: $target, "canary");
                tracing::debug!(target: $target, "canary");
                tracing::info!(target: $target, "canary");
                tracing::warn!(target: $target, "warning");
            )*};
        }
        events!("slack_morphism", "sqlx::query", "hyper::client", "hyper_util::client");
        events!(
            "reqwest::connect",
            "tungstenite::protocol",
            "tokio_tungstenite",
            "h2::codec",
            "rustls::client",
            "cel"
        );
    }

    #[test]
    fn the_users_filter_cannot_raise_what_is_held() {
        for filter in ["trace", "warn,slack_morphism=trace", "trace,sqlx::query=trace,hyper=debug"] {
            let lines = written(Format::Text, filter, held_events);
            assert!(!lines.contains("canary"), "{filter}: {lines}");
            assert!(lines.contains("warning"), "{filter}: {lines}");
        }
    }

    #[test]
    fn rmcp_is_silent_whatever_the_users_filter_says() {
        for filter in ["trace", "rmcp=trace", "rmcp::service=debug", "info,rmcp::transport=warn"] {
            let lines = written(Format::Json, filter, || {
                tracing::debug!(target: "rmcp::service", "canary");
                tracing::warn!(target: "rmcp::transport", "canary");
                tracing::error!(target: "rmcp", "canary");
            });
            assert_eq!(lines, "", "{filter}");
        }
    }

    #[test]
    fn the_users_filter_can_silence_what_is_held() {
        assert_eq!(written(Format::Text, "error", held_events), "");
    }

    #[test]
    fn our_own_lines_follow_the_users_filter() {
        let events = || {
            tracing::debug!(target: "undersign::app", "fine");
            tracing::info!(target: "undersign::app", "coarse");
        };
        let at_info = written(Format::Text, "info", events);
        assert!(at_info.contains("coarse") && !at_info.contains("fine"), "{at_info}");
        assert!(written(Format::Text, "undersign=debug", events).contains("fine"));
        let unreadable = written(Format::Text, "undersign=loud", events);
        assert!(unreadable.contains("coarse") && !unreadable.contains("fine"), "{unreadable}");
    }

    #[test]
    fn json_lines_are_one_object_each() {
        let lines = written(Format::Json, "info", || {
            tracing::info!(code = "denied\nby", "refused");
            tracing::info!("again");
        });
        let objects: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 2);
        assert_eq!(objects[0]["fields"]["code"], "denied\nby");
    }
}
