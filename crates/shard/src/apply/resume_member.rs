//! `ResumeMember`: finds a member again for whoever knows its secret.

use crate::command::ResumeMember;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;

pub(super) fn apply(state: &State, resume: &ResumeMember) -> Outcome {
    if !state.topics.contains_key(&resume.topic) {
        return Outcome::Refused(Refusal::UnknownTopic);
    }
    match state.path_of_member(resume.topic, &resume.group, resume.member, resume.secret_hash) {
        Some(path) => Outcome::Joined { path, member: resume.member },
        None => Outcome::Refused(Refusal::UnknownMember),
    }
}
