//! Strings and names: unescaped, so that two spellings of one name are one name.

use super::EnvelopeFault;

pub(super) struct Text {
    /// Just after the closing quote.
    pub(super) end: usize,
    pub(super) value: String,
    /// Whether U+0000 is in it.
    pub(super) nul: bool,
}

/// Reads the string whose opening quote is at `start`. The bytes are valid UTF-8.
pub(super) fn read_text(bytes: &[u8], start: usize) -> Result<Text, EnvelopeFault> {
    let mut value = Vec::new();
    let mut at = start + 1;
    let mut nul = false;
    loop {
        let run = at;
        while bytes.get(at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..=0x1f)) {
            at += 1;
        }
        value.extend_from_slice(&bytes[run..at]);
        match bytes.get(at) {
            Some(b'"') => {
                // Whole runs between ASCII bytes of valid UTF-8, and encoded characters: still valid.
                let value = String::from_utf8(value).map_err(|_| EnvelopeFault::NotUtf8 { at: start })?;
                return Ok(Text { end: at + 1, value, nul });
            }
            Some(b'\\') => {
                let (character, end) = escape(bytes, at)?;
                nul |= character == '\0';
                value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                at = end;
            }
            _ => return Err(EnvelopeFault::Grammar { at }),
        }
    }
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
        Some(b'u') => {
            let unit = hex4(bytes, at + 2)?;
            return match unit {
                0xd800..=0xdbff => {
                    if bytes.get(at + 6..at + 8) != Some(b"\\u") {
                        return Err(EnvelopeFault::LoneSurrogate { at });
                    }
                    let low = hex4(bytes, at + 8)?;
                    if !(0xdc00..=0xdfff).contains(&low) {
                        return Err(EnvelopeFault::LoneSurrogate { at });
                    }
                    let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                    char::from_u32(code).map(|c| (c, at + 12)).ok_or(EnvelopeFault::LoneSurrogate { at })
                }
                unit => char::from_u32(unit).map(|c| (c, at + 6)).ok_or(EnvelopeFault::LoneSurrogate { at }),
            };
        }
        _ => return Err(EnvelopeFault::Grammar { at }),
    };
    Ok((simple, at + 2))
}

fn hex4(bytes: &[u8], at: usize) -> Result<u32, EnvelopeFault> {
    let digits = bytes.get(at..at + 4).ok_or(EnvelopeFault::Grammar { at })?;
    digits.iter().try_fold(0, |sum, byte| {
        let digit = char::from(*byte).to_digit(16).ok_or(EnvelopeFault::Grammar { at })?;
        Ok(sum * 16 + digit)
    })
}
