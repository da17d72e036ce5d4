//! Numbers and times as people read them.

/// A count in groups of three digits: `2,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A wall-clock time in UTC: `2026-01-31T12:00:00.123Z`.
///
/// # Units
/// `time_ms` is milliseconds since 1970.
pub(crate) fn utc(time_ms: u64) -> String {
    let (days, of_day_ms) = (time_ms / DAY_MS, time_ms % DAY_MS);
    let (year, month, day) = date(days);
    let (seconds, ms) = (of_day_ms / 1000, of_day_ms % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970, counted in eras of 400 years that begin on the first of March, so that the
/// leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + DAYS_FROM_MARCH_0000;
    let (era, of_era) = (shifted / DAYS_PER_ERA, shifted % DAYS_PER_ERA);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const DAY_MS: u64 = 86_400_000;
const DAYS_PER_ERA: u64 = 146_097;
/// Days from the first of March of year 0 to the first of January 1970.
const DAYS_FROM_MARCH_0000: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::{grouped, utc};

    #[test]
    fn counts_are_grouped_by_three() {
        let texts: Vec<_> = [0, 999, 1000, 2_000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(texts, ["0", "999", "1,000", "2,000", "1,234,567"]);
    }

    #[test]
    fn times_are_utc_dates_with_leap_years() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_709_251_200_000), "2024-03-01T00:00:00.000Z");
        assert_eq!(utc(1_767_225_599_007), "2025-12-31T23:59:59.007Z");
    }
}
