//! Strings and names, looked at after unescaping, so that two spellings of one name are one name.

use std::borrow::Cow;

use super::EnvelopeFault;

/// Where a string literal is and what was seen in it.
#[derive(Clone, Copy)]
pub(super) struct Text {
    /// At the opening quote.
    pub(super) start: usize,
    /// Just after the closing quote.
    pub(super) end: usize,
    /// Whether it holds an escape; without one it is its own value.
    escaped: bool,
    /// Whether U+0000 is in it.
    pub(super) nul: bool,
}

impl Text {
    /// Checks the string whose opening quote is at `start`, without keeping any of it.
    pub(super) fn scan(bytes: &[u8], start: usize) -> Result<Self, EnvelopeFault> {
        let mut text = Self { start, end: start + 1, escaped: false, nul: false };
        loop {
            text.end = end_of_run(bytes, text.end);
            match bytes.get(text.end) {
                Some(b'"') => {
                    text.end += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    let (character, end) = escape(bytes, text.end)?;
                    text.escaped = true;
                    text.nul |= character == '\0';
                    text.end = end;
                }
                _ => return Err(EnvelopeFault::Grammar { at: text.end }),
            }
        }
    }

    /// The string's value. `whole` is the text in which it was scanned.
    pub(super) fn value<'a>(&self, whole: &'a str) -> Result<Cow<'a, str>, EnvelopeFault> {
        let within = self.start + 1..self.end - 1;
        if !self.escaped {
            return Ok(Cow::Borrowed(&whole[within]));
        }
        let mut value = String::with_capacity(within.len());
        let mut at = within.start;
        while at < within.end {
            let run = at;
            at = end_of_run(whole.as_bytes(), at);
            value.push_str(&whole[run..at]);
            if at < within.end {
                let (character, end) = escape(whole.as_bytes(), at)?;
                value.push(character);
                at = end;
            }
        }
        Ok(Cow::Owned(value))
    }
}

/// Where the characters that stand for themselves end. Always an ASCII byte or the end of the text.
fn end_of_run(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..=0x1f)) {
        at += 1;
    }
    at
}

/// The character of the escape that begins at `at`, and where it ends.
fn escape(bytes: &[u8], at: usize) -> Result<(char, usize), EnvelopeFault> {
    let simple = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes, at),
        _ => return Err(EnvelopeFault::Grammar { at }),
    };
    Ok((simple, at + 2))
}

/// The character of `\uXXXX`, or of two of them that are a surrogate pair, and where it ends.
fn unicode_escape(bytes: &[u8], at: usize) -> Result<(char, usize), EnvelopeFault> {
    let lone = EnvelopeFault::LoneSurrogate { at };
    let high = hex4(bytes, at + 2)?;
    if !(0xd800..=0xdbff).contains(&high) {
        return char::from_u32(high).map(|character| (character, at + 6)).ok_or(lone);
    }
    if bytes.get(at + 6..at + 8) != Some(b"\\u") {
        return Err(lone);
    }
    let low = hex4(bytes, at + 8)?;
    if !(0xdc00..=0xdfff).contains(&low) {
        return Err(lone);
    }
    let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(code).map(|character| (character, at + 12)).ok_or(lone)
}

fn hex4(bytes: &[u8], at: usize) -> Result<u32, EnvelopeFault> {
    let digits = bytes.get(at..at + 4).ok_or(EnvelopeFault::Grammar { at })?;
    digits.iter().try_fold(0, |sum, byte| {
        let digit = char::from(*byte).to_digit(16).ok_or(EnvelopeFault::Grammar { at })?;
        Ok(sum * 16 + digit)
    })
}
