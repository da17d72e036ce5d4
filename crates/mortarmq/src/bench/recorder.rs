//! What is done in a span of time: how much, how fast in each second of it, and how long each took.

use std::time::{Duration, Instant};

use super::{Latency, median};

/// The span that counts. What ends before it warms up, what ends behind it comes too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// From here.
    pub(crate) begin: Instant,
    /// To here.
    pub(crate) end: Instant,
}

impl Span {
    /// One that begins after a warm-up.
    pub(crate) fn after(warm_up: Duration, length: Duration) -> Self {
        let begin = Instant::now() + warm_up;
        Self { begin, end: begin + length }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

/// Counts what is done.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    span: Span,
    latency: Latency,
    messages: u64,
    /// Messages of each tenth of a second.
    tenths: Vec<u64>,
    last: Option<Instant>,
}

impl Recorder {
    /// Nothing is done yet.
    pub(crate) fn new(span: Span) -> Self {
        Self { span, latency: Latency::new(), messages: 0, tenths: Vec::new(), last: None }
    }

    /// Counts a request of so many messages that was begun then and is done now.
    pub(crate) fn record(&mut self, begun: Instant, messages: u64) {
        self.record_at(begun, Instant::now(), messages);
    }

    /// As [`Self::record`], of one that was done then.
    pub(crate) fn record_at(&mut self, begun: Instant, done: Instant, messages: u64) {
        if done < self.span.begin || done >= self.span.end {
            return;
        }
        let tenth = usize::try_from((done - self.span.begin).as_millis() / TENTH_MS).expect("spans are short");
        if tenth >= self.tenths.len() {
            self.tenths.resize(tenth + 1, 0);
        }
        self.tenths[tenth] += messages;
        self.messages += messages;
        self.latency.record(done.saturating_duration_since(begun));
        self.last = self.last.max(Some(done));
    }

    /// Counts what was done elsewhere in the same span.
    pub(crate) fn add(&mut self, other: &Self) {
        if other.tenths.len() > self.tenths.len() {
            self.tenths.resize(other.tenths.len(), 0);
        }
        self.tenths.iter_mut().zip(&other.tenths).for_each(|(sum, more)| *sum += more);
        self.messages += other.messages;
        self.latency.add(&other.latency);
        self.last = self.last.max(other.last);
    }

    /// Messages that were done.
    pub(crate) const fn messages(&self) -> u64 {
        self.messages
    }

    /// How long each request took.
    pub(crate) const fn latency(&self) -> &Latency {
        &self.latency
    }

    /// The whole span.
    pub(crate) fn span(&self) -> Duration {
        self.span.end - self.span.begin
    }

    /// From the beginning of the span until the last was done: how long there was something to do.
    pub(crate) fn until_last(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last - self.span.begin)
    }

    /// The slowest second of these, against the median of all seconds: 1 is a rate that holds. Seconds begin every tenth
    /// of one. Nothing for less than two seconds.
    pub(crate) fn slowest_second(&self, elapsed: Duration) -> Option<f64> {
        let whole = usize::try_from(elapsed.as_millis() / TENTH_MS).expect("spans are short");
        let mut tenths = self.tenths.clone();
        tenths.resize(whole, 0);
        if whole < 2 * TENTHS {
            return None;
        }
        let seconds: Vec<f64> = tenths.windows(TENTHS).map(|second| second.iter().sum::<u64>() as f64).collect();
        let slowest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        median(seconds).filter(|median| *median > 0.0).map(|median| slowest / median)
    }
}

const TENTH_MS: u128 = 100;
/// Of a second.
const TENTHS: usize = 10;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Recorder, Span};

    const LATENCY: Duration = Duration::from_millis(2);

    fn span() -> Span {
        let begin = Instant::now();
        Span { begin, end: begin + Duration::from_secs(4) }
    }

    fn record(recorder: &mut Recorder, at_ms: u64, messages: u64) {
        let done = recorder.span.begin + Duration::from_millis(at_ms);
        recorder.record_at(done.checked_sub(LATENCY).expect("the machine is up for longer"), done, messages);
    }

    #[test]
    fn only_what_is_done_in_the_span_counts() {
        let mut recorder = Recorder::new(span());
        let before = recorder.span.begin.checked_sub(LATENCY).expect("the machine is up for longer");
        recorder.record_at(before, before, 100);
        record(&mut recorder, 4000, 100);
        assert_eq!((recorder.messages(), recorder.until_last()), (0, Duration::ZERO));
        record(&mut recorder, 0, 1);
        record(&mut recorder, 3999, 2);
        assert_eq!((recorder.messages(), recorder.until_last()), (3, Duration::from_millis(3999)));
        assert_eq!((recorder.latency().count(), recorder.latency().quantile_us(0.5) / 1000), (2, 2));
    }

    #[test]
    fn a_second_without_progress_is_seen_also_when_it_begins_between_two_seconds() {
        let (mut left, mut right) = (Recorder::new(span()), Recorder::new(span()));
        right.span = left.span;
        for at_ms in (50..4000).step_by(100) {
            let half = if (1500..2500).contains(&at_ms) { 0 } else { 5 };
            record(if at_ms % 200 == 50 { &mut left } else { &mut right }, at_ms, half);
        }
        left.add(&right);
        assert_eq!(left.slowest_second(Duration::from_secs(4)), Some(0.0));
    }

    #[test]
    fn an_even_rate_holds_and_too_short_a_span_says_nothing() {
        let mut recorder = Recorder::new(span());
        (50..4000).step_by(100).for_each(|at_ms| record(&mut recorder, at_ms, 7));
        assert_eq!(recorder.slowest_second(Duration::from_secs(4)), Some(1.0));
        assert_eq!(recorder.slowest_second(Duration::from_millis(1999)), None);
    }

    #[test]
    fn a_stall_at_the_end_of_the_span_counts() {
        let mut recorder = Recorder::new(span());
        (50..3000).step_by(100).for_each(|at_ms| record(&mut recorder, at_ms, 7));
        assert_eq!(recorder.slowest_second(Duration::from_secs(4)), Some(0.0));
    }
}
