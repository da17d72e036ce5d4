//! Who belongs to a shard's group, and how that changes.
//!
//! An id is made of a node (its upper 32 bits) and of which life of that node's data it is (the lower ones); lives only rise. The membership
//! is a function of the log: of what a group begins with, and of its changes in their order. A node whose earlier life is the one that
//! the group began with starts with itself as a learner; the change that admits it finds it there.
//!
//! # Invariants
//! 1. No id votes and learns.
//! 2. A change adds or removes one voter at most: two majorities that follow one another have a voter in common.
//!
//! As bytes, in journal heads and checkpoints: the voters' ids, big-endian and rising; with learners a zero, which is no id, and theirs. A build
//! that knows no learners takes it for data of other nodes, and refuses it.

use bytes::{Buf, BufMut, Bytes};
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfState};

/// Voters and learners of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Rising.
    voters: Vec<u64>,
    /// Rising.
    learners: Vec<u64>,
}

/// A change of the membership, as an entry of the log carries it.
///
/// Its bytes are those of the library's `ConfChangeV2`, which looks into what it is given to propose: per change of one id the tag 0x12,
/// its length, 0x08 and what is done with it (1 removed, 2 added as a learner; not there for a voter), 0x10 and the id as a varint. What is
/// read is compared with what would be written; the library's own parser never sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A life of a node's data goes, and a later one comes in as a learner.
    Replace {
        /// The life that is gone.
        old: u64,
        /// The life that comes.
        new: u64,
    },
    /// A learner becomes a voter.
    Promote {
        /// Its id.
        id: u64,
    },
}

/// What a member may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// It votes, and what it acknowledges counts.
    Voter,
    /// It is brought up; neither counts.
    Learner,
}

impl Membership {
    /// A group of these voters and learners, in any order.
    #[must_use]
    pub fn new(mut voters: Vec<u64>, mut learners: Vec<u64>) -> Self {
        voters.sort_unstable();
        learners.sort_unstable();
        Self { voters, learners }
    }

    /// The voters' ids, rising.
    #[must_use]
    pub fn voters(&self) -> &[u64] {
        &self.voters
    }

    /// The learners' ids, rising.
    #[must_use]
    pub fn learners(&self) -> &[u64] {
        &self.learners
    }

    /// All ids, those of voters first.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// What an id may do; none of one that is no member.
    #[must_use]
    pub fn role(&self, id: u64) -> Option<MemberRole> {
        if self.voters.contains(&id) {
            return Some(MemberRole::Voter);
        }
        self.learners.contains(&id).then_some(MemberRole::Learner)
    }

    /// The life of a node that is a member.
    #[must_use]
    pub fn life_of(&self, node: u32) -> Option<u64> {
        self.ids().filter(|id| node_part(*id) == node).max()
    }

    /// Whether an id may be heard: it is a member, or a life of a member's node that is to come and of which this log does not tell yet.
    #[must_use]
    pub fn may_speak(&self, id: u64) -> bool {
        self.role(id).is_some() || self.life_of(node_part(id)).is_some_and(|known| known < id)
    }

    /// Takes a change. What it says of ids that are none, or that are known already, changes nothing: a log may be told from its
    /// beginning to a node that is a learner from the start.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Replace { old, new } => {
                self.voters.retain(|id| *id != old);
                self.learners.retain(|id| *id != old);
                if self.life_of(node_part(new)).is_none_or(|known| known < new) {
                    self.learners.push(new);
                    self.learners.sort_unstable();
                }
            }
            Change::Promote { id } => {
                if self.role(id) == Some(MemberRole::Learner) {
                    self.learners.retain(|learner| *learner != id);
                    self.voters.push(id);
                    self.voters.sort_unstable();
                }
            }
        }
    }

    /// What the library has to do, one id after the other, to come from one membership to another.
    pub(crate) fn steps_to(&self, to: &Self) -> Vec<ConfChangeSingle> {
        let gone = self.ids().filter(|id| to.role(*id).is_none()).map(|id| (ConfChangeType::RemoveNode, id));
        let come = to.ids().filter(|id| to.role(*id) != self.role(*id)).map(|id| match to.role(id) {
            Some(MemberRole::Voter) => (ConfChangeType::AddNode, id),
            Some(MemberRole::Learner) | None => (ConfChangeType::AddLearnerNode, id),
        });
        let single = |(kind, node_id)| {
            let mut single = ConfChangeSingle { node_id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        gone.chain(come).map(single).collect()
    }

    pub(crate) fn conf_state(&self) -> ConfState {
        ConfState { voters: self.voters.clone(), learners: self.learners.clone(), ..ConfState::default() }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let learners = (!self.learners.is_empty()).then_some(0).into_iter().chain(self.learners.iter().copied());
        self.voters.iter().copied().chain(learners).flat_map(u64::to_be_bytes).collect()
    }

    /// Reads what [`Membership::encode`] wrote; none of anything else.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let whole = bytes;
        let mut ids = Vec::with_capacity(bytes.len() / size_of::<u64>());
        while bytes.len() >= size_of::<u64>() {
            ids.push(bytes.get_u64());
        }
        let at = ids.iter().position(|id| *id == 0).unwrap_or(ids.len());
        let learners = ids.get(at + 1..).unwrap_or_default().to_vec();
        let found = Self::new(ids[..at].to_vec(), learners);
        let is_sound = !found.voters.is_empty() && found.find_fault().is_none();
        (is_sound && found.encode() == whole).then_some(found)
    }

    /// An id that stands twice in it, or 0.
    pub(crate) fn find_fault(&self) -> Option<u64> {
        let mut ids: Vec<u64> = self.ids().collect();
        ids.sort_unstable();
        let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        twice.or(ids.first().copied().filter(|id| *id == 0))
    }
}

impl Change {
    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = Vec::with_capacity(2 * SINGLE_BYTES_MAX);
        match self {
            Self::Replace { old, new } => {
                put_single(&mut out, REMOVED, old);
                put_single(&mut out, LEARNS, new);
            }
            Self::Promote { id } => put_single(&mut out, VOTES, id),
        }
        out.into()
    }

    /// Reads a change; none of what [`Change::encode`] does not write.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut left = bytes;
        let (kind, id) = take_single(&mut left)?;
        let found = match kind {
            VOTES => Self::Promote { id },
            REMOVED => match take_single(&mut left)? {
                (LEARNS, new) => Self::Replace { old: id, new },
                _ => return None,
            },
            _ => return None,
        };
        (found.is_sound() && found.encode() == bytes).then_some(found)
    }

    /// Who votes by it.
    pub(crate) const fn promotes(self) -> Option<u64> {
        match self {
            Self::Replace { .. } => None,
            Self::Promote { id } => Some(id),
        }
    }

    /// Whether it speaks of ids, and of two lives of one node in their order.
    fn is_sound(self) -> bool {
        match self {
            Self::Replace { old, new } => old != 0 && old < new && node_part(old) == node_part(new),
            Self::Promote { id } => id != 0,
        }
    }
}

/// The node of an id.
fn node_part(id: u64) -> u32 {
    (id >> 32) as u32
}

fn put_single(out: &mut Vec<u8>, kind: u8, mut id: u64) {
    let mut single = Vec::with_capacity(SINGLE_BYTES_MAX);
    if kind != VOTES {
        single.put_slice(&[0x08, kind]);
    }
    single.put_u8(0x10);
    while id >= 0x80 {
        single.put_u8((id as u8) | 0x80);
        id >>= 7;
    }
    single.put_u8(id as u8);
    out.put_u8(SINGLE_TAG);
    out.put_u8(single.len() as u8);
    out.put_slice(&single);
}

fn take_single(left: &mut &[u8]) -> Option<(u8, u64)> {
    let (tag, length) = (take_byte(left)?, usize::from(take_byte(left)?));
    if tag != SINGLE_TAG {
        return None;
    }
    let (mut single, behind) = left.split_at_checked(length)?;
    *left = behind;
    let mut field = take_byte(&mut single)?;
    let mut kind = VOTES;
    if field == 0x08 {
        kind = take_byte(&mut single)?;
        field = take_byte(&mut single)?;
    }
    if field != 0x10 || single.is_empty() || single.len() > VARINT_BYTES_MAX {
        return None;
    }
    let mut id = 0_u64;
    for (at, byte) in single.iter().enumerate() {
        id |= u64::from(byte & 0x7F) << (7 * at);
    }
    Some((kind, id))
}

fn take_byte(left: &mut &[u8]) -> Option<u8> {
    let (first, behind) = left.split_first()?;
    *left = behind;
    Some(*first)
}

const SINGLE_TAG: u8 = 0x12;
const VOTES: u8 = 0;
const REMOVED: u8 = 1;
const LEARNS: u8 = 2;
/// A u64 of which each byte carries seven bits.
const VARINT_BYTES_MAX: usize = 10;
const SINGLE_BYTES_MAX: usize = 5 + VARINT_BYTES_MAX;

#[cfg(test)]
mod tests;
