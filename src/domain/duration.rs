//! Durations as configuration writes them: `"25s"`, `"10m"`, `"24h"`.

use std::time::Duration;

/// Reads a duration of the configuration; the error says what to write.
pub fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        format!("'{text}' is not a duration: write a number and a unit, as in \"25s\", \"10m\" or \"24h\"")
    })
}

/// Writes a duration for people: `10m`, `1h 30m`.
pub fn human(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}
