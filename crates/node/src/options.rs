//! Reading the JSON options of DECLARE and SUB.

use std::collections::BTreeSet;

use mortarmq_shard::settings::Scope;
use mortarmq_shard::{Setting, SettingError, SettingsPatch, StartPolicy};
use mortarmq_types::{DeliveryId, MemberId, Partition, Seq};
use mortarmq_wire::ErrorCode;
use serde_json::{Map, Value};

use crate::reply::Failure;

/// Settings and their values as they came: keys and ranges are judged by the node.
pub type Settings = Map<String, Value>;

/// What the options of a SUB say.
#[derive(Debug)]
pub(crate) struct GroupOptions {
    pub(crate) settings: SettingsPatch,
    /// Where a new group begins.
    pub(crate) start: Option<StartPolicy>,
    /// The member that is to go on.
    pub(crate) resume: Option<Resume>,
}

/// A member that is to go on, and the proof that it is one's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    pub(crate) member: MemberId,
    pub(crate) secret: u64,
    /// The deliveries that it holds.
    pub(crate) held: BTreeSet<DeliveryId>,
}

/// Reads the options of a DECLARE together with its partition count (0: not given).
pub(crate) fn topic(text: &str, partitions: u16) -> Result<SettingsPatch, Failure> {
    let object = object(text)?;
    let mut patch = SettingsPatch::from_json(&object, Scope::Topic).map_err(refused)?;
    if partitions != 0 {
        let given = u64::from(partitions);
        if patch.get(Setting::Partitions).is_some_and(|named| named != given) {
            let text = format!("partition_count {given} contradicts options.partitions: give one of them");
            return Err(Failure::new(ErrorCode::InvalidTopic, text));
        }
        let checked = Setting::Partitions.read(&Value::from(given)).map_err(refused)?;
        patch.add(Setting::Partitions, checked);
    }
    Ok(patch)
}

/// Reads the options of a SUB: group settings, where a new group begins, and which member goes on.
pub(crate) fn group(text: &str) -> Result<GroupOptions, Failure> {
    let mut object = object(text)?;
    let resume = object.remove("resume").map(|value| resume(&value)).transpose()?;
    let start = object.remove("start").map(|value| start(&value)).transpose().map_err(refused)?;
    Ok(GroupOptions { settings: SettingsPatch::from_json(&object, Scope::Group).map_err(refused)?, start, resume })
}

/// Reads the settings of a change. What is fixed when a topic or group is made is refused by its name, whatever its value.
pub(crate) fn change(settings: &Settings, scope: Scope) -> Result<SettingsPatch, Failure> {
    if let Some(key) = FIXED.iter().find(|key| settings.contains_key(**key)) {
        let text = format!("{key} is fixed when it is made, and cannot be changed; nothing was changed");
        return Err(Failure::new(ErrorCode::InvalidTopic, text));
    }
    SettingsPatch::from_json(settings, scope).map_err(refused)
}

/// Keys that only count when a group is made.
const FIXED: [&str; 2] = ["type", "start"];

fn object(text: &str) -> Result<Map<String, Value>, Failure> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    let malformed = |reason: String| Failure {
        message: SettingError::NotAnObject { reason }.to_string(),
        ..Failure::new(ErrorCode::MalformedPayload, "")
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(malformed(format!("found {other}"))),
        Err(error) => Err(malformed(error.to_string())),
    }
}

fn start(value: &Value) -> Result<StartPolicy, SettingError> {
    let bad = || SettingError::Start { value: value.to_string() };
    match value {
        Value::String(word) if word == "earliest" => Ok(StartPolicy::Earliest),
        Value::String(word) if word == "latest" => Ok(StartPolicy::Latest),
        Value::Object(places) if !places.is_empty() && places.len() <= 1024 => {
            let place = |(partition, seq): (&String, &Value)| {
                let partition: u16 = partition.parse().map_err(|_| bad())?;
                let seq = seq.as_u64().filter(|seq| *seq > 0).ok_or_else(bad)?;
                Ok((Partition::new(partition), Seq::new(seq)))
            };
            Ok(StartPolicy::At(places.iter().map(place).collect::<Result<_, SettingError>>()?))
        }
        _ => Err(bad()),
    }
}

/// Its text repeats nothing of what was sent: a secret may be in it.
fn resume(value: &Value) -> Result<Resume, Failure> {
    let bad = || {
        let text = "resume: give an object with member_id, secret and held as SUB's OK and MSG told them: integers from 0 to \
                    18446744073709551615, held a list of them";
        Failure::new(ErrorCode::InvalidTopic, text)
    };
    let object = value.as_object().ok_or_else(bad)?;
    let (mut member, mut secret, mut held) = (None, None, None);
    for (name, value) in object {
        match name.as_str() {
            "member_id" => member = Some(value.as_u64().ok_or_else(bad)?),
            "secret" => secret = Some(value.as_u64().ok_or_else(bad)?),
            "held" => {
                let ids = value.as_array().ok_or_else(bad)?.iter();
                held = Some(ids.map(|id| id.as_u64().map(DeliveryId::new).ok_or_else(bad)).collect::<Result<_, _>>()?);
            }
            _ => return Err(bad()),
        }
    }
    let (Some(member), Some(secret), Some(held)) = (member, secret, held) else { return Err(bad()) };
    Ok(Resume { member: MemberId::new(member), secret, held })
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of an error")]
pub(crate) fn refused(error: SettingError) -> Failure {
    Failure::new(ErrorCode::InvalidTopic, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Resume, group, topic};
    use mortarmq_shard::{Setting, StartPolicy};
    use mortarmq_types::{DeliveryId, MemberId, Partition, Seq};
    use mortarmq_wire::ErrorCode;

    #[test]
    fn options_are_an_object_of_known_keys() {
        assert_eq!(topic("", 0).expect("nothing is fine").values, []);
        assert_eq!(topic("{}", 3).expect("a count").get(Setting::Partitions), Some(3));
        assert_eq!(topic("[]", 0).expect_err("an array").code, ErrorCode::MalformedPayload);
        assert_eq!(topic("{", 0).expect_err("half an object").code, ErrorCode::MalformedPayload);
        assert_eq!(topic("{\"partitions\":2}", 3).expect_err("a contradiction").code, ErrorCode::InvalidTopic);
        assert_eq!(topic("", 2000).expect_err("too many").code, ErrorCode::InvalidTopic);
        assert_eq!(topic("{\"colour\":1}", 0).expect_err("unknown").code, ErrorCode::InvalidTopic);
    }

    #[test]
    fn a_start_is_a_word_or_places() {
        let places = group("{\"start\":{\"2\":41}}").expect("places").start;
        assert_eq!(places, Some(StartPolicy::At(vec![(Partition::new(2), Seq::new(41))])));
        assert_eq!(group("{\"start\":\"latest\"}").expect("a word").start, Some(StartPolicy::Latest));
        assert!(group("{\"start\":{\"2\":0}}").is_err(), "sequences start at 1");
        assert!(group("{\"start\":7}").is_err());
    }

    #[test]
    fn a_resume_is_exact_to_64_bits_and_its_secret_is_not_repeated() {
        let text = r#"{"lease_ms":5000,"resume":{"member_id":1,"secret":18446744073709551615,"held":[9223372036854775807,3]}}"#;
        let read = group(text).expect("a resume");
        assert_eq!(read.settings.get(Setting::LeaseMs), Some(5000));
        let held = [3, 9_223_372_036_854_775_807].map(DeliveryId::new).into();
        assert_eq!(read.resume, Some(Resume { member: MemberId::new(1), secret: u64::MAX, held }));
        let bad = [
            r"{}",
            r"7",
            r#"{"member_id":1,"secret":77777}"#,
            r#"{"member_id":1,"secret":77777,"held":7}"#,
            r#"{"member_id":1,"secret":77777,"held":[-1]}"#,
            r#"{"member_id":1,"secret":77777.5,"held":[]}"#,
            r#"{"member_id":"1","secret":77777,"held":[]}"#,
            r#"{"member_id":1,"secret":77777,"held":[],"more":1}"#,
        ];
        for resume in bad {
            let failure = group(&format!("{{\"resume\":{resume}}}")).expect_err(resume);
            assert_eq!(failure.code, ErrorCode::InvalidTopic, "{resume}");
            assert!(failure.message.starts_with("resume") && !failure.message.contains("77777"), "{failure:?}");
        }
    }
}
