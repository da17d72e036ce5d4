//! Path segments and query parameters, checked. Values are bytes until a route asks for text or a number.

use std::convert::Infallible;
use std::ops::RangeInclusive;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use mortarmq_node::ErrorCode;
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// The percent-decoded segments that a route's path names.
pub(crate) struct Segments<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for Segments<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(PathRejection::FailedToDeserializePathParams(_)) => {
                Err(Refusal::new(ErrorCode::InvalidTopic, "a name of the path is not UTF-8: names are [A-Za-z0-9._-]"))
            }
            Err(_) => Err(Refusal::internal("the route names no segments")),
        }
    }
}

/// The parameters behind the `?`, in their order, undecoded. Those that a route does not ask for are ignored.
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

impl Parameters {
    fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { pairs }
    }

    /// A parameter's text; the first one if it is given twice.
    ///
    /// # Errors
    /// Broken percent escapes, and bytes that are not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some((_, value)) = self.pairs.iter().find(|(found, _)| decode(found).as_deref() == Some(name.as_bytes()))
        else {
            return Ok(None);
        };
        let bytes =
            decode(value).ok_or_else(|| Refusal::parameter(format!("{name} has a broken escape: write a % as %25")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Refusal::parameter(format!("{name} is not UTF-8: send the text percent-encoded")))?;
        Ok(Some(text))
    }

    /// A whole number.
    ///
    /// # Errors
    /// What is no whole number, and numbers outside `range`.
    pub(crate) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        // `u64::from_str` takes a leading plus, which nobody writes on purpose in a URL: it is a space there.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if is_plain && range.contains(&number) => Ok(Some(number)),
            _ => Err(Refusal::parameter(format!(
                "{name}={text} is out of range: {name} is a whole number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    /// A number that the route cannot do without.
    ///
    /// # Errors
    /// As [`Self::number`], and when it is missing.
    pub(crate) fn required(&self, name: &str, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
        let example = range.start();
        let missing =
            || Refusal::parameter(format!("{name} is missing: add {name}=NUMBER, for example {name}={example}"));
        self.number(name, range.clone())?.ok_or_else(missing)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Any other word.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(word) => Err(Refusal::parameter(format!("{name}={word} is no choice: write true or false"))),
        }
    }
}

/// Decodes `application/x-www-form-urlencoded` text into bytes; `None` for a broken escape.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let [high, low, behind @ ..] = rest else {
                    return None;
                };
                bytes.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
                rest = behind;
            }
            other => bytes.push(*other),
        }
    }
    Some(bytes)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::{Parameters, decode};

    #[test]
    fn escapes_and_plus_are_decoded_to_bytes() {
        assert_eq!(decode("a+b%20c"), Some(b"a b c".to_vec()));
        assert_eq!(decode("%00%ff%Fe"), Some(vec![0, 0xFF, 0xFE]));
        for broken in ["%", "%1", "%zz", "a%+1"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_first_of_two_wins_and_a_broken_escape_matters_only_where_it_is_asked_for() {
        let parameters = Parameters::parse("max=1&max=2&other=%&&topic=%6Frders&flag");
        assert_eq!(parameters.number("max", 0..=9).expect("1 is in range"), Some(1));
        assert_eq!(parameters.text("topic").expect("the escape is whole").as_deref(), Some("orders"));
        assert_eq!(parameters.text("flag").expect("an empty text").as_deref(), Some(""));
        assert_eq!(parameters.text("none").expect("missing is no error"), None);
        assert!(parameters.text("other").is_err());
    }

    #[test]
    fn numbers_are_digits_within_the_range() {
        for bad in ["", "-1", "%2B1", "1.0", "0x1", " 1", "10", "18446744073709551616", "one"] {
            assert!(Parameters::parse(&format!("n={bad}")).number("n", 1..=9).is_err(), "{bad}");
        }
        assert_eq!(Parameters::parse("n=9").number("n", 1..=9).expect("9 is in range"), Some(9));
        let most = Parameters::parse("n=18446744073709551615");
        assert_eq!(most.number("n", 0..=u64::MAX).expect("the largest number"), Some(u64::MAX));
        assert!(Parameters::parse("").required("n", 1..=9).is_err());
    }
}
