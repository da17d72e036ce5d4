//! What an operator asks the nodes: the books, on whoever leads.

use std::time::Duration;

use mortarmq_history::Counters;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The token of every cluster here, for clients and operators.
pub(crate) const TOKEN: &str = "a-token-of-this-cluster-only";
/// SHA-256 of [`TOKEN`], which is all that a node is told of it.
pub(crate) const TOKEN_SHA256: &str = "39a04e0c468b0cb479a1ec5f8384d0eccc36465ef91bcf1810dc787a0d5db437";

/// The books of all paths, from one node.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Books {
    pub(crate) commit_index: u64,
    pub(crate) epoch: u64,
    /// The node had no majority to ask: it may be old.
    #[serde(default)]
    pub(crate) stale: bool,
    pub(crate) paths: Vec<PathBooks>,
}

/// The books of one path.
///
/// # Units
/// Messages.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PathBooks {
    pub(crate) topic: String,
    pub(crate) group: String,
    produced: u64,
    delivered: u64,
    dropped: u64,
    dlq: u64,
    depth: u64,
}

/// Who leads.
#[derive(Clone, Debug, Deserialize)]
struct LeaderTold {
    leader_id: Option<usize>,
}

/// Who belongs to the cluster.
#[derive(Clone, Debug, Deserialize)]
struct MembersTold {
    members: Vec<MemberTold>,
}

#[derive(Clone, Debug, Deserialize)]
struct MemberTold {
    id: usize,
    role: String,
    status: String,
}

/// What a node says of the others.
#[derive(Clone, Debug, Deserialize)]
struct BrokerTold {
    #[serde(default)]
    peers: Vec<PeerTold>,
}

#[derive(Clone, Debug, Deserialize)]
struct PeerTold {
    replication: Option<Follower>,
}

/// How a node follows, as the one that leads tells it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Follower {
    state: String,
    lag_entries: u64,
    silent_ms: Option<u64>,
}

impl Follower {
    /// Whether it was just heard and has nearly all of the log.
    pub(crate) fn is_near(&self) -> bool {
        self.state == "current"
            && self.lag_entries <= NEAR_ENTRIES
            && self.silent_ms.is_some_and(|silent_ms| silent_ms < NEAR_MS)
    }
}

/// What a group promises.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GroupTold {
    pub(crate) settings: GroupSettings,
}

/// The settings of a group that a history names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GroupSettings {
    pub(crate) lease_ms: u64,
    pub(crate) max_attempts: u32,
    pub(crate) order: String,
}

impl PathBooks {
    /// As a history names it.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.topic, self.group)
    }

    /// As a history has them.
    pub(crate) const fn counters(&self) -> Counters {
        let Self { produced, delivered, dropped, dlq, depth, .. } = self;
        Counters { produced: *produced, delivered: *delivered, dropped: *dropped, dlq: *dlq, depth: *depth }
    }
}

/// Asks the operator listeners. Its questions are short: a node that is paused or cut off answers none.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    agent: ureq::Agent,
}

impl Operator {
    pub(crate) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_LIMIT))
            .http_status_as_error(false)
            // The addresses are ours: a proxy of the environment is meant for other hosts.
            .proxy(None)
            .build();
        Self { agent: config.new_agent() }
    }

    /// Who leads, by a node that knows it.
    pub(crate) fn leader(&self, admin: &str) -> Option<usize> {
        self.get::<LeaderTold>(admin, "/v1/cluster/leader")?.leader_id
    }

    /// How the others follow, by the node that leads.
    pub(crate) fn followers(&self, admin: &str) -> Option<Vec<Follower>> {
        let told: BrokerTold = self.get(admin, "/v1/broker")?;
        Some(told.peers.into_iter().filter_map(|peer| peer.replication).collect())
    }

    /// The books as a node tells them, of its own or the leader's; nothing if there is no majority to ask, or no answer.
    pub(crate) fn books(&self, admin: &str) -> Option<Books> {
        self.get(admin, "/v1/balance")
    }

    /// What a group promises, from the node that leads.
    pub(crate) fn group(&self, admin: &str, topic: &str, group: &str) -> Option<GroupTold> {
        self.get(admin, &format!("/v1/topics/{}/groups/{group}", topic.replace('$', "%24")))
    }

    /// Has a node readmitted whose data is gone; whether it was admitted, or was before.
    pub(crate) fn readmit(&self, admin: &str, node: usize) -> bool {
        let request = self.agent.post(format!("http://{admin}/v1/cluster/members/{node}/readmit"));
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        request.send_json(serde_json::json!({})).is_ok_and(|answer| answer.status() == 200)
    }

    /// Whether a node votes, and every other one that does knows it.
    pub(crate) fn votes(&self, admin: &str, node: usize) -> bool {
        let members = self.get::<MembersTold>(admin, "/v1/cluster/members");
        let members = members.map(|told| told.members).unwrap_or_default();
        members.iter().any(|member| member.id == node && member.role == "voter" && member.status == "alive")
    }

    fn get<T: DeserializeOwned>(&self, admin: &str, route: &str) -> Option<T> {
        let request = self.agent.get(format!("http://{admin}{route}"));
        let mut answer = request.header("authorization", format!("Bearer {TOKEN}")).call().ok()?;
        if answer.status() != 200 { None } else { answer.body_mut().read_json().ok() }
    }
}

/// What is on its way while somebody publishes.
const NEAR_ENTRIES: u64 = 100;
/// Several heartbeats.
const NEAR_MS: u64 = 500;
/// Shorter than the pauses of most scenarios.
const ANSWER_LIMIT: Duration = Duration::from_millis(800);
