//! How a delivery ends without an ack, and when that makes a message dead.

use super::{Fate, Lease, Model, Stands, Told};
use mortarmq_delivery::Death;
use mortarmq_shard::{Setting, ledger::LedgerKind};
use mortarmq_types::{Cause, DropReason, PathId};

/// Why a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Expired,
    Lost,
    Nacked {
        delay_ms: u64,
    },
    Rejected,
    GivenBack,
    /// An earlier message of its key came back.
    Follower,
    /// Its bytes cannot be read.
    Held,
}

/// A message that is owed a dead letter.
#[derive(Clone, Debug)]
pub(super) struct DeadMessage {
    pub(super) path: PathId,
    pub(super) partition: usize,
    pub(super) seq: u64,
    pub(super) attempts: u32,
    pub(super) reason: Death,
    pub(super) error: String,
    pub(super) delivery: u64,
    /// The dead letter that it was redriven from.
    pub(super) source: Option<u64>,
}

impl Failure {
    fn cause(self) -> Cause {
        match self {
            Self::Expired => Cause::LeaseExpired,
            Self::Lost => Cause::ConsumerLost,
            Self::Nacked { .. } | Self::Rejected => Cause::Nacked,
            Self::GivenBack | Self::Follower | Self::Held => Cause::Released,
        }
    }

    fn counts(self) -> bool {
        matches!(self, Self::Expired | Self::Lost | Self::Nacked { .. } | Self::Rejected)
    }
}

impl Model {
    /// Ends a lease, and with it those of its key behind it (P8).
    pub(super) fn fail(&mut self, id: PathId, number: usize, seq: u64, failure: Failure, error: &str) {
        let path = &self.paths[&id];
        let messages = &self.topics[&path.topic].partitions[number];
        let key = messages.get(seq).key;
        let behind =
            |other: &u64| *other > seq && path.keeps_order() && key.is_some() && messages.get(*other).key == key;
        // Only what was granted in the order of keys ends with others of its key.
        let ordered = path.partitions[number].leases().filter(|(_, lease)| lease.ordered).map(|(other, _)| other);
        let followers: Vec<u64> = ordered.filter(behind).collect();
        if !followers.is_empty() && matches!(failure, Failure::Nacked { .. }) {
            self.reach("nack of a key's first with followers leased");
        }
        self.end_one(id, number, seq, failure, error);
        for follower in followers {
            self.end_one(id, number, follower, Failure::Follower, "");
        }
    }

    fn end_one(&mut self, id: PathId, number: usize, seq: u64, failure: Failure, error: &str) {
        let path = &self.paths[&id];
        let limit = path.get(Setting::MaxAttempts);
        let backoff =
            |nth: u64| backoff(path.get(Setting::RetryBackoffBaseMs), path.get(Setting::RetryBackoffMaxMs), nth);
        let retry = |attempt: u32| backoff(u64::from(attempt) + 1);
        let waits = [retry(self_attempt(path, number, seq)), backoff(given_back(path, number, seq) + 1)];
        let now = self.time;
        let pair = &path.partitions[number].pairs[&seq];
        let lease = pair.lease().expect("the caller found the lease there");
        let open = pair.open.as_ref().expect("it is leased");
        let attempts = open.attempt;
        let death = match failure {
            Failure::Rejected => Some(Death::Rejected),
            _ if failure.counts() && limit != 0 && u64::from(attempts) >= limit => {
                Some(Death::Exhausted(failure.cause()))
            }
            _ => None,
        };
        if let Some(reason) = death {
            let source = open.source;
            self.end_life(id, number, seq, Fate::Dead);
            let text = if matches!(failure, Failure::Nacked { .. } | Failure::Rejected) { error } else { "" };
            self.deaths.push(DeadMessage {
                path: id,
                partition: number,
                seq,
                attempts,
                reason,
                error: text.to_owned(),
                delivery: lease.delivery,
                source,
            });
            if source.is_some() {
                self.reach("redriven message that dies again");
            }
            self.tell_end(id, number, seq, lease, attempts, LedgerKind::Dead(reason));
            return self.reach("dead letter");
        }
        if self.goes_with_its_lease(id, number, seq) {
            return self.end_trimmed(id, number, seq, lease, LedgerKind::LeaseEnded(failure.cause()));
        }
        let pair = self.pair_mut(id, number, seq);
        let open = pair.open.as_mut().expect("it is leased");
        open.cause = failure.cause();
        open.previous = lease.delivery;
        open.due = 0;
        if failure.counts() {
            open.attempt += 1;
            open.given_back = 0;
            open.alone = open.attempt >= ALONE_FROM && matches!(failure, Failure::Expired | Failure::Lost);
        } else if failure == Failure::GivenBack {
            open.given_back += 1;
        }
        let wait = match failure {
            Failure::Nacked { delay_ms } if delay_ms != 0 => Some((delay_ms, delay_ms)),
            Failure::Expired | Failure::Lost | Failure::Nacked { .. } => waits[0],
            Failure::GivenBack if open.given_back >= 2 => waits[1],
            Failure::GivenBack | Failure::Follower | Failure::Held | Failure::Rejected => None,
        };
        open.stands = match wait {
            _ if failure == Failure::Held => Stands::Held,
            Some((least, most)) => Stands::Scheduled { earliest: now + least, latest: now + most },
            None => Stands::Waiting,
        };
        self.tell_end(id, number, seq, lease, attempts, LedgerKind::LeaseEnded(failure.cause()));
    }

    /// A message that retention has passed goes with its lease.
    fn end_trimmed(&mut self, id: PathId, number: usize, seq: u64, lease: Lease, ended: LedgerKind) {
        let attempt = self_attempt(&self.paths[&id], number, seq);
        self.end_life(id, number, seq, Fate::Dropped(DropReason::Retention));
        self.tell_end(id, number, seq, lease, attempt, ended);
        let kind = LedgerKind::Dropped(DropReason::Retention);
        self.told.push(Told { previous: lease.delivery, ..Told::new(id, number, kind, seq, 0) });
        self.reach("trimmed message that goes when its lease ends");
    }

    /// The ledger hears of the end of a delivery.
    pub(super) fn tell_end(
        &mut self,
        id: PathId,
        number: usize,
        seq: u64,
        lease: Lease,
        attempt: u32,
        kind: LedgerKind,
    ) {
        let (delivery, member) = (lease.delivery, lease.member);
        self.told.push(Told { attempt, member, ..Told::new(id, number, kind, seq, delivery) });
    }
}

/// From this attempt on a message is delivered alone if its last lease ended without a word.
const ALONE_FROM: u32 = 3;

fn self_attempt(path: &super::Path, number: usize, seq: u64) -> u32 {
    path.partitions[number].open(seq).map_or(0, |open| open.attempt)
}

fn given_back(path: &super::Path, number: usize, seq: u64) -> u64 {
    path.partitions[number].open(seq).map_or(0, |open| open.given_back)
}

/// The shortest and the longest wait before attempt `nth`: half to all of min(max, base · 2^(nth − 2)); none if that is 0.
fn backoff(base: u64, max: u64, nth: u64) -> Option<(u64, u64)> {
    let doublings = u32::try_from(nth.saturating_sub(2)).unwrap_or(u32::MAX);
    let full = base.saturating_mul(2_u64.saturating_pow(doublings)).min(max);
    (full > 0).then(|| (full / 2, (full - 1).max(full / 2)))
}
