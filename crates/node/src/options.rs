//! Reading the JSON options of DECLARE and SUB.

use mortarmq_shard::settings::Scope;
use mortarmq_shard::{Setting, SettingError, SettingsPatch, StartPolicy};
use mortarmq_types::{Partition, Seq};
use mortarmq_wire::ErrorCode;
use serde_json::{Map, Value};

use crate::reply::Failure;

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

/// Reads the options of a SUB: group settings, and where a new group begins if they say so.
pub(crate) fn group(text: &str) -> Result<(SettingsPatch, Option<StartPolicy>), Failure> {
    let mut object = object(text)?;
    if object.remove("resume").is_some() {
        let text = "resume: sessions cannot be resumed in this version; subscribe anew without it";
        return Err(Failure::new(ErrorCode::InvalidTopic, text));
    }
    let start = object.remove("start").map(|value| start(&value)).transpose().map_err(refused)?;
    Ok((SettingsPatch::from_json(&object, Scope::Group).map_err(refused)?, start))
}

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

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of an error")]
fn refused(error: SettingError) -> Failure {
    Failure::new(ErrorCode::InvalidTopic, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{group, topic};
    use mortarmq_shard::{Setting, StartPolicy};
    use mortarmq_types::{Partition, Seq};
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
        let places = group("{\"start\":{\"2\":41}}").expect("places").1;
        assert_eq!(places, Some(StartPolicy::At(vec![(Partition::new(2), Seq::new(41))])));
        assert_eq!(group("{\"start\":\"latest\"}").expect("a word").1, Some(StartPolicy::Latest));
        assert!(group("{\"start\":{\"2\":0}}").is_err(), "sequences start at 1");
        assert!(group("{\"start\":7}").is_err());
        assert!(group("{\"resume\":{}}").expect_err("not there").message.contains("resume"));
    }
}
