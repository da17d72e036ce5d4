//! Encoding and decoding of commands. Decoding checks every length and range and never panics.

use super::batch::{
    KIND_CHANGE_DEFAULTS, KIND_CHANGE_GROUP, KIND_CHANGE_TOPIC, KIND_CREATE_TOPIC, KIND_DELETE_GROUP,
    KIND_DELETE_TOPIC, KIND_DELIVER, KIND_DROP_DEAD, KIND_END_MEMBER, KIND_JOIN_GROUP, KIND_PUBLISH,
    KIND_PUBLISH_BATCH, KIND_PURGE_PATH, KIND_REDRIVE, KIND_RESUME_MEMBER, KIND_SEEK_PATH, KIND_SET_DEFAULTS,
    KIND_SETTLE, KIND_TRIM, close_command, open_command,
};
use super::{
    ChangeGroup, ChangeTopic, Command, CreateTopic, Deliver, EndMember, Grant, ITEMS_MAX, JoinGroup, ResumeMember,
    STEPS_MAX, SeekTarget, Settle, SettleItem, SettleKind, StartPolicy, Stretch, Trim, letters, publish,
};
use crate::defaults::{DefaultKey, Defaults, DefaultsPatch};
use crate::settings::{Setting, SettingsPatch, TopicSettings};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_delivery::Fact;
use mortarmq_types::{DeliveryId, KeyHash, MemberId, Partition, PathId, Seq, TopicIncarnation};

/// Why bytes are not a batch or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The bytes end inside a field.
    #[error("the command ends inside a field")]
    TooShort,
    /// Bytes follow the last field.
    #[error("bytes follow the last field of the command")]
    TrailingBytes,
    /// The layout is not known to this build.
    #[error("batch version {found} is unknown here")]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// The command is not known to this build.
    #[error("command kind {found} is unknown here")]
    UnknownKind {
        /// The kind found.
        found: u8,
    },
    /// A field holds a value that it cannot have.
    #[error("field {field} cannot be {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
}

/// Appends one command with its length and kind.
pub(super) fn encode(out: &mut BytesMut, command: &Command) {
    match command {
        Command::Publish(_) | Command::PublishBatch(_) => {
            panic!("publishes are encoded at the edge and added as a run")
        }
        Command::SetDefaults(defaults) => framed(out, KIND_SET_DEFAULTS, |out| put_defaults(out, defaults)),
        Command::CreateTopic(create) => framed(out, KIND_CREATE_TOPIC, |out| {
            put_text(out, &create.name);
            put_settings(out, &create.settings);
        }),
        Command::DeleteTopic { name } => framed(out, KIND_DELETE_TOPIC, |out| put_text(out, name)),
        Command::JoinGroup(join) => framed(out, KIND_JOIN_GROUP, |out| put_join(out, join)),
        Command::EndMember(end) => framed(out, KIND_END_MEMBER, |out| {
            out.put_u64(end.path.get());
            out.put_u64(end.member.get());
            out.put_u8(u8::from(end.lost));
        }),
        Command::Deliver(deliver) => framed(out, KIND_DELIVER, |out| put_deliver(out, deliver)),
        Command::Settle(settle) => framed(out, KIND_SETTLE, |out| put_settle(out, settle)),
        Command::PurgePath { path } => framed(out, KIND_PURGE_PATH, |out| out.put_u64(path.get())),
        Command::SeekPath { path, target } => framed(out, KIND_SEEK_PATH, |out| {
            out.put_u64(path.get());
            put_target(out, target);
        }),
        Command::DeleteGroup { path } => framed(out, KIND_DELETE_GROUP, |out| out.put_u64(path.get())),
        Command::ResumeMember(resume) => framed(out, KIND_RESUME_MEMBER, |out| {
            out.put_u64(resume.topic.get());
            put_text(out, &resume.group);
            out.put_u64(resume.member.get());
            out.put_u64(resume.secret_hash);
        }),
        Command::Trim(trim) => framed(out, KIND_TRIM, |out| {
            out.put_u64(trim.topic.get());
            out.put_u16(trim.partition.get());
            out.put_u64(trim.below.get());
        }),
        Command::Redrive(redrive) => framed(out, KIND_REDRIVE, |out| letters::put_redrive(out, redrive)),
        Command::DropDead(drop) => framed(out, KIND_DROP_DEAD, |out| letters::put_drop_dead(out, drop)),
        Command::ChangeTopic(change) => framed(out, KIND_CHANGE_TOPIC, |out| {
            out.put_u64(change.topic.get());
            put_settings(out, &change.settings);
        }),
        Command::ChangeGroup(change) => framed(out, KIND_CHANGE_GROUP, |out| {
            out.put_u64(change.path.get());
            put_settings(out, &change.settings);
        }),
        Command::ChangeDefaults(patch) => framed(out, KIND_CHANGE_DEFAULTS, |out| {
            out.put_u8(u8::try_from(patch.values.len()).expect("each key is named at most once"));
            for (key, value) in &patch.values {
                out.put_u8(key.number());
                out.put_u64(*value);
            }
        }),
    }
}

/// Reads one command, without its length.
pub(super) fn decode(bytes: Bytes) -> Result<Command, CommandError> {
    let mut fields = Fields::new(bytes);
    let command = match fields.u8()? {
        KIND_SET_DEFAULTS => Command::SetDefaults(get_defaults(&mut fields)?),
        KIND_CREATE_TOPIC => {
            Command::CreateTopic(CreateTopic { name: fields.text()?, settings: get_settings(&mut fields)? })
        }
        KIND_DELETE_TOPIC => Command::DeleteTopic { name: fields.text()? },
        KIND_PUBLISH => Command::Publish(publish::decode_publish(&mut fields)?),
        KIND_PUBLISH_BATCH => Command::PublishBatch(publish::decode_publish_batch(&mut fields)?),
        KIND_JOIN_GROUP => Command::JoinGroup(get_join(&mut fields)?),
        KIND_END_MEMBER => Command::EndMember(EndMember {
            path: PathId::new(fields.u64()?),
            member: MemberId::new(fields.u64()?),
            lost: fields.flag("lost")?,
        }),
        KIND_DELIVER => Command::Deliver(get_deliver(&mut fields)?),
        KIND_SETTLE => Command::Settle(get_settle(&mut fields)?),
        KIND_PURGE_PATH => Command::PurgePath { path: PathId::new(fields.u64()?) },
        KIND_SEEK_PATH => Command::SeekPath { path: PathId::new(fields.u64()?), target: get_target(&mut fields)? },
        KIND_DELETE_GROUP => Command::DeleteGroup { path: PathId::new(fields.u64()?) },
        KIND_RESUME_MEMBER => Command::ResumeMember(ResumeMember {
            topic: TopicIncarnation::new(fields.u64()?),
            group: fields.text()?,
            member: MemberId::new(fields.u64()?),
            secret_hash: fields.u64()?,
        }),
        KIND_TRIM => Command::Trim(Trim {
            topic: TopicIncarnation::new(fields.u64()?),
            partition: Partition::new(fields.u16()?),
            below: Seq::new(fields.u64()?),
        }),
        KIND_REDRIVE => Command::Redrive(letters::get_redrive(&mut fields)?),
        KIND_DROP_DEAD => Command::DropDead(letters::get_drop_dead(&mut fields)?),
        KIND_CHANGE_TOPIC => Command::ChangeTopic(ChangeTopic {
            topic: TopicIncarnation::new(fields.u64()?),
            settings: get_settings(&mut fields)?,
        }),
        KIND_CHANGE_GROUP => {
            Command::ChangeGroup(ChangeGroup { path: PathId::new(fields.u64()?), settings: get_settings(&mut fields)? })
        }
        KIND_CHANGE_DEFAULTS => Command::ChangeDefaults(get_defaults_patch(&mut fields)?),
        found => return Err(CommandError::UnknownKind { found }),
    };
    if fields.is_empty() { Ok(command) } else { Err(CommandError::TrailingBytes) }
}

/// Checked reading of fields, without copies.
#[derive(Debug)]
pub(super) struct Fields {
    bytes: Bytes,
}

impl Fields {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn u8(&mut self) -> Result<u8, CommandError> {
        self.bytes.try_get_u8().map_err(|_| CommandError::TooShort)
    }

    pub(super) fn u16(&mut self) -> Result<u16, CommandError> {
        self.bytes.try_get_u16().map_err(|_| CommandError::TooShort)
    }

    pub(super) fn u32(&mut self) -> Result<u32, CommandError> {
        self.bytes.try_get_u32().map_err(|_| CommandError::TooShort)
    }

    pub(super) fn u64(&mut self) -> Result<u64, CommandError> {
        self.bytes.try_get_u64().map_err(|_| CommandError::TooShort)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, CommandError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(CommandError::Field { field, found: u64::from(found) }),
        }
    }

    /// Bytes behind a u32 length; they share the batch's memory.
    pub(super) fn long_bytes(&mut self) -> Result<Bytes, CommandError> {
        let length = self.u32()? as usize;
        if length > self.bytes.len() {
            return Err(CommandError::TooShort);
        }
        Ok(self.bytes.split_to(length))
    }

    /// UTF-8 behind a u16 length.
    fn text(&mut self) -> Result<String, CommandError> {
        let length = usize::from(self.u16()?);
        if length > self.bytes.len() {
            return Err(CommandError::TooShort);
        }
        let bytes = self.bytes.split_to(length);
        String::from_utf8(bytes.to_vec())
            .map_err(|error| CommandError::Field { field: "text", found: error.utf8_error().valid_up_to() as u64 })
    }

    pub(super) fn count(&mut self, field: &'static str, most: usize) -> Result<usize, CommandError> {
        let count = usize::from(self.u16()?);
        if count > most { Err(CommandError::Field { field, found: count as u64 }) } else { Ok(count) }
    }
}

fn framed(out: &mut BytesMut, kind: u8, fill: impl FnOnce(&mut BytesMut)) {
    let start = open_command(out, kind);
    fill(out);
    close_command(out, start);
}

/// Names are judged by apply, so a text of any length must survive the log: it is cut where the wire cuts it.
fn put_text(out: &mut BytesMut, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.put_u16(u16::try_from(end).expect("cut to 16 bits"));
    out.put_slice(&text.as_bytes()[..end]);
}

fn put_settings(out: &mut BytesMut, patch: &SettingsPatch) {
    out.put_u8(u8::try_from(patch.values.len()).expect("each setting is named at most once"));
    for (setting, value) in &patch.values {
        out.put_u8(*setting as u8);
        out.put_u64(*value);
    }
}

fn get_settings(fields: &mut Fields) -> Result<SettingsPatch, CommandError> {
    let count = usize::from(fields.u8()?);
    let mut patch = SettingsPatch::default();
    for _ in 0..count {
        let number = fields.u8()?;
        let setting =
            Setting::from_number(number).ok_or(CommandError::Field { field: "setting", found: u64::from(number) })?;
        let value = fields.u64()?;
        if !setting.accepts(value) || patch.get(setting).is_some() {
            return Err(CommandError::Field { field: setting.key(), found: value });
        }
        patch.add(setting, value);
    }
    Ok(patch)
}

fn put_defaults(out: &mut BytesMut, defaults: &Defaults) {
    out.put_u32(defaults.apply_version);
    out.put_u32(defaults.producer_window);
    out.put_u64(defaults.producer_idle_ms);
    out.put_u64(defaults.state_entries_max);
    out.put_u64(defaults.segment_max_bytes);
    out.put_u64(defaults.max_delayed_per_partition);
    out.put_u64(defaults.idempotency_window_ms);
    let of_all = Setting::ALL.iter().map(|setting| (*setting, defaults.settings.get(*setting)));
    put_settings(out, &SettingsPatch { values: of_all.collect() });
}

fn get_defaults(fields: &mut Fields) -> Result<Defaults, CommandError> {
    Ok(Defaults {
        apply_version: fields.u32()?,
        producer_window: fields.u32()?,
        producer_idle_ms: fields.u64()?,
        state_entries_max: fields.u64()?,
        segment_max_bytes: fields.u64()?,
        max_delayed_per_partition: fields.u64()?,
        idempotency_window_ms: fields.u64()?,
        settings: TopicSettings::new(&TopicSettings::BUILD, &get_settings(fields)?),
    })
}

fn get_defaults_patch(fields: &mut Fields) -> Result<DefaultsPatch, CommandError> {
    let count = usize::from(fields.u8()?);
    let mut values: Vec<(DefaultKey, u64)> = Vec::new();
    for _ in 0..count {
        let number = fields.u8()?;
        let rises = |key: &DefaultKey| values.last().is_none_or(|(before, _)| before < key);
        let key = DefaultKey::from_number(number)
            .filter(rises)
            .ok_or(CommandError::Field { field: "default", found: u64::from(number) })?;
        let value = fields.u64()?;
        if !key.range().accepts(value) {
            return Err(CommandError::Field { field: key.key(), found: value });
        }
        values.push((key, value));
    }
    Ok(DefaultsPatch { values })
}

fn put_join(out: &mut BytesMut, join: &JoinGroup) {
    out.put_u64(join.topic.get());
    put_text(out, &join.group);
    put_settings(out, &join.settings);
    match &join.start {
        StartPolicy::Earliest => out.put_u8(0),
        StartPolicy::Latest => out.put_u8(1),
        StartPolicy::At(places) => {
            out.put_u8(2);
            put_places(out, places);
        }
    }
    out.put_u64(join.member.get());
    out.put_u64(join.secret_hash);
}

fn get_join(fields: &mut Fields) -> Result<JoinGroup, CommandError> {
    let topic = TopicIncarnation::new(fields.u64()?);
    let group = fields.text()?;
    let settings = get_settings(fields)?;
    let start = match fields.u8()? {
        0 => StartPolicy::Earliest,
        1 => StartPolicy::Latest,
        2 => StartPolicy::At(get_places(fields, "start")?),
        found => return Err(CommandError::Field { field: "start", found: u64::from(found) }),
    };
    Ok(JoinGroup { topic, group, settings, start, member: MemberId::new(fields.u64()?), secret_hash: fields.u64()? })
}

fn put_target(out: &mut BytesMut, target: &SeekTarget) {
    match target {
        SeekTarget::Earliest => out.put_u8(0),
        SeekTarget::Latest => out.put_u8(1),
        SeekTarget::At(places) => {
            out.put_u8(2);
            put_places(out, places);
        }
    }
}

fn get_target(fields: &mut Fields) -> Result<SeekTarget, CommandError> {
    match fields.u8()? {
        0 => Ok(SeekTarget::Earliest),
        1 => Ok(SeekTarget::Latest),
        2 => Ok(SeekTarget::At(get_places(fields, "target")?)),
        found => Err(CommandError::Field { field: "target", found: u64::from(found) }),
    }
}

/// A topic has at most so many partitions; more places say nothing.
fn put_places(out: &mut BytesMut, places: &[(Partition, Seq)]) {
    out.put_u16(u16::try_from(places.len().min(ITEMS_MAX)).expect("cut to ITEMS_MAX"));
    for (partition, seq) in places.iter().take(ITEMS_MAX) {
        out.put_u16(partition.get());
        out.put_u64(seq.get());
    }
}

fn get_places(fields: &mut Fields, field: &'static str) -> Result<Vec<(Partition, Seq)>, CommandError> {
    let count = fields.count(field, ITEMS_MAX)?;
    (0..count).map(|_| Ok((Partition::new(fields.u16()?), Seq::new(fields.u64()?)))).collect()
}

fn put_deliver(out: &mut BytesMut, deliver: &Deliver) {
    out.put_u64(deliver.path.get());
    out.put_u64(deliver.member.get());
    match deliver.grant {
        Grant::Push { window_messages, window_bytes } => {
            out.put_u8(0);
            out.put_u32(window_messages);
            out.put_u64(window_bytes);
        }
        Grant::Pull { node_incarnation, pull_id, max_bytes } => {
            out.put_u8(1);
            out.put_u64(node_incarnation);
            out.put_u64(pull_id);
            out.put_u64(max_bytes);
        }
    }
    out.put_u32(deliver.max_messages);
    let Some(stretch) = &deliver.stretch else {
        out.put_u8(0);
        return;
    };
    out.put_u8(1);
    out.put_u16(stretch.partition.get());
    out.put_u64(stretch.first.get());
    out.put_u16(u16::try_from(stretch.facts.len()).expect("a stretch has at most STEPS_MAX facts"));
    for fact in &stretch.facts {
        out.put_u64(fact.key_hash.get());
        out.put_u32(fact.size_bytes);
        out.put_u64(fact.expires_at_ms);
    }
}

fn get_deliver(fields: &mut Fields) -> Result<Deliver, CommandError> {
    let path = PathId::new(fields.u64()?);
    let member = MemberId::new(fields.u64()?);
    let grant = match fields.u8()? {
        0 => Grant::Push { window_messages: fields.u32()?, window_bytes: fields.u64()? },
        1 => Grant::Pull { node_incarnation: fields.u64()?, pull_id: fields.u64()?, max_bytes: fields.u64()? },
        found => return Err(CommandError::Field { field: "grant", found: u64::from(found) }),
    };
    let max_messages = fields.u32()?;
    let stretch = if fields.flag("stretch")? { Some(get_stretch(fields)?) } else { None };
    Ok(Deliver { path, member, grant, max_messages, stretch })
}

fn get_stretch(fields: &mut Fields) -> Result<Stretch, CommandError> {
    let partition = Partition::new(fields.u16()?);
    let first = Seq::new(fields.u64()?);
    let count = fields.count("facts", STEPS_MAX as usize)?;
    // The end of a stretch is computed from its start, so a start near the end of the scale is no stretch.
    if first == Seq::ZERO || first.get() > u64::MAX - u64::from(STEPS_MAX) {
        return Err(CommandError::Field { field: "first", found: first.get() });
    }
    let fact = |fields: &mut Fields| {
        Ok(Fact { key_hash: KeyHash::new(fields.u64()?), size_bytes: fields.u32()?, expires_at_ms: fields.u64()? })
    };
    Ok(Stretch { partition, first, facts: (0..count).map(|_| fact(fields)).collect::<Result<_, CommandError>>()? })
}

fn put_settle(out: &mut BytesMut, settle: &Settle) {
    out.put_u64(settle.path.get());
    out.put_u16(u16::try_from(settle.items.len()).expect("a settle has at most ITEMS_MAX items"));
    for item in &settle.items {
        out.put_u16(item.partition.get());
        out.put_u64(item.first_seq.get());
        out.put_u64(item.first_delivery.get());
        out.put_u16(u16::try_from(item.count).expect("a settle has at most ITEMS_MAX deliveries"));
        match &item.kind {
            SettleKind::Ack => out.put_u8(0),
            SettleKind::Nack { delay_ms, error } => {
                out.put_u8(1);
                out.put_u32(*delay_ms);
                put_text(out, error);
            }
            SettleKind::Release => out.put_u8(2),
            SettleKind::Extend => out.put_u8(3),
            SettleKind::Hold { error } => {
                out.put_u8(4);
                put_text(out, error);
            }
            SettleKind::Resume => out.put_u8(5),
            SettleKind::DeadLetter { error } => {
                out.put_u8(6);
                put_text(out, error);
            }
        }
    }
}

fn get_settle(fields: &mut Fields) -> Result<Settle, CommandError> {
    let path = PathId::new(fields.u64()?);
    let count = fields.count("items", ITEMS_MAX)?;
    let mut items = Vec::with_capacity(count);
    let mut deliveries = 0_usize;
    for _ in 0..count {
        let item = SettleItem {
            partition: Partition::new(fields.u16()?),
            first_seq: Seq::new(fields.u64()?),
            first_delivery: DeliveryId::new(fields.u64()?),
            count: u32::from(fields.u16()?),
            kind: match fields.u8()? {
                0 => SettleKind::Ack,
                1 => SettleKind::Nack { delay_ms: fields.u32()?, error: fields.text()? },
                2 => SettleKind::Release,
                3 => SettleKind::Extend,
                4 => SettleKind::Hold { error: fields.text()? },
                5 => SettleKind::Resume,
                6 => SettleKind::DeadLetter { error: fields.text()? },
                found => return Err(CommandError::Field { field: "kind", found: u64::from(found) }),
            },
        };
        deliveries += item.count as usize;
        if deliveries > ITEMS_MAX {
            return Err(CommandError::Field { field: "deliveries", found: deliveries as u64 });
        }
        items.push(item);
    }
    Ok(Settle { path, items })
}

#[cfg(test)]
mod tests;
