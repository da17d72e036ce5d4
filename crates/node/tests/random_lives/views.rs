//! Questions to a living node, and what they must agree with (P7, P9); and that nothing waits that could go on.

use std::collections::BTreeSet;

use mortarmq_node::{Query, QueryAnswer};
use mortarmq_shard::{Setting, SettleKind};
use mortarmq_types::{DeliveryId, Partition, Seq, TopicIncarnation};

use crate::life::Life;
use crate::redrives::judge_letters;
use crate::seen::read_value;
use crate::support::Crashed;

impl Life {
    pub(crate) fn ask_something(&mut self) -> Result<(), Crashed> {
        match self.random.below(4) {
            0 => self.ask_stats(),
            1 => self.ask_peek(),
            2 => self.ask_trace(),
            _ => self.ask_balance(),
        }
    }

    fn ask(&mut self, question: Query) -> Result<Option<QueryAnswer>, Crashed> {
        // What was asked before is answered before, so that the answer can be held against all of it.
        self.rig.catch_up()?;
        self.absorb();
        let reply = self.rig.query(question)?;
        self.absorb();
        self.record.note_position(reply.position, false);
        Ok(reply.result.ok())
    }

    /// P9: the books add up, and lie between what was confirmed and what was said.
    pub(crate) fn ask_balance(&mut self) -> Result<(), Crashed> {
        let Some(QueryAnswer::Balance(view)) = self.ask(Query::Balance { topic: None })? else {
            panic!("the books of all topics are told")
        };
        judge_letters(&view);
        for books in view.paths {
            let right = books.delivered + books.dropped + books.dlq + books.depth;
            assert_eq!(books.produced, right, "P9: {books:?}");
            let Some(topic) = self.topic_named(&books.topic) else { continue };
            let Some(path) = self.record.topics[&topic].paths.get(&books.group) else { continue };
            assert_eq!(books.dropped, 0, "nothing is dropped here: {books:?}");
            let died = path.dead_sent.values().map(|all| all.len() as u64).sum();
            assert!((path.dead.len() as u64..=died).contains(&books.dlq), "P9: {died} can be dead, {books:?}");
            let (least, most) = (path.acked.len() as u64, path.ack_sent.len() as u64);
            assert!((least..=most).contains(&books.delivered), "P9: {least} to {most} were acked, {books:?}");
            let of_topic = self.record.sent.values().filter(|sent| sent.topic == topic);
            let possible = of_topic.filter(|sent| sent.confirmed.is_some() || sent.maybe || sent.open > 0).count();
            // What is redriven is owed once more.
            assert!(books.produced <= possible as u64 + books.dlq, "P9, P2: {possible} can be stored, {books:?}");
            let owed = self.record.topics[&topic].messages.values().filter(|number| self.record.owes(path, **number));
            assert!(books.produced >= owed.count() as u64, "P1, P9: {books:?}");
        }
        Ok(())
    }

    fn ask_stats(&mut self) -> Result<(), Crashed> {
        let Some(QueryAnswer::Stats(view)) = self.ask(Query::Stats { topic: None })? else { panic!("stats are told") };
        for group in view.topics.iter().flat_map(|topic| &topic.groups) {
            let right = group.delivered + group.dropped + group.dlq + group.depth;
            assert_eq!(group.produced, right, "P9: {group:?}");
            assert!(group.in_flight + group.scheduled <= group.depth, "P9: {group:?}");
        }
        Ok(())
    }

    fn ask_peek(&mut self) -> Result<(), Crashed> {
        let Some(topic) = self.random_topic() else { return Ok(()) };
        let partition = self.random.below(u64::from(self.record.topics[&topic].partitions));
        let partition = mortarmq_types::Partition::new(u16::try_from(partition).expect("few"));
        let name = self.record.topics[&topic].name.clone();
        let from = Seq::new(self.random.between(0, 20));
        let Some(answer) = self.ask(Query::Peek { topic: name, partition, from, max: 30 })? else { return Ok(()) };
        let QueryAnswer::Peek(view) = answer else { panic!("a peek is answered with messages") };
        let mut next = from.max(Seq::FIRST);
        self.look_at_retention();
        if let Some(first) = view.messages.first().filter(|first| first.sequence > next.get()) {
            let kept = self.record.topics[&topic].kept.get(&partition).copied().unwrap_or(Seq::FIRST);
            assert!(first.sequence <= kept.get(), "a peek leaves out what is kept: {} of {kept}", first.sequence);
            next = Seq::new(first.sequence);
        }
        for message in view.messages {
            assert_eq!(message.sequence, next.get(), "a peek has no hole");
            let number = read_value(&message.value);
            assert_eq!(self.record.sent[&number].key, message.key.as_ref(), "number {number} has another key");
            self.record.place(number, topic, (partition, next));
            next = next.next();
        }
        Ok(())
    }

    /// P7: a trace tells every delivery that was seen, with its attempt and cause, and every ack that was confirmed.
    fn ask_trace(&mut self) -> Result<(), Crashed> {
        let ids: Vec<DeliveryId> = self.record.seen.keys().rev().take(200).copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let seen = self.record.seen[self.random.pick(&ids)].clone();
        let topic = seen.path.0;
        let name = self.record.topics[&topic].name.clone();
        if self.record.topics[&topic].delete_sent {
            return Ok(());
        }
        let (partition, seq) = seen.place;
        let Some(answer) = self.ask(Query::Trace { topic: name.clone(), partition, seq })? else {
            panic!("P7: {seen:?} has no trace")
        };
        let QueryAnswer::Trace(view) = answer else { panic!("a trace is answered with a life") };
        assert_eq!(view.events[0].stage, "stored", "P7: {view:?}");
        self.look_at_retention();
        if self.record.topics[&topic].kept.get(&partition).is_some_and(|kept| seq < *kept) {
            self.record.reach("trace of a message that is gone");
            return Ok(());
        }
        for (group, path) in &self.record.topics[&topic].paths {
            let path_name = format!("{name}/{group}");
            let events: Vec<_> = view.events.iter().filter(|event| event.path == path_name).collect();
            for id in path.deliveries.get(&seen.place).into_iter().flatten() {
                let known = &self.record.seen[id];
                let told = events.iter().any(|event| {
                    event.stage == "leased"
                        && event.delivery_id == Some(id.get())
                        && event.attempt == Some(known.attempt.get())
                        && event.cause == Some(known.cause.word())
                        && event.commit_index == known.position.commit_index.get()
                        && event.member.as_deref() == Some(format!("{:016x}", known.member.get()).as_str())
                });
                assert!(told, "P7: delivery {id} {known:?} is not told: {view:?}");
            }
            let standing = view.standing.iter().find(|row| row.path == path_name).map(|row| row.standing);
            if let Some(acked) = path.acked.get(&seen.place) {
                let told =
                    events.iter().any(|event| event.stage == "acked" && event.delivery_id == Some(acked.by.get()));
                assert!(told && standing == Some("acked"), "P6, P7: {acked:?} is not told: {view:?}");
            } else if !path.ack_sent.contains_key(&seen.place) {
                assert_ne!(standing, Some("acked"), "P4: {:?} was never acked: {view:?}", seen.place);
            }
        }
        self.record.reach("trace");
        Ok(())
    }

    /// The life of a topic that has this name now.
    fn topic_named(&self, name: &str) -> Option<TopicIncarnation> {
        let (topic, _) = self.node().shard().state().topic_by_name(name)?;
        self.record.topics.contains_key(&topic).then_some(topic)
    }

    /// Rare states, and that a node that has nothing to do has nothing left to do: whoever has credit was given what
    /// there is.
    /// What goes by retention was acked on every path that owed it, and what is gone stays gone (P4, P10).
    pub(crate) fn look_at_retention(&mut self) {
        let mut risen = Vec::new();
        for (id, topic) in &self.node().shard().state().topics {
            let Some(record) = self.record.topics.get(id) else { continue };
            for (number, partition) in topic.partitions.iter().enumerate() {
                let (number, kept) = (Partition::from_index(number), partition.kept.first_seq);
                let before = record.kept.get(&number).copied().unwrap_or(Seq::FIRST);
                assert!(kept >= before, "P10: {kept} is kept, and it was {before}");
                for (place, message) in record.messages.range((number, before)..(number, kept)) {
                    for (group, path) in record.paths.iter().filter(|(_, path)| self.record.owes(path, *message)) {
                        let settled = path.can_be_settled(place);
                        assert!(settled || record.delete_sent, "P4: {place:?} is gone, and {group} never settled it");
                    }
                }
                risen.extend((kept > before).then_some((*id, number, kept)));
            }
        }
        for (topic, number, kept) in risen {
            self.record.reach("settled messages went");
            self.record.topic_mut(topic).kept.insert(number, kept);
        }
    }

    pub(crate) fn look_closely(&mut self) -> Result<(), Crashed> {
        self.look_at_retention();
        let (records, indexes) = (self.rig.record_reads > 0, self.rig.index_reads > 0);
        if records {
            self.record.reach("record read from disk");
        }
        if indexes {
            self.record.reach("stretch read from disk");
        }
        if !self.random.one_in(6) {
            return Ok(());
        }
        self.pass(1)?;
        self.finish_all()?;
        for pull in self.subscriptions.iter().filter_map(|held| held.pull) {
            // A second is given to a look that a slow disk delays.
            let latest = pull.deadline.after_ms(1001);
            assert!(self.rig.now.monotonic <= latest, "a pull does not end: {pull:?}");
        }
        let state = self.node().shard().state();
        let (mut waits_for_key, mut is_alone, mut is_crowded) = (false, false, false);
        for subscription in self.subscriptions.iter().filter(|held| held.joined) {
            let Some((id, path)) = state
                .paths
                .iter()
                .find(|(_, path)| path.topic == subscription.path.0 && path.group == subscription.path.1)
            else {
                continue;
            };
            let Some(member) = path.members.get(&subscription.member) else { continue };
            let has_room = u64::from(member.held_messages) < subscription.window;
            let flight = path.settings.get(Setting::MaxInFlight);
            let topic = &state.topics[&path.topic];
            // Whoever holds a message alone gets nothing; nor does one that is to become empty for one.
            let rules = path.settings.rules();
            let holds_nothing = !path.partitions.made().any(|(_, partition)| partition.holds(subscription.member));
            let holds_alone = path.partitions.made().any(|(_, partition)| partition.holds_alone(subscription.member));
            let somebody_is = path.partitions.made().any(|(_, partition)| partition.alone_with().next().is_some());
            let somebody_has_to =
                !somebody_is && path.partitions.made().any(|(_, partition)| partition.has_alone(&rules, true));
            let has_room = has_room && !holds_alone && (holds_nothing || !somebody_has_to);
            is_alone |= somebody_is;
            for (number, (partition, _)) in path.partitions_of(topic).enumerate() {
                let is_open = flight == 0 || partition.in_flight() < flight;
                let last = topic.partitions[number].last_seq;
                let has_new = partition.position() <= last && partition.may_offer(&rules);
                let next = topic.partitions[number].schedule.next_after(partition.due_position());
                let has_due = next.is_some_and(|next| next.at.due <= state.time) && partition.has_room(&rules);
                let has_work = is_open && {
                    let alone = if somebody_is { partition.ready_alone() } else { 0 };
                    partition.ready_messages() > alone || has_new || has_due
                };
                assert!(
                    !(has_room && has_work),
                    "stall: path {id} partition {number} has something for {subscription:?}, who holds {}",
                    member.held_messages
                );
                let settled = partition.in_flight() + partition.scheduled() + partition.ready_messages();
                is_crowded |= partition.packed() > 0;
                waits_for_key |= partition.passed_over() > settled;
            }
        }
        let reached = [
            (is_alone, "a message is delivered alone"),
            (is_crowded, "messages wait packed behind a crowded key"),
            (waits_for_key, "a message waits for its key"),
        ];
        reached.iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| self.record.reach(what));
        Ok(())
    }

    /// Consumes everything that is left, and closes the books (P4, P9).
    pub(crate) fn drain(&mut self) -> Result<(), Crashed> {
        self.rig.catch_up()?;
        self.absorb();
        // Every wait ends.
        for _ in 0..20 {
            self.pass(250)?;
            self.rig.catch_up()?;
            self.absorb();
        }
        let waiting = self.subscriptions.iter().find(|held| held.pull.is_some());
        assert!(waiting.is_none(), "a pull never ends: {waiting:?}");
        let all: Vec<_> = self.connections.keys().copied().collect();
        for connection in all {
            self.disconnect(connection);
        }
        let connection = self.connect();
        self.repeat_everything(connection);
        self.finish_all()?;
        let groups = self.groups.clone();
        let alive: Vec<TopicIncarnation> =
            self.record.topics.iter().filter(|(_, topic)| !topic.delete_sent).map(|(id, _)| *id).collect();
        for topic in &alive {
            for options in &groups {
                let options = self.options_of(*topic, options);
                self.join(connection, (*topic, options.name.clone()), 1000, &options);
            }
        }
        loop {
            let mut quiet = 0;
            while quiet < 40 || self.has_delayed(&alive) {
                self.pass(250)?;
                self.rig.catch_up()?;
                self.absorb();
                quiet = if self.settle_all() { 0 } else { quiet + 1 };
                self.finish_all()?;
            }
            // What is dead comes back, as many at a time as its group takes, and is acked too.
            if self.redrive_all(&alive)? == 0 {
                break;
            }
        }
        self.ask_balance()?;
        self.judge_end(&alive);
        Ok(())
    }

    /// Whether anything of these topics falls due yet, or is due and not taken by all.
    fn has_delayed(&self, topics: &[TopicIncarnation]) -> bool {
        let state = self.node().shard().state();
        let found = topics.iter().filter_map(|topic| state.topics.get(topic));
        found.flat_map(|topic| &topic.partitions).any(|partition| !partition.schedule.is_empty())
    }

    /// Acks whatever is held, and keeps the sessions; says whether there was anything.
    pub(crate) fn settle_all(&mut self) -> bool {
        let mut any = false;
        for subscription in self.subscriptions.clone().into_iter().filter(|held| held.joined) {
            let held: Vec<DeliveryId> = self
                .record
                .seen
                .iter()
                .filter(|(id, seen)| seen.path == subscription.path && !self.record.can_have_ended(**id))
                .map(|(id, _)| *id)
                .take(1000)
                .collect();
            if !held.is_empty() {
                any = true;
                self.settle(&subscription, &held, &SettleKind::Ack);
            }
            self.heartbeat(&subscription);
        }
        any
    }

    fn judge_end(&self, alive: &[TopicIncarnation]) {
        for topic in alive {
            let record = &self.record.topics[topic];
            let known: BTreeSet<u64> = record.messages.values().copied().collect();
            for (number, sent) in self.record.sent.iter().filter(|(_, sent)| sent.topic == *topic) {
                assert!(sent.confirmed.is_none() || known.contains(number), "P1: number {number} is gone");
            }
            for (group, path) in &record.paths {
                for (place, number) in &record.messages {
                    let settled = path.ack_sent.contains_key(place);
                    assert!(settled || !self.record.owes(path, *number), "P4: {place:?} never came to {group}");
                }
            }
        }
        let state = self.node().shard().state();
        // A topic whose deletion was lost in a crash may still be there, and nobody consumes it.
        for (id, path) in state.paths.iter().filter(|(_, path)| alive.contains(&path.topic)) {
            assert_eq!(state.books(path).depth, 0, "P4: path {id} {} is not drained", path.group);
        }
        for letters in alive.iter().filter_map(|topic| state.dead_letters_of(*topic)) {
            let topic = &state.topics[&letters];
            let books = state.books(&state.paths[&topic.paths["default"]]);
            assert_eq!((books.dropped, books.depth), (books.produced, 0), "P9: all of {} were redriven", topic.name);
            assert!(topic.partitions.iter().all(|it| it.lowest_pin().is_none()), "a dead letter is kept for nobody");
        }
    }
}
