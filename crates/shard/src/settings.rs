//! Topic and group settings: one table of keys, ranges and defaults, and the values made from it.
//!
//! The same keys stand in DECLARE and SUB options, in `--set KEY=VALUE`, in HTTP bodies and in `describe`. All values are
//! whole numbers, `true`/`false`, or one of two words; they travel in commands as `(Setting, u64)`.

pub use crate::defaults::Defaults;
use mortarmq_delivery::{Order, PathRules};
use serde_json::{Map, Value};

/// Declares the settings with their key, kind and range.
macro_rules! settings {
    ($($variant:ident = $number:literal, $key:literal, $scope:ident, $range:expr, $default:expr, $doc:literal;)+) => {
        /// One setting. The number is stored in commands and never used again for another.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Setting {
            $(#[doc = $doc] $variant = $number,)+
        }

        impl Setting {
            /// Every setting, topic keys first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The key in text and JSON.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)+ }
            }

            /// What it is, as the reference says it.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc,)+ }
            }

            /// Whether topics or groups have it.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)+ }
            }

            /// The values that are accepted.
            #[must_use]
            pub const fn range(self) -> Range {
                match self { $(Self::$variant => $range,)+ }
            }

            /// The value of a cluster that was never told otherwise.
            #[must_use]
            pub const fn default_value(self) -> u64 {
                match self { $(Self::$variant => $default,)+ }
            }

            /// Its place in [`Self::ALL`]: apply asks for settings with every delivery and settle.
            const fn place(self) -> usize {
                enum Place { $($variant,)+ }
                match self { $(Self::$variant => Place::$variant as usize,)+ }
            }

            /// The setting with this number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

settings! {
    Partitions = 0, "partitions", Topic, Range::Between(1, 1024), 4, "Partitions of the topic.";
    RetentionMs = 1, "retention_ms", Topic, Range::ZeroOrBetween(3_600_000, AGE_MAX_MS), 604_800_000, "How long messages are kept; 0 = for ever.";
    RetentionBytes = 2, "retention_bytes", Topic, Range::Between(0, BYTES_MAX), 0, "Bytes kept per partition; 0 = no limit.";
    KeepSettled = 3, "keep_settled", Topic, Range::Bool, 1, "Whether settled messages stay.";
    TtlMs = 4, "ttl_ms", Topic, Range::Between(0, AGE_MAX_MS), 0, "Life of messages without their own; 0 = none.";
    MaxMessageBytes = 5, "max_message_bytes", Topic, Range::Between(1, 16 * 1024 * 1024 - 1024), 1_048_576, "Largest value of a message.";
    LeaseMs = 32, "lease_ms", Group, Range::Between(1000, 43_200_000), 30_000, "How long a delivery may stay unsettled.";
    MaxAttempts = 33, "max_attempts", Group, Range::Between(0, 1000), 5, "Attempts before a message is dead; 0 = no limit.";
    RetryBackoffBaseMs = 34, "retry_backoff_base_ms", Group, Range::Between(0, 43_200_000), 1000, "Wait before the second attempt.";
    RetryBackoffMaxMs = 35, "retry_backoff_max_ms", Group, Range::Between(0, 43_200_000), 30_000, "Longest wait between attempts.";
    Order = 36, "order", Group, Range::Words("none", "key"), 1, "Whether messages of one key are delivered in order.";
    MaxPassedOver = 37, "max_passed_over", Group, Range::Between(1, 1_000_000), 65_536, "Unsettled messages of a partition that delivery has passed.";
    MaxAckedAhead = 38, "max_acked_ahead", Group, Range::Between(0, 1_000_000), 0, "Acked messages past the oldest unsettled one; 0 = no limit.";
    MaxInFlight = 39, "max_in_flight", Group, Range::Between(0, 1_000_000), 0, "Leased messages of a partition; 0 = no limit.";
    SessionMs = 40, "session_ms", Group, Range::Between(1000, 600_000), 10_000, "How long a member may be silent.";
    CreditCount = 41, "credit_count", Group, Range::Between(1, 65_534), 256, "Messages a member may hold by pushes.";
    CreditBytes = 42, "credit_bytes", Group, Range::Between(1, 1_073_741_824), 2 * 1024 * 1024, "Bytes a member may hold by pushes.";
    ExpireIdleMs = 43, "expire_idle_ms", Group, Range::Between(0, AGE_MAX_MS), 0, "Unused that long, a group goes; 0 = never.";
    Type = 44, "type", Group, Range::OnlyWord("shared"), 0, "How members share partitions.";
}

/// The longest delay and the longest life of a message, in milliseconds: a hundred years.
pub const AGE_MAX_MS: u64 = 3_153_600_000_000;

/// More bytes than a disk has: 4 EiB.
const BYTES_MAX: u64 = 1 << 62;

/// Whether a setting belongs to topics or groups. Group keys given on a topic are the defaults of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A setting of a topic.
    Topic,
    /// A setting of a group.
    Group,
}

/// The values a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Whole numbers from the first to the second, both included.
    Between(u64, u64),
    /// 0, or whole numbers from the first to the second, both included.
    ZeroOrBetween(u64, u64),
    /// One number, because of what this version does.
    Only(u64, &'static str),
    /// `true` or `false`.
    Bool,
    /// The word for 0 and the word for 1.
    Words(&'static str, &'static str),
    /// One word, because there is no other yet.
    OnlyWord(&'static str),
}

/// Why settings are refused. The text names the key and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// Not a JSON object, or not JSON.
    #[error("options must be one JSON object: {reason}")]
    NotAnObject {
        /// What the parser said.
        reason: String,
    },
    /// No such key.
    #[error("unknown setting {key:?}{}; known are: {known}", nearest.map_or_else(String::new, |key| format!(" (did you mean {key:?}?)")))]
    UnknownKey {
        /// The key given.
        key: String,
        /// The nearest that there is, if one is near.
        nearest: Option<&'static str>,
        /// The keys there are.
        known: String,
    },
    /// A group key where only topic keys are accepted, or the other way.
    #[error("{key:?} is a topic setting and cannot be set on a group")]
    NotHere {
        /// The key given.
        key: &'static str,
    },
    /// A value of the wrong kind or outside the range.
    #[error("{key} = {value} is refused: {accepts}")]
    Value {
        /// The key given.
        key: &'static str,
        /// The value given, as JSON.
        value: String,
        /// What the key accepts.
        accepts: String,
    },
    /// A start position that cannot be read.
    #[error("start = {value} is refused: it is \"earliest\", \"latest\" or an object such as {{\"0\":41}}")]
    Start {
        /// The value given, as JSON.
        value: String,
    },
}

/// The settings that a request names: only these are compared and changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsPatch {
    /// Setting and value, in the order of the settings' numbers, each at most once.
    pub values: Vec<(Setting, u64)>,
}

impl SettingsPatch {
    /// Reads a JSON object of settings.
    ///
    /// # Errors
    /// The first key that is unknown, misplaced or out of range.
    pub fn from_json(object: &Map<String, Value>, scope: Scope) -> Result<Self, SettingError> {
        let mut values = Vec::with_capacity(object.len());
        for (key, value) in object {
            let setting = Setting::ALL.iter().copied().find(|setting| setting.key() == key).ok_or_else(|| {
                let known: Vec<&str> = Setting::ALL.iter().map(|setting| setting.key()).collect();
                let nearest = nearest_of(&known, key);
                SettingError::UnknownKey { key: key.clone(), nearest, known: known.join(", ") }
            })?;
            if scope == Scope::Group && setting.scope() == Scope::Topic {
                return Err(SettingError::NotHere { key: setting.key() });
            }
            values.push((setting, setting.read(value)?));
        }
        values.sort_unstable_by_key(|(setting, _)| *setting);
        Ok(Self { values })
    }

    /// The value of one setting, if the request names it.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<u64> {
        self.values.iter().find(|(named, _)| *named == setting).map(|(_, value)| *value)
    }

    /// Names a setting that was not named; keeps the value of one that was.
    pub fn add(&mut self, setting: Setting, value: u64) {
        if self.get(setting).is_none() {
            self.values.push((setting, value));
            self.values.sort_unstable_by_key(|(setting, _)| *setting);
        }
    }

    /// The settings that differ from the values in `have`, as text for a refusal.
    #[must_use]
    pub fn differences(&self, have: impl Fn(Setting) -> u64) -> Vec<String> {
        self.values
            .iter()
            .filter(|(setting, value)| have(*setting) != *value)
            .map(|(setting, value)| {
                format!("{} is {}, not {}", setting.key(), setting.show(have(*setting)), setting.show(*value))
            })
            .collect()
    }
}

impl Setting {
    /// Reads a JSON value of this setting.
    ///
    /// # Errors
    /// A value of the wrong kind or outside the range.
    pub fn read(self, value: &Value) -> Result<u64, SettingError> {
        self.range().read(self.key(), value)
    }

    /// Whether it is fixed when the topic or group is made.
    #[must_use]
    pub const fn is_fixed(self) -> bool {
        matches!(self, Self::Type)
    }

    /// Whether a stored number is a value of this setting.
    #[must_use]
    pub const fn accepts(self, number: u64) -> bool {
        self.range().accepts(number)
    }

    /// A value as JSON.
    #[must_use]
    pub fn show(self, number: u64) -> Value {
        self.range().show(number)
    }
}

impl Range {
    /// Reads a JSON value of a key.
    ///
    /// # Errors
    /// A value of the wrong kind or outside the range.
    pub(crate) fn read(self, key: &'static str, value: &Value) -> Result<u64, SettingError> {
        let number = match (self, value) {
            (Self::Words(zero, _), Value::String(word)) if word == zero => Some(0),
            (Self::Words(_, one), Value::String(word)) if word == one => Some(1),
            (Self::OnlyWord(only), Value::String(word)) if word == only => Some(0),
            (Self::Bool, Value::Bool(given)) => Some(u64::from(*given)),
            (Self::Only(..) | Self::Between(..) | Self::ZeroOrBetween(..), Value::Number(number)) => number.as_u64(),
            _ => None,
        };
        number.filter(|number| self.accepts(*number)).ok_or_else(|| SettingError::Value {
            key,
            value: value.to_string(),
            accepts: self.accepted(),
        })
    }

    /// Whether a stored number is one of the values.
    #[must_use]
    pub const fn accepts(self, number: u64) -> bool {
        match self {
            Self::Between(least, most) => least <= number && number <= most,
            Self::Only(only, _) => number == only,
            Self::ZeroOrBetween(least, most) => number == 0 || (least <= number && number <= most),
            Self::Bool | Self::Words(..) => number <= 1,
            Self::OnlyWord(_) => number == 0,
        }
    }

    /// What is accepted, as text.
    #[must_use]
    pub fn accepted(self) -> String {
        match self {
            Self::Between(least, most) => format!("a whole number from {least} to {most}"),
            Self::Only(only, because) => format!("this version accepts {only} only: {because}"),
            Self::ZeroOrBetween(least, most) => format!("0, or a whole number from {least} to {most}"),
            Self::Bool => "true or false".to_owned(),
            Self::Words(zero, one) => format!("\"{zero}\" or \"{one}\""),
            Self::OnlyWord(only) => format!("this version accepts \"{only}\" only"),
        }
    }

    /// A value as JSON.
    #[must_use]
    pub fn show(self, number: u64) -> Value {
        match self {
            Self::Between(..) | Self::ZeroOrBetween(..) | Self::Only(..) => Value::from(number),
            Self::Bool => Value::from(number != 0),
            Self::Words(zero, one) => Value::from(if number == 0 { zero } else { one }),
            Self::OnlyWord(only) => Value::from(only),
        }
    }
}

/// The settings of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    values: [u64; Setting::ALL.len()],
}

impl TopicSettings {
    /// The values of this build.
    pub const BUILD: Self = {
        let mut values = [0; Setting::ALL.len()];
        let mut place = 0;
        while place < values.len() {
            values[place] = Setting::ALL[place].default_value();
            place += 1;
        }
        Self { values }
    };

    /// The cluster's defaults with what the patch names.
    #[must_use]
    pub fn new(defaults: &Self, patch: &SettingsPatch) -> Self {
        Self { values: overlay(|setting| defaults.get(setting), patch) }
    }

    pub(crate) fn set(&mut self, setting: Setting, value: u64) {
        self.values[setting.place()] = value;
    }

    /// Takes over what the patch names.
    pub(crate) fn change(&mut self, patch: &SettingsPatch) {
        self.values = overlay(|setting| self.get(setting), patch);
    }

    /// The value of a setting; for a group setting, the default of the topic's groups.
    #[must_use]
    pub fn get(&self, setting: Setting) -> u64 {
        self.values[setting.place()]
    }
}

/// The settings of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    values: [u64; Setting::ALL.len()],
}

impl GroupSettings {
    /// The topic's defaults with what the patch names.
    #[must_use]
    pub fn new(topic: &TopicSettings, patch: &SettingsPatch) -> Self {
        Self { values: overlay(|setting| topic.get(setting), patch) }
    }

    /// Takes over what the patch names.
    pub(crate) fn change(&mut self, patch: &SettingsPatch) {
        self.values = overlay(|setting| self.get(setting), patch);
    }

    /// The value of a setting.
    #[must_use]
    pub fn get(&self, setting: Setting) -> u64 {
        self.values[setting.place()]
    }

    /// The rules a path of this group follows.
    #[must_use]
    pub fn rules(&self) -> PathRules {
        let small = |setting| u32::try_from(self.get(setting)).expect("the ranges of these settings fit 32 bits");
        PathRules {
            order: if self.get(Setting::Order) == 0 { Order::None } else { Order::Key },
            lease_ms: self.get(Setting::LeaseMs),
            backoff_base_ms: self.get(Setting::RetryBackoffBaseMs),
            backoff_max_ms: self.get(Setting::RetryBackoffMaxMs),
            max_passed_over: small(Setting::MaxPassedOver),
            max_acked_ahead: small(Setting::MaxAckedAhead),
            max_in_flight: small(Setting::MaxInFlight),
            max_attempts: small(Setting::MaxAttempts),
        }
    }
}

/// The key that is nearest to this text, if one is near.
pub(crate) fn nearest_of(known: &[&'static str], text: &str) -> Option<&'static str> {
    let likeness = |key: &str| strsim::jaro_winkler(key, text);
    let best = known.iter().copied().max_by(|left, right| likeness(left).total_cmp(&likeness(right)))?;
    (likeness(best) >= NEAR_ENOUGH).then_some(best)
}

/// Below this, a suggestion confuses more than it helps.
const NEAR_ENOUGH: f64 = 0.8;

fn overlay(base: impl Fn(Setting) -> u64, patch: &SettingsPatch) -> [u64; Setting::ALL.len()] {
    let mut values = [0; Setting::ALL.len()];
    for setting in Setting::ALL {
        values[setting.place()] = patch.get(*setting).unwrap_or_else(|| base(*setting));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::{AGE_MAX_MS, Scope, Setting, SettingError, SettingsPatch};
    use serde_json::{Value, json};

    fn patch(value: &Value, scope: Scope) -> Result<SettingsPatch, SettingError> {
        SettingsPatch::from_json(value.as_object().expect("an object"), scope)
    }

    #[test]
    fn what_is_not_there_yet_is_refused_by_name() {
        let error = patch(&json!({ "type": "exclusive" }), Scope::Topic).expect_err("not there yet").to_string();
        assert!(error.starts_with("type") && error.contains("this version accepts"), "{error}");
    }

    #[test]
    fn ranges_and_kinds_are_checked_and_named() {
        assert_eq!(
            patch(&json!({"lease_ms": 999}), Scope::Group).expect_err("too short").to_string(),
            "lease_ms = 999 is refused: a whole number from 1000 to 43200000"
        );
        assert!(patch(&json!({"order": "sideways"}), Scope::Group).is_err());
        assert!(patch(&json!({"partitions": 3}), Scope::Group).is_err());
        assert!(patch(&json!({"colour": 3}), Scope::Topic).is_err());
        let good = patch(&json!({"order": "none", "lease_ms": 1000}), Scope::Group).expect("in range");
        assert_eq!(good.get(Setting::Order), Some(0));
        assert_eq!(good.get(Setting::LeaseMs), Some(1000));
        let ttl = |ttl_ms: u64| patch(&json!({ "ttl_ms": ttl_ms }), Scope::Topic);
        let kept = |retention_ms: u64| patch(&json!({ "retention_ms": retention_ms }), Scope::Topic);
        assert!(kept(0).is_ok() && kept(1).is_err() && kept(3_599_999).is_err() && kept(3_600_000).is_ok());
        assert_eq!(
            kept(1).expect_err("too short").to_string(),
            "retention_ms = 1 is refused: 0, or a whole number from 3600000 to 3153600000000"
        );
        let settled = |keep: Value| patch(&json!({ "keep_settled": keep }), Scope::Topic);
        assert_eq!(settled(json!(false)).expect("a truth value").get(Setting::KeepSettled), Some(0));
        assert!(settled(json!(0)).is_err() && settled(json!("false")).is_err());
        assert!(ttl(0).is_ok() && ttl(1).is_ok() && ttl(AGE_MAX_MS).is_ok() && ttl(AGE_MAX_MS + 1).is_err());
    }

    #[test]
    fn every_default_lies_in_its_range_and_every_number_names_its_setting() {
        for (place, setting) in Setting::ALL.iter().enumerate() {
            assert_eq!(setting.place(), place);
            assert!(setting.accepts(setting.default_value()), "{}", setting.key());
            assert_eq!(Setting::from_number(*setting as u8), Some(*setting));
        }
    }
}
