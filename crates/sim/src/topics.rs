//! The topics and groups of a world, and how histories name their incarnations.

use std::collections::BTreeMap;

use mortarmq_node::Request;
use mortarmq_types::TopicIncarnation;

use crate::plan::Settings;
use crate::random::Random;

/// All topics.
pub(crate) struct Topics {
    all: Vec<TopicPlan>,
    /// What each incarnation, of dead-letter topics too, is called in a history.
    incarnations: BTreeMap<TopicIncarnation, Incarnation>,
}

/// One topic.
pub(crate) struct TopicPlan {
    pub(crate) name: String,
    pub(crate) options: String,
    pub(crate) partitions: u16,
    pub(crate) groups: Vec<GroupPlan>,
    /// The incarnation that clients know.
    pub(crate) current: Option<TopicIncarnation>,
    /// Whether an operator asked for its end and it is not made again yet.
    pub(crate) is_ending: bool,
}

/// One group.
pub(crate) struct GroupPlan {
    pub(crate) name: String,
    pub(crate) lease_ms: u64,
    pub(crate) session_ms: u64,
    pub(crate) max_attempts: u32,
    pub(crate) by_key: bool,
    pub(crate) options: String,
    /// The window of its pushed members; 0 of those that pull.
    pub(crate) window: u16,
    /// Whether a consumer has joined it.
    pub(crate) is_made: bool,
}

/// One life of a topic.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    pub(crate) topic: usize,
    /// The name in a history.
    pub(crate) name: String,
    /// Whether it is not the last.
    pub(crate) is_over: bool,
    /// Whether a client ever asked for its end.
    pub(crate) may_end: bool,
}

impl Topics {
    pub(crate) fn new(settings: &Settings, chance: &mut Random) -> Self {
        let all = (0..settings.topics.max(1)).map(|number| TopicPlan::new(number, settings, chance)).collect();
        Self { all, incarnations: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, topic: usize) -> &TopicPlan {
        &self.all[topic]
    }

    pub(crate) fn get_mut(&mut self, topic: usize) -> &mut TopicPlan {
        &mut self.all[topic]
    }

    /// Topic and group numbers of every group.
    pub(crate) fn all_groups(&self) -> Vec<(usize, usize)> {
        let groups = |(topic, plan): (usize, &TopicPlan)| {
            (0..plan.groups.len()).map(move |group| (topic, group)).collect::<Vec<_>>()
        };
        self.all.iter().enumerate().flat_map(groups).collect()
    }

    /// A client learnt which incarnation a topic is; says whether that is news.
    pub(crate) fn learn(&mut self, topic: usize, incarnation: TopicIncarnation) -> bool {
        if self.incarnations.contains_key(&incarnation) {
            return false;
        }
        let plan = &mut self.all[topic];
        let is_first = !self.incarnations.values().any(|known| known.topic == topic);
        let name = if is_first { plan.name.clone() } else { format!("{}#{}", plan.name, incarnation.to_hex()) };
        for known in self.incarnations.values_mut().filter(|known| known.topic == topic) {
            known.is_over = true;
        }
        plan.current = Some(incarnation);
        plan.is_ending = false;
        self.incarnations.insert(incarnation, Incarnation { topic, name, is_over: false, may_end: false });
        true
    }

    /// What is not there any more is over, if a client asked for its end: nobody has learnt of another in its place. Otherwise
    /// its name comes back.
    pub(crate) fn end_missing(&mut self, is_there: impl Fn(TopicIncarnation) -> bool) -> Option<String> {
        for (id, known) in &mut self.incarnations {
            if !known.is_over && !is_there(*id) {
                if !known.may_end {
                    return Some(known.name.clone());
                }
                known.is_over = true;
            }
        }
        None
    }

    /// A client asks for the end of a topic.
    pub(crate) fn note_end(&mut self, topic: usize) {
        let plan = &mut self.all[topic];
        plan.is_ending = true;
        if let Some(known) = plan.current.and_then(|current| self.incarnations.get_mut(&current)) {
            known.may_end = true;
        }
    }

    /// The request by which a client makes a topic or learns its incarnation.
    pub(crate) fn declare(&self, topic: usize) -> Request {
        let plan = &self.all[topic];
        Request::Declare { name: plan.name.clone(), partitions: plan.partitions, options: plan.options.clone() }
    }

    pub(crate) fn incarnation(&self, incarnation: TopicIncarnation) -> Option<&Incarnation> {
        self.incarnations.get(&incarnation)
    }

    pub(crate) fn incarnations(&self) -> impl Iterator<Item = (TopicIncarnation, &Incarnation)> {
        self.incarnations.iter().map(|(id, known)| (*id, known))
    }
}

impl TopicPlan {
    fn new(number: u64, settings: &Settings, chance: &mut Random) -> Self {
        let name = if number == 0 { "orders".to_owned() } else { format!("parcels.{number}") };
        // With several groups, one that is made later would find what the others have settled gone.
        let lets_go = chance.one_in(3) && settings.groups <= 1;
        let keep = lets_go.then(|| "\"keep_settled\":false".to_owned());
        let limit = (settings.retention_bytes > 0).then(|| format!("\"retention_bytes\":{}", settings.retention_bytes));
        let options: Vec<String> = keep.into_iter().chain(limit).collect();
        let options = if options.is_empty() { String::new() } else { format!("{{{}}}", options.join(",")) };
        let groups = (0..settings.groups.max(1)).map(|group| GroupPlan::new(group, chance)).collect();
        let partitions = u16::try_from(settings.partitions.clamp(1, 64)).expect("few");
        Self { name, options, partitions, groups, current: None, is_ending: false }
    }
}

impl GroupPlan {
    fn new(number: u64, chance: &mut Random) -> Self {
        let by_key = number == 0 || chance.one_in(2);
        let lease_ms = chance.between(1000, 4000);
        let session_ms = chance.between(1500, 5000);
        let max_attempts = *chance.pick(&[0, 2, 3, 5]);
        let max_passed_over = if chance.one_in(3) { chance.between(4, 40) } else { 65_536 };
        let max_in_flight = if chance.one_in(4) { chance.between(2, 20) } else { 0 };
        let backoff_ms = *chance.pick(&[0, 20, 200]);
        let order = if by_key { "key" } else { "none" };
        let options = format!(
            "\"max_attempts\":{max_attempts},\"order\":\"{order}\",\"lease_ms\":{lease_ms},\"session_ms\":{session_ms},\
             \"max_passed_over\":{max_passed_over},\"max_in_flight\":{max_in_flight},\
             \"retry_backoff_base_ms\":{backoff_ms},\"retry_backoff_max_ms\":1500,\"start\":\"earliest\""
        );
        let window = *chance.pick(&[0, 1, 8, 64, 256]);
        let name = format!("group-{number}");
        Self {
            name,
            lease_ms,
            session_ms,
            max_attempts: u32::try_from(max_attempts).expect("small"),
            by_key,
            options,
            window,
            is_made: false,
        }
    }
}

/// The group that every dead-letter topic has from the start, and what it promises.
pub(crate) const LETTERS_GROUP: &str = "default";
