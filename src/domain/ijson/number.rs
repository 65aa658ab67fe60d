//! Numbers by their literal text: what RFC 8785 would change in value is found here, since no parsed value shows it.

use super::{Pointer, ValueFault};

/// As many digits as the decimal of a double may legitimately be printed with.
const CARRIED_DIGITS: usize = 17;

/// Whatever has more places before the point is beyond the largest double, 1.8e308.
const MOST_PLACES: i64 = 309;

/// Whatever begins this far behind the point is nearer to zero than to the smallest double, 4.9e-324.
const LEAST_PLACES: i64 = -324;

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
pub(super) fn fault_of(literal: &str, at: usize, pointer: impl FnOnce() -> Pointer) -> Option<ValueFault> {
    let decimal = Decimal::of(literal);
    if decimal.is_zero() {
        return decimal.negative.then(|| ValueFault::NegativeZero { at, pointer: pointer() });
    }
    if !literal.contains(['.', 'e', 'E']) {
        let safe = literal.parse::<i64>().is_ok_and(|value| value.unsigned_abs() < 1 << 53);
        return (!safe).then(|| ValueFault::UnsafeInteger { at, pointer: pointer() });
    }
    // By magnitude first: the standard parser cuts exponents beyond 655359 short, and a long row of zeros can bring what
    // is left of one back into range. With these out of the way no exponent in MAX_ARGUMENTS bytes is that large.
    if decimal.places > MOST_PLACES {
        return Some(ValueFault::NotFinite { at, pointer: pointer() });
    }
    if decimal.places < LEAST_PLACES {
        return Some(ValueFault::Inexact { at, pointer: pointer() });
    }
    // It rounds correctly, takes all that the grammar takes, and yields infinity for what is too large.
    let value: f64 = literal.parse().unwrap_or(f64::INFINITY);
    if !value.is_finite() {
        return Some(ValueFault::NotFinite { at, pointer: pointer() });
    }
    // RFC 8785 would print these as bare digits, which are an unsafe integer.
    #[expect(clippy::float_cmp, reason = "whether the double is integral is an exact question")]
    let integral = value.trunc() == value;
    if integral && value.abs() >= 9_007_199_254_740_992.0 && value.abs() < 1e21 {
        return Some(ValueFault::UnsafeInteger { at, pointer: pointer() });
    }
    if decimal.digits().count() <= CARRIED_DIGITS && value.abs() >= f64::MIN_POSITIVE {
        return None;
    }
    let mut printed = ryu_js::Buffer::new();
    let kept = Decimal::of(printed.format_finite(value)) == decimal;
    (!kept).then(|| ValueFault::Inexact { at, pointer: pointer() })
}

/// A decimal by sign, significant digits and magnitude, whatever its spelling.
struct Decimal<'a> {
    negative: bool,
    /// The significant digits, before and after the point.
    digits: [&'a str; 2],
    /// How many places the first significant digit is left of the point.
    places: i64,
}

impl<'a> Decimal<'a> {
    fn of(literal: &'a str) -> Self {
        let (negative, literal) = literal.strip_prefix('-').map_or((false, literal), |rest| (true, rest));
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        // An exponent that does not fit is far outside a double's range, on whichever side its sign says.
        let far = i64::MAX / 4;
        let beyond = if exponent.starts_with('-') { -far } else { far };
        let exponent = exponent.parse().map_or(beyond, |exponent: i64| exponent.clamp(-far, far));
        let count = |digits: &str| i64::try_from(digits.len()).unwrap_or(far);

        let mut digits = [whole.trim_start_matches('0'), fraction];
        let mut places = count(digits[0]);
        if digits[0].is_empty() {
            digits[1] = fraction.trim_start_matches('0');
            places = count(digits[1]) - count(fraction);
        }
        digits[1] = digits[1].trim_end_matches('0');
        if digits[1].is_empty() {
            digits[0] = digits[0].trim_end_matches('0');
        }
        Self { negative, digits, places: places + exponent }
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.digits[0].bytes().chain(self.digits[1].bytes())
    }

    fn is_zero(&self) -> bool {
        self.digits().next().is_none()
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        let zero = self.is_zero() && other.is_zero();
        self.negative == other.negative
            && (zero || self.places == other.places)
            && self.digits().eq(other.digits())
    }
}
