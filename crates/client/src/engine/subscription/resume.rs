//! How a consumer goes on as the member that it was.

use std::collections::BTreeSet;

use mortarmq_types::{DeliveryId, MemberId};
use mortarmq_wire::ops::SubscribeOk;
use serde_json::{Map, Value, json};

use super::Subscription;

/// A member, and the proof that it is this consumer's.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    member_id: MemberId,
    secret: u64,
}

impl Identity {
    pub(super) const fn of(ok: &SubscribeOk) -> Self {
        Self { member_id: ok.member_id, secret: ok.secret }
    }
}

/// Leaves the secret out: what is printed ends up in logs.
impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").field("member_id", &self.member_id).finish_non_exhaustive()
    }
}

impl Subscription {
    /// The options of a SUB that resumes.
    pub(super) fn resume_options(&self, identity: Identity) -> Vec<u8> {
        // The broker has taken the options before, so they are an object, or nothing.
        let mut options: Map<String, Value> = serde_json::from_slice(&self.settings.options).unwrap_or_default();
        let held: Vec<u64> = self.held().into_iter().take(HELD_MAX).map(DeliveryId::get).collect();
        let resume = json!({"member_id": identity.member_id.get(), "secret": identity.secret, "held": held});
        options.insert("resume".to_owned(), resume);
        Value::Object(options).to_string().into_bytes()
    }

    /// What need not come again: what waits here or is with the handler, and what is to be settled, which nobody here
    /// waits for any more.
    fn held(&self) -> BTreeSet<DeliveryId> {
        self.hand_over.held_ids().chain(self.settles.delivery_ids()).collect()
    }
}

/// The broker takes so many in options of 256 KiB, with room for all else. The rest comes again and is known here.
const HELD_MAX: usize = 8192;
