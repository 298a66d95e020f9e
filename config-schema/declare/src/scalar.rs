//! Exact numbers from text: rates, durations, milliseconds, integers. No floats anywhere.
//!
//! Key types: [`Ppb`], [`ParseError`]. The functions take the scalar's source text and say what is wrong in
//! words for a diagnostic; `decode` of `bloodhound-config` adds the place.

use std::fmt;

/// A probability or rate in parts per billion, 0 to 1,000,000,000.
///
/// `0.01` in a file is exactly `Ppb(10_000_000)`; a text that is not a whole number of parts per billion is
/// refused, so that nothing is ever rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ppb(u32);

impl Ppb {
    /// Never.
    pub const ZERO: Ppb = Ppb(0);
    /// Always.
    pub const ONE: Ppb = Ppb(1_000_000_000);

    /// From parts per billion; `None` above one billion.
    pub fn new(parts: u32) -> Option<Ppb> {
        (parts <= Self::ONE.0).then_some(Ppb(parts))
    }

    /// Parts per billion, 0 to 1,000,000,000.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Ppb {
    /// As a decimal without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ppb::ONE {
            return f.write_str("1");
        }
        let digits = format!("{:09}", self.0);
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() { f.write_str("0") } else { write!(f, "0.{digits}") }
    }
}

/// Why a text is not the value that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub message: String,
    /// Whether the text has the right form and only its size is wrong.
    pub out_of_range: bool,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl ParseError {
    fn form(message: impl Into<String>) -> ParseError {
        ParseError { message: message.into(), out_of_range: false, suggestion: None }
    }

    fn range(message: impl Into<String>) -> ParseError {
        ParseError { message: message.into(), out_of_range: true, suggestion: None }
    }

    fn meant(mut self, suggestion: Option<String>) -> ParseError {
        self.suggestion = suggestion;
        self
    }
}

/// `80%`, `80` or `0.8` as thousandths.
///
/// # Errors
/// What is wrong, for the usage message.
pub fn share(text: &str) -> Result<u32, String> {
    let wrong = || "a share such as 80%, 80 or 0.8 is needed".to_string();
    let (digits, scale) = match text.strip_suffix('%') {
        Some(d) => (d, 10u64),
        None if text.starts_with("0.") || text == "0" || text == "1.0" => (text, 1000),
        None => (text, 10),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value: u64 = whole.parse::<u64>().map_err(|_| wrong())?.checked_mul(scale).ok_or_else(wrong)?;
    let mut unit = scale;
    for c in fraction.chars() {
        unit /= 10;
        value += u64::from(c.to_digit(10).ok_or_else(wrong)?) * unit;
    }
    if value > 1000 { Err("at most 100%".into()) } else { Ok(value as u32) }
}

/// A decimal number: `mantissa` divided by ten to the power of `places`, never rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    mantissa: u128,
    places: i32,
}

/// Parses `12`, `1_000`, `0.5`, `.5`, `1e-5`, `-3`. At most 30 digits.
fn decimal(text: &str) -> Option<Decimal> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = match rest.split_once(['e', 'E']) {
        Some((number, exponent)) => {
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            (number, exponent.parse::<i32>().ok().filter(|e| e.abs() <= 40)?)
        }
        None => (rest, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.starts_with('_') || whole.ends_with('_') || fraction.contains('_') {
        return None;
    }
    let mut mantissa: u128 = 0;
    let mut count = 0;
    for digit in whole.chars().filter(|c| *c != '_').chain(fraction.chars()) {
        mantissa = mantissa.checked_mul(10)?.checked_add(u128::from(digit.to_digit(10)?))?;
        count += 1;
    }
    if count == 0 || count > 30 {
        return None;
    }
    Some(Decimal { negative, mantissa, places: fraction.len() as i32 - exponent })
}

/// Why a decimal is not a whole number of a smaller unit.
enum Inexact {
    TooFine,
    TooLarge,
}

impl Decimal {
    /// The number times `factor`, if that is whole.
    fn times(self, factor: u128) -> Result<u128, Inexact> {
        let product = self.mantissa.checked_mul(factor).ok_or(Inexact::TooLarge)?;
        let power = 10u128.checked_pow(self.places.unsigned_abs());
        if product == 0 {
            return Ok(0);
        }
        match (self.places > 0, power) {
            (true, None) => Err(Inexact::TooFine),
            (true, Some(power)) if product % power == 0 => Ok(product / power),
            (true, Some(_)) => Err(Inexact::TooFine),
            (false, power) => power.and_then(|p| product.checked_mul(p)).ok_or(Inexact::TooLarge),
        }
    }
}

/// A rate or probability: a decimal from 0 to 1.
pub fn rate(text: &str) -> Result<Ppb, ParseError> {
    if let Some(percent) = text.strip_suffix('%') {
        let meant = decimal(percent.trim()).filter(|d| !d.negative);
        let meant = meant.map(|d| Decimal { places: d.places + 2, ..d }).and_then(to_ppb);
        return Err(ParseError::form("rates are decimals from 0 to 1, not percentages")
            .meant(meant.map(|p| p.to_string())));
    }
    let Some(number) = decimal(text) else {
        return Err(ParseError::form("expected a decimal from 0 to 1, such as 0.01"));
    };
    if number.negative && number.mantissa != 0 {
        return Err(ParseError::range("a rate cannot be negative"));
    }
    match number.times(u128::from(Ppb::ONE.0)) {
        Ok(parts) if parts <= u128::from(Ppb::ONE.0) => Ok(Ppb(parts as u32)),
        Ok(_) | Err(Inexact::TooLarge) => Err(ParseError::range("a rate must be from 0 to 1")),
        Err(Inexact::TooFine) => {
            Err(ParseError::range("rates are whole parts per billion: at most nine decimal places"))
        }
    }
}

fn to_ppb(number: Decimal) -> Option<Ppb> {
    number.times(1_000_000_000).ok().and_then(|p| u32::try_from(p).ok()).and_then(Ppb::new)
}

/// A number of bytes with an optional unit of 1024: `64m`, `1gb`, `4096`, as compose files have it.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(split);
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    integer(digits).ok()?.checked_mul(1 << shift)
}

/// A non-negative whole number, decimal or `0x` hexadecimal.
pub fn integer(text: &str) -> Result<u64, ParseError> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| ParseError::form("expected a whole number"));
    }
    let Some(number) = decimal(text) else {
        return Err(ParseError::form("expected a whole number"));
    };
    if number.negative && number.mantissa != 0 {
        return Err(ParseError::range("the number cannot be negative"));
    }
    match number.times(1) {
        Ok(n) => u64::try_from(n).map_err(|_| ParseError::range("the number is too large")),
        Err(Inexact::TooFine) => Err(ParseError::form("expected a whole number")),
        Err(Inexact::TooLarge) => Err(ParseError::range("the number is too large")),
    }
}

/// A non-negative decimal times a thousand, as a whole number.
pub fn thousandths(text: &str) -> Result<u64, ParseError> {
    scaled(text, 1_000, "at most three decimal places")
}

/// A number of milliseconds, as nanoseconds.
pub fn millis(text: &str) -> Result<u64, ParseError> {
    if let Ok(ns) = duration(text)
        && decimal(text).is_none()
    {
        let whole = ns % 1_000_000 == 0;
        return Err(ParseError::form("the key ends in _ms: write the number of milliseconds without a unit")
            .meant(whole.then(|| (ns / 1_000_000).to_string())));
    }
    scaled(text, 1_000_000, "at most six decimal places")
}

fn scaled(text: &str, factor: u128, finest: &str) -> Result<u64, ParseError> {
    let Some(number) = decimal(text) else {
        return Err(ParseError::form("expected a number"));
    };
    if number.negative && number.mantissa != 0 {
        return Err(ParseError::range("the number cannot be negative"));
    }
    match number.times(factor) {
        Ok(n) => u64::try_from(n).map_err(|_| ParseError::range("the number is too large")),
        Err(Inexact::TooFine) => Err(ParseError::range(format!("the number is too fine: {finest}"))),
        Err(Inexact::TooLarge) => Err(ParseError::range("the number is too large")),
    }
}

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration such as `5m`, `10ms`, `1.5s` or `1m30s`, as nanoseconds. `0` needs no unit.
pub fn duration(text: &str) -> Result<u64, ParseError> {
    const FORM: &str = "expected a duration such as 10ms, 1.5s, 30s, 5m or 1m30s";
    if decimal(text).is_some_and(|d| d.mantissa == 0) {
        return Ok(0);
    }
    if let Some(number) = decimal(text) {
        let meant = (!number.negative).then(|| format!("{text}s"));
        return Err(ParseError::form("a duration needs a unit: ns, us, ms, s, m or h").meant(meant));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() || text.is_empty() {
        let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(split);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let (Some(number), Some(factor)) = (decimal(digits), factor) else {
            return Err(ParseError::form(FORM).meant(corrected(text)));
        };
        let part = match number.times(u128::from(factor)) {
            Ok(part) => u64::try_from(part).ok(),
            Err(Inexact::TooFine) => return Err(ParseError::range("nothing is finer than a nanosecond")),
            Err(Inexact::TooLarge) => None,
        };
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| ParseError::range("the duration is longer than 584 years"))?;
        rest = tail;
    }
    Ok(total)
}

/// A duration written with blanks or with another name of its unit, put right.
fn corrected(text: &str) -> Option<String> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let split = compact.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (digits, unit) = compact.split_at(split);
    let unit = match unit {
        "ns" | "us" | "ms" | "s" | "m" | "h" => unit,
        "sec" | "secs" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "msec" | "millis" | "millisecond" | "milliseconds" => "ms",
        "usec" | "micros" | "microsecond" | "microseconds" => "us",
        _ => return None,
    };
    decimal(digits).map(|_| format!("{digits}{unit}"))
}

/// A duration in the largest unit that keeps it whole, for messages: `90s`, `5m`, `1500us`.
pub fn show_duration(ns: u64) -> String {
    let (name, factor) = UNITS
        .iter()
        .rev()
        .find(|(name, factor)| *name != "µs" && ns != 0 && ns.is_multiple_of(*factor))
        .unwrap_or(&("s", 1_000_000_000));
    format!("{}{name}", ns / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact() {
        for (text, parts) in [
            ("0", 0),
            ("1", 1_000_000_000),
            ("1.0", 1_000_000_000),
            ("0.01", 10_000_000),
            ("0.0001", 100_000),
            ("0.00001", 10_000),
            ("1e-5", 10_000),
            ("0.1", 100_000_000),
            (".3", 300_000_000),
            ("0.000000001", 1),
            ("0.1000000000000", 100_000_000),
            ("-0.0", 0),
        ] {
            assert_eq!(rate(text).map(Ppb::get), Ok(parts), "{text}");
        }
    }

    #[test]
    fn rates_out_of_range_or_too_fine_are_refused() {
        for text in ["1.1", "2", "-0.1", "1e30", "0.0000000001", "0.1234567891", "1e-40"] {
            assert!(rate(text).is_err_and(|e| e.out_of_range), "{text}");
        }
        for text in ["", "x", "1e", "0x1", "1.2.3", "--1", "1e999999999999", "_1", "."] {
            assert!(rate(text).is_err_and(|e| !e.out_of_range), "{text}");
        }
        assert_eq!(rate("1%").unwrap_err().suggestion.as_deref(), Some("0.01"));
        assert_eq!(rate("0.5 %").unwrap_err().suggestion.as_deref(), Some("0.005"));
        assert_eq!(rate("200%").unwrap_err().suggestion, None);
    }

    #[test]
    fn rates_print_as_the_shortest_decimal() {
        for text in ["0", "1", "0.01", "0.000000001", "0.5"] {
            assert_eq!(rate(text).map(|p| p.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn durations_are_exact_nanoseconds() {
        for (text, ns) in [
            ("0", 0),
            ("0s", 0),
            ("5m", 300_000_000_000),
            ("60s", 60_000_000_000),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("1m30s", 90_000_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("0.1ms", 100_000),
        ] {
            assert_eq!(duration(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn bad_durations_come_with_what_was_meant() {
        for (text, meant) in [
            ("5 minutes", Some("5m")),
            ("10 ms", Some("10ms")),
            ("30", Some("30s")),
            ("5M", Some("5m")),
            ("5x", None),
            ("", None),
            ("s", None),
            ("-5s", None),
            ("1.2.3s", None),
        ] {
            let error = duration(text).expect_err(text);
            assert_eq!(error.suggestion.as_deref(), meant, "{text}");
        }
        assert!(duration("1000000h").is_ok());
        assert!(duration("10000000h").is_err_and(|e| e.out_of_range));
        assert!(duration("0.1ns").is_err_and(|e| e.out_of_range));
        assert!(duration("99999999999999999999999999999h").is_err());
    }

    #[test]
    fn milliseconds_and_integers() {
        assert_eq!(millis("50"), Ok(50_000_000));
        assert_eq!(millis("0.5"), Ok(500_000));
        assert_eq!(millis("50ms").unwrap_err().suggestion.as_deref(), Some("50"));
        assert_eq!(millis("2s").unwrap_err().suggestion.as_deref(), Some("2000"));
        assert_eq!(integer("1_000"), Ok(1000));
        assert_eq!(integer("0x10"), Ok(16));
        assert_eq!(integer("1e3"), Ok(1000));
        assert_eq!(integer("18446744073709551615"), Ok(u64::MAX));
        assert!(integer("18446744073709551616").is_err_and(|e| e.out_of_range));
        assert!(integer("1.5").is_err());
        assert!(integer("-1").is_err_and(|e| e.out_of_range));
        assert_eq!(thousandths("0.25"), Ok(250));
    }

    #[test]
    fn durations_are_shown_in_their_largest_whole_unit() {
        for text in ["5m", "90s", "10ms", "1500us", "7ns", "2h"] {
            assert_eq!(duration(text).map(show_duration), Ok(text.to_owned()));
        }
        assert_eq!(show_duration(0), "0s");
    }
}
