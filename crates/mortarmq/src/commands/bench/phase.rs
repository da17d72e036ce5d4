//! The phases: what each does, and which ones a profile has.

use clap::ValueEnum;

/// Which phases are run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Profile {
    /// What the options say, in under a minute.
    Quick,
    /// The list that figures are compared by; some minutes.
    Reference,
    /// What three nodes cost, next to one; some minutes.
    Cluster,
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    /// What it is called; also how it is selected.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) load: Load,
}

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Publishes; nobody consumes.
    Publish,
    /// Consumes and acks a backlog; nobody publishes.
    Consume,
    /// Both at once.
    AtOnce,
    /// A node of its own, with nothing to do.
    Idle,
}

/// How a phase asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Connections that publish.
    pub(super) producers: u16,
    /// Producers on each of them. One alone has no more than 1024 messages unanswered: so many numbers the broker knows
    /// of it.
    pub(super) lines: u16,
    /// Unanswered messages of each producer.
    pub(super) outstanding: u16,
    /// Messages of a request; 1 is a single PUB.
    pub(super) batch: u16,
    /// Connections that consume.
    pub(super) consumers: u16,
    /// Messages that each consumer may hold unsettled.
    pub(super) credit: u16,
    /// Bytes of a value.
    pub(super) value_bytes: u32,
    /// Different keys; 0 is none.
    pub(super) keys: u32,
}

impl Load {
    /// Batches of a producer that may be unanswered at once.
    pub(super) fn batches_under_way(&self) -> u16 {
        (self.outstanding / self.batch.max(1)).max(1)
    }

    /// Requests of a connection that may be unanswered at once.
    pub(super) fn requests_under_way(&self) -> u64 {
        let of_one = if self.batch > 1 { self.batches_under_way() } else { self.outstanding };
        u64::from(of_one) * u64::from(self.lines)
    }
}

/// The phases of a run without a profile, from what the options say.
pub(super) fn quick(given: Load) -> Vec<Phase> {
    let publish = Load { consumers: 0, credit: 0, ..given };
    let single = Load { producers: 1, lines: 1, outstanding: 1, batch: 1, ..publish };
    let consume = Load { producers: 0, lines: 0, outstanding: 0, batch: 0, ..given };
    vec![
        Phase { name: "single", kind: Kind::Publish, load: single },
        Phase { name: "publish", kind: Kind::Publish, load: Load { batch: 1, ..publish } },
        Phase { name: "batch", kind: Kind::Publish, load: publish },
        Phase { name: "consume", kind: Kind::Consume, load: consume },
        Phase { name: "at-once", kind: Kind::AtOnce, load: Load { batch: 1, ..given } },
        Phase { name: "idle", kind: Kind::Idle, load: Load::default() },
    ]
}

/// The list that figures are compared by. Size and keys may be chosen.
pub(super) fn reference(value_bytes: u32, keys: u32) -> Vec<Phase> {
    let base = Load { lines: 1, batch: 1, value_bytes, keys, ..Load::default() };
    let publish = |name, producers, outstanding| Phase {
        name,
        kind: Kind::Publish,
        load: Load { producers, outstanding, ..base },
    };
    let at_once = |name, outstanding, value_bytes| Phase {
        name,
        kind: Kind::AtOnce,
        load: Load { producers: 64, outstanding, consumers: 8, credit: REFERENCE_CREDIT, value_bytes, ..base },
    };
    let batches = Load { producers: 1, lines: REFERENCE_LINES, outstanding: 1000, batch: 100, ..base };
    let consume = Load { lines: 0, batch: 0, consumers: 1, credit: REFERENCE_CREDIT, ..base };
    vec![
        publish("publish-1x1", 1, 1),
        publish("publish-1x512", 1, 512),
        Phase { name: "batch-100", kind: Kind::Publish, load: batches },
        publish("publish-64x1", 64, 1),
        Phase { name: "consume-1", kind: Kind::Consume, load: consume },
        at_once("at-once-64x1", 1, value_bytes),
        at_once("at-once-64x8", 8, value_bytes),
        at_once("at-once-64x8-1k", 8, 1024),
        Phase { name: "idle", kind: Kind::Idle, load: Load::default() },
    ]
}

/// Those of the reference by which three nodes stand next to one.
pub(super) fn cluster(value_bytes: u32, keys: u32) -> Vec<Phase> {
    let mut phases = reference(value_bytes, keys);
    phases.retain(|phase| phase.kind == Kind::Publish);
    phases
}

/// Keeps the phases that are named, all when none is.
///
/// # Errors
/// The names there are, when one is unknown.
pub(super) fn select(phases: Vec<Phase>, names: &[String]) -> Result<Vec<Phase>, String> {
    if let Some(unknown) = names.iter().find(|name| phases.iter().all(|phase| phase.name != **name)) {
        let known: Vec<_> = phases.iter().map(|phase| phase.name).collect();
        return Err(format!("there is no phase {unknown:?}; there are: {}", known.join(", ")));
    }
    let is_named = |phase: &Phase| names.is_empty() || names.iter().any(|name| name == phase.name);
    Ok(phases.into_iter().filter(is_named).collect())
}

/// A consumer's window where figures are compared.
const REFERENCE_CREDIT: u16 = 256;
/// With 8 producers of 10 batches each on the connection, 80 batches, 2 MB of 256-byte values, are under way.
const REFERENCE_LINES: u16 = 8;

#[cfg(test)]
mod tests {
    use super::{Kind, Load, cluster, quick, reference, select};

    #[test]
    fn phases_are_selected_by_name_in_their_own_order() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let selected = select(reference(256, 0), &names(&["idle", "batch-100"])).expect("both exist");
        assert_eq!(selected.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["batch-100", "idle"]);
        assert_eq!(select(quick(Load::default()), &[]).expect("all").len(), 6);
        let unknown = select(quick(Load::default()), &names(&["bach"])).expect_err("no such phase");
        assert!(unknown.contains("\"bach\"") && unknown.contains("single, publish, batch"), "{unknown}");
    }

    #[test]
    fn reference_is_the_agreed_list() {
        let phases = reference(256, 0);
        let shape = |name: &str| {
            let phase = phases.iter().find(|phase| phase.name == name).expect("in the list");
            let load = phase.load;
            (load.producers, load.outstanding, load.batch, load.consumers, load.credit, load.value_bytes)
        };
        assert_eq!(shape("publish-1x1"), (1, 1, 1, 0, 0, 256));
        assert_eq!(shape("publish-1x512"), (1, 512, 1, 0, 0, 256));
        assert_eq!(shape("batch-100"), (1, 1000, 100, 0, 0, 256));
        assert_eq!(shape("publish-64x1"), (64, 1, 1, 0, 0, 256));
        assert_eq!(shape("consume-1"), (0, 0, 0, 1, 256, 256));
        assert_eq!(shape("at-once-64x1"), (64, 1, 1, 8, 256, 256));
        assert_eq!(shape("at-once-64x8"), (64, 8, 1, 8, 256, 256));
        assert_eq!(shape("at-once-64x8-1k"), (64, 8, 1, 8, 256, 1024));
        assert_eq!(phases.iter().filter(|phase| phase.kind == Kind::Idle).count(), 1);
        let batches = phases.iter().find(|phase| phase.name == "batch-100").expect("in the list");
        assert_eq!(batches.load.requests_under_way(), 80);
        let names: Vec<_> = cluster(256, 0).iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["publish-1x1", "publish-1x512", "batch-100", "publish-64x1"]);
    }
}
