//! A card as Block Kit (SLACK.md 4.1 to 4.3).
//!
//! Keeps true: there is no mrkdwn in any block, only `plain_text` without emoji and rich text, neither of which Slack
//! parses for markup; the arguments are on the card whole and in order, or the card is not made; the fixed heading comes
//! first and our buttons last. Not for what the card says: that is [`crate::domain::card`].

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::domain::card::{Buttons, Card, Span};
use crate::domain::ids::Installation;
use crate::domain::place::{Account, Platform};
use crate::domain::preview::counted;

/// What the blocks of a new card may come to, serialised and counted as Slack counts: below both cumulative limits
/// that were reported, and with room for what [`EDIT_BUDGET`] allows to be added.
const POST_BUDGET: usize = 11_000;

/// What the blocks of an edit may come to. More than for a new card: votes and an outcome are added, and an edit that
/// takes the buttons away must not fail for its size.
const EDIT_BUDGET: usize = 12_000;

/// The most text in one preformatted part.
const PART_BUDGET: usize = 2_900;

/// Slack's limit for the text of a header.
const HEADER_LIMIT: usize = 150;

/// Slack's limits for a section: fields, and the text of each.
const FIELDS_LIMIT: usize = 10;
const FIELD_LIMIT: usize = 2_000;

/// Slack's limit of blocks in a message.
const BLOCKS_LIMIT: usize = 50;

/// The card does not fit into one message. Nothing is ever cut to make it fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the card comes to {size}, of at most {limit}")]
pub struct CardTooLarge {
    /// What is too large.
    pub what: &'static str,
    /// Its size: characters as Slack counts them, or blocks.
    pub size: usize,
    /// What fits.
    pub limit: usize,
}

/// The blocks and the notification text of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The `blocks`.
    pub blocks: Vec<Value>,
    /// The `text`: words of ours, escaped, as Slack parses it for markup.
    pub text: String,
}

/// A card to be posted by this installation; its buttons carry the handle.
///
/// # Errors
/// It does not fit.
pub fn posted(card: &Card, handle: &str, installation: &Installation) -> Result<Content, CardTooLarge> {
    content(card, handle, installation, 0, POST_BUDGET)
}

/// The card as it is shown in place of an earlier version. When votes have made it too large, the oldest lines of its
/// history give way to a note: the buttons must not stay on a card because of its size.
///
/// # Errors
/// It does not fit, even with the newest line alone.
pub fn edited(card: &Card, handle: &str, installation: &Installation) -> Result<Content, CardTooLarge> {
    let mut left_out = 0;
    loop {
        match content(card, handle, installation, left_out, EDIT_BUDGET) {
            Err(_) if left_out + 1 < card.history.len() => left_out += 1,
            result => return result,
        }
    }
}

fn content(
    card: &Card,
    handle: &str,
    installation: &Installation,
    left_out: usize,
    budget: usize,
) -> Result<Content, CardTooLarge> {
    let mut blocks = vec![json!({"type": "header", "text": plain(card.heading)})];
    fits("the heading", counted(card.heading), HEADER_LIMIT)?;
    // Never without one: Slack refuses an edit that replaces rich text by none.
    blocks.push(rich_text(vec![section(vec![bold(or_dash(&card.title))])]));
    for some in card.fields.chunks(FIELDS_LIMIT) {
        blocks.push(fields(some)?);
    }
    if !card.warnings.is_empty() {
        let lines = card.warnings.iter().map(|warning| section(vec![text(&format!("Beware: {warning}"))]));
        blocks.push(rich_text(lines.collect()));
    }
    blocks.extend(arguments(card));
    let mut lines = Vec::new();
    if left_out > 0 {
        lines.push(section(vec![text(&format!("{left_out} earlier lines are in the audit log."))]));
    }
    let history = card.history.iter().skip(left_out).filter(|line| !line.is_empty());
    lines.extend(history.map(|line| spans(line, installation)));
    lines.push(section(vec![
        text(&format!("Digest {}. To be decided by ", or_dash(&card.digest_prefix))),
        date(card.expires_at),
        text("."),
    ]));
    blocks.push(rich_text(lines));
    blocks.extend(actions(card.buttons, handle));

    fits("the number of blocks", blocks.len(), BLOCKS_LIMIT)?;
    fits("the whole", counted(&Value::from(blocks.as_slice()).to_string()), budget)?;
    Ok(Content { blocks, text: escaped(&card.fallback) })
}

fn fits(what: &'static str, size: usize, limit: usize) -> Result<(), CardTooLarge> {
    if size > limit { Err(CardTooLarge { what, size, limit }) } else { Ok(()) }
}

fn fields(some: &[(&'static str, String)]) -> Result<Value, CardTooLarge> {
    let mut shown = Vec::new();
    for (label, value) in some {
        let field = plain(&format!("{label}: {value}"));
        fits("a field", counted(field["text"].as_str().unwrap_or_default()), FIELD_LIMIT)?;
        shown.push(field);
    }
    Ok(json!({"type": "section", "fields": shown}))
}

/// The arguments in as many parts as needed, each under a line of ours that says which it is.
fn arguments(card: &Card) -> impl Iterator<Item = Value> {
    let parts = split(&card.arguments);
    let count = parts.len();
    let mut same_line = false;
    parts.into_iter().enumerate().map(move |(i, part)| {
        let of = if count > 1 { format!(", part {} of {count}", i + 1) } else { String::new() };
        let goes_on = if same_line { ", in the same line" } else { "" };
        same_line = !part.ends_with('\n');
        let caption = format!("Arguments, {} bytes{of}{goes_on}:", card.arguments_bytes);
        rich_text(vec![
            section(vec![text(&caption)]),
            json!({"type": "rich_text_preformatted", "elements": [text(part)]}),
        ])
    })
}

/// Cuts a text into parts that Slack takes: after line ends where there are some, and nothing is lost. The parts joined
/// are the text.
fn split(whole: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = whole;
    while !rest.is_empty() {
        let mut size = 0;
        let fitting = rest.char_indices().find(|(_, c)| {
            // As `exact` makes it at worst, an ampersand counts for two.
            size += counted(c.encode_utf8(&mut [0; 4])) + if *c == '&' { 4 } else { 0 };
            size > PART_BUDGET
        });
        let end = fitting.map_or(rest.len(), |(at, _)| match rest[..at].rfind('\n') {
            Some(newline) => newline + 1,
            None => at,
        });
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after;
    }
    parts
}

fn spans(line: &[Span], installation: &Installation) -> Value {
    let empty = |span: &&Span| matches!(span, Span::Text(words) if words.is_empty());
    let elements = line.iter().filter(|span| !empty(span)).map(|span| match span {
        Span::Text(words) => text(words),
        Span::Time(seconds) => date(*seconds),
        Span::Who(account) => who(account, installation),
    });
    section(elements.collect())
}

/// A mention. People stand on a card only once they pressed, so only edits have one, and an edit notifies nobody. An
/// account of another installation or platform, or an id that is none, is written out.
fn who(account: &Account, installation: &Installation) -> Value {
    let known = account.platform == Platform::Slack && account.installation == *installation;
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    if known && is_id(&account.user) {
        json!({"type": "user", "user_id": account.user})
    } else {
        text(&account.to_string())
    }
}

/// A moment in the reader's own time; readers whose client can't tell get UTC.
fn date(seconds: i64) -> Value {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
    let utc = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|at| at.format(format).ok());
    let Some(utc) = utc.filter(|_| seconds >= 0) else {
        return text(&format!("{seconds} s after 1970-01-01 UTC"));
    };
    json!({"type": "date", "timestamp": seconds, "format": "{date_short_pretty} {time}", "fallback": utc})
}

/// The buttons. Approve and Deny have no style, so that neither is pushed.
fn actions(buttons: Buttons, handle: &str) -> Option<Value> {
    let button = |action_id: &str, label: &str| json!({"type": "button", "action_id": action_id, "text": plain(label), "value": handle});
    let buttons = match buttons {
        Buttons::Decide => vec![button("undersign_approve", "Approve"), button("undersign_deny", "Deny")],
        Buttons::Revoke => vec![button("undersign_revoke", "Revoke")],
        Buttons::None => return None,
    };
    Some(json!({"type": "actions", "elements": buttons}))
}

fn rich_text(elements: Vec<Value>) -> Value {
    object("rich_text", elements)
}

fn section(elements: Vec<Value>) -> Value {
    object("rich_text_section", elements)
}

fn object(kind: &str, elements: Vec<Value>) -> Value {
    let mut object = json!({"type": kind});
    object["elements"] = Value::Array(elements);
    object
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": exact(words)})
}

fn bold(words: &str) -> Value {
    json!({"type": "text", "text": exact(words), "style": {"bold": true}})
}

fn plain(words: &str) -> Value {
    json!({"type": "plain_text", "text": exact(words), "emoji": false})
}

/// A note of ours as blocks, for which the same holds as for a card.
pub(super) fn note(words: &str) -> Vec<Value> {
    vec![rich_text(vec![section(vec![text(or_dash(words))])])]
}

/// Slack refuses an empty text.
fn or_dash(words: &str) -> &str {
    if words.is_empty() { "-" } else { words }
}

/// Slack keeps `<`, `>` and `&` as entities and leaves entities that are there as they are, so that `&lt;` would be read
/// as `<`. Escaped once more, it is read as it was written.
fn exact(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for (at, c) in words.char_indices() {
        out.push(c);
        if c == '&' && ["&amp;", "&lt;", "&gt;"].iter().any(|entity| words[at..].starts_with(entity)) {
            out.push_str("amp;");
        }
    }
    out
}

/// For the one place that Slack parses for markup, the notification text.
pub(super) fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
