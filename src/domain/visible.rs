//! Makes untrusted text safe to read: what can't be seen, or looks like nothing, is shown as `\u{…}`.
//!
//! The escape is unambiguous: a backslash that would read as the beginning of one is escaped itself. Not a markup
//! escaper: platforms have their own.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use unicode_normalization::is_nfc;
use unicode_properties::{GeneralCategory as Category, UnicodeGeneralCategory as _};
use unicode_script::{Script, UnicodeScript as _};

/// What a reader should beware of in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextWarning {
    /// Characters that can't be seen, or that turn the direction.
    Invisible,
    /// A word of letters from scripts that look alike.
    MixedScripts,
    /// Not in Unicode normal form NFC.
    NotNormalized,
}

/// Makes a text visible on one line: line ends and tabs are escaped too.
pub fn visible(text: &str) -> String {
    escape(text, is_visible)
}

/// Makes a text visible, keeping line feeds: for blocks that we laid out ourselves.
pub fn visible_block(text: &str) -> String {
    escape(text, |c| c == '\n' || is_visible(c))
}

fn escape(text: &str, shown: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let begins_an_escape = c == '\\' && {
            let mut ahead = rest.clone();
            ahead.next() == Some('u') && ahead.next() == Some('{')
        };
        if shown(c) && !begins_an_escape {
            out.push(c);
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
    out
}

/// Whether a character is seen as itself. A space other than U+0020 looks like one and is not.
fn is_visible(c: char) -> bool {
    if c == ' ' {
        return true;
    }
    let hidden = matches!(
        c.general_category(),
        Category::Control
            | Category::Format
            | Category::LineSeparator
            | Category::ParagraphSeparator
            | Category::SpaceSeparator
            | Category::PrivateUse
            | Category::Unassigned
            | Category::Surrogate
    );
    !hidden && !is_default_ignorable(c)
}

/// Characters of `Default_Ignorable_Code_Point` (Unicode, DerivedCoreProperties) that the categories above leave out,
/// and the blank ones that take room without showing anything.
fn is_default_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1d159}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The warnings for a text.
pub fn warnings(text: &str) -> BTreeSet<TextWarning> {
    let mut found = BTreeSet::new();
    if text.chars().any(|c| !is_visible(c) && !matches!(c, '\n' | '\r' | '\t')) {
        found.insert(TextWarning::Invisible);
    }
    if !is_nfc(text) {
        found.insert(TextWarning::NotNormalized);
    }
    if text.split(|c: char| !c.is_alphabetic()).any(mixes_scripts) {
        found.insert(TextWarning::MixedScripts);
    }
    found
}

/// Scripts whose letters imitate each other.
fn mixes_scripts(word: &str) -> bool {
    let alike = [Script::Latin, Script::Cyrillic, Script::Greek, Script::Armenian, Script::Cherokee];
    alike.iter().filter(|script| word.chars().any(|c| c.script() == **script)).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescape(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("\\u{") {
            out.push_str(&rest[..at]);
            let end = at + rest[at..].find('}').unwrap();
            let code = u32::from_str_radix(&rest[at + 3..end], 16).unwrap();
            out.push(char::from_u32(code).unwrap());
            rest = &rest[end + 1..];
        }
        out + rest
    }

    #[test]
    fn every_code_point_is_shown_as_itself_or_escaped() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let shown = visible(&text);
            assert_eq!(unescape(&shown), text, "{:x}", u32::from(c));
            if shown == text {
                assert!(is_visible(c), "{:x} can't be seen", u32::from(c));
            } else {
                assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(c)));
            }
        }
    }

    #[test]
    fn known_tricks_are_escaped() {
        let tricks = [
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{200b}',
            '\u{200d}',
            '\u{2060}',
            '\u{feff}',
            '\u{ad}',
            '\u{e0100}',
            '\u{e0041}',
            '\u{1d173}',
            '\u{3164}',
            '\u{2028}',
            '\u{1}',
            '\u{85}',
            '\u{9f}',
            '\u{7f}',
            '\u{a0}',
            '\u{e000}',
            '\u{61c}',
            '\u{180e}',
            '\u{2800}',
        ];
        for trick in tricks {
            let text = format!("a{trick}b");
            assert_eq!(visible(&text), format!("a\\u{{{:x}}}b", u32::from(trick)));
            assert!(warnings(&text).contains(&TextWarning::Invisible), "{:x}", u32::from(trick));
        }
    }

    #[test]
    fn an_imitated_escape_is_told_from_ours() {
        let fake = "\\u{200b}";
        assert_eq!(visible(fake), "\\u{5c}u{200b}");
        assert_ne!(visible(fake), visible("\u{200b}"));
        assert_eq!(visible(r"\u0041 \n"), r"\u0041 \n", "JSON's own escapes stay");
    }

    #[test]
    fn line_ends_stay_in_blocks_alone() {
        assert_eq!(visible("a\nb\tc"), "a\\u{a}b\\u{9}c");
        assert_eq!(visible_block("a\nb\tc"), "a\nb\\u{9}c");
    }

    #[test]
    fn warnings_name_what_they_find() {
        assert!(
            warnings("plain text, 日本語 カナ ひら, Ωmega is Greek alone: ωμέγα")
                .contains(&TextWarning::MixedScripts)
        );
        assert!(warnings("p\u{430}ypal").contains(&TextWarning::MixedScripts));
        assert!(warnings("日本語カナ привет ωμέγα hello\nline").is_empty());
        assert!(warnings("cafe\u{301}").contains(&TextWarning::NotNormalized));
    }
}
