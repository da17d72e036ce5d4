//! Plans drawn from a seed: each seed has its own world, clients, faults and rates, sometimes no fault at all.

mod cluster;

use crate::plan::{Anchor, Deed, Fault, FaultKind, LinkEnd, Part, Plan, Settings, Site, Step, Way};
use crate::random::Random;
use crate::world::NEWEST;

/// The plan of a seed.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut chance = Random::of(seed, 0);
    let mut settings = settings(seed, &mut chance);
    let mut steps = steps(&settings, &mut chance);
    draw_more(&mut settings, &mut steps);
    cluster::settle(&mut settings);
    steps.sort_by_key(|step| step.at_us);
    let mut faults = faults(&settings, &mut chance);
    if settings.nodes > 1 {
        cluster::spread(&settings, &mut faults);
    }
    if faults.len() as u64 >= STORM {
        (settings.nack_permille, settings.dead_permille) = (150, 80);
    }
    Plan { settings, steps, faults }
}

fn settings(seed: u64, chance: &mut Random) -> Settings {
    let mut settings = Settings { seed, ..Settings::default() };
    settings.work_ms = chance.between(6_000, 20_000);
    settings.topics = chance.between(1, 2);
    settings.partitions = chance.between(1, 4);
    settings.groups = chance.between(1, 3);
    settings.consumers = chance.between(1, 3);
    settings.producers = chance.between(2, 4);
    settings.journal_file_bytes = *chance.pick(&[65_536, 262_144, 1 << 20]);
    settings.segment_bytes = *chance.pick(&[4096, 32_768, 1 << 20]);
    settings.push_bytes = *chance.pick(&[1, 4096, 65_536, 1 << 20]);
    settings.checkpoint_after_bytes = *chance.pick(&[32_768, 131_072, 524_288, 1 << 30]);
    settings.recent_bytes = *chance.pick(&[500, 20_000, 1 << 20]);
    settings.unwritten_bytes = *chance.pick(&[20_000, 200_000, 64 << 20]);
    settings.reserve_bytes = *chance.pick(&[0, 262_144, 2 << 20]);
    settings.sync_us = *chance.pick(&[100, 300, 2_000]);
    settings.flush_us = *chance.pick(&[300, 2_000, 50_000]);
    settings.read_us = *chance.pick(&[50, 300, 5_000]);
    settings.link_us = *chance.pick(&[50, 200, 3_000]);
    settings.slow_clock_ppm = *chance.pick(&[0, 0, 50, 500]);
    settings.nack_permille = *chance.pick(&[0, 50, 150]);
    settings.forget_permille = *chance.pick(&[0, 10, 50]);
    settings.release_permille = *chance.pick(&[0, 10, 50]);
    settings.dead_permille = *chance.pick(&[0, 10, 40]);
    settings.late_permille = *chance.pick(&[0, 10, 50]);
    settings.twice_permille = *chance.pick(&[0, 30]);
    settings.extend_permille = *chance.pick(&[0, 40]);
    settings.work_us = *chance.pick(&[200, 2_000, 20_000]);
    settings.congested_bytes = *chance.pick(&[1_500, 5_000, 200_000]);
    settings.operations = 2_000;
    settings.mends = u64::from(!chance.one_in(3));
    settings.scrub_ms = *chance.pick(&[0, 700, 5_000]);
    settings
}

/// Settings that came later have a chance of their own, so that a seed keeps what it had before.
fn draw_more(settings: &mut Settings, steps: &mut Vec<Step>) {
    let mut chance = Random::of(settings.seed, 40);
    settings.timeout_ms = *chance.pick(&[5_000, 5_000, 1_000, 200]);
    settings.recent_bytes_later = *chance.pick(&[0, 0, 500, 1 << 20]);
    let retention_bytes = *chance.pick(&[0, 0, 0, 3_000, 20_000]);
    // A group that is made later owes nothing of what went before it came: a topic that is made anew has such groups.
    if !steps.iter().any(|step| matches!(step.what, Deed::Delete { .. })) {
        settings.retention_bytes = retention_bytes;
    }
    settings.scrape_at_start = *chance.pick(&[0, 1]);
    let consumers = settings.topics * settings.groups * settings.consumers;
    for _ in 0..*chance.pick(&[0, 0, 10]) {
        let what = Deed::Leave { consumer: chance.below(consumers), is_back_at_once: false };
        steps.push(Step { at_us: chance.between(100_000, settings.work_ms * 1000), what });
    }
    let mut chance = Random::of(settings.seed, 43);
    for step in steps {
        if let Deed::Leave { is_back_at_once, .. } = &mut step.what {
            *is_back_at_once = chance.one_in(2);
        }
    }
}

fn steps(settings: &Settings, chance: &mut Random) -> Vec<Step> {
    let end_us = settings.work_ms * 1000;
    let mut steps = Vec::new();
    let messages = chance.between(1000, 1500);
    let has_delays = chance.one_in(3);
    let has_lives = chance.one_in(4);
    let keys = *chance.pick(&[0, 3, 20, 200]);
    let burst = *chance.pick(&[3, 12, 60]);
    let mut published = 0;
    while published < messages {
        let count = chance.between(1, burst);
        published += count;
        let what = Deed::Publish {
            producer: chance.below(settings.producers),
            count,
            key: if keys == 0 || chance.one_in(4) { 0 } else { chance.between(1, keys) },
            delay_ms: if has_delays && chance.one_in(4) { chance.between(1, 3000) } else { 0 },
            ttl_ms: if has_lives && chance.one_in(6) { chance.between(50, 5000) } else { 0 },
            is_batch: chance.one_in(4),
        };
        steps.push(Step { at_us: chance.between(20_000, end_us), what });
    }
    let consumers = settings.topics * settings.groups * settings.consumers;
    let moves = *chance.pick(&[0, 4, 20]);
    for _ in 0..moves {
        let consumer = chance.below(consumers);
        let producer = chance.below(settings.producers);
        let what = match chance.below(10) {
            0..2 => Deed::ResetProducer { producer, end: link_end(chance) },
            2..5 => Deed::ResetConsumer { consumer, end: link_end(chance) },
            5 => Deed::Die { consumer },
            6 => Deed::Leave { consumer, is_back_at_once: false },
            7..9 => Deed::Stall { consumer, ms: chance.between(500, 8000) },
            _ => Deed::Repeat { producer },
        };
        steps.push(Step { at_us: chance.between(100_000, end_us), what });
    }
    let acts = *chance.pick(&[0, 3, 12]);
    for _ in 0..acts {
        let (topic, group) = (chance.below(settings.topics), chance.below(settings.groups));
        let what = match chance.below(12) {
            0..6 => Deed::Redrive { topic, count: chance.between(1, 5) },
            6 => Deed::PurgeLetters { topic, count: chance.between(1, 5) },
            7 => Deed::Purge { topic, group },
            8 | 9 => Deed::Replay { topic, group },
            10 => Deed::Skip { topic, group },
            _ => Deed::Delete { topic },
        };
        steps.push(Step { at_us: chance.between(500_000, end_us), what });
    }
    for _ in 0..*chance.pick(&[5, 40]) {
        steps.push(Step { at_us: chance.between(100_000, end_us), what: Deed::Scrape });
    }
    steps
}

fn link_end(chance: &mut Random) -> LinkEnd {
    *chance.pick(&[LinkEnd::Breaks, LinkEnd::BetweenFrames, LinkEnd::HalfClosed])
}

fn faults(settings: &Settings, chance: &mut Random) -> Vec<Fault> {
    let end_us = settings.work_ms * 1000;
    // Some lives are quiet, some are long with few faults, and in some the node hardly ever comes to rest.
    let count = *chance.pick(&[0, 1, 3, 12, 12, 30, 30, 60]);
    let mut all = rots(end_us, chance);
    // Each seed leaves some kinds out, but not all of them.
    let drawn = chance.next();
    let has = |kinds: u64, which: u64| kinds >> which & 3 != 3;
    let kinds = if (0..KINDS).any(|which| has(drawn, which)) { drawn } else { 0 };
    all.extend((0..count).map(|_| {
        let kind = loop {
            let which = chance.below(KINDS);
            if has(kinds, which) {
                break kind(which, chance);
            }
        };
        let strikes_disk = matches!(
            kind,
            FaultKind::Kill { .. } | FaultKind::Power { .. } | FaultKind::IoError { .. } | FaultKind::ShortWrite { .. }
        );
        let anchor =
            if strikes_disk && chance.one_in(2) { nth(chance) } else { Anchor::At(chance.between(50_000, end_us)) };
        Fault { node: 1, anchor, kind }
    }));
    all
}

/// What rots. Most worlds are spared, so that what others meet is not only rot.
fn rots(end_us: u64, chance: &mut Random) -> Vec<Fault> {
    let count = *chance.pick(&[0, 0, 1, 3, 8, STORM]);
    let rot = |chance: &mut Random| {
        if count == STORM {
            // So much of what was just written that also what is copied cannot be read.
            return FaultKind::Rot {
                part: Part::Segment,
                way: Way::Flip,
                place: chance.next() >> 8 | NEWEST,
                down_ms: 0,
            };
        }
        let part = *chance.pick(&[
            Part::Journal,
            Part::Segment,
            Part::Segment,
            Part::Segment,
            Part::Index,
            Part::Ledger,
            Part::Checkpoint,
            Part::Identity,
        ]);
        let way = *chance.pick(&[Way::Flip, Way::Flip, Way::Cut, Way::Old]);
        let down_ms = *chance.pick(&[0, 1, 30]);
        FaultKind::Rot { part, way, place: chance.next() >> 8, down_ms }
    };
    (0..count)
        .map(|_| Fault { node: 1, anchor: Anchor::At(chance.between(500_000, end_us)), kind: rot(chance) })
        .collect()
}

fn nth(chance: &mut Random) -> Anchor {
    let (site, most, operations) = match chance.below(9) {
        0..4 => (Site::Journal, 1500, 4),
        4 | 5 => (Site::Segments, 400, 12),
        6 => (Site::Checkpoint, 10, 60),
        7 => (Site::Release, 10, 12),
        _ => (Site::Recovery, 5, 60),
    };
    // Early ones are reached in every life.
    let most = chance.between(1, most);
    Anchor::Nth { site, number: chance.between(1, most), operation: chance.below(operations) }
}

fn kind(which: u64, chance: &mut Random) -> FaultKind {
    let down_ms = *chance.pick(&[1, 1, 5, 30, 30, 100, 400, 6_000]);
    match which {
        0 => FaultKind::Kill { down_ms },
        1 | 2 => FaultKind::Power { down_ms, is_new_boot: chance.one_in(2) },
        3 | 4 => FaultKind::IoError { down_ms, loses_power: chance.one_in(2) },
        5 => {
            // To the byte, and often within the first sector, where header and mark stand.
            let most = *chance.pick(&[200, 10_240]);
            FaultKind::ShortWrite { bytes: chance.below(most), down_ms, loses_power: chance.one_in(2) }
        }
        6 => FaultKind::DiskFull { room_bytes: chance.below(40_000), ms: chance.between(100, 4000) },
        7 => FaultKind::SlowSync { us: *chance.pick(&[20_000, 300_000, 2_500_000]), ms: chance.between(100, 3000) },
        8 => FaultKind::Stop { down_ms },
        9 => FaultKind::Pause { ms: chance.between(50, 6000) },
        _ => FaultKind::ClockJump { to_ms: chance.between(1, 2_000_000_000_000) },
    }
}

/// So much rots in one life that hardly anything is spared.
const STORM: u64 = 100;
/// So many are what [`kind`] tells apart.
const KINDS: u64 = 11;

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn a_seed_that_would_leave_out_every_kind_of_fault_has_a_plan() {
        // One seed of about 2,000 does.
        assert!(!draw(3307).faults.is_empty());
    }
}
