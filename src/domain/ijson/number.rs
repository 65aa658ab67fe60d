//! Numbers by their literal text: what RFC 8785 would change in value is found here, since no parsed value shows it.

use super::ValueFault;

/// Digits that a double always carries there and back.
const CARRIED_DIGITS: usize = 17;

/// The end of the number literal at `start`, by the grammar of RFC 8259; or where it stops being one.
pub(super) fn end_of_number(bytes: &[u8], start: usize) -> Result<usize, usize> {
    let digits = |mut at: usize| -> Result<usize, usize> {
        let from = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == from { Err(at) } else { Ok(at) }
    };
    let mut at = start;
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits(at)?;
    }
    Ok(at)
}

/// The fault of a literal that the grammar accepts, if it has one.
pub(super) fn check_number(literal: &[u8], at: usize) -> Option<ValueFault> {
    // Digits, signs, a point and an exponent only.
    let text = std::str::from_utf8(literal).ok()?;
    let decimal = Decimal::of(text);
    if decimal.digits.is_empty() {
        return decimal.negative.then_some(ValueFault::NegativeZero { at });
    }
    if !text.contains(['.', 'e', 'E']) {
        let safe = text.parse::<i64>().is_ok_and(|value| value.unsigned_abs() < 1 << 53);
        return (!safe).then_some(ValueFault::UnsafeInteger { at });
    }
    let value: f64 = text.parse().ok()?;
    if !value.is_finite() {
        return Some(ValueFault::NotFinite { at });
    }
    // RFC 8785 would print these as bare digits, which are an unsafe integer.
    #[expect(clippy::float_cmp, reason = "whether the double is integral is an exact question")]
    let integral = value.trunc() == value;
    if integral && value.abs() >= 9_007_199_254_740_992.0 && value.abs() < 1e21 {
        return Some(ValueFault::UnsafeInteger { at });
    }
    if decimal.digits.len() <= CARRIED_DIGITS && value.abs() >= f64::MIN_POSITIVE {
        return None;
    }
    let printed = ryu_js::Buffer::new().format_finite(value).to_owned();
    (Decimal::of(&printed) != decimal).then_some(ValueFault::Inexact { at })
}

/// A decimal by sign, significant digits without zeros at either end, and the power of ten of the first digit.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(text: &str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        // An exponent that does not fit is far outside a double's range, on whichever side its sign says.
        let beyond = if exponent.starts_with('-') { i64::MIN / 4 } else { i64::MAX / 4 };
        let exponent: i64 = exponent.parse().map_or(beyond, |e: i64| e.clamp(i64::MIN / 4, i64::MAX / 4));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let leading = all.len() - all.trim_start_matches('0').len();
        let digits = all.trim_matches('0').to_owned();
        let shift = |length: usize| i64::try_from(length).unwrap_or(i64::MAX / 4);
        let exponent = if digits.is_empty() { 0 } else { exponent + shift(whole.len()) - shift(leading) };
        Self { negative, digits, exponent }
    }
}
