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
#[must_use]
pub fn visible(text: &str) -> String {
    escape(text, is_visible)
}

/// Makes a text visible, keeping line feeds: for blocks that we laid out ourselves.
#[must_use]
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

/// Whether a character can't be seen, or looks like a space and is none.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    !is_visible(c)
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
    !hidden && !is_default_ignorable(c) && !is_blank(c)
}

/// Characters of `Default_Ignorable_Code_Point` (Unicode, DerivedCoreProperties) that the categories above leave out.
fn is_default_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Characters of visible categories that have no ink: the empty Braille pattern, the stand-in for an object, the blank
/// hieroglyphs, the Khitan filler, the empty note head.
fn is_blank(c: char) -> bool {
    matches!(c, '\u{2800}' | '\u{fffc}' | '\u{13441}'..='\u{13442}' | '\u{16fe4}' | '\u{1d159}')
}

/// The warnings for a text.
#[must_use]
pub fn warnings(text: &str) -> BTreeSet<TextWarning> {
    let mut found = BTreeSet::new();
    if text.chars().any(|c| !is_visible(c) && !matches!(c, '\n' | '\r' | '\t')) {
        found.insert(TextWarning::Invisible);
    }
    if !is_nfc(text) {
        found.insert(TextWarning::NotNormalized);
    }
    if text.split(|c: char| !is_in_word(c)).any(mixes_scripts) {
        found.insert(TextWarning::MixedScripts);
    }
    found
}

/// Whether a character goes on with a word. A combining mark does, or else it would hide a change of script.
fn is_in_word(c: char) -> bool {
    let mark = matches!(
        c.general_category(),
        Category::NonspacingMark | Category::SpacingMark | Category::EnclosingMark
    );
    c.is_alphabetic() || mark
}

/// Whether a word has letters of two scripts that imitate each other. Han, kana and Hangul are not among them: their
/// languages mix scripts, with Latin too.
fn mixes_scripts(word: &str) -> bool {
    let alike = [
        Script::Latin,
        Script::Cyrillic,
        Script::Greek,
        Script::Armenian,
        Script::Cherokee,
        Script::Coptic,
        Script::Lisu,
    ];
    alike.iter().filter(|script| word.chars().any(|c| c.script() == **script)).count() > 1
}

#[cfg(test)]
mod tests;
