//! What a human must see before deciding, as it was rendered at parking.
//!
//! Every text here has passed [`visible`](super::visible): it is inert, and nothing in it is invisible. It is made once,
//! stored with the action, and shown unchanged afterwards. Not for layout: that is the platform's.

use serde::{Deserialize, Serialize};

use super::visible::{TextWarning, visible_block, warnings};

/// The most text of arguments that a card carries inline, in UTF-16 units as they travel: JSON's escapes and the
/// platform's counted. Together with the other parts it stays under Slack's unwritten limit for a whole message
/// (slackapi/bolt-js#2867).
pub const INLINE_BUDGET: usize = 7_500;

/// The longest title, in UTF-16 units after escaping: the platform's header limit is 150.
pub const TITLE_BUDGET: usize = 140;

/// The longest other text of a preview, in UTF-16 units after escaping.
pub const FIELD_BUDGET: usize = 400;

/// The rendered preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The effect in one line: "Refund order A-17".
    pub title: String,
    /// What is acted upon.
    pub target: Option<String>,
    /// What happens.
    pub effect: Option<String>,
    /// How much.
    pub impact: Option<String>,
    /// What leaves the house.
    pub data_out: Option<String>,
    /// Whether and until when it can be undone.
    pub reversible: String,
    /// The exact arguments, laid out for reading; spelling of names, strings and numbers is that of the canonical form.
    pub arguments: String,
    /// What the reader should beware of.
    pub warnings: Vec<String>,
}

/// The arguments or a rendered text don't fit on a card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} would take {size} characters on the card, of at most {budget}")]
pub struct TooLarge {
    /// Which part.
    pub what: &'static str,
    /// Its size.
    pub size: usize,
    /// What fits.
    pub budget: usize,
}

/// Size of a text as the chat platforms count it: UTF-16 units, with `&`, `<` and `>` as entities.
pub fn counted(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '&' => 5,
            '<' | '>' => 4,
            c => c.len_utf16(),
        })
        .sum()
}

impl Preview {
    /// Checks that all of it can be shown.
    ///
    /// # Errors
    /// The first part that does not fit; nothing is ever cut.
    pub fn check_size(&self) -> Result<(), TooLarge> {
        let fields = [
            ("the preview's target", self.target.as_deref()),
            ("the preview's effect", self.effect.as_deref()),
            ("the preview's impact", self.impact.as_deref()),
            ("the preview's data_out", self.data_out.as_deref()),
            ("the preview's reversible", Some(self.reversible.as_str())),
        ];
        fits("the preview's title", &self.title, TITLE_BUDGET)?;
        for (what, text) in fields {
            fits(what, text.unwrap_or_default(), FIELD_BUDGET)?;
        }
        let travelling = serde_json::Value::from(self.arguments.as_str()).to_string();
        fits("the arguments", &travelling, INLINE_BUDGET)
    }
}

fn fits(what: &'static str, text: &str, budget: usize) -> Result<(), TooLarge> {
    let size = counted(text);
    if size > budget { Err(TooLarge { what, size, budget }) } else { Ok(()) }
}

/// The warnings for text that an agent wrote, in words.
pub fn text_warnings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let found: std::collections::BTreeSet<_> = texts.into_iter().flat_map(warnings).collect();
    found
        .into_iter()
        .map(|warning| match warning {
            TextWarning::Invisible => "Contains invisible or direction-changing characters, shown as \\u{…}.",
            TextWarning::MixedScripts => {
                "A word mixes letters of several scripts, which can imitate another word."
            }
            TextWarning::NotNormalized => {
                "Some text is not in Unicode normal form NFC and may not be what it looks like."
            }
        })
        .map(str::to_owned)
        .collect()
}

/// Lays canonical JSON out, one member a line, and makes it visible. Only white space between tokens is added, so the
/// reader sees the spelling that is bound.
pub fn lay_out(canonical: &str) -> String {
    let mut out = String::with_capacity(canonical.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut chars = canonical.chars().peekable();
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = chars.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    visible_block(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_adds_only_white_space_between_tokens() {
        let canonical = r#"{"a":[1,{"b,{":"x\":[\\"}],"c":{},"d":[]}"#;
        let expected = "{\n  \"a\": [\n    1,\n    {\n      \"b,{\": \"x\\\":[\\\\\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(lay_out(canonical), expected);
    }

    #[test]
    fn size_counts_what_the_platform_counts() {
        assert_eq!(counted("a<b>&😀"), 1 + 4 + 1 + 4 + 5 + 2);
    }
}
