//! Sessions of members on the leader: where they are connected, their windows, and until when they may be silent.
//!
//! The state knows which members exist; all that stands here is the leader's own and starts anew with each leader: every
//! member then has a full session time.

use mortarmq_shard::{GroupSettings, Setting};
use mortarmq_types::{ConnectionId, MemberId, MonotonicTime, PathId};
use std::collections::{BTreeMap, BTreeSet};

/// A member of a path.
pub(crate) type SessionKey = (PathId, MemberId);

/// All sessions.
///
/// # Invariants
/// 1. `silent` holds each session once, under its deadline, unless its end is proposed.
/// 2. Deadlines are kept in the node's time less all that was excused: so an excuse concerns every session, and costs nothing
///    for any.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<SessionKey, Session>,
    silent: BTreeSet<(MonotonicTime, SessionKey)>,
    /// For how long nobody could be heard, in all.
    excused_ms: u64,
}

/// One session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// Where its messages go; none after the connection broke.
    pub(crate) connection: Option<(ConnectionId, u16)>,
    /// Messages it may hold by pushes.
    pub(crate) window_messages: u32,
    /// Bytes it may hold by pushes.
    pub(crate) window_bytes: u64,
    /// Changes of the window.
    pub(crate) credit_epoch: u64,
    /// Whether its window of messages is its group's, and follows it.
    has_group_messages: bool,
    /// Whether its window of bytes is its group's, and follows it.
    has_group_bytes: bool,
    session_ms: u64,
    /// As invariant 2 says, once it is filed.
    deadline: MonotonicTime,
    ending: bool,
}

impl Sessions {
    pub(crate) fn open(&mut self, key: SessionKey, session: Session) {
        let session = Session { deadline: self.filed(session.deadline), ..session };
        if let Some(old) = self.all.insert(key, session) {
            self.silent.remove(&(old.deadline, key));
        }
        self.silent.insert((session.deadline, key));
    }

    pub(crate) fn close(&mut self, key: SessionKey) {
        if let Some(session) = self.all.remove(&key) {
            self.silent.remove(&(session.deadline, key));
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.all.get_mut(&key)
    }

    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.all.get(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The sessions of one path that messages can be pushed to.
    pub(crate) fn pushable(&self, path: PathId) -> impl Iterator<Item = (MemberId, &Session)> {
        self.all
            .range((path, MemberId::ZERO)..=(path, MemberId::MAX))
            .filter(|(_, session)| session.connection.is_some() && session.window_messages > 0 && !session.ending)
            .map(|((_, member), session)| (*member, session))
    }

    /// All sessions of one path.
    pub(crate) fn of_path(&self, path: PathId) -> Vec<SessionKey> {
        self.all.range((path, MemberId::ZERO)..=(path, MemberId::MAX)).map(|(key, _)| *key).collect()
    }

    /// Gives a session its full time again; says whether its end is proposed, and this was too late.
    pub(crate) fn renew(&mut self, key: SessionKey, now: MonotonicTime) -> bool {
        let now = self.filed(now);
        let Some(session) = self.all.get_mut(&key) else { return false };
        if session.ending {
            return true;
        }
        self.silent.remove(&(session.deadline, key));
        session.deadline = now.after_ms(session.session_ms);
        self.silent.insert((session.deadline, key));
        false
    }

    /// The settings of a group changed: its sessions have its windows, where they took those, and begin anew with its time.
    pub(crate) fn change(&mut self, path: PathId, settings: &GroupSettings, now: MonotonicTime) {
        for key in self.of_path(path) {
            let session = self.all.get_mut(&key).expect("a session of the path");
            session.follow(settings);
            session.session_ms = settings.get(Setting::SessionMs);
            self.renew(key, now);
        }
    }

    /// A session that was silent too long; it comes out once, its end is then proposed.
    pub(crate) fn poll_lost(&mut self, now: MonotonicTime) -> Option<SessionKey> {
        let &(deadline, key) = self.silent.first()?;
        if deadline > self.filed(now) {
            return None;
        }
        self.silent.remove(&(deadline, key));
        self.all.get_mut(&key).expect("invariant 1: every filed session exists").ending = true;
        Some(key)
    }

    /// When the next session would be lost.
    pub(crate) fn next_deadline(&self) -> Option<MonotonicTime> {
        self.silent.first().map(|(deadline, _)| deadline.after_ms(self.excused_ms))
    }

    /// Nobody could be heard for that long, so nobody was silent.
    pub(crate) const fn excuse(&mut self, stalled_ms: u64) {
        self.excused_ms += stalled_ms;
    }

    /// A moment of the node's time as deadlines are kept. What was excused has passed, so there is no moment before it.
    fn filed(&self, moment: MonotonicTime) -> MonotonicTime {
        MonotonicTime::new(moment.since_ms(MonotonicTime::new(self.excused_ms)))
    }
}

impl Session {
    /// A session that begins now.
    pub(crate) fn new(connection: Option<(ConnectionId, u16)>, session_ms: u64, now: MonotonicTime) -> Self {
        let deadline = now.after_ms(session_ms);
        Self {
            connection,
            window_messages: 0,
            window_bytes: 0,
            credit_epoch: 0,
            has_group_messages: false,
            has_group_bytes: false,
            session_ms,
            deadline,
            ending: false,
        }
    }

    /// Sets the window of messages: this many, or as many as its group says.
    pub(crate) const fn set_messages(&mut self, messages: u32, is_the_groups: bool) {
        (self.window_messages, self.has_group_messages) = (messages, is_the_groups);
    }

    /// Sets the window of bytes: this many, or as many as its group says.
    pub(crate) const fn set_bytes(&mut self, bytes: u64, is_the_groups: bool) {
        (self.window_bytes, self.has_group_bytes) = (bytes, is_the_groups);
    }

    /// Takes over what the group's settings say of its windows.
    pub(crate) fn follow(&mut self, settings: &GroupSettings) {
        if self.has_group_messages {
            let messages = settings.get(Setting::CreditCount);
            self.window_messages = u32::try_from(messages).expect("the range of credit_count fits 32 bits");
        }
        if self.has_group_bytes {
            self.window_bytes = settings.get(Setting::CreditBytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Session, Sessions};
    use mortarmq_types::{MemberId, MonotonicTime, PathId};

    #[test]
    fn a_session_is_lost_once_after_its_time_unless_it_is_renewed_or_excused() {
        let mut sessions = Sessions::default();
        let at = MonotonicTime::new;
        let keys = [1, 2, 3].map(|member| (PathId::new(1), MemberId::new(member)));
        for key in keys {
            sessions.open(key, Session::new(None, 1000, at(0)));
        }
        sessions.renew(keys[1], at(600));
        assert_eq!(sessions.poll_lost(at(999)), None);
        assert_eq!(sessions.poll_lost(at(1000)), Some(keys[0]));
        sessions.excuse(5000);
        assert_eq!(sessions.poll_lost(at(5999)), None);
        assert_eq!(sessions.poll_lost(at(6000)), Some(keys[2]));
        assert_eq!(sessions.poll_lost(at(6600)), Some(keys[1]));
        assert_eq!(sessions.poll_lost(at(60_000)), None, "each is lost once");
        // What was excused before a session began is nothing to it.
        sessions.open(keys[0], Session::new(None, 1000, at(61_000)));
        assert_eq!(sessions.next_deadline(), Some(at(62_000)));
        sessions.excuse(500);
        sessions.renew(keys[0], at(61_700));
        assert_eq!(sessions.next_deadline(), Some(at(62_700)));
        sessions.excuse(500);
        assert_eq!((sessions.next_deadline(), sessions.poll_lost(at(63_199))), (Some(at(63_200)), None));
        assert_eq!(sessions.poll_lost(at(63_200)), Some(keys[0]));
    }
}
