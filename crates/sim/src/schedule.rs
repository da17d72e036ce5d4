//! Plans as text: a schedule is a file that anyone can read, change and replay.
//!
//! ```text
//! # What it is about, in any number of lines.
//! mortarmq-schedule 1
//! set seed 17
//! at 120000 publish producer=0 count=3 key=1
//! fault 1 at 9640590 kill down_ms=400
//! fault 1 journal 57 2 power down_ms=30 new_boot=1
//! fault 1 at 9700000 rot segment flip place=4711
//! fault 0 at 9800000 cut alone ms=900
//! ```
//!
//! Times are microseconds. `fault NODE SITE NUMBER OPERATION` strikes at the disk operation with this number, from 0, of what
//! the node does for the how-manieth time, from 1; node 0 is the one that leads then. What is not named is 0, and a setting that is not set has its default.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::plan::{Anchor, Deed, Fault, FaultKind, LinkEnd, Part, Plan, Shape, Site, Step, Way};

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ScheduleError {
    /// The line, from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// Reads a schedule.
///
/// # Errors
/// The first line that is none.
pub fn parse(text: &str) -> Result<Plan, ScheduleError> {
    let mut plan = Plan::default();
    let mut has_version = false;
    for (place, line) in text.lines().enumerate() {
        let fail = |reason: String| ScheduleError { line: place + 1, reason };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if !has_version {
            if words != [MAGIC, VERSION] {
                return Err(fail(format!("a schedule begins with \"{MAGIC} {VERSION}\"")));
            }
            has_version = true;
            continue;
        }
        match words[0] {
            "set" => set(&mut plan, &words),
            "at" => step(&words).map(|step| plan.steps.push(step)),
            "fault" => fault(&words).map(|fault| plan.faults.push(fault)),
            other => Err(format!("{other} is none of set, at, fault")),
        }
        .map_err(fail)?;
    }
    if has_version { Ok(plan) } else { Err(ScheduleError { line: 1, reason: "it is empty".to_owned() }) }
}

/// Writes a schedule, with its story in front.
#[must_use]
pub fn write(plan: &Plan, story: &str) -> String {
    let mut text = String::new();
    for line in story.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = writeln!(text, "{MAGIC} {VERSION}");
    let defaults = crate::plan::Settings::default();
    for ((name, value), (_, default)) in plan.settings.rows().into_iter().zip(defaults.rows()) {
        if value != default || name == "seed" {
            let _ = writeln!(text, "set {name} {value}");
        }
    }
    for step in &plan.steps {
        let (word, fields) = deed_fields(step.what);
        let _ = writeln!(text, "at {} {word}{}", step.at_us, pairs(&fields));
    }
    for fault in &plan.faults {
        let (word, fields) = kind_fields(fault.kind);
        let anchor = match fault.anchor {
            Anchor::At(at_us) => format!("at {at_us}"),
            Anchor::Nth { site, number, operation } => format!("{} {number} {operation}", site.word()),
        };
        let _ = writeln!(text, "fault {} {anchor} {word}{}", fault.node, pairs(&fields));
    }
    text
}

fn pairs(fields: &[(&str, u64)]) -> String {
    fields.iter().filter(|(_, value)| *value != 0).map(|(name, value)| format!(" {name}={value}")).collect()
}

fn set(plan: &mut Plan, words: &[&str]) -> Result<(), String> {
    let [_, name, value] = words else { return Err("set NAME VALUE".to_owned()) };
    let value = number(value)?;
    if plan.settings.set(name, value) { Ok(()) } else { Err(format!("there is no setting {name}")) }
}

fn step(words: &[&str]) -> Result<Step, String> {
    let [_, at_us, word, fields @ ..] = words else { return Err("at TIME WORD NAME=VALUE…".to_owned()) };
    let mut fields = Fields::read(fields)?;
    let what = match *word {
        "publish" => Deed::Publish {
            producer: fields.take("producer"),
            count: fields.take("count"),
            key: fields.take("key"),
            delay_ms: fields.take("delay_ms"),
            ttl_ms: fields.take("ttl_ms"),
            is_batch: fields.take("batch") != 0,
        },
        "repeat" => Deed::Repeat { producer: fields.take("producer") },
        "reset-producer" => Deed::ResetProducer { producer: fields.take("producer"), end: fields.end_of_link() },
        "reset-consumer" => Deed::ResetConsumer { consumer: fields.take("consumer"), end: fields.end_of_link() },
        "die" => Deed::Die { consumer: fields.take("consumer") },
        "leave" => Deed::Leave { consumer: fields.take("consumer"), is_back_at_once: fields.take("at_once") != 0 },
        "stall" => Deed::Stall { consumer: fields.take("consumer"), ms: fields.take("ms") },
        "scrape" => Deed::Scrape,
        "redrive" => Deed::Redrive { topic: fields.take("topic"), count: fields.take("count") },
        "purge-letters" => Deed::PurgeLetters { topic: fields.take("topic"), count: fields.take("count") },
        "purge" => Deed::Purge { topic: fields.take("topic"), group: fields.take("group") },
        "replay" => Deed::Replay { topic: fields.take("topic"), group: fields.take("group") },
        "skip" => Deed::Skip { topic: fields.take("topic"), group: fields.take("group") },
        "delete" => Deed::Delete { topic: fields.take("topic") },
        other => return Err(format!("nobody does {other}")),
    };
    fields.end()?;
    Ok(Step { at_us: number(at_us)?, what })
}

fn deed_fields(deed: Deed) -> (&'static str, Vec<(&'static str, u64)>) {
    match deed {
        Deed::Publish { producer, count, key, delay_ms, ttl_ms, is_batch } => (
            "publish",
            vec![
                ("producer", producer),
                ("count", count),
                ("key", key),
                ("delay_ms", delay_ms),
                ("ttl_ms", ttl_ms),
                ("batch", u64::from(is_batch)),
            ],
        ),
        Deed::Repeat { producer } => ("repeat", vec![("producer", producer)]),
        Deed::ResetProducer { producer, end } => ("reset-producer", vec![("producer", producer), end_field(end)]),
        Deed::ResetConsumer { consumer, end } => ("reset-consumer", vec![("consumer", consumer), end_field(end)]),
        Deed::Die { consumer } => ("die", vec![("consumer", consumer)]),
        Deed::Leave { consumer, is_back_at_once } => {
            ("leave", vec![("consumer", consumer), ("at_once", u64::from(is_back_at_once))])
        }
        Deed::Stall { consumer, ms } => ("stall", vec![("consumer", consumer), ("ms", ms)]),
        Deed::Scrape => ("scrape", vec![]),
        Deed::Redrive { topic, count } => ("redrive", vec![("topic", topic), ("count", count)]),
        Deed::PurgeLetters { topic, count } => ("purge-letters", vec![("topic", topic), ("count", count)]),
        Deed::Purge { topic, group } => ("purge", vec![("topic", topic), ("group", group)]),
        Deed::Replay { topic, group } => ("replay", vec![("topic", topic), ("group", group)]),
        Deed::Skip { topic, group } => ("skip", vec![("topic", topic), ("group", group)]),
        Deed::Delete { topic } => ("delete", vec![("topic", topic)]),
    }
}

/// How a connection ends, as a field: the usual way has none.
const fn end_field(end: LinkEnd) -> (&'static str, u64) {
    match end {
        LinkEnd::Breaks => ("half_closed", 0),
        LinkEnd::BetweenFrames => ("between_frames", 1),
        LinkEnd::HalfClosed => ("half_closed", 1),
    }
}

fn fault(words: &[&str]) -> Result<Fault, String> {
    let (node, anchor, word, fields) = match words {
        [_, node, "at", at_us, word, fields @ ..] => (node, Anchor::At(number(at_us)?), word, fields),
        [_, node, site, nth, operation, word, fields @ ..] => {
            let site = Site::ALL.into_iter().find(|known| known.word() == *site);
            let site =
                site.ok_or("a fault strikes at a time, or at journal, segments, checkpoint, release, recovery")?;
            (node, Anchor::Nth { site, number: number(nth)?, operation: number(operation)? }, word, fields)
        }
        _ => return Err("fault NODE at TIME WORD, or fault NODE SITE NUMBER OPERATION WORD".to_owned()),
    };
    let (part, way, fields) = match (*word, fields) {
        ("rot", [part, way, fields @ ..]) => (named(&Part::ALL, part)?, named(&Way::ALL, way)?, fields),
        ("rot", _) => return Err("fault NODE at TIME rot PART WAY NAME=VALUE…".to_owned()),
        _ => (Part::Journal, Way::Flip, fields),
    };
    let (shape, fields) = match (*word, fields) {
        ("cut", [shape, fields @ ..]) => (named(&Shape::ALL, shape)?, fields),
        _ => (Shape::Alone, fields),
    };
    if number(node)? == 0 && !matches!(anchor, Anchor::At(_)) {
        return Err("what strikes at an operation of the disk strikes a certain node, from 1".to_owned());
    }
    if matches!(*word, "rot" | "stop" | "cut" | "hand-over" | "wipe") && !matches!(anchor, Anchor::At(_)) {
        return Err(format!("{word} strikes at a time"));
    }
    let mut fields = Fields::read(fields)?;
    let down_ms = fields.take("down_ms");
    let kind = match *word {
        "kill" => FaultKind::Kill { down_ms },
        "power" => FaultKind::Power { down_ms, is_new_boot: fields.take("new_boot") != 0 },
        "io-error" => FaultKind::IoError { down_ms, loses_power: fields.take("power") != 0 },
        "short-write" => {
            FaultKind::ShortWrite { bytes: fields.take("bytes"), down_ms, loses_power: fields.take("power") != 0 }
        }
        "disk-full" => FaultKind::DiskFull { room_bytes: fields.take("room_bytes"), ms: fields.take("ms") },
        "slow-sync" => FaultKind::SlowSync { us: fields.take("us"), ms: fields.take("ms") },
        "pause" => FaultKind::Pause { ms: fields.take("ms") },
        "clock" => FaultKind::ClockJump { to_ms: fields.take("to_ms") },
        "stop" => FaultKind::Stop { down_ms },
        "cut" => FaultKind::Cut { shape, ms: fields.take("ms"), flap_ms: fields.take("flap_ms") },
        "hand-over" => FaultKind::HandOver,
        "wipe" => FaultKind::Wipe { down_ms },
        "rot" => FaultKind::Rot { part, way, place: fields.take("place"), down_ms },
        other => return Err(format!("there is no fault {other}")),
    };
    fields.end()?;
    Ok(Fault { node: number(node)?, anchor, kind })
}

fn kind_fields(kind: FaultKind) -> (String, Vec<(&'static str, u64)>) {
    let fields = match kind {
        FaultKind::Kill { down_ms } => vec![("down_ms", down_ms)],
        FaultKind::Power { down_ms, is_new_boot } => vec![("down_ms", down_ms), ("new_boot", u64::from(is_new_boot))],
        FaultKind::IoError { down_ms, loses_power } => {
            vec![("down_ms", down_ms), ("power", u64::from(loses_power))]
        }
        FaultKind::ShortWrite { bytes, down_ms, loses_power } => {
            vec![("bytes", bytes), ("down_ms", down_ms), ("power", u64::from(loses_power))]
        }
        FaultKind::DiskFull { room_bytes, ms } => vec![("room_bytes", room_bytes), ("ms", ms)],
        FaultKind::SlowSync { us, ms } => vec![("us", us), ("ms", ms)],
        FaultKind::Pause { ms } => vec![("ms", ms)],
        FaultKind::ClockJump { to_ms } => vec![("to_ms", to_ms)],
        FaultKind::Stop { down_ms } => vec![("down_ms", down_ms)],
        FaultKind::Cut { shape, ms, flap_ms } => {
            return (format!("cut {shape}"), vec![("ms", ms), ("flap_ms", flap_ms)]);
        }
        FaultKind::HandOver => vec![],
        FaultKind::Wipe { down_ms } => vec![("down_ms", down_ms)],
        FaultKind::Rot { part, way, place, down_ms } => {
            return (format!("rot {part} {way}"), vec![("place", place), ("down_ms", down_ms)]);
        }
    };
    (kind.word().to_owned(), fields)
}

/// The one that a word names.
fn named<T: Copy + std::fmt::Display>(all: &[T], word: &str) -> Result<T, String> {
    let words: Vec<String> = all.iter().map(T::to_string).collect();
    let place = words.iter().position(|known| known == word);
    place.map(|place| all[place]).ok_or_else(|| format!("{word} is none of {}", words.join(", ")))
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 6] =
        [Self::Journal, Self::Segment, Self::Index, Self::Ledger, Self::Checkpoint, Self::Identity];
}

impl std::fmt::Display for Part {
    /// Its word in a schedule.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Journal => "journal",
            Self::Segment => "segment",
            Self::Index => "index",
            Self::Ledger => "ledger",
            Self::Checkpoint => "checkpoint",
            Self::Identity => "identity",
        })
    }
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 7] =
        [Self::Alone, Self::Halves, Self::Ring, Self::Bridge, Self::OneWay, Self::Mute, Self::Deaf];
}

impl std::fmt::Display for Shape {
    /// Its word in a schedule.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Alone => "alone",
            Self::Halves => "halves",
            Self::Ring => "ring",
            Self::Bridge => "bridge",
            Self::OneWay => "one-way",
            Self::Mute => "mute",
            Self::Deaf => "deaf",
        })
    }
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Flip, Self::Cut, Self::Old];
}

impl std::fmt::Display for Way {
    /// Its word in a schedule.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Flip => "flip",
            Self::Cut => "cut",
            Self::Old => "old",
        })
    }
}

impl Site {
    /// Every site.
    pub const ALL: [Self; 7] =
        [Self::Journal, Self::Segments, Self::Checkpoint, Self::Release, Self::Recovery, Self::Fetch, Self::Install];

    /// Its word in a schedule.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Segments => "segments",
            Self::Checkpoint => "checkpoint",
            Self::Release => "release",
            Self::Recovery => "recovery",
            Self::Fetch => "fetch",
            Self::Install => "install",
        }
    }
}

/// The named numbers of a line.
struct Fields<'a>(BTreeMap<&'a str, u64>);

impl<'a> Fields<'a> {
    fn read(words: &[&'a str]) -> Result<Self, String> {
        let read = |word: &&'a str| {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} is no NAME=VALUE"))?;
            Ok((name, number(value)?))
        };
        words.iter().map(read).collect::<Result<_, String>>().map(Self)
    }

    fn take(&mut self, name: &str) -> u64 {
        self.0.remove(name).unwrap_or(0)
    }

    fn end_of_link(&mut self) -> LinkEnd {
        match (self.take("between_frames"), self.take("half_closed")) {
            (0, 0) => LinkEnd::Breaks,
            (0, _) => LinkEnd::HalfClosed,
            _ => LinkEnd::BetweenFrames,
        }
    }

    fn end(self) -> Result<(), String> {
        match self.0.into_keys().next() {
            Some(name) => Err(format!("{name} means nothing here")),
            None => Ok(()),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no whole number"))
}

const MAGIC: &str = "mortarmq-schedule";
const VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use super::{parse, write};
    use crate::swarm::draw;

    #[test]
    fn what_is_written_is_read_again() {
        for seed in 1..40 {
            let plan = draw(seed);
            let text = write(&plan, "a story\nof two lines");
            assert_eq!(parse(&text).expect("it was written here"), plan, "seed {seed}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_told_by_its_line() {
        let told = |text: &str| parse(text).expect_err(text).to_string();
        assert!(told("").starts_with("line 1: "));
        assert!(told("mortarmq-schedule 2").contains("mortarmq-schedule 1"));
        let with = |line: &str| told(&format!("# x\nmortarmq-schedule 1\n{line}\n"));
        assert_eq!(with("set colour 1"), "line 3: there is no setting colour");
        assert_eq!(with("at 5 dance"), "line 3: nobody does dance");
        assert_eq!(with("at 5 leave producer=1"), "line 3: producer means nothing here");
        assert_eq!(with("at x leave"), "line 3: x is no whole number");
        assert!(with("fault 1 lunch 1 1 kill").contains("journal, segments"));
        assert_eq!(with("fault 1 at 5 flood"), "line 3: there is no fault flood");
        assert_eq!(with("fault 1 at 5 rot journal"), "line 3: fault NODE at TIME rot PART WAY NAME=VALUE…");
        assert_eq!(with("fault 1 at 5 rot journal melt"), "line 3: melt is none of flip, cut, old");
        assert_eq!(with("fault 1 journal 5 1 rot journal flip"), "line 3: rot strikes at a time");
        assert_eq!(with("fault 1 journal 5 1 cut alone ms=5"), "line 3: cut strikes at a time");
        assert!(with("fault 1 at 5 cut crosswise ms=5").starts_with("line 3: crosswise is none of alone, halves"));
        assert!(with("fault 0 journal 5 1 kill").contains("a certain node"));
    }
}
