//! A topic as a producer or a subscription uses it: by name, pinned to one incarnation, with a handle per connection.

use mortarmq_types::{Position, TopicIncarnation};
use mortarmq_wire::{ErrorCode, Op, Outcome};

use crate::errors::{ClientError, ServerError};

#[derive(Debug)]
pub(crate) struct TopicUse {
    pub(crate) name: String,
    /// The life of the name that was found first. Another one has other sequences and numbers.
    incarnation: Option<TopicIncarnation>,
    handle: Option<u16>,
    /// Whether this connection was asked for the handle.
    is_asked: bool,
}

impl TopicUse {
    pub(crate) const fn new(name: String) -> Self {
        Self { name, incarnation: None, handle: None, is_asked: false }
    }

    /// The handle on the present connection.
    pub(crate) const fn handle(&self) -> Option<u16> {
        self.handle
    }

    /// The name to ask for, if that was not done yet on this connection.
    pub(crate) fn ask(&mut self) -> Option<String> {
        (!std::mem::replace(&mut self.is_asked, true)).then(|| self.name.clone())
    }

    /// Whether an answer about these names is awaited here.
    pub(crate) fn is_asked_in(&self, topics: &[String]) -> bool {
        self.is_asked && self.handle.is_none() && topics.contains(&self.name)
    }

    /// The handle is worth nothing any more, and can be asked for again.
    pub(crate) const fn disconnected(&mut self) {
        self.handle = None;
        self.is_asked = false;
    }

    /// Takes what METADATA said.
    ///
    /// # Errors
    /// There is no such topic, or it is another one by now.
    pub(crate) fn resolved(&mut self, found: Option<(u16, TopicIncarnation)>) -> Result<(), ClientError> {
        match (found, self.incarnation) {
            (Some((handle, found)), known) if known.is_none_or(|known| known == found) => {
                self.incarnation = Some(found);
                self.handle = Some(handle);
                Ok(())
            }
            (None, None) => Err(self.unknown()),
            (Some(_), _) | (None, Some(_)) => {
                Err(ClientError::TopicGone { topic: self.name.clone(), outcome: Outcome::Refused })
            }
        }
    }

    /// METADATA leaves out what does not exist, so the client finds the words.
    fn unknown(&self) -> ClientError {
        let message = format!("topic \"{0}\" does not exist; create it: mortarmq topics create {0}", self.name);
        let code = ErrorCode::UnknownTopic.number();
        Box::new(ServerError::from_code(code, Op::Metadata, message, Position::default())).into()
    }
}
