//! What a node knows of its links to the others, for its operators: whether each is up, why not, and what the other node says of
//! itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mortarmq_http::LinkStatus;
use mortarmq_types::NodeId;

use super::card::Card;
use super::outgoing::Dial;

/// All links, shared by their tasks and by those who ask.
pub(crate) struct Known {
    own: Card,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
    /// What another node said when it refused this one for good.
    replaced: Mutex<Option<String>>,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    address: String,
    /// Of both links.
    links_up: u8,
    /// Why the last one could not be made, or broke.
    error: Option<String>,
    card: Option<Card>,
    clock_ahead_ms: i64,
    /// What it was sent, since this process began.
    sent_bytes: u64,
    /// Whether it was said in the log that both keep their data on one device.
    is_warned: bool,
}

impl Known {
    pub(crate) fn new(own: Card, others: &[Dial]) -> Self {
        let peer = |dial: &Dial| (dial.node, Peer { address: dial.address.clone(), ..Peer::default() });
        Self { own, peers: Mutex::new(others.iter().map(peer).collect()), replaced: Mutex::default() }
    }

    /// What this node says of itself.
    pub(crate) const fn own(&self) -> &Card {
        &self.own
    }

    /// A link is up.
    pub(crate) fn connected(&self, node: NodeId) {
        self.with(node, |peer| peer.links_up += 1);
    }

    /// It is down again.
    pub(crate) fn broke(&self, node: NodeId, error: &str) {
        self.with(node, |peer| {
            peer.links_up = peer.links_up.saturating_sub(1);
            peer.error = Some(error.to_owned());
        });
    }

    /// A link cannot be made.
    pub(crate) fn failed(&self, node: NodeId, error: &str) {
        self.with(node, |peer| peer.error = Some(error.to_owned()));
    }

    /// Another node says that a later life of this one belongs to the cluster; says whether that is news.
    pub(crate) fn replaced(&self, why: &str) -> bool {
        let before = self.replaced.lock().unwrap_or_else(PoisonError::into_inner).replace(why.to_owned());
        before.is_none()
    }

    /// Why this node is none of its cluster any more, if it is not.
    pub(crate) fn why_replaced(&self) -> Option<String> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The other node gave a sign of life; says whether its data turns out to lie on the device of this node's.
    pub(crate) fn heard(&self, node: NodeId, sign: &[u8], now_ms: u64) -> bool {
        let Some((card, their_ms)) = Card::read(sign) else { return false };
        let shares_device = self.own.shares_device(&card);
        let ahead = i128::from(their_ms) - i128::from(now_ms);
        let mut is_news = false;
        self.with(node, |peer| {
            peer.clock_ahead_ms = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
            is_news = shares_device && !std::mem::replace(&mut peer.is_warned, shares_device);
            peer.card = Some(card);
        });
        is_news
    }

    /// So many bytes were handed to the system for another node.
    pub(crate) fn sent(&self, node: NodeId, bytes: usize) {
        self.with(node, |peer| peer.sent_bytes += bytes as u64);
    }

    /// What each other node was sent, since this process began.
    ///
    /// # Units
    /// Bytes, with frames and seals.
    pub(crate) fn sent_bytes(&self) -> Vec<(NodeId, u64)> {
        self.lock().iter().map(|(node, peer)| (*node, peer.sent_bytes)).collect()
    }

    /// How the link to a node stands.
    pub(crate) fn status(&self, node: NodeId) -> Option<LinkStatus> {
        let peers = self.lock();
        let peer = peers.get(&node)?;
        let is_up = peer.links_up > 0;
        Some(LinkStatus {
            address: peer.address.clone(),
            up: is_up,
            error: peer.error.clone().filter(|_| !is_up),
            version: peer.card.as_ref().map(|card| card.version.clone()),
            clock_ahead_ms: peer.card.as_ref().map(|_| peer.clock_ahead_ms),
            same_peers: peer.card.as_ref().map(|card| card.peers == self.own.peers),
            same_device: peer.card.as_ref().map(|card| self.own.shares_device(card)),
        })
    }

    fn with(&self, node: NodeId, act: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.lock().get_mut(&node) {
            act(peer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Card, Known};
    use crate::peers::outgoing::Dial;
    use bytes::BytesMut;
    use mortarmq_types::NodeId;

    fn card(peers: u8, device: u8) -> Card {
        Card { peers: [peers; 8], device: [device; 8], version: "1.2.3".to_owned() }
    }

    fn sign(card: &Card, now_ms: u64) -> BytesMut {
        let mut out = BytesMut::new();
        card.put(now_ms, &mut out);
        out
    }

    #[test]
    fn what_a_node_says_of_itself_is_compared_and_one_device_is_told_once() {
        let node = NodeId::new(1);
        let known = Known::new(card(1, 1), &[Dial { node, address: "b:7189".to_owned(), tls: None }]);
        let status = || known.status(node).expect("it is known");
        known.failed(node, "nobody answers");
        let found = status();
        assert_eq!(
            (found.address.as_str(), found.up, found.error.as_deref()),
            ("b:7189", false, Some("nobody answers"))
        );
        assert_eq!((found.version, found.same_peers), (None, None), "it has said nothing");
        known.connected(node);
        assert!(!known.heard(node, b"", 0), "an empty sign says nothing");
        assert!(!known.heard(node, &sign(&card(1, 2), 5000), 2000));
        let found = status();
        assert_eq!((found.up, found.error, found.clock_ahead_ms), (true, None, Some(3000)));
        assert_eq!((found.same_peers, found.same_device), (Some(true), Some(false)));
        assert_eq!(found.version.as_deref(), Some("1.2.3"));
        let here = sign(&card(2, 1), 1000);
        assert_eq!([(); 2].map(|()| known.heard(node, &here, 2000)), [true, false], "once");
        let found = status();
        assert_eq!((found.clock_ahead_ms, found.same_peers, found.same_device), (Some(-1000), Some(false), Some(true)));
        known.broke(node, "reset");
        assert_eq!((status().up, status().error.as_deref()), (false, Some("reset")));
        assert_eq!(known.status(NodeId::new(2)), None);
    }

    #[test]
    fn what_is_sent_is_counted_for_each_node_and_goes_on_when_a_link_breaks() {
        let [one, other] = [NodeId::new(1), NodeId::new(2)];
        let dial = |node| Dial { node, address: "b:7189".to_owned(), tls: None };
        let known = Known::new(card(1, 1), &[dial(one), dial(other)]);
        known.connected(one);
        known.sent(one, 100);
        known.broke(one, "reset");
        known.connected(one);
        known.sent(one, 7);
        known.sent(NodeId::new(3), 1);
        assert_eq!(known.sent_bytes(), [(one, 107), (other, 0)]);
    }
}
