//! `--set KEY=VALUE` and `set … KEY=VALUE`: settings as the JSON object that requests carry. Keys and ranges are judged by the server.

use serde_json::{Map, Value};

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

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
    to_object(settings).to_string()
}

/// The settings as a JSON value, for the body of a route.
pub(crate) fn to_object(settings: &[Setting]) -> Value {
    let object: Map<_, _> = settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect();
    Value::Object(object)
}

/// What a route answers that has changed settings: all of them, as they are now.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Changed {
    settings: Map<String, Value>,
}

impl Changed {
    /// Prints those that were given, as they are now.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(crate) fn print(&self, given: &[Setting], args: RowArgs) -> Result<(), Failure> {
        let mut rows = Rows::listed(&["setting", "value"], args);
        for (key, value) in self.settings.iter().filter(|(key, _)| given.iter().any(|setting| setting.key == **key)) {
            rows.push(vec![Cell::Text(key.clone()), Cell::json(value)])?;
        }
        rows.finish()
    }
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
