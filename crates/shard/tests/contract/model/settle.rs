//! A consumer settles deliveries, each named by its number (P6, wire rule 3).

use super::ends::Failure;
use super::{Fate, Model, Seen, Settled, Stands, Told, Verdict, Word, allowed};
use mortarmq_shard::command::{Settle, SettleItem};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::{Outcome, Refusal, Setting, SettleCode, SettleKind};
use mortarmq_types::PathId;

/// How long a settle is remembered at least.
const REMEMBERED_MS: u64 = 60_000;

/// How much longer it may be: what is settled within ten seconds is remembered together.
const TOGETHER_MS: u64 = 10_000;

impl Model {
    pub(super) fn settle(&mut self, settle: &Settle, seen: &Seen<'_>) -> Verdict {
        if !self.paths.contains_key(&settle.path) {
            return seen.expect(&Outcome::Refused(Refusal::UnknownGroup));
        }
        let Outcome::Settled(codes) = seen.outcome else { return Err("expected codes".to_owned()) };
        let mut codes = codes.iter();
        for item in &settle.items {
            for place in 0..u64::from(item.count) {
                let Some(code) = codes.next() else { return Err("a code is missing".to_owned()) };
                let seq = item.first_seq.get().wrapping_add(place);
                let delivery = item.first_delivery.get().wrapping_add(place);
                let may = self.settle_one(settle.path, item, seq, delivery);
                allowed!(may.contains(code), "{seq} by {delivery} as {:?} is {code:?}, allowed {may:?}", item.kind);
            }
        }
        allowed!(codes.next().is_none(), "more codes than items");
        Ok(())
    }

    /// Settles one delivery and says which answers are right.
    fn settle_one(&mut self, id: PathId, item: &SettleItem, seq: u64, delivery: u64) -> Vec<SettleCode> {
        let nothing_dies = self.topic_of(id).holds_dead_letters();
        let number = item.partition.index();
        let now = self.time;
        let Some(obligation) = self.paths.get_mut(&id).expect("looked up").partitions.get_mut(number) else {
            return vec![SettleCode::Unknown];
        };
        let Some(pair) = obligation.pairs.get_mut(&seq) else { return vec![SettleCode::Unknown] };
        if item.kind == SettleKind::Resume {
            return match &mut pair.open {
                Some(open) if open.stands == Stands::Held && open.previous == delivery => {
                    open.stands = Stands::Waiting;
                    vec![SettleCode::Done]
                }
                _ => vec![SettleCode::Unknown],
            };
        }
        let word = match &item.kind {
            SettleKind::Ack => Some(Word::Ack),
            SettleKind::DeadLetter { .. } if !nothing_dies => Some(Word::DeadLetter),
            SettleKind::Nack { .. } | SettleKind::DeadLetter { .. } => Some(Word::Nack),
            SettleKind::Release => Some(Word::Release),
            SettleKind::Extend | SettleKind::Hold { .. } | SettleKind::Resume => None,
        };
        let Some(lease) = pair.lease().filter(|lease| lease.delivery == delivery) else {
            let answers = late_answers(pair, delivery, word, now);
            if word == Some(Word::Ack) && self.expired_now.contains(&delivery) {
                self.reach("expiry and ack in one batch");
            }
            return answers;
        };
        if let Some(word) = word {
            pair.settles.push(Settled { delivery, word, at: now });
        }
        let attempt = pair.open.as_ref().expect("it is leased").attempt;
        if self.has_expired(id, number, seq) {
            self.reach("settle of what lost its worth while leased");
        }
        match &item.kind {
            SettleKind::Ack => {
                self.pair_mut(id, number, seq).end(Fate::Acked);
                self.tell_end(id, number, seq, lease, attempt, LedgerKind::Acked);
            }
            SettleKind::Nack { delay_ms, error } => {
                self.fail(id, number, seq, Failure::Nacked { delay_ms: u64::from(*delay_ms) }, error);
            }
            SettleKind::DeadLetter { error } if nothing_dies => {
                self.fail(id, number, seq, Failure::Nacked { delay_ms: 0 }, error);
            }
            SettleKind::DeadLetter { error } => self.fail(id, number, seq, Failure::Rejected, error),
            SettleKind::Release => self.fail(id, number, seq, Failure::GivenBack, ""),
            SettleKind::Hold { error } => self.fail(id, number, seq, Failure::Held, error),
            SettleKind::Extend => {
                let path = self.paths.get_mut(&id).expect("looked up");
                let deadline = now - self.gaps + path.get(Setting::LeaseMs);
                let open = path.partitions[number].pairs.get_mut(&seq).and_then(|pair| pair.open.as_mut());
                open.expect("it is leased").stands = Stands::Leased(super::Lease { deadline, ..lease });
                self.told.push(Told::new(id, number, LedgerKind::Extended, seq, delivery));
            }
            SettleKind::Resume => unreachable!("answered above"),
        }
        vec![SettleCode::Done]
    }
}

/// The answers to a settle whose delivery is not live: done, if it is the repetition of what ended it; else it changes
/// nothing, and says whether the message was delivered again since.
fn late_answers(pair: &super::Pair, delivery: u64, word: Option<Word>, now: u64) -> Vec<SettleCode> {
    let ended_so = pair.settles.iter().find(|settled| settled.delivery == delivery && Some(settled.word) == word);
    let age = ended_so.map(|settled| now - settled.at);
    if age.is_some_and(|age| age <= REMEMBERED_MS) {
        return vec![SettleCode::Done];
    }
    let mut answers = Vec::new();
    if age.is_some_and(|age| age <= REMEMBERED_MS + TOGETHER_MS) {
        answers.push(SettleCode::Done);
    }
    let was_its_own = pair.deliveries.iter().any(|(other, _)| *other == delivery);
    let later = pair.deliveries.iter().any(|(other, _)| *other > delivery);
    let again_in_this_life =
        pair.open.as_ref().is_some_and(|open| pair.lease().map_or(open.previous, |lease| lease.delivery) > delivery);
    if was_its_own && again_in_this_life {
        answers.push(SettleCode::Stale);
        return answers;
    }
    answers.push(SettleCode::Unknown);
    // Of what is settled the deliveries before the last are forgotten, and a number that was never its own may be taken for
    // one of them.
    if later {
        answers.push(SettleCode::Stale);
    }
    answers
}
