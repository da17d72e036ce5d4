//! The middle of several runs, and how far they lie apart.

/// A median and what lies around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The value in the middle.
    pub(crate) median: f64,
    /// From the lowest to the highest, as a share of the median; 0 for one value.
    pub(crate) spread: f64,
}

impl Spread {
    /// Of these values; nothing of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let median = median(values.iter().copied())?;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = if median > 0.0 { (high - low) / median } else { 0.0 };
        Some(Self { median, spread })
    }
}

/// The value in the middle; of an even number of values the middle of the two that stand there. Nothing of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len().is_multiple_of(2) { Some((values[middle - 1] + upper) / 2.0) } else { Some(upper) }
}

#[cfg(test)]
mod tests {
    use super::{Spread, median};

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(median([]), None);
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median([4.0, 1.0, 100.0, 2.0]), Some(3.0), "one outlier does not move it");
    }

    #[test]
    fn spread_is_the_distance_of_the_ends_as_a_share_of_the_median() {
        assert_eq!(Spread::of([100.0, 80.0, 110.0]), Some(Spread { median: 100.0, spread: 0.3 }));
        assert_eq!(Spread::of([5.0]), Some(Spread { median: 5.0, spread: 0.0 }));
        assert_eq!(Spread::of([0.0, 0.0]), Some(Spread { median: 0.0, spread: 0.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
