//! What the clients saw, kept outside the broker, and the judgement of every delivery against it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortarmq_client::{Delivery, Published};
use mortarmq_types::Cause;

/// The groups of the test, in the order of their numbers here.
pub(crate) const GROUPS: [&str; 2] = ["billing", "audit"];

/// The number of a group.
pub(crate) fn path_of(group: &str) -> usize {
    GROUPS.iter().position(|known| *known == group).unwrap_or_else(|| panic!("unknown group {group}"))
}

type Place = (u16, u64);

/// Everything that is known of one run.
#[derive(Default)]
pub(crate) struct Record {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Where each message is stored; not known before its publish is confirmed.
    sent: HashMap<String, Option<Place>>,
    /// Which message a place belongs to.
    owners: HashMap<Place, String>,
    /// The last delivery of each message on each path.
    last: HashMap<(usize, Place), Seen>,
    delivery_ids: HashSet<u64>,
    acked: [HashSet<Place>; 2],
    acks_sent: [HashSet<Place>; 2],
    nacked: HashSet<u64>,
    /// Keys, and keyless places, of which something was nacked, given back or lost: later ones of the key come back too.
    disturbed: HashSet<(usize, Vec<u8>)>,
    released: HashSet<u64>,
    repeated: Vec<(usize, Place, Cause)>,
    last_kill: Option<Instant>,
    counts: Counts,
}

struct Seen {
    delivery_id: u64,
    attempt: u32,
    at: Instant,
    lease_ms: u32,
}

/// Totals since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) publishes: u64,
    pub(crate) settles: u64,
    pub(crate) deliveries: u64,
    pub(crate) acks_sent: [u64; 2],
    pub(crate) acks_confirmed: [u64; 2],
    pub(crate) repeats: BTreeMap<&'static str, u64>,
}

impl Record {
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Kills the broker; the totals at that moment.
    pub(crate) fn kill(&self, kill: impl FnOnce()) -> Counts {
        let counts = self.counts();
        kill();
        self.lock().last_kill = Some(Instant::now());
        counts
    }

    pub(crate) fn sending(&self, id: &str) {
        let mut inner = self.lock();
        assert!(inner.sent.insert(id.to_owned(), None).is_none(), "the test sends each id once");
        inner.counts.sent += 1;
    }

    pub(crate) fn confirmed(&self, id: &str, published: &Published) {
        let mut inner = self.lock();
        let place = (published.partition.get(), published.seq.get());
        inner.claim(id, place);
        inner.counts.publishes += 1;
    }

    pub(crate) fn delivered(&self, path: usize, id: &str, delivery: &Delivery) {
        let mut inner = self.lock();
        let place = (delivery.partition.get(), delivery.seq.get());
        assert!(inner.sent.contains_key(id), "phantom: {id} was never sent");
        inner.claim(id, place);
        assert!(
            !inner.acked[path].contains(&place),
            "P6: {id} at {place:?} was acked on {} and comes again",
            GROUPS[path]
        );
        let number = delivery.delivery_id.get();
        assert!(inner.delivery_ids.insert(number), "P10: delivery {number} was used before");
        inner.judge(path, place, delivery);
        let attempt = delivery.attempt.get();
        let seen = Seen { delivery_id: number, attempt, at: Instant::now(), lease_ms: delivery.lease_ms };
        inner.last.insert((path, place), seen);
        inner.counts.deliveries += 1;
    }

    pub(crate) fn acking(&self, path: usize, delivery: &Delivery) {
        let mut inner = self.lock();
        if inner.acks_sent[path].insert((delivery.partition.get(), delivery.seq.get())) {
            inner.counts.acks_sent[path] += 1;
        }
    }

    pub(crate) fn acked(&self, path: usize, delivery: &Delivery) {
        let mut inner = self.lock();
        let place = (delivery.partition.get(), delivery.seq.get());
        assert!(inner.acked[path].insert(place), "P6: {place:?} was acked twice on {}", GROUPS[path]);
        inner.counts.acks_confirmed[path] += 1;
        inner.counts.settles += 1;
    }

    pub(crate) fn giving_up(&self, path: usize, delivery: &Delivery, is_nack: bool) {
        let mut inner = self.lock();
        let number = delivery.delivery_id.get();
        if is_nack {
            inner.nacked.insert(number);
        } else {
            inner.released.insert(number);
        }
        inner.disturbed.insert((path, delivery.key.to_vec()));
    }

    pub(crate) fn gave_up(&self) {
        self.lock().counts.settles += 1;
    }

    /// P1 and P4: every confirmed message was acked on every path.
    pub(crate) fn check_everything_was_acked(&self) {
        let inner = self.lock();
        for (id, place) in &inner.sent {
            let place = place.unwrap_or_else(|| panic!("P1: {id} was neither confirmed nor refused"));
            for (path, group) in GROUPS.iter().enumerate() {
                assert!(inner.acks_sent[path].contains(&place), "P1: {id} at {place:?} was never delivered on {group}");
            }
        }
    }

    /// Some messages that came more than once, with the cause.
    pub(crate) fn some_repeated(&self, most: usize) -> Vec<(&'static str, u16, u64, &'static str)> {
        let inner = self.lock();
        let step = (inner.repeated.len() / most).max(1);
        let row = |(path, place, cause): &(usize, Place, Cause)| (GROUPS[*path], place.0, place.1, cause.word());
        inner.repeated.iter().step_by(step).take(most).map(row).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A failed assertion elsewhere must not hide behind a poisoned lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// P3 and P10: a message has one place, and a place one message.
    fn claim(&mut self, id: &str, place: Place) {
        let known = self.sent.get_mut(id).unwrap_or_else(|| panic!("phantom: {id} was never sent"));
        assert!(known.is_none_or(|known| known == place), "P3: {id} is at {known:?} and at {place:?}");
        *known = Some(place);
        let owner = self.owners.entry(place).or_insert_with(|| id.to_owned());
        assert_eq!(owner, id, "P10: {place:?} was given twice");
    }

    /// P7: a delivery after the first names the one it follows and a cause that is true.
    fn judge(&mut self, path: usize, place: Place, delivery: &Delivery) {
        let cause = delivery.cause;
        // A delivery may have been granted and never have reached a handler: it waited in the client behind an earlier message
        // of its key that came back, or a kill cost its consumer the session. By itself a kill loses none: the consumer
        // resumes, and is sent it again.
        let key = (path, delivery.key.to_vec());
        let is_disturbed = !key.1.is_empty() && self.disturbed.contains(&key);
        let may_have_missed = is_disturbed || (cause == Cause::ConsumerLost && self.last_kill.is_some());
        let Some(last) = self.last.get(&(path, place)) else {
            assert!(cause == Cause::First || may_have_missed, "P7: {cause} before any delivery of {place:?}");
            return;
        };
        let previous = delivery.previous.map_or(0, mortarmq_types::DeliveryId::get);
        assert!(previous >= last.delivery_id, "P7: {place:?} follows {previous}, not {}", last.delivery_id);
        assert!(delivery.delivery_id.get() > previous, "P10: {place:?} follows a later delivery");
        if previous == last.delivery_id {
            let waited = last.at.elapsed() + SLACK;
            // A delivery of a session that died may reach its handler later: it waited in the client behind its key.
            let killed_since = self.last_kill.is_some_and(|kill| kill + HELD_IN_CLIENT >= last.at);
            let is_true = match cause {
                Cause::Nacked => self.nacked.contains(&previous),
                Cause::ConsumerLost => killed_since,
                Cause::LeaseExpired => waited >= Duration::from_millis(u64::from(last.lease_ms)),
                Cause::Released => self.released.contains(&previous) || is_disturbed,
                Cause::First | Cause::Redriven | Cause::Replayed => false,
            };
            assert!(is_true, "P7: {place:?} on {} comes again as {cause}, which is not true", GROUPS[path]);
            let expected = last.attempt + u32::from(cause.counts());
            assert_eq!(delivery.attempt.get(), expected, "P7: attempt of {place:?} after {cause}");
        } else {
            assert!(may_have_missed, "P7: {place:?} comes again as {cause}, and delivery {previous} never arrived");
            assert!(delivery.attempt.get() >= last.attempt, "P7: attempts of {place:?} go back");
        }
        *self.counts.repeats.entry(cause.word()).or_default() += 1;
        self.repeated.push((path, place, cause));
    }
}

/// How long a client may hold a delivery back before it hands it over.
const HELD_IN_CLIENT: Duration = Duration::from_secs(5);
/// Between the moment something happened and the moment this process looked at its clock.
const SLACK: Duration = Duration::from_secs(1);
