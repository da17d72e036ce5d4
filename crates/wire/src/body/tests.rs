use bytes::BytesMut;

use super::{RecordBody, write_body, write_body_with};
use crate::errors::ErrorCode;
use crate::faults::{DecodeError, EncodeError};
use crate::frame::{
    MAX_ADDED_HEADERS, MAX_ADDED_HEADERS_LEN, MAX_HEADERS, MAX_HEADERS_LEN, MAX_KEY_LEN, MAX_STORED_LEN, MAX_VALUE_LEN,
};

type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];

fn written(key: &[u8], headers: Option<Pairs<'_>>, value: &[u8]) -> Result<BytesMut, EncodeError> {
    let mut out = BytesMut::new();
    write_body(&mut out, key, headers, value)?;
    Ok(out)
}

/// A body without any check, so that a bad one can be made.
fn raw(key: &[u8], headers: Option<(u16, Pairs<'_>)>, value: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(key.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(key);
    if let Some((count, pairs)) = headers {
        out.extend_from_slice(&count.to_be_bytes());
        for (name, value) in pairs {
            out.push(u8::try_from(name.len()).unwrap());
            out.extend_from_slice(name);
            out.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
    out.extend_from_slice(value);
    out
}

fn parsed_code(bytes: &[u8], has_headers: bool) -> Result<usize, ErrorCode> {
    RecordBody::parse(bytes, has_headers).map(|(body, _)| body.payload_len()).map_err(DecodeError::code)
}

#[test]
fn body_keeps_exactly_its_own_bytes_and_returns_the_rest() {
    let mut bytes = raw(b"key", Some((2, &[(b"a", b"1"), (b"", b"")])), b"value");
    let own = bytes.len();
    bytes.extend_from_slice(b"what follows");
    let (body, rest) = RecordBody::parse(&bytes, true).expect("well formed");
    assert_eq!((body.bytes(), rest), (&bytes[..own], b"what follows".as_slice()));
    assert_eq!((body.key(), body.value()), (b"key".as_slice(), b"value".as_slice()));
    let pairs: Vec<_> = body.headers().expect("it has a block").collect();
    assert_eq!(pairs, [(b"a".as_slice(), b"1".as_slice()), (b"".as_slice(), b"".as_slice())]);
    assert_eq!(body.payload_len(), 3 + 2 + 5);
}

#[test]
fn block_of_no_pairs_is_not_the_same_as_no_block() {
    let with = written(b"", Some(&[]), b"v").expect("within the limits");
    let without = written(b"", None, b"v").expect("within the limits");
    assert_eq!(with.len(), without.len() + 2);
    let (with, _) = RecordBody::parse(&with, true).expect("well formed");
    assert_eq!(with.headers().map(|pairs| pairs.len()), Some(0));
    let (without, _) = RecordBody::parse(&without, false).expect("well formed");
    assert!(without.headers().is_none() && !without.has_headers());
    assert!(without.key().is_empty());
}

#[test]
fn key_limit_is_too_large_and_closes_nothing() {
    let long = [b'k'; MAX_KEY_LEN + 1];
    assert_eq!(parsed_code(&raw(&long[..MAX_KEY_LEN], None, b""), false), Ok(MAX_KEY_LEN));
    assert_eq!(parsed_code(&raw(&long, None, b""), false), Err(ErrorCode::TooLarge));
    assert!(!ErrorCode::TooLarge.closes());
    assert!(written(&long[..MAX_KEY_LEN], None, b"").is_ok());
    assert!(written(&long, None, b"").is_err());
}

#[test]
fn header_limits_count_pairs_and_bytes_of_names_and_values() {
    let pair = (b"n".as_slice(), b"v".as_slice());
    let pairs = vec![pair; MAX_HEADERS + 1];
    assert_eq!(parsed_code(&raw(b"", Some((64, &pairs[..64])), b""), true), Ok(128));
    assert_eq!(parsed_code(&raw(b"", Some((65, &pairs)), b""), true), Err(ErrorCode::TooLarge));
    assert!(written(b"", Some(&pairs[..64]), b"").is_ok());
    assert!(written(b"", Some(&pairs), b"").is_err());

    let most = vec![b'v'; MAX_HEADERS_LEN];
    let fits = [(b"n".as_slice(), &most[..MAX_HEADERS_LEN - 1])];
    let over = [(b"n".as_slice(), most.as_slice())];
    assert_eq!(parsed_code(&raw(b"", Some((1, &fits)), b""), true), Ok(MAX_HEADERS_LEN));
    assert_eq!(parsed_code(&raw(b"", Some((1, &over)), b""), true), Err(ErrorCode::TooLarge));
    assert!(written(b"", Some(&fits), b"").is_ok());
    assert!(written(b"", Some(&over), b"").is_err());
    assert!(written(b"", Some(&[([b'n'; 256].as_slice(), b"")]), b"").is_err());
}

#[test]
fn value_limit_counts_key_headers_and_value_together() {
    let value = vec![0; MAX_VALUE_LEN];
    let pairs = [(b"n".as_slice(), b"v".as_slice())];
    let cases: [(&[u8], Option<Pairs<'_>>, usize); 3] = [(b"", None, 0), (b"key", None, 3), (b"key", Some(&pairs), 5)];
    for (key, headers, others) in cases {
        let raw_headers = headers.map(|pairs| (1, pairs));
        let fits = &value[others..];
        let body = written(key, headers, fits).expect("at the limit");
        assert_eq!(parsed_code(&body, headers.is_some()), Ok(MAX_VALUE_LEN));
        let longer = [fits, &[0]].concat();
        assert!(written(key, headers, &longer).is_err());
        let body = raw(key, raw_headers, &longer);
        assert_eq!(parsed_code(&body, headers.is_some()), Err(ErrorCode::TooLarge));
    }
}

#[test]
fn body_cut_anywhere_is_malformed() {
    let bytes = raw(b"key", Some((2, &[(b"a", b"1"), (b"b", b"2")])), b"value");
    for end in 0..bytes.len() {
        assert_eq!(parsed_code(&bytes[..end], true), Err(ErrorCode::MalformedPayload), "cut at {end}");
    }
    assert_eq!(parsed_code(&bytes, true), Ok(3 + 4 + 5));
}

#[test]
fn body_that_does_not_fit_leaves_the_buffer_as_it_was() {
    let mut out = BytesMut::from(b"before".as_slice());
    write_body(&mut out, &[0; 256], None, b"").expect_err("the key is too long");
    assert_eq!(out, b"before".as_slice());
}

#[test]
fn what_is_added_stands_behind_and_changes_nothing_else() {
    for headers in [None, Some([(b"a".as_slice(), b"1".as_slice())])] {
        let own = written(b"key", headers.as_ref().map(<[_; 1]>::as_slice), b"value").expect("within the limits");
        let (body, _) = RecordBody::parse(&own, headers.is_some()).expect("well formed");
        let mut out = BytesMut::new();
        write_body_with(&mut out, &body, &[(b"b", b"2")]).expect("within the limits");
        let (with, rest) = RecordBody::parse_stored(&out, true).expect("well formed");
        assert_eq!((with.key(), with.value(), rest), (b"key".as_slice(), b"value".as_slice(), b"".as_slice()));
        let pairs: Vec<_> = with.headers().expect("it has a block").collect();
        let expected: Vec<_> = headers.into_iter().flatten().chain([(b"b".as_slice(), b"2".as_slice())]).collect();
        assert_eq!(pairs, expected);
        assert_eq!(with.payload_len(), body.payload_len() + 2);
    }
}

#[test]
fn a_published_body_at_every_limit_has_room_for_what_is_added_and_no_more() {
    let most = vec![b'v'; MAX_HEADERS_LEN / MAX_HEADERS - 1];
    let pairs = [(b"n".as_slice(), most.as_slice()); MAX_HEADERS];
    let value = vec![0; MAX_VALUE_LEN - MAX_HEADERS_LEN];
    let own = written(b"", Some(&pairs), &value).expect("at the limit, not over it");
    let (body, _) = RecordBody::parse(&own, true).expect("at the limit, not over it");
    let room = MAX_STORED_LEN - MAX_VALUE_LEN - (MAX_ADDED_HEADERS - 1);
    let long = vec![b'v'; room];
    let mut added = vec![(b"n".as_slice(), b"".as_slice()); MAX_ADDED_HEADERS - 1];
    added.push((b"", &long));
    let mut out = BytesMut::new();
    write_body_with(&mut out, &body, &added).expect("at the limit, not over it");
    let (with, _) = RecordBody::parse_stored(&out, true).expect("at the limit, not over it");
    assert_eq!(with.payload_len(), MAX_STORED_LEN);
    assert_eq!(parsed_code(&out, true), Err(ErrorCode::TooLarge), "nobody can publish that");
    let over = vec![b'v'; room + 1];
    added[MAX_ADDED_HEADERS - 1] = (b"", &over);
    assert!(write_body_with(&mut BytesMut::new(), &body, &added).is_err(), "a MSG of it would not fit a frame");
    added.push((b"n", b""));
    assert!(write_body_with(&mut BytesMut::new(), &body, &added).is_err(), "one pair too many");
    let long = vec![b'v'; MAX_ADDED_HEADERS_LEN + 1];
    let (small, _) = RecordBody::parse(&[0; 6], false).expect("an empty body");
    assert!(write_body_with(&mut BytesMut::new(), &small, &[(b"", &long)]).is_err(), "too long");
}
