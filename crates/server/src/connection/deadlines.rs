//! When a connection is given up: pure arithmetic over the moments at which things happened.

use std::time::{Duration, Instant};

use mortarmq_wire::frame::{CONNECT_TIMEOUT_MS, HALF_FRAME_IDLE_MS, HALF_FRAME_TOTAL_MS, KEEPALIVE_TIMEOUT_MS};

/// The time-outs of a connection. No key sets them, as clients of the protocol count on them; a test that waits for them may
/// have shorter ones.
///
/// # Source
/// docs/reference/wire.md, "Frames".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To CONNECT, a handshake of TLS or of a WebSocket included.
    pub connect: Duration,
    /// Without a complete frame. As long may a peer take nothing of what is sent to it: it would otherwise hold its memory for
    /// ever, as nothing more is read from it either.
    pub keepalive: Duration,
    /// Without a new byte of a frame that was begun.
    pub half_frame_idle: Duration,
    /// From the first byte of a frame to its last.
    pub half_frame_total: Duration,
    /// How long a frame that others wait for may crawl.
    pub crawl: Duration,
}

impl Timeouts {
    /// Those of the protocol.
    pub const PROTOCOL: Self = Self {
        connect: Duration::from_millis(CONNECT_TIMEOUT_MS),
        keepalive: Duration::from_millis(KEEPALIVE_TIMEOUT_MS),
        half_frame_idle: Duration::from_millis(HALF_FRAME_IDLE_MS),
        half_frame_total: Duration::from_millis(HALF_FRAME_TOTAL_MS),
        crawl: Duration::from_secs(10),
    };
}

/// The moments of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    timeouts: Timeouts,
    opened: Instant,
    is_connected: bool,
    last_frame: Instant,
    last_byte: Instant,
    /// When the frame that is not complete yet was begun.
    frame_begun: Option<Instant>,
    /// Since when the peer takes nothing of what waits for it.
    stalled_since: Option<Instant>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    GoOn,
    /// Answer `AUTH_TIMEOUT`, then close.
    NoConnect,
    /// Close without an ERR, for this reason.
    Close(&'static str),
}

impl Deadlines {
    pub(crate) fn new(timeouts: Timeouts, now: Instant) -> Self {
        let (frame_begun, stalled_since) = (None, None);
        Self { timeouts, opened: now, is_connected: false, last_frame: now, last_byte: now, frame_begun, stalled_since }
    }

    /// CONNECT came.
    pub(crate) fn handle_connect(&mut self) {
        self.is_connected = true;
    }

    /// Bytes came; some of them completed a frame, or some are the beginning of one.
    pub(crate) fn handle_read(&mut self, now: Instant, has_frame: bool, has_rest: bool) {
        self.last_byte = now;
        if has_frame {
            self.last_frame = now;
            self.frame_begun = None;
        }
        self.frame_begun = if has_rest { self.frame_begun.or(Some(now)) } else { None };
    }

    /// The peer took bytes, or nothing waits for it.
    pub(crate) fn handle_written(&mut self) {
        self.stalled_since = None;
    }

    /// The peer takes nothing now.
    pub(crate) fn handle_stalled(&mut self, now: Instant) {
        self.stalled_since.get_or_insert(now);
    }

    /// Nothing is read by our own choice: the peer is not to blame for its silence.
    pub(crate) fn handle_not_reading(&mut self, now: Instant) {
        self.last_frame = now;
        self.last_byte = now;
        self.frame_begun = self.frame_begun.map(|_| now);
    }

    /// Whether the frame under way, of which so many bytes are there, comes so slowly that it has to make room for others.
    pub(crate) fn is_crawling(&self, now: Instant, received_bytes: usize) -> bool {
        self.frame_begun.is_some_and(|begun| {
            let under_way = now.saturating_duration_since(begun);
            under_way >= self.timeouts.crawl && (received_bytes as u64) < under_way.as_secs() * CRAWL_BYTES
        })
    }

    /// Whether a time-out has come.
    ///
    /// # Source
    /// docs/reference/wire.md, "Frames".
    pub(crate) fn verdict(&self, now: Instant) -> Verdict {
        let over = |since: Instant, time: Duration| now.saturating_duration_since(since) >= time;
        let Timeouts { connect, keepalive, half_frame_idle, half_frame_total, crawl: _ } = self.timeouts;
        if !self.is_connected && over(self.opened, connect) {
            return Verdict::NoConnect;
        }
        // While a frame is under way its own time-outs count, so that a large one may take longer than the keepalive.
        match self.frame_begun {
            Some(begun) if over(begun, half_frame_total) || over(self.last_byte, half_frame_idle) => {
                return Verdict::Close("a frame was begun and not completed in time");
            }
            None if over(self.last_frame, keepalive) => {
                return Verdict::Close("no complete frame within the keepalive time");
            }
            Some(_) | None => {}
        }
        if self.stalled_since.is_some_and(|since| over(since, keepalive)) {
            return Verdict::Close("the peer takes nothing of what is sent to it");
        }
        Verdict::GoOn
    }
}

/// What a frame that others wait for has to bring in a second from then on: the largest frame is through in about a minute.
const CRAWL_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::{Deadlines, Timeouts, Verdict};
    use std::time::{Duration, Instant};

    /// A connection that was opened and greeted, and a way to name later moments.
    fn connected() -> (Deadlines, impl Fn(u64) -> Instant) {
        let opened = Instant::now();
        let mut deadlines = Deadlines::new(Timeouts::PROTOCOL, opened);
        deadlines.handle_connect();
        (deadlines, move |seconds| opened + Duration::from_secs(seconds))
    }

    #[test]
    fn connect_is_due_within_5_s_whatever_else_comes() {
        let opened = Instant::now();
        let mut deadlines = Deadlines::new(Timeouts::PROTOCOL, opened);
        let at = |ms| opened + Duration::from_millis(ms);
        deadlines.handle_read(at(4000), true, false);
        assert_eq!(deadlines.verdict(at(4999)), Verdict::GoOn);
        assert_eq!(deadlines.verdict(at(5000)), Verdict::NoConnect);
        deadlines.handle_connect();
        assert_eq!(deadlines.verdict(at(5000)), Verdict::GoOn);
    }

    #[test]
    fn a_silent_connection_is_closed_after_45_s() {
        let (mut deadlines, at) = connected();
        deadlines.handle_read(at(10), true, false);
        assert_eq!(deadlines.verdict(at(54)), Verdict::GoOn);
        assert!(matches!(deadlines.verdict(at(55)), Verdict::Close(_)));
    }

    #[test]
    fn half_a_frame_is_given_up_after_10_s_of_silence_or_120_s_in_all() {
        let (mut deadlines, at) = connected();
        deadlines.handle_read(at(0), true, true);
        assert_eq!(deadlines.verdict(at(9)), Verdict::GoOn);
        assert!(matches!(deadlines.verdict(at(10)), Verdict::Close(_)));
        let (mut slow, at) = connected();
        for second in (0..120).step_by(5) {
            slow.handle_read(at(second), false, true);
            assert_eq!(slow.verdict(at(second)), Verdict::GoOn);
        }
        slow.handle_read(at(119), false, true);
        assert!(matches!(slow.verdict(at(120)), Verdict::Close(_)));
        slow.handle_read(at(120), true, true);
        assert_eq!(slow.verdict(at(120)), Verdict::GoOn, "the frame was completed and another begun");
    }

    #[test]
    fn rule_9_a_frame_that_crawls_is_told_from_one_that_keeps_its_pace() {
        let (mut deadlines, at) = connected();
        assert!(!deadlines.is_crawling(at(40), 0), "there is no frame");
        deadlines.handle_read(at(0), false, true);
        assert!(!deadlines.is_crawling(at(9), 1), "it may begin slowly");
        assert!(deadlines.is_crawling(at(10), (10 << 18) - 1));
        assert!(!deadlines.is_crawling(at(10), 10 << 18));
        deadlines.handle_not_reading(at(11));
        assert!(!deadlines.is_crawling(at(20), 1), "nothing was read by our own choice");
    }

    #[test]
    fn a_peer_is_not_blamed_for_what_is_not_read() {
        let (mut deadlines, at) = connected();
        deadlines.handle_read(at(0), true, true);
        for second in 1..=60 {
            deadlines.handle_not_reading(at(second));
        }
        assert_eq!(deadlines.verdict(at(69)), Verdict::GoOn);
        assert!(matches!(deadlines.verdict(at(70)), Verdict::Close(_)), "10 s after reading went on");
    }

    #[test]
    fn rule_9_a_peer_that_takes_nothing_is_given_up() {
        let (mut deadlines, at) = connected();
        deadlines.handle_stalled(at(1));
        deadlines.handle_stalled(at(40));
        deadlines.handle_not_reading(at(45));
        assert_eq!(deadlines.verdict(at(45)), Verdict::GoOn);
        assert!(matches!(deadlines.verdict(at(46)), Verdict::Close(_)));
        deadlines.handle_written();
        assert_eq!(deadlines.verdict(at(46)), Verdict::GoOn);
    }
}
