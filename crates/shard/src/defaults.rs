//! The initial values of the cluster: written to the catalog by its first leader, changed only by a command.
//!
//! They are the settings of topics and groups that name none of their own, and bounds of the shard. One table of keys and
//! ranges serves the configuration of a node, `defaults set` and its route.

use crate::settings::{AGE_MAX_MS, Range, Setting, SettingError, TopicSettings, nearest_of};
use serde_json::{Map, Value};

/// The cluster's initial values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The rules of `apply` that every voter supports.
    pub apply_version: u32,
    /// Publishes remembered per producer and line of numbers.
    pub producer_window: u32,
    /// A producer silent that long is forgotten.
    pub producer_idle_ms: u64,
    /// Entries that the shard keeps.
    pub state_entries_max: u64,
    /// The size at which a new segment or ledger file is begun.
    ///
    /// # Units
    /// Bytes.
    pub segment_max_bytes: u64,
    /// Delayed messages that a partition keeps.
    pub max_delayed_per_partition: u64,
    /// How long an idempotency key is remembered while there is room.
    pub idempotency_window_ms: u64,
    /// The settings of topics, and so of their groups, that name none of their own.
    pub settings: TopicSettings,
}

impl Defaults {
    /// The values of this build.
    pub const BUILD: Self = Self {
        apply_version: 1,
        producer_window: 1024,
        producer_idle_ms: 86_400_000,
        state_entries_max: 8_000_000,
        segment_max_bytes: 64 << 20,
        max_delayed_per_partition: 1_000_000,
        idempotency_window_ms: 300_000,
        settings: TopicSettings::BUILD,
    };

    /// One of the values.
    #[must_use]
    pub fn get(&self, key: DefaultKey) -> u64 {
        match key {
            DefaultKey::Setting(setting) => self.settings.get(setting),
            DefaultKey::ProducerWindow => u64::from(self.producer_window),
            DefaultKey::ProducerIdleMs => self.producer_idle_ms,
            DefaultKey::IdempotencyWindowMs => self.idempotency_window_ms,
            DefaultKey::MaxDelayedPerPartition => self.max_delayed_per_partition,
            DefaultKey::StateEntriesMax => self.state_entries_max,
            DefaultKey::SegmentMaxBytes => self.segment_max_bytes,
        }
    }

    /// Sets one of the values, which lies in its range.
    pub fn set(&mut self, key: DefaultKey, value: u64) {
        match key {
            DefaultKey::Setting(setting) => self.settings.set(setting, value),
            DefaultKey::ProducerWindow => self.producer_window = u32::try_from(value).unwrap_or(u32::MAX),
            DefaultKey::ProducerIdleMs => self.producer_idle_ms = value,
            DefaultKey::IdempotencyWindowMs => self.idempotency_window_ms = value,
            DefaultKey::MaxDelayedPerPartition => self.max_delayed_per_partition = value,
            DefaultKey::StateEntriesMax => self.state_entries_max = value,
            DefaultKey::SegmentMaxBytes => self.segment_max_bytes = value,
        }
    }
}

/// Names one of the initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefaultKey {
    /// A setting of topics or groups.
    Setting(Setting),
    /// See [`Defaults::producer_window`].
    ProducerWindow,
    /// See [`Defaults::producer_idle_ms`].
    ProducerIdleMs,
    /// See [`Defaults::idempotency_window_ms`].
    IdempotencyWindowMs,
    /// See [`Defaults::max_delayed_per_partition`].
    MaxDelayedPerPartition,
    /// See [`Defaults::state_entries_max`].
    StateEntriesMax,
    /// See [`Defaults::segment_max_bytes`].
    SegmentMaxBytes,
}

impl DefaultKey {
    /// The keys that are no settings.
    pub const OF_THE_SHARD: [Self; 6] = [
        Self::ProducerWindow,
        Self::ProducerIdleMs,
        Self::IdempotencyWindowMs,
        Self::MaxDelayedPerPartition,
        Self::StateEntriesMax,
        Self::SegmentMaxBytes,
    ];

    /// Every key.
    pub fn all() -> impl Iterator<Item = Self> {
        Setting::ALL.iter().copied().map(Self::Setting).chain(Self::OF_THE_SHARD)
    }

    /// The key with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|key| key.key() == name)
    }

    /// The key in text and JSON.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Setting(Setting::Partitions) => "partition_default_count",
            Self::Setting(setting) => setting.key(),
            Self::ProducerWindow => "producer_window",
            Self::ProducerIdleMs => "producer_idle_ms",
            Self::IdempotencyWindowMs => "idempotency_window_ms",
            Self::MaxDelayedPerPartition => "max_delayed_per_partition",
            Self::StateEntriesMax => "state_entries_max",
            Self::SegmentMaxBytes => "segment_max_bytes",
        }
    }

    /// The values that are accepted. No window is shorter than what is promised (P3).
    #[must_use]
    pub const fn range(self) -> Range {
        match self {
            Self::Setting(setting) => setting.range(),
            Self::ProducerWindow => Range::Between(64, 65_536),
            Self::ProducerIdleMs => Range::Between(600_000, AGE_MAX_MS),
            Self::IdempotencyWindowMs => Range::Between(60_000, 86_400_000),
            Self::MaxDelayedPerPartition => Range::Between(1, 100_000_000),
            Self::StateEntriesMax => Range::Between(1000, 1_000_000_000),
            Self::SegmentMaxBytes => Range::Between(1 << 20, 1 << 30),
        }
    }

    /// Its number in commands: that of the setting, or one above all of them. None is ever used again for another.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Setting(setting) => setting as u8,
            Self::ProducerWindow => 128,
            Self::ProducerIdleMs => 129,
            Self::IdempotencyWindowMs => 130,
            Self::MaxDelayedPerPartition => 131,
            Self::StateEntriesMax => 132,
            Self::SegmentMaxBytes => 133,
        }
    }

    /// The key with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::all().find(|key| key.number() == number)
    }

    /// Reads a JSON value of this key.
    ///
    /// # Errors
    /// A value of the wrong kind or outside the range.
    pub fn read(self, value: &Value) -> Result<u64, SettingError> {
        self.range().read(self.key(), value)
    }

    /// A value as JSON.
    #[must_use]
    pub fn show(self, number: u64) -> Value {
        self.range().show(number)
    }
}

/// The initial values that a request names: only these are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultsPatch {
    /// Key and value, in the order of the keys, each at most once.
    pub values: Vec<(DefaultKey, u64)>,
}

impl DefaultsPatch {
    /// Reads a JSON object of initial values.
    ///
    /// # Errors
    /// The first key that is unknown or out of range.
    pub fn from_json(object: &Map<String, Value>) -> Result<Self, SettingError> {
        let mut values = Vec::with_capacity(object.len());
        for (name, value) in object {
            let key = DefaultKey::named(name).ok_or_else(|| {
                let known: Vec<&str> = DefaultKey::all().map(DefaultKey::key).collect();
                let nearest = nearest_of(&known, name);
                SettingError::UnknownKey { key: name.clone(), nearest, known: known.join(", ") }
            })?;
            values.push((key, key.read(value)?));
        }
        values.sort_unstable_by_key(|(key, _)| *key);
        Ok(Self { values })
    }
}

#[cfg(test)]
mod tests {
    use super::{DefaultKey, Defaults, DefaultsPatch};
    use crate::settings::{Range, Setting};
    use serde_json::json;

    #[test]
    fn every_key_has_one_name_one_number_and_a_default_in_its_range() {
        for key in DefaultKey::all() {
            assert_eq!(DefaultKey::named(key.key()), Some(key));
            assert_eq!(DefaultKey::from_number(key.number()), Some(key));
            let value = Defaults::BUILD.get(key);
            assert_eq!(key.read(&key.show(value)), Ok(value), "{}", key.key());
            let mut changed = Defaults::BUILD;
            if let Range::Between(least, _) = key.range() {
                changed.set(key, least);
                assert_eq!(changed.get(key), least);
            }
        }
        assert_eq!(DefaultKey::named("partitions"), None, "a topic has those; the cluster has partition_default_count");
        assert_eq!(Defaults::BUILD.get(DefaultKey::Setting(Setting::Partitions)), 4);
    }

    #[test]
    fn a_window_shorter_than_what_is_promised_and_an_unknown_key_are_refused() {
        let read = |value: serde_json::Value| DefaultsPatch::from_json(value.as_object().expect("an object"));
        let refused = |value| read(value).expect_err("out of range").to_string();
        assert!(refused(json!({"producer_idle_ms": 599_999})).starts_with("producer_idle_ms = 599999 is refused"));
        assert!(refused(json!({"idempotency_window_ms": 59_999})).contains("from 60000"));
        assert!(refused(json!({"partition_count": 3})).contains("did you mean \"partition_default_count\"?"));
        let patch = read(json!({"segment_max_bytes": 1 << 20, "partition_default_count": 2})).expect("good");
        assert_eq!(
            patch.values,
            [(DefaultKey::Setting(Setting::Partitions), 2), (DefaultKey::SegmentMaxBytes, 1 << 20)]
        );
    }
}
