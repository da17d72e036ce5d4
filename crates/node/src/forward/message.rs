//! What two nodes say to each other about forwarded requests.

use mortarmq_types::Epoch;

use crate::reply::Reply;
use crate::request::Request;

/// A message about forwarded requests.
#[derive(Clone, Debug)]
pub struct ForwardMessage {
    /// Who says it, as a Raft id: an earlier life of a node's data is another.
    pub from: u64,
    /// Who it is for.
    pub to: u64,
    /// What it is about.
    pub stream: StreamId,
    /// What it says.
    pub body: ForwardBody,
}

/// What one process of a node forwards in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId {
    /// The forwarder's process.
    pub incarnation: u64,
    /// The epoch whose leader answers: nobody else does, and none outlives it.
    pub epoch: Epoch,
}

/// What a message says.
#[derive(Clone, Debug)]
pub enum ForwardBody {
    /// Requests, numbered from `first` on. None at all asks for what is missing of the answers.
    Ask {
        /// The number of the first request.
        first: u64,
        /// Up to this number the forwarder has every answer.
        answered: u64,
        /// The requests.
        requests: Vec<Request>,
    },
    /// Answers to some of them.
    Answers {
        /// Up to this number every request is taken in.
        taken: u64,
        /// Numbers, and the answers to all places of each.
        answers: Vec<(u64, Vec<Reply>)>,
    },
}

/// Whether a request is forwarded at all (`None`: it is not), and whether it may be repeated when it is not known what became
/// of it.
pub(crate) fn forwardable(request: &Request) -> Option<bool> {
    match request {
        // The edge encoded them; what cannot be read has no identity.
        Request::Publish(run) => Some(run.check().unwrap_or(false)),
        Request::Metadata { .. } => Some(true),
        Request::Declare { .. } | Request::Delete { .. } => Some(false),
        Request::Ping
        | Request::Refused(_)
        | Request::Subscribe(_)
        | Request::Credit { .. }
        | Request::Pull { .. }
        | Request::Settle { .. }
        | Request::Heartbeat { .. } => None,
    }
}
