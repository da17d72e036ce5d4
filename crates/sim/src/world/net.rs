//! The links between nodes: each direction by itself takes its time, loses, doubles and delays, and can be cut.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use mortarmq_node::PeerWord;
use mortarmq_types::{NodeId, ShardId};

use super::World;
use super::event::{Event, Input};
use crate::plan::Shape;
use crate::random::Random;

/// All links between nodes.
pub(crate) struct Net {
    chance: Random,
    /// What is cut, by the fault that did it: from and to, and whether it is cut just now.
    cuts: BTreeMap<u64, (BTreeSet<(usize, usize)>, bool)>,
    last_cut: u64,
    /// When the last message of each direction arrives.
    last_us: BTreeMap<(usize, usize), u64>,
}

impl Net {
    pub(crate) fn new(chance: Random) -> Self {
        Self { chance, cuts: BTreeMap::new(), last_cut: 0, last_us: BTreeMap::new() }
    }

    /// Whether a direction carries nothing.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.values().any(|(links, is_cut)| *is_cut && links.contains(&(from, to)))
    }

    /// Cuts links; what names the cut.
    pub(crate) fn cut(&mut self, links: BTreeSet<(usize, usize)>) -> u64 {
        self.last_cut += 1;
        self.cuts.insert(self.last_cut, (links, true));
        self.last_cut
    }

    /// Cuts them again, or lets them carry.
    pub(crate) fn set_cut(&mut self, cut: u64, is_cut: bool) {
        if let Some((_, now)) = self.cuts.get_mut(&cut) {
            *now = is_cut;
        }
    }

    /// All links carry everything.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
    }
}

/// The directions that a shape cuts, as seen from a node.
pub(crate) fn links_of(shape: Shape, node: usize, nodes: usize) -> BTreeSet<(usize, usize)> {
    // As seen from the node: it is place 0.
    let place = |other: usize| (other + nodes - node) % nodes;
    let is_pair = |a: usize, b: usize| a.min(b) == 0 && a.max(b) == 1;
    let few = nodes / 2;
    let is_cut = |a: usize, b: usize| match shape {
        Shape::Alone => a == 0 || b == 0,
        Shape::Halves => (a < few) != (b < few),
        Shape::Ring if nodes == 3 => is_pair(a, b),
        Shape::Ring => a.abs_diff(b) != 1 && a.abs_diff(b) != nodes - 1,
        Shape::Bridge => a != 0 && b != 0 && (a <= few) != (b <= few),
        Shape::OneWay => (a, b) == (0, 1),
        Shape::Mute => a == 0,
        Shape::Deaf => b == 0,
    };
    let all = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    all.filter(|(from, to)| from != to && is_cut(place(*from), place(*to))).collect()
}

impl World {
    /// A node says something to another.
    pub(super) fn send_word(&mut self, from: usize, to: NodeId, word: &PeerWord) {
        if matches!(word, PeerWord::Forward(_)) {
            self.tally.reach("a request was forwarded");
        }
        if let PeerWord::Log(message) = word
            && let Some(promise) = message.promise()
        {
            self.note_promise(from, promise);
        }
        let mut bytes = BytesMut::new();
        word.encode(ShardId::ZERO, &mut bytes);
        self.carry(from, to, &bytes.freeze());
    }

    /// Bytes go over the link, as often and as late as that likes.
    fn carry(&mut self, from: usize, to: NodeId, bytes: &Bytes) {
        let to = usize::from(to.get());
        let settings = &self.settings;
        let (lost, doubled, late) =
            (settings.peer_lost_permille, settings.peer_doubled_permille, settings.peer_late_permille);
        let (usual_us, overtakes) = (settings.peer_us, settings.peer_overtakes > 0);
        let is_lossy = !self.is_healing;
        let net = &mut self.peers;
        if net.is_cut(from, to) || (is_lossy && net.chance.below(1000) < lost) {
            return;
        }
        let copies = if is_lossy && net.chance.below(1000) < doubled { 2 } else { 1 };
        for _ in 0..copies {
            let net = &mut self.peers;
            let times = if is_lossy && net.chance.below(1000) < late { 100 } else { 1 };
            let mut at_us = self.now_us + usual_us / 2 + net.chance.below(usual_us * times / 2 + 1);
            if !overtakes {
                let last_us = net.last_us.entry((from, to)).or_default();
                at_us = at_us.max(*last_us);
                *last_us = at_us;
            }
            self.at(at_us, Event::Peer { to, bytes: bytes.clone() });
        }
    }

    /// The bytes of a message arrive. Nobody is there to hear what comes to a node that is down.
    pub(super) fn peer_arrives(&mut self, to: usize, bytes: Bytes) {
        match PeerWord::decode(bytes) {
            Ok((_, word)) => self.give(to, Input::Peer { word: Box::new(word) }),
            Err(error) => self.fail(format!("P11: what one node says no other can read: {error}")),
        }
    }

    /// Links between nodes are cut for a while; if they flap, they come and go meanwhile.
    pub(super) fn cut_links(&mut self, node: usize, shape: Shape, ms: u64, flap_ms: u64) {
        let links = links_of(shape, node, self.nodes.len());
        let cut = self.peers.cut(links);
        let until_us = self.now_us + ms * 1000;
        if flap_ms > 0 {
            let mut at_us = self.now_us;
            let mut is_cut = true;
            while at_us + flap_ms * 1000 < until_us {
                at_us += flap_ms * 1000;
                is_cut = !is_cut;
                self.at(at_us, Event::Cut { cut, is_cut });
            }
        }
        self.fault_began(node, "partition", until_us);
        self.at(until_us, Event::Cut { cut, is_cut: false });
    }
}

#[cfg(test)]
mod tests {
    use super::links_of;
    use crate::plan::Shape;

    #[test]
    fn a_shape_cuts_what_it_says() {
        let cut = |shape, node, nodes| links_of(shape, node, nodes).into_iter().collect::<Vec<_>>();
        assert_eq!(cut(Shape::Alone, 1, 3), [(0, 1), (1, 0), (1, 2), (2, 1)]);
        assert_eq!(cut(Shape::Halves, 2, 3), cut(Shape::Alone, 2, 3));
        assert_eq!(links_of(Shape::Halves, 4, 5).len(), 12, "two on one side, three on the other");
        assert!(!links_of(Shape::Halves, 4, 5).contains(&(4, 0)));
        assert_eq!(cut(Shape::Ring, 2, 3), [(0, 2), (2, 0)]);
        assert_eq!(links_of(Shape::Ring, 0, 5).len(), 10);
        assert_eq!(cut(Shape::Bridge, 0, 3), [(1, 2), (2, 1)]);
        assert_eq!(links_of(Shape::Bridge, 0, 5).len(), 8);
        assert_eq!(cut(Shape::OneWay, 2, 3), [(2, 0)]);
        assert_eq!(cut(Shape::Mute, 0, 3), [(0, 1), (0, 2)]);
        assert_eq!(cut(Shape::Deaf, 0, 3), [(1, 0), (2, 0)]);
    }
}
