//! `--set KEY=VALUE`: settings as the JSON object that requests carry. Keys and ranges are judged by the server.

use serde_json::{Map, Value};

/// One `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    key: String,
    value: Value,
}

/// Reads `KEY=VALUE`; a value that is no JSON is text, so that `order=none` needs no quotes.
///
/// # Errors
/// A text for the user when there is no key.
pub(crate) fn parse(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("is not KEY=VALUE")?;
    if key.is_empty() {
        return Err("has no key before =".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok(Setting { key: key.to_owned(), value })
}

/// The settings as a JSON object; empty for none. Of a key that is given twice the last counts.
pub(crate) fn to_json(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return String::new();
    }
    let object: Map<_, _> = settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect();
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::{parse, to_json};

    #[test]
    fn values_are_numbers_flags_or_text_as_they_look() {
        let all: Vec<_> = ["lease_ms=2000", "keep_settled=true", "order=none", "start={\"0\":41}", "x=a=b"]
            .iter()
            .map(|text| parse(text).expect("KEY=VALUE"))
            .collect();
        let json = r#"{"keep_settled":true,"lease_ms":2000,"order":"none","start":{"0":41},"x":"a=b"}"#;
        assert_eq!(to_json(&all), json);
        assert_eq!(to_json(&[]), "");
        assert!(parse("lease_ms").is_err() && parse("=1").is_err());
    }
}
