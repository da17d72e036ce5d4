//! A member is a session, not a connection: it goes on where its secret is shown, and is sent again what it does not hold.
//!
//! While a member has no connection it keeps its leases, those too whose messages were never written to its connection:
//! nobody can know which of them arrived. They run on unchanged, and end with the session (`consumer_lost`) if nobody
//! resumes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortarmq_delivery::Leased;
use mortarmq_shard::command::{ResumeMember, STEPS_MAX};
use mortarmq_shard::{Command, Refusal};
use mortarmq_types::{ConnectionId, DeliveryId, Partition};

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::{NewSession, WaiterKind};
use crate::options::Resume;
use crate::refusal::failure;
use crate::request::Subscribe;
use crate::sends::{Destination, Unread};
use crate::sessions::SessionKey;

impl Node {
    /// Asks the log whether the member is still there. Whoever shows its secret is heard until that is answered.
    pub(crate) fn add_resume(
        &mut self,
        now: Now,
        connection: ConnectionId,
        slot: u64,
        subscribe: Subscribe,
        resume: Resume,
    ) {
        let (topic, group, member) = (subscribe.topic, subscribe.group, resume.member);
        let secret_hash = secret_hash(resume.secret);
        if let Some(path) = self.shard.state().path_of_member(topic, &group, member, secret_hash) {
            self.sessions.renew((path, member), now.monotonic);
        }
        let session = NewSession {
            subscription: subscribe.subscription,
            secret: resume.secret,
            credit_messages: subscribe.credit_messages,
            credit_bytes: subscribe.credit_bytes,
            resumed: Some(Arc::new(resume.held)),
        };
        let command = Command::ResumeMember(ResumeMember { topic, group, member, secret_hash });
        self.open.add(&command, WaiterKind::Join { connection, slot, session });
    }

    /// Ends the subscription of a member, on whatever connection it is: what waits there is not sent, and the next word
    /// that names it is told that it has ended.
    pub(crate) fn end_subscription(&mut self, key: SessionKey) {
        let gone = failure(&Refusal::UnknownMember);
        if let Some(destination) = self.sessions.get(key).and_then(|session| session.connection) {
            let (connection, subscription) = destination;
            if let Some(open) = self.connections.get_mut(connection) {
                open.subscriptions.remove(&subscription);
            }
            self.sends.end(destination, &gone);
            self.advance(destination);
        }
        for id in self.pulls.matching(|pull| (pull.path, pull.member) == key) {
            if let Some(pull) = self.pulls.remove(id) {
                self.end_pull(pull.connection, pull.subscription, Err(gone.clone()));
            }
        }
    }

    /// Sends every live lease of a member that it does not hold, unchanged: only what is left of the lease is new. Credit
    /// does not hold them back, as they have their place in the window already.
    ///
    /// # Source
    /// Wire rule 6; failure rule 7: one that is not written by the half of what was left at the resume is given back.
    pub(crate) fn send_again(&mut self, key: SessionKey, destination: Destination, held: &BTreeSet<DeliveryId>) {
        let (id, member) = key;
        let state = self.shard.state();
        let (now, begun) = (state.now(), self.clock.monotonic(state.time));
        let Some(path) = state.paths.get(&id) else { return };
        let topic = path.topic;
        let mut batches = Vec::new();
        for (number, partition) in path.partitions.made() {
            let mut batch = Vec::new();
            let mut bytes = 0;
            for (seq, entry) in partition.held_by(member) {
                let Some(lease) = entry.lease().filter(|lease| !held.contains(&lease.delivery_id)) else { continue };
                let left_ms = lease.deadline.since_ms(now.lease);
                if left_ms == 0 {
                    // It is over; the next batch ends it.
                    continue;
                }
                let (attempt, cause, previous, size_bytes) =
                    (entry.attempt, entry.cause, entry.previous, entry.size_bytes);
                let (delivery_id, deadline, source) = (lease.delivery_id, lease.deadline, partition.source_of(seq));
                batch.push(Unread {
                    lease: Leased { seq, delivery_id, attempt, cause, previous, size_bytes, deadline, source },
                    lease_until: begun.after_ms(left_ms),
                    send_before: begun.after_ms(left_ms / 2),
                    position: partition.granted(lease).granted_at,
                });
                bytes += u64::from(size_bytes);
                if batch.len() >= STEPS_MAX as usize || bytes >= BATCH_BYTES {
                    batches.push((Partition::from_index(number), std::mem::take(&mut batch)));
                    bytes = 0;
                }
            }
            if !batch.is_empty() {
                batches.push((Partition::from_index(number), batch));
            }
        }
        for (partition, batch) in batches {
            self.queue(destination, id, topic, partition, batch);
        }
    }
}

/// What the log holds of a secret.
pub(crate) fn secret_hash(secret: u64) -> u64 {
    mortarmq_shard::record::key_hash(&secret.to_be_bytes()).get()
}

/// Records that are in memory together for one subscription, about: a message is sent as part of a whole batch.
const BATCH_BYTES: u64 = 1 << 20;
