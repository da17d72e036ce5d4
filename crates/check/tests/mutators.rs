//! Each mutator breaks one rule in a history that keeps the contract, and that rule finds it.
//!
//! A mutator says which other rules may find it too; most say none.

mod support;

use mortarmq_check::Options;
use serde_json::{Value, json};
use support::broker::{Shape, history};
use support::random::Random;
use support::{expect, found, judge, without};

const BILLING: &str = "orders/billing";
const AUDIT: &str = "orders/audit";
const LETTERS: &str = "$dlq.orders/default";

/// So many histories must be broken and found by each mutator.
const CASES: usize = 5;

/// Breaks one rule; nothing, if this history has nothing to break.
type Mutator = fn(&mut Vec<Value>, &mut Random) -> Option<()>;

/// Fields that a broker may be unable to give, in the order in which they are taken away: the modes in which each is judged.
const FEWER: [&[&str]; 6] = [
    &[],
    &["commit", "epoch"],
    &["cause"],
    &["commit", "epoch", "cause", "delivery_id"],
    &["commit", "epoch", "cause", "delivery_id", "prev", "attempt"],
    &["commit", "epoch", "cause", "delivery_id", "prev", "attempt", "partition", "seq", "lease_ms", "hash"],
];

/// The rule finds what the mutator broke in every mode that has the fields it `needs`; in no mode does a rule besides `others`.
fn breaks(rule: &str, others: &[&str], needs: &[&str], mutate: Mutator) {
    let mut cases = 0;
    for seed in 0..4_000 {
        let shape = Shape { steps: 200, has_events: false, has_deaths: false };
        let mut records = history(seed, shape);
        let mut random = Random::new(seed);
        if mutate(&mut records, &mut random).is_none() {
            continue;
        }
        for fields in FEWER {
            let records = without(&records, fields);
            let must_be_found = !needs.iter().any(|need| fields.contains(need));
            for options in [Options::default(), Options { keep_finished: 0, ..Options::default() }] {
                let report = judge(&records, &options);
                let rules = found(&report);
                let is_right = (rules.contains(&rule) || !must_be_found)
                    && rules.iter().all(|name| *name == rule || others.contains(name));
                let what = format!("seed {seed} without {fields:?}: {rule} expected, {rules:?} found");
                expect(is_right, &what, &report, &records);
            }
        }
        cases += 1;
        if cases == CASES {
            return;
        }
    }
    panic!("{rule}: only {cases} histories could be broken");
}

fn is(record: &Value, op: &str, path: &str) -> bool {
    record["op"] == op && record["path"] == path
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or(0)
}

fn text(record: &Value, field: &str) -> String {
    record[field].as_str().unwrap_or("").to_owned()
}

/// Where the records of a message on a path stand.
fn places(records: &[Value], msg: &str, path: &str, op: &str) -> Vec<usize> {
    (0..records.len()).filter(|at| is(&records[*at], op, path) && records[*at]["msg"] == msg).collect()
}

/// A message that was delivered once on a path and acked ok once.
fn simple(records: &[Value], random: &mut Random, path: &str) -> Option<(usize, usize)> {
    let all: Vec<(usize, usize)> = (0..records.len())
        .filter(|at| is(&records[*at], "deliver", path))
        .filter_map(|at| {
            let msg = text(&records[at], "msg");
            let delivered = places(records, &msg, path, "deliver");
            let acked = places(records, &msg, path, "ack");
            let others = places(records, &msg, path, "nack").len() + places(records, &msg, path, "extend").len();
            let is_simple =
                delivered.len() == 1 && acked.len() == 1 && others == 0 && records[acked[0]]["outcome"] == "ok";
            (is_simple && records[at]["attempt"] == 1 && records[at]["cause"] == "first").then(|| (at, acked[0]))
        })
        .collect();
    random.pick(&all).copied()
}

fn remove_books(records: &mut Vec<Value>) {
    records.retain(|record| record["op"] != "scrape");
    for record in records {
        if record["op"] == "end" {
            record["balance"] = json!([]);
        }
    }
}

fn publishes(records: &[Value], msg: &str) -> Vec<usize> {
    (0..records.len()).filter(|at| records[*at]["op"] == "publish" && records[*at]["msg"] == msg).collect()
}

fn last_moment(records: &[Value]) -> u64 {
    records.iter().map(|record| number(record, "ret").max(number(record, "call"))).max().unwrap_or(0)
}

fn before_end(records: &mut Vec<Value>, record: Value) {
    let end = records.len() - 1;
    records.insert(end, record);
}

#[test]
fn loss_is_found_when_a_delivery_is_taken_out() {
    breaks("loss", &[], &[], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        let msg = text(&records[delivery], "msg");
        publishes(records, &msg).into_iter().find(|at| records[*at]["outcome"] == "ok")?;
        records.retain(|record| !(record["path"] == AUDIT && record["msg"] == msg.as_str()));
        remove_books(records);
        Some(())
    });
}

#[test]
fn phantom_is_found_when_a_publish_is_taken_out() {
    breaks("phantom", &[], &[], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        let msg = text(&records[delivery], "msg");
        records.retain(|record| !(record["op"] == "publish" && record["msg"] == msg.as_str()));
        Some(())
    });
}

#[test]
fn refused_delivered_is_found_when_an_answer_is_turned() {
    breaks("refused-delivered", &[], &[], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        let msg = text(&records[delivery], "msg");
        for at in publishes(records, &msg) {
            records[at]["outcome"] = json!("refused");
            records[at]["ret"] = json!(number(&records[at], "ret").max(number(&records[at], "call")));
        }
        Some(())
    });
}

#[test]
fn misroute_is_found_when_a_publish_names_another_topic() {
    breaks("misroute", &[], &[], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        let msg = text(&records[delivery], "msg");
        publishes(records, &msg).into_iter().for_each(|at| records[at]["topic"] = json!("other"));
        Some(())
    });
}

#[test]
fn corrupt_is_found_when_a_hash_is_changed() {
    breaks("corrupt", &[], &["hash"], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        records[delivery]["hash"] = json!("changed");
        Some(())
    });
}

#[test]
fn stored_twice_is_found_when_a_delivery_names_another_place() {
    breaks("stored-twice", &[], &["seq"], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        records[delivery]["seq"] = json!(77_777);
        Some(())
    });
}

/// Delivers an acked message of the path without order once more.
fn deliver_again(records: &[Value], random: &mut Random) -> Option<Value> {
    let (delivery, _) = simple(records, random, AUDIT)?;
    let at = last_moment(records);
    let mut again = records[delivery].clone();
    again["call"] = json!(at + 10);
    again["ret"] = json!(at + 20);
    again["prev"] = again["delivery_id"].clone();
    again["delivery_id"] = json!(999_999);
    again["attempt"] = json!(2);
    again["cause"] = json!("lease_expired");
    again["commit"] = json!(999_999);
    Some(again)
}

#[test]
fn redelivered_after_ack_is_found_when_a_delivery_comes_again() {
    breaks("redelivered-after-ack", &[], &[], |records, random| {
        let again = deliver_again(records, random)?;
        before_end(records, again);
        Some(())
    });
}

#[test]
fn double_lease_is_found_when_a_delivery_comes_in_the_lease_of_another() {
    breaks("double-lease", &["false-cause"], &[], |records, random| {
        let (delivery, ack) = simple(records, random, AUDIT)?;
        let (ret, settled) = (number(&records[delivery], "ret"), number(&records[ack], "call"));
        if settled < ret + 10 {
            return None;
        }
        let mut second = records[delivery].clone();
        second["call"] = json!(ret + 2);
        second["ret"] = json!(ret + 5);
        second["client"] = json!("c9");
        second["prev"] = second["delivery_id"].clone();
        second["delivery_id"] = json!(number(&second, "delivery_id") + 1);
        second["attempt"] = json!(2);
        second["cause"] = json!("lease_expired");
        second.as_object_mut()?.remove("commit");
        records.insert(delivery + 1, second);
        Some(())
    });
}

/// A redelivery after a lease that ran out, on the path without order.
fn expired(records: &[Value], random: &mut Random) -> Option<usize> {
    let all: Vec<usize> = (0..records.len())
        .filter(|at| is(&records[*at], "deliver", AUDIT) && records[*at]["cause"] == "lease_expired")
        .collect();
    random.pick(&all).copied()
}

#[test]
fn unexplained_is_found_when_a_redelivery_says_first() {
    breaks("unexplained", &[], &["cause"], |records, random| {
        let at = expired(records, random)?;
        records[at]["cause"] = json!("first");
        Some(())
    });
}

#[test]
fn false_cause_is_found_when_a_redelivery_blames_a_nack_that_was_not() {
    breaks("false-cause", &[], &["cause", "delivery_id"], |records, random| {
        let at = expired(records, random)?;
        let (msg, prev) = (text(&records[at], "msg"), records[at]["prev"].clone());
        let nacks = places(records, &msg, AUDIT, "nack");
        if nacks.into_iter().any(|nack| records[nack]["delivery_id"] == prev) {
            return None;
        }
        records[at]["cause"] = json!("nacked");
        Some(())
    });
}

#[test]
fn order_is_found_when_a_later_message_of_a_key_is_moved_to_the_front() {
    breaks("order", &[], &["seq"], |records, random| {
        *records = without(records, &["commit", "epoch"]);
        remove_books(records);
        let (first, _) = simple(records, random, BILLING)?;
        let (second, ack) = simple(records, random, BILLING)?;
        let (one, two) = (records[first].clone(), records[second].clone());
        let is_behind = one["key"].is_string()
            && one["key"] == two["key"]
            && one["partition"] == two["partition"]
            && number(&one, "seq") < number(&two, "seq")
            && number(&one, "call") != number(&two, "call");
        let msg = text(&two, "msg");
        let start = number(&one, "call").checked_sub(100)?;
        let sent = publishes(records, &msg).into_iter().all(|at| number(&records[at], "call") < start);
        let has_delay = [text(&one, "msg"), msg]
            .iter()
            .any(|msg| publishes(records, msg).into_iter().any(|at| number(&records[at], "delay_ms") > 0));
        if !is_behind || !sent || has_delay {
            return None;
        }
        for (at, offset) in [(second, 0), (ack, 20)] {
            records[at]["call"] = json!(start + offset);
            records[at]["ret"] = json!(start + offset + 10);
        }
        Some(())
    });
}

#[test]
fn attempts_is_found_when_an_attempt_is_skipped() {
    breaks("attempts", &[], &["attempt", "cause", "prev", "delivery_id"], |records, random| {
        let at = expired(records, random)?;
        let msg = text(&records[at], "msg");
        let later = places(records, &msg, AUDIT, "deliver").into_iter().max()?;
        let prev = records[later]["prev"].clone();
        places(records, &msg, AUDIT, "deliver").into_iter().find(|known| records[*known]["delivery_id"] == prev)?;
        records[later]["attempt"] = json!(number(&records[later], "attempt") + 1);
        Some(())
    });
}

#[test]
fn delivery_id_is_found_when_two_messages_have_one() {
    breaks("delivery-id", &[], &["delivery_id"], |records, random| {
        let (one, _) = simple(records, random, AUDIT)?;
        let (two, ack) = simple(records, random, AUDIT)?;
        if one == two {
            return None;
        }
        let id = records[one]["delivery_id"].clone();
        records[two]["delivery_id"] = id.clone();
        records[ack]["delivery_id"] = id;
        Some(())
    });
}

#[test]
fn sequence_is_found_when_two_messages_share_a_place() {
    breaks("sequence", &[], &["seq"], |records, random| {
        let (one, _) = simple(records, random, AUDIT)?;
        let (two, _) = simple(records, random, AUDIT)?;
        let is_keyless = records[two]["key"].is_null();
        if one == two || !is_keyless || records[one]["partition"] != records[two]["partition"] {
            return None;
        }
        let (seq, msg) = (records[one]["seq"].clone(), text(&records[two], "msg"));
        for record in records.iter_mut() {
            let has_place = record["op"] == "publish" || (record["op"] == "deliver" && record["path"] != LETTERS);
            if has_place && record["msg"] == msg.as_str() && record["seq"].is_u64() {
                record["seq"] = seq.clone();
            }
        }
        Some(())
    });
}

#[test]
fn balance_is_found_when_a_counter_is_off_by_one() {
    breaks("balance", &[], &[], |records, random| {
        let scrapes: Vec<usize> = (0..records.len()).filter(|at| records[*at]["op"] == "scrape").collect();
        let at = *random.pick(&scrapes)?;
        records[at]["depth"] = json!(number(&records[at], "depth") + 1);
        Some(())
    });
}

#[test]
fn balance_is_found_when_more_was_delivered_than_acked() {
    breaks("balance", &["going-back"], &[], |records, random| {
        let scrapes: Vec<usize> = (0..records.len())
            .filter(|at| records[*at]["op"] == "scrape" && number(&records[*at], "depth") > 8)
            .collect();
        let at = *random.pick(&scrapes)?;
        records[at]["depth"] = json!(number(&records[at], "depth") - 8);
        records[at]["delivered"] = json!(number(&records[at], "delivered") + 8);
        Some(())
    });
}

#[test]
fn going_back_is_found_when_a_counter_falls() {
    breaks("going-back", &[], &[], |records, random| {
        let scrapes: Vec<Value> =
            records.iter().filter(|record| record["op"] == "scrape" && number(record, "depth") > 0).cloned().collect();
        let mut later = random.pick(&scrapes)?.clone();
        let ret = number(&later, "ret");
        later["call"] = json!(ret + 1);
        later["ret"] = json!(ret + 2);
        later["produced"] = json!(number(&later, "produced") - 1);
        later["depth"] = json!(number(&later, "depth") - 1);
        later["delivered"] = later["delivered"].clone();
        later["stale"] = json!(false);
        later.as_object_mut()?.remove("commit");
        let lower = number(&later, "delivered");
        // What was acked meanwhile would make `delivered` too low as well.
        let acked = records.iter().any(|record| {
            record["op"] == "ack"
                && record["path"] == later["path"]
                && number(record, "ret") > number(&later, "call") - 60_000_000
                && number(record, "call") < ret + 2
        });
        if acked || lower == 0 {
            return None;
        }
        before_end(records, later);
        Some(())
    });
}

#[test]
fn commit_order_is_found_when_an_index_falls() {
    breaks("commit-order", &["balance", "no-linearization", "going-back"], &["commit"], |records, random| {
        let settles: Vec<usize> =
            (0..records.len()).filter(|at| records[*at]["op"] == "ack" && records[*at]["commit"].is_u64()).collect();
        let at = *random.pick(&settles)?;
        let call = number(&records[at], "call");
        let told = records
            .iter()
            .filter(|record| number(record, "ret") < call)
            .map(|record| number(record, "commit"))
            .max()?;
        if told < 3 {
            return None;
        }
        records[at]["commit"] = json!(told - 1);
        Some(())
    });
}

#[test]
fn dead_letter_is_found_when_it_is_taken_out() {
    breaks("dead-letter", &[], &["attempt"], |records, random| {
        let dead: Vec<String> = records
            .iter()
            .filter(|record| is(record, "deliver", LETTERS))
            .map(|record| text(record, "msg"))
            .filter(|msg| {
                let last = places(records, msg, BILLING, "deliver").into_iter().max();
                let is_told = places(records, msg, BILLING, "nack").into_iter().any(|at| records[at]["to"] == "dead");
                let is_open = !places(records, msg, BILLING, "ack").is_empty();
                last.is_some_and(|last| records[last]["attempt"] == 3) && !is_told && !is_open
            })
            .collect();
        let msg = random.pick(&dead)?.clone();
        records.retain(|record| !(record["path"] == LETTERS && record["msg"] == msg.as_str()));
        remove_books(records);
        Some(())
    });
}

#[test]
fn stale_ack_is_found_when_an_ack_names_the_delivery_before() {
    breaks("stale-ack", &[], &["delivery_id"], |records, random| {
        let at = expired(records, random)?;
        let msg = text(&records[at], "msg");
        let later = places(records, &msg, AUDIT, "deliver").into_iter().max()?;
        let acks = places(records, &msg, AUDIT, "ack");
        let [ack] = acks.as_slice() else { return None };
        let is_right = at == later
            && records[*ack]["outcome"] == "ok"
            && records[*ack]["delivery_id"] == records[at]["delivery_id"];
        let first = records[at]["prev"].clone();
        places(records, &msg, AUDIT, "deliver").into_iter().find(|known| records[*known]["delivery_id"] == first)?;
        if !is_right {
            return None;
        }
        records[*ack]["delivery_id"] = first;
        Some(())
    });
}

#[test]
fn torn_transaction_is_found_when_a_part_was_refused() {
    breaks("torn-transaction", &[], &[], |records, random| {
        let of = |outcome: &str| -> Vec<usize> {
            (0..records.len())
                .filter(|at| records[*at]["op"] == "publish" && records[*at]["outcome"] == outcome)
                .collect()
        };
        let (done, undone) = (*random.pick(&of("ok"))?, *random.pick(&of("refused"))?);
        records[done]["txn"] = json!("t-1");
        records[undone]["txn"] = json!("t-1");
        Some(())
    });
}

#[test]
fn no_linearization_is_found_when_a_nack_of_the_delivery_before_was_taken() {
    breaks("no-linearization", &[], &["delivery_id"], |records, random| {
        let at = expired(records, random)?;
        let delivery = records[at].clone();
        let msg = text(&delivery, "msg");
        let acks = places(records, &msg, AUDIT, "ack");
        let [ack] = acks.as_slice() else { return None };
        let room = number(&records[*ack], "call").checked_sub(number(&delivery, "ret"))?;
        let is_last = places(records, &msg, AUDIT, "deliver").into_iter().max() == Some(at);
        if room < 10 || !is_last || records[*ack]["outcome"] != "ok" {
            return None;
        }
        let prev = delivery["prev"].clone();
        places(records, &msg, AUDIT, "deliver").into_iter().find(|known| records[*known]["delivery_id"] == prev)?;
        let is_nacked =
            places(records, &msg, AUDIT, "nack").into_iter().any(|nack| records[nack]["delivery_id"] == prev);
        if is_nacked {
            return None;
        }
        let ret = number(&delivery, "ret");
        let nack = json!({"op":"nack","client":"c0","path":AUDIT,"msg":msg,"delivery_id":prev,"call":ret + 2,
            "ret":ret + 4,"outcome":"ok","to":"retry"});
        records.insert(at + 1, nack);
        Some(())
    });
}

#[test]
fn no_linearization_is_found_when_a_nack_was_taken_before_any_delivery() {
    breaks("no-linearization", &[], &[], |records, random| {
        let (delivery, _) = simple(records, random, AUDIT)?;
        let msg = text(&records[delivery], "msg");
        let call = number(&records[delivery], "call");
        let stored = publishes(records, &msg).into_iter().filter_map(|at| records[at]["ret"].as_u64()).max()?;
        let nack = json!({"op":"nack","client":"c0","path":AUDIT,"msg":msg,"call":call.checked_sub(2)?,
            "ret":call - 1,"outcome":"ok","to":"retry"});
        if stored + 2 >= call {
            return None;
        }
        records.insert(delivery, nack);
        Some(())
    });
}

/// A delivery that follows one that never arrived, in the lease of the one before, though nothing may have ended that.
#[test]
fn double_lease_is_found_when_only_a_delivery_that_never_arrived_lies_between() {
    breaks("double-lease", &["false-cause"], &[], |records, random| {
        let (delivery, ack) = simple(records, random, AUDIT)?;
        let (ret, settled) = (number(&records[delivery], "ret"), number(&records[ack], "call"));
        if settled < ret + 10 {
            return None;
        }
        let mut second = records[delivery].clone();
        second["call"] = json!(ret + 2);
        second["ret"] = json!(ret + 5);
        second["client"] = json!("c9");
        second["prev"] = json!(number(&second, "delivery_id") + 1);
        second["delivery_id"] = json!(number(&second, "delivery_id") + 2);
        second["cause"] = json!("released");
        second.as_object_mut()?.remove("commit");
        records.insert(delivery + 1, second);
        Some(())
    });
}

/// A redriven delivery in the lease of the one before: no attempt can have been the last, as none had ended.
#[test]
fn double_lease_is_found_when_a_message_is_redriven_in_a_lease() {
    breaks("double-lease", &["false-cause"], &[], |records, random| {
        let (delivery, ack) = simple(records, random, AUDIT)?;
        let (ret, settled) = (number(&records[delivery], "ret"), number(&records[ack], "call"));
        if settled < ret + 10 {
            return None;
        }
        let mut second = records[delivery].clone();
        second["call"] = json!(ret + 2);
        second["ret"] = json!(ret + 5);
        second["client"] = json!("c9");
        second["prev"] = second["delivery_id"].clone();
        second["delivery_id"] = json!(number(&second, "delivery_id") + 1);
        second["cause"] = json!("redriven");
        second.as_object_mut()?.remove("commit");
        records.insert(delivery + 1, second);
        Some(())
    });
}

/// A refused publish stores nothing (P2), so it does not make two messages of one.
#[test]
fn redelivered_after_ack_is_found_though_an_earlier_publish_was_refused() {
    breaks("redelivered-after-ack", &[], &[], |records, random| {
        let again = deliver_again(records, random)?;
        let msg = text(&again, "msg");
        let mut refused = records[*publishes(records, &msg).first()?].clone();
        let call = number(&refused, "call").checked_sub(10)?;
        refused["call"] = json!(call);
        refused["ret"] = json!(call + 5);
        refused["outcome"] = json!("refused");
        for field in ["producer_id", "producer_seq", "partition", "seq", "commit", "dedup"] {
            refused.as_object_mut()?.remove(field);
        }
        records.insert(1, refused);
        before_end(records, again);
        Some(())
    });
}
