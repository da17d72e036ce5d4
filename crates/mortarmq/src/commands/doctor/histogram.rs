//! What a scrape tells: single values, and quantiles of its histograms.

/// A scrape in the Prometheus text format.
pub(super) struct Scrape(String);

impl Scrape {
    pub(super) const fn new(text: String) -> Self {
        Self(text)
    }

    /// The value of a metric; the sum of its rows where it has labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.rows(name).map(|(_, value)| value).reduce(|sum, value| sum + value)
    }

    /// The value of one label of a metric's first row.
    pub(super) fn label(&self, name: &str, label: &str) -> Option<String> {
        let (labels, _) = self.rows(name).next()?;
        labels.split_once(&format!("{label}=\""))?.1.split('"').next().map(str::to_owned)
    }

    /// How many values a histogram has, and the bound of the bucket in which each of these shares of them ends. What lies
    /// above all bounds is infinite.
    pub(super) fn quantiles<const N: usize>(&self, name: &str, shares: [f64; N]) -> Option<(f64, [f64; N])> {
        let buckets: Vec<(f64, f64)> = self
            .rows(&format!("{name}_bucket"))
            .filter_map(|(labels, count)| {
                let bound = labels.split_once("le=\"")?.1.split('"').next()?;
                // `+Inf` is a number of Rust, too.
                Some((bound.parse().ok()?, count))
            })
            .collect();
        let total = buckets.last()?.1;
        let bound = |share: f64| {
            let reached = buckets.iter().find(|(_, count)| *count >= share * total);
            reached.map_or(f64::INFINITY, |(bound, _)| *bound)
        };
        Some((total, shares.map(bound)))
    }

    /// Labels and value of every row of a metric.
    fn rows<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            Some((labels, value.trim().parse().ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Scrape;

    const TEXT: &str = "# HELP a_b x\na_b 7\na_bc 9\nfs{type=\"ext4\"} 1\nheld{topic=\"a} b\",group=\"g\"} 2\nheld{topic=\"c\"} 3\n\
        h_bucket{le=\"0.1\"} 50\nh_bucket{le=\"0.2\"} 98\nh_bucket{le=\"+Inf\"} 100\nh_sum 1\nh_count 100\n";

    #[test]
    fn values_labels_and_quantiles_are_read_and_nothing_else() {
        let scrape = Scrape::new(TEXT.to_owned());
        assert_eq!((scrape.value("a_b"), scrape.value("a"), scrape.value("held")), (Some(7.0), None, Some(5.0)));
        assert_eq!((scrape.label("fs", "type"), scrape.label("fs", "x")), (Some("ext4".to_owned()), None));
        assert_eq!(scrape.quantiles("h", [0.5, 0.98, 0.99]), Some((100.0, [0.1, 0.2, f64::INFINITY])));
        assert_eq!(scrape.quantiles("a_b", [0.5]), None);
    }
}
