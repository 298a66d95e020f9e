//! Dates as in RFC 3339: a day, or a second of one in UTC.
//!
//! Key types: [`start`], what `bloodhound exec --start-date` takes as well, and [`START`].

use bloodhound_declare::{Syntax, ValueKind};

use crate::decode::Ctx;
use crate::diagnostic::Code;
use crate::tree::Node;

/// CLOCK_REALTIME at virtual time 0 where nothing else is configured.
pub const START: &str = "2025-01-01T00:00:00Z";

pub(super) const DATE: ValueKind = ValueKind::Own(&Syntax {
    name: "Date",
    written: "date",
    plural: "dates",
    doc: "a day, or a second of one in UTC: 2026-11-26, 2026-11-26T08:30:00Z",
    schema: r#"{"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$"}"#,
    uses: &[],
});

/// The years that clocks and certificates can be trusted with.
const YEARS: std::ops::RangeInclusive<u64> = 1980..=2199;

/// Nanoseconds from 1970 to a date.
///
/// # Errors
/// What is wrong with it, as a sentence without its subject.
pub fn start(text: &str) -> Result<u64, String> {
    const FORM: &str = "must be a date such as 2026-11-26 or 2026-11-26T08:30:00Z";
    let number = |text: &str, digits: usize| {
        let right = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| right).ok_or(FORM)
    };
    let (day, time) = match text.split_once('T') {
        Some((day, time)) => (day, time.strip_suffix('Z').ok_or("must be in UTC, with a Z at its end")?),
        None => (text, "00:00:00"),
    };
    let parts = |text: &str, by: char, digits: [usize; 3]| -> Result<[u64; 3], String> {
        let all: Vec<&str> = text.split(by).collect();
        let [a, b, c] = all.as_slice() else { return Err(FORM.to_owned()) };
        Ok([number(a, digits[0])?, number(b, digits[1])?, number(c, digits[2])?])
    };
    let [year, month, day] = parts(day, '-', [4, 2, 2])?;
    let [hour, minute, second] = parts(time, ':', [2, 2, 2])?;
    if !YEARS.contains(&year) {
        return Err(format!("must be between the years {} and {}", YEARS.start(), YEARS.end()));
    }
    if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) {
        return Err("must be a day that there is".to_owned());
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err("must be a time of the day from 00:00:00 to 23:59:59".to_owned());
    }
    let years: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum();
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    let days = years + months + day - 1;
    Ok((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

pub(super) fn decode(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u64> {
    let text = ctx.text(node, path)?;
    match start(&text) {
        Ok(ns) => Some(ns),
        Err(wrong) => {
            ctx.error(Code::Malformed, node.span, format!("`{path}` {wrong}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        let seconds = |text| start(text).map(|ns| ns / 1_000_000_000);
        assert_eq!(seconds(START), Ok(1_735_689_600));
        assert_eq!(seconds("2025-01-01"), Ok(1_735_689_600));
        assert_eq!(seconds("2026-11-26T08:30:05Z"), Ok(1_795_681_805));
        assert_eq!(seconds("2000-02-29"), Ok(951_782_400));
        assert_eq!(seconds("2000-03-01"), Ok(951_868_800));
        assert_eq!(seconds("2038-01-19T03:14:08Z"), Ok(1 << 31));
        for wrong in [
            "",
            "today",
            "2026-1-1",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-11-31",
            "1979-01-01",
            "2200-01-01",
            "2026-11-26T24:00:00Z",
            "2026-11-26T08:30:05",
            "2026-11-26T08:30:05+01:00",
            "2026-11-26 08:30:05Z",
            "+026-11-26",
        ] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
    }
}
