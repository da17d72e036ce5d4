//! The second look: what is needed of messages that were judged and forgotten.
//!
//! The first reading forgets what is finished. Where a rule needs a forgotten message after all (it was delivered again, a
//! message of its key overtook it, another has its place), the files are read once more, for these messages alone.

use hashbrown::{HashMap, HashSet};

use crate::context::Context;
use crate::keys::{Group, group};
use crate::location::Location;
use crate::operation::{Delivery, MsgId, Name, Operation, Outcome, Position};
use crate::rules::sequence::Place;
use crate::span::Timed;

/// What is looked for.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub msgs: HashSet<MsgId>,
    pub places: HashSet<Place>,
    pub ids: HashSet<(Name, u64)>,
    pub groups: HashSet<Group>,
}

/// What was seen of it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub messages: HashMap<MsgId, Vec<Operation>>,
    pub places: HashMap<Place, Vec<(MsgId, Location)>>,
    pub ids: HashMap<(Name, u64), Vec<(MsgId, Delivery)>>,
    /// Messages of wanted groups that were not wanted by themselves: they must be looked for once more.
    pub more: HashSet<MsgId>,
}

impl Wanted {
    /// Whether nothing is.
    pub(crate) fn is_empty(&self) -> bool {
        self.msgs.is_empty() && self.places.is_empty() && self.ids.is_empty() && self.groups.is_empty()
    }
}

impl Seen {
    /// Puts everything in the order of answers.
    pub(crate) fn sort(&mut self) {
        for operations in self.messages.values_mut() {
            operations.sort_by_key(|one| (one.span().moment(), one.location()));
        }
    }

    /// Takes a record, if it is wanted.
    pub(crate) fn take(&mut self, wanted: &Wanted, context: &Context, msg: MsgId, operation: &Operation) {
        if let Some(place) = place_of(context, operation)
            && wanted.places.contains(&place)
        {
            self.places.entry(place).or_default().push((msg, operation.location()));
        }
        if let Operation::Delivery(delivery) = operation
            && let Some(id) = delivery.id
            && wanted.ids.contains(&(delivery.path, id))
        {
            self.ids.entry((delivery.path, id)).or_default().push((msg, delivery.clone()));
        }
        if wanted.msgs.contains(&msg) {
            self.messages.entry(msg).or_default().push(operation.clone());
        } else if !wanted.groups.is_empty() && is_of_group(wanted, context, operation) {
            self.more.insert(msg);
        }
    }
}

/// The place of a topic that a record says its message has.
pub(crate) fn place_of(context: &Context, operation: &Operation) -> Option<Place> {
    let (topic, (partition, seq)) = match operation {
        Operation::Publish(publish) if publish.outcome == Outcome::Ok => (publish.topic, publish.position?),
        Operation::Publish(_) | Operation::Settle(_) => return None,
        // Without a run record nobody knows which paths share a topic; each counts for itself.
        Operation::Delivery(delivery) => {
            (context.path(delivery.path).topic.unwrap_or(delivery.path), delivery.position?)
        }
    };
    Some((topic, partition, seq))
}

/// Whether a record is of a message of a wanted group, in whatever partition the record can tell.
fn is_of_group(wanted: &Wanted, context: &Context, operation: &Operation) -> bool {
    let any = |path: Name, key: u64, place: Option<Position>| {
        wanted.groups.contains(&group(path, key, place)) || wanted.groups.contains(&group(path, key, None))
    };
    match operation {
        Operation::Publish(publish) => {
            publish.key.is_some_and(|key| context.paths_of(publish.topic).any(|path| any(path, key, publish.position)))
        }
        Operation::Delivery(delivery) => delivery.key.is_some_and(|key| any(delivery.path, key, delivery.position)),
        Operation::Settle(_) => false,
    }
}
