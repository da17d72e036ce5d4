//! The way into the shard's loop: many send, the loop takes all that is there at once.
//!
//! A wake-up costs about as much as a message. While the journal writes a batch, a request can only join the next one, so
//! it wakes nobody: the loop finds it when the batch is written, when much has come, or a millisecond later. A batch that
//! waits for connections to publish again is another matter: whatever else comes may be what it waits for.
//!
//! # Invariants
//! 1. Events are taken in the order in which they were sent.
//! 2. What cannot wait wakes the loop at once, and with it everything before it.

use std::collections::VecDeque;
use std::mem::{swap, take};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::event::{Event, Patient};

/// The loop's end.
pub(crate) struct Inbox {
    door: Arc<Door>,
    /// Taken, and not handled yet.
    taken: VecDeque<Event>,
}

/// The end of all others.
pub(crate) struct EventSender(Arc<Door>);

/// How the loop sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Every event wakes it.
    Light,
    /// The journal writes. What can wait does: at most for [`PATIENCE`], or until [`WORTH_BYTES`] of it are there.
    Writing,
    /// The next batch waits for so many connections to publish: that waits too, until all have or [`WORTH_BYTES`] are there. Any other
    /// request may end that.
    Gathering { publishers: u64 },
}

struct Door {
    room: Mutex<Room>,
    woken: Condvar,
}

struct Room {
    events: VecDeque<Event>,
    /// What of them can wait.
    patient: Patient,
    /// How the loop sleeps, if it does and nobody has woken it.
    sleeps: Option<Sleep>,
    /// Ends from which something can come.
    senders: usize,
    /// Whether the loop is there.
    is_open: bool,
}

/// Both ends of a new inbox.
pub(crate) fn inbox() -> (EventSender, Inbox) {
    let room = Room { events: VecDeque::new(), patient: Patient::default(), sleeps: None, senders: 1, is_open: true };
    let door = Arc::new(Door { room: Mutex::new(room), woken: Condvar::new() });
    (EventSender(Arc::clone(&door)), Inbox { door, taken: VecDeque::new() })
}

impl Door {
    fn room(&self) -> MutexGuard<'_, Room> {
        // A panic elsewhere ends the process, so a poisoned lock means nothing here.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSender {
    /// Sends an event. Once the loop has ended nobody is left to care: it is dropped.
    pub(crate) fn send(&self, event: Event) {
        let patience = event.patience();
        let mut room = self.0.room();
        if !room.is_open {
            return;
        }
        if let Some(patience) = patience {
            room.patient.add(patience);
        }
        room.events.push_back(event);
        let is_worth_it = patience.is_none() || room.patient.bytes >= WORTH_BYTES;
        let wakes = match room.sleeps {
            None => false,
            Some(Sleep::Light) => true,
            Some(Sleep::Writing) => is_worth_it,
            Some(Sleep::Gathering { publishers }) => {
                is_worth_it || room.patient.has_others || room.patient.publishers >= publishers
            }
        };
        if wakes {
            // Whoever comes next need not do it again.
            room.sleeps = None;
            drop(room);
            self.0.woken.notify_one();
        }
    }
}

impl Clone for EventSender {
    fn clone(&self) -> Self {
        self.0.room().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        let mut room = self.0.room();
        room.senders -= 1;
        if room.senders == 0 {
            drop(room);
            self.0.woken.notify_one();
        }
    }
}

impl Inbox {
    /// Waits until there is something to do, but not longer than `at_most`. It may return with nothing. `false` once
    /// nothing can come any more.
    pub(crate) fn wait(&mut self, at_most: Duration, sleep: Sleep) -> bool {
        if !self.taken.is_empty() {
            return true;
        }
        let mut room = self.door.room();
        if room.events.is_empty() && room.senders > 0 {
            let at_most = if sleep == Sleep::Light { at_most } else { at_most.min(PATIENCE) };
            room.sleeps = Some(sleep);
            (room, _) = self.door.woken.wait_timeout(room, at_most).unwrap_or_else(PoisonError::into_inner);
            room.sleeps = None;
        }
        Self::take(&mut self.taken, &mut room);
        !self.taken.is_empty() || room.senders > 0
    }

    /// The next event, if there is one now.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        if self.taken.is_empty() {
            Self::take(&mut self.taken, &mut self.door.room());
        }
        self.taken.pop_front()
    }

    /// Takes all. The room of what was taken before is used again, unless a rush has made it large.
    fn take(taken: &mut VecDeque<Event>, room: &mut Room) {
        if taken.capacity() > KEPT_EVENTS {
            *taken = VecDeque::new();
        }
        swap(taken, &mut room.events);
        room.patient = Patient::default();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut room = self.door.room();
        room.is_open = false;
        let left = take(&mut room.events);
        drop(room);
        // Whoever waits for an answer learns that there is none.
        drop(left);
    }
}

#[cfg(test)]
impl Inbox {
    /// The next event, once it is there.
    pub(crate) fn next_within(&mut self, within: Duration) -> Option<Event> {
        let until = std::time::Instant::now() + within;
        loop {
            if let Some(event) = self.pop() {
                return Some(event);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || !self.wait(left, Sleep::Light) {
                return None;
            }
        }
    }
}

/// How long a request waits for others while the journal writes. On a healthy disk the batch is written before.
const PATIENCE: Duration = Duration::from_millis(1);
/// With so many bytes of requests, their commands are better made while the journal writes than behind it: about a hundred
/// small messages, which cost many times the wake-up.
const WORTH_BYTES: usize = 32 << 10;
/// Room for so many events is kept.
const KEPT_EVENTS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{EventSender, PATIENCE, Sleep, WORTH_BYTES, inbox};
    use crate::event::Event;
    use bytes::Bytes;
    use mortarmq_node::Request;
    use mortarmq_shard::PublishRun;
    use mortarmq_types::{ConnectionId, TopicIncarnation};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);

    fn ping(number: u64) -> Event {
        Event::Requests { connection: ConnectionId::new(number), requests: vec![Request::Ping] }
    }

    fn heavy() -> Event {
        let names = vec!["n".repeat(WORTH_BYTES)];
        Event::Requests { connection: ConnectionId::new(1), requests: vec![Request::Metadata { names }] }
    }

    fn publish(count: u32) -> Request {
        Request::Publish(PublishRun { topic: TopicIncarnation::new(1), count, commands: Bytes::new() })
    }

    fn publishes(count: u32) -> Event {
        Event::Requests { connection: ConnectionId::new(1), requests: vec![publish(count)] }
    }

    /// Whether an event wakes a loop that sleeps so.
    fn wakes(sender: &EventSender, sleep: Sleep, event: Event) -> bool {
        sender.0.room().sleeps = Some(sleep);
        sender.send(event);
        sender.0.room().sleeps.take().is_none()
    }

    /// Sends an event to a loop that sleeps; how long it went on sleeping.
    fn slept(sleep: Sleep, event: Event) -> Duration {
        let (sender, mut inbox) = inbox();
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                let begun = Instant::now();
                while inbox.pop().is_none() {
                    // A deep sleep looks for itself now and then; only what wakes it is looked for here.
                    assert!(inbox.wait(LONG, sleep));
                }
                begun.elapsed()
            });
            while sender.0.room().sleeps.is_none() {
                std::thread::yield_now();
            }
            sender.send(event);
            waits.join().expect("it does not panic")
        })
    }

    #[test]
    fn whatever_comes_wakes_a_light_sleep() {
        assert!(slept(Sleep::Light, ping(1)) < LONG);
        assert!(slept(Sleep::Light, Event::Stop) < LONG);
    }

    #[test]
    fn while_the_journal_writes_only_what_cannot_wait_wakes_and_much_that_can() {
        let (sender, _inbox) = inbox();
        let wakes = |event| wakes(&sender, Sleep::Writing, event);
        assert!(!wakes(ping(1)), "it joins the next batch anyway");
        assert!(!wakes(Event::SegmentsWritten { ticket: 1 }));
        assert!(wakes(Event::JournalWritten { ready_number: 1, took: LONG }));
        assert!(wakes(Event::Disconnected { connection: ConnectionId::new(1) }));
        assert!(!wakes(publishes(1000)) && !wakes(ping(2)));
        assert!(wakes(heavy()), "its commands are made while the journal writes");
    }

    #[test]
    fn while_a_batch_gathers_publishers_wait_for_their_number_and_nothing_else_does() {
        let gathering = Sleep::Gathering { publishers: 3 };
        let (sender, mut inbox) = inbox();
        assert!(!wakes(&sender, gathering, publishes(2)));
        assert!(!wakes(&sender, gathering, publishes(2)));
        assert!(!wakes(&sender, gathering, Event::SegmentsWritten { ticket: 1 }));
        assert!(wakes(&sender, gathering, publishes(1)), "three were waited for");
        while inbox.pop().is_some() {}
        assert!(!wakes(&sender, gathering, publishes(4)), "that is one");
        assert!(wakes(&sender, gathering, ping(1)), "what is asked beside may end what the batch waits for");
        while inbox.pop().is_some() {}
        let mixed = vec![publish(1), Request::Ping, publish(1)];
        assert!(wakes(&sender, gathering, Event::Requests { connection: ConnectionId::new(1), requests: mixed }));
        assert!(wakes(&sender, gathering, Event::Disconnected { connection: ConnectionId::new(1) }));
    }

    #[test]
    fn what_can_wait_does_not_wait_long() {
        let waited = slept(Sleep::Writing, ping(1));
        assert!(waited < LONG, "nothing but its patience ended it: {waited:?}, {PATIENCE:?}");
    }

    #[test]
    fn events_come_in_their_order_and_all_at_once() {
        let (sender, mut inbox) = inbox();
        for number in 0..100 {
            sender.send(ping(number));
        }
        assert!(inbox.wait(LONG, Sleep::Writing), "what is there is taken without sleep");
        sender.send(ping(100));
        for number in 0..=100 {
            let Some(Event::Requests { connection, .. }) = inbox.pop() else { panic!("{number} is there") };
            assert_eq!(connection, ConnectionId::new(number));
        }
        assert!(inbox.pop().is_none());
    }

    #[test]
    fn the_loop_learns_that_nobody_is_left_and_the_others_that_the_loop_is_gone() {
        let (sender, mut inbox) = inbox();
        let other = sender.clone();
        drop(sender);
        assert!(inbox.wait(Duration::ZERO, Sleep::Light), "one is left");
        other.send(ping(1));
        drop(other);
        assert!(inbox.wait(LONG, Sleep::Light) && inbox.pop().is_some(), "what was sent is taken");
        assert!(!inbox.wait(LONG, Sleep::Light));

        let (sender, mut inbox) = super::inbox();
        let (answer, mut asked) = tokio::sync::oneshot::channel();
        sender.send(Event::Gauges { answer });
        assert!(inbox.wait(LONG, Sleep::Light));
        let (later, mut never) = tokio::sync::oneshot::channel();
        sender.send(Event::Gauges { answer: later });
        drop(inbox);
        let (last, mut neither) = tokio::sync::oneshot::channel();
        sender.send(Event::Gauges { answer: last });
        for answer in [&mut asked, &mut never, &mut neither] {
            assert!(matches!(answer.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Closed)));
        }
    }
}
