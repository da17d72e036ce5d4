//! A line as it stands, before it is known what kind of record it is.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::text::Text;

/// Every field that any record has. One flat structure: an enum tagged by `op` would make serde keep each line aside
/// first, and that costs more than all the rest.
#[derive(Default, Deserialize)]
pub(super) struct Raw<'a> {
    #[serde(borrow)]
    pub(super) op: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) client: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) topic: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) path: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) msg: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) key: Option<Text<'a>>,
    pub(super) call: Option<u64>,
    pub(super) ret: Option<u64>,
    #[serde(borrow)]
    pub(super) outcome: Option<Text<'a>>,
    pub(super) partition: Option<u32>,
    pub(super) seq: Option<u64>,
    pub(super) producer_id: Option<u64>,
    pub(super) producer_seq: Option<u64>,
    pub(super) delay_ms: Option<u64>,
    pub(super) dedup: Option<bool>,
    #[serde(borrow)]
    pub(super) hash: Option<Text<'a>>,
    pub(super) commit: Option<u64>,
    pub(super) epoch: Option<u64>,
    #[serde(borrow)]
    pub(super) txn: Option<Text<'a>>,
    pub(super) delivery_id: Option<u64>,
    pub(super) attempt: Option<u32>,
    #[serde(borrow)]
    pub(super) cause: Option<Text<'a>>,
    pub(super) prev: Option<u64>,
    pub(super) lease_ms: Option<u64>,
    #[serde(borrow)]
    pub(super) origin: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) to: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) node: Option<Text<'a>>,
    pub(super) produced: Option<u64>,
    pub(super) delivered: Option<u64>,
    pub(super) dropped: Option<u64>,
    pub(super) dlq: Option<u64>,
    pub(super) depth: Option<u64>,
    pub(super) stale: Option<bool>,
    pub(super) at: Option<u64>,
    pub(super) drained: Option<bool>,
    #[serde(borrow)]
    pub(super) balance: Option<Vec<RawBalance<'a>>>,
    pub(super) v: Option<u32>,
    #[serde(borrow)]
    pub(super) run: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) paths: Option<RawPaths<'a>>,
    // Narad's own.
    #[serde(borrow)]
    pub(super) run_id: Option<Text<'a>>,
    pub(super) visibility_timeout_ms: Option<u64>,
    pub(super) status: Option<u64>,
    #[serde(borrow)]
    pub(super) target: Option<Text<'a>>,
}

/// One path of an `end`.
#[derive(Deserialize)]
pub(super) struct RawBalance<'a> {
    #[serde(borrow)]
    pub(super) path: Text<'a>,
    pub(super) produced: u64,
    pub(super) delivered: u64,
    pub(super) dropped: u64,
    pub(super) dlq: u64,
    pub(super) depth: u64,
}

/// One path of a `run`.
#[derive(Deserialize)]
pub(super) struct RawPath<'a> {
    #[serde(borrow)]
    pub(super) path: Text<'a>,
    #[serde(borrow)]
    pub(super) topic: Text<'a>,
    pub(super) lease_ms: Option<u64>,
    pub(super) max_attempts: Option<u32>,
    #[serde(borrow)]
    pub(super) order: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) dlq: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) source: Option<Text<'a>>,
}

/// The `paths` of a run: a list here, a map of topic to names in Narad's `meta`.
pub(super) enum RawPaths<'a> {
    Ours(Vec<RawPath<'a>>),
    Narad(Vec<(Text<'a>, Vec<Text<'a>>)>),
}

impl<'de: 'a, 'a> Deserialize<'de> for RawPaths<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathsVisitor)
    }
}

struct PathsVisitor;

impl<'de> Visitor<'de> for PathsVisitor {
    type Value = RawPaths<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of paths, or a map of topics to their paths")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut paths = Vec::new();
        while let Some(path) = sequence.next_element()? {
            paths.push(path);
        }
        Ok(RawPaths::Ours(paths))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut topics = Vec::new();
        // A topic without paths is written as null by Go.
        while let Some((topic, paths)) = map.next_entry::<Text<'de>, Option<Vec<Text<'de>>>>()? {
            topics.push((topic, paths.unwrap_or_default()));
        }
        Ok(RawPaths::Narad(topics))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(RawPaths::Ours(Vec::new()))
    }
}
