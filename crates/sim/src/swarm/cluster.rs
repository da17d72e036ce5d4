//! What seeds draw for several nodes. It has a chance of its own: a seed of one node keeps what it had before.

use crate::plan::{Anchor, Fault, FaultKind, Settings, Shape, Site};
use crate::random::Random;

/// How many nodes there are, and what their links are like.
pub(super) fn settle(settings: &mut Settings) {
    let mut chance = Random::of(settings.seed, 41);
    settings.nodes = *chance.pick(&[1, 1, 1, 3, 3, 5]);
    if settings.nodes == 1 {
        return;
    }
    // What rotted in a file that another node fetches is found by the scrub, which each node has.
    settings.scrub_ms = settings.scrub_ms.max(SCRUB_LEAST_MS);
    settings.peer_us = *chance.pick(&[100, 400, 400, 5_000]);
    settings.peer_lost_permille = *chance.pick(&[0, 0, 5, 100]);
    settings.peer_doubled_permille = *chance.pick(&[0, 0, 20, 200]);
    settings.peer_late_permille = *chance.pick(&[0, 0, 2, 20]);
    settings.peer_overtakes = *chance.pick(&[0, 1]);
    settings.peer_lag_bytes = *chance.pick(&[64 << 20, 64 << 20, 200_000, 20_000]);
    if settings.peer_lag_bytes < 1 << 20 {
        settings.journal_keep_bytes = *chance.pick(&[0, 500_000]);
    }
}

/// Between two passes of the scrub at least.
const SCRUB_LEAST_MS: u64 = 700;

/// Gives each fault its node, and adds those that only several nodes can have.
pub(super) fn spread(settings: &Settings, faults: &mut Vec<Fault>) {
    let mut chance = Random::of(settings.seed, 42);
    let end_us = settings.work_ms * 1000;
    // What a full disk makes a node drop of its journal is brought to one that lacks it in another way: they cannot do that yet.
    faults.retain(|fault| !matches!(fault.kind, FaultKind::DiskFull { .. }));
    for fault in faults.iter_mut() {
        let leads = matches!(fault.anchor, Anchor::At(_)) && chance.one_in(3);
        fault.node = if leads { 0 } else { chance.between(1, settings.nodes) };
    }
    for _ in 0..*chance.pick(&[0, 1, 4, 12]) {
        let node = if chance.one_in(2) { 0 } else { chance.between(1, settings.nodes) };
        faults.push(Fault { node, anchor: Anchor::At(chance.between(50_000, end_us)), kind: cut(&mut chance) });
    }
    for _ in 0..*chance.pick(&[0, 0, 1, 5]) {
        let anchor = Anchor::At(chance.between(50_000, end_us));
        faults.push(Fault { node: 0, anchor, kind: FaultKind::HandOver });
    }
    if settings.peer_lag_bytes < 1 << 20 {
        for _ in 0..*chance.pick(&[0, 1, 3]) {
            faults.push(catch_up(settings, &mut chance));
        }
    }
    for _ in 0..*chance.pick(&[0, 0, 1, 2]) {
        stage_power_loss(settings, &mut chance, faults);
    }
    wipe(settings, faults);
}

/// Disks that are replaced. They have a chance of their own: a world without any is as it was before.
fn wipe(settings: &Settings, faults: &mut Vec<Fault>) {
    let mut chance = Random::of(settings.seed, 43);
    for _ in 0..*chance.pick(&[0, 0, 0, 1, 2]) {
        let node = if chance.one_in(4) { 0 } else { chance.between(1, settings.nodes) };
        let anchor = Anchor::At(chance.between(500_000, settings.work_ms * 1000));
        let down_ms = *chance.pick(&[1, 300, 3_000]);
        faults.push(Fault { node, anchor, kind: FaultKind::Wipe { down_ms } });
    }
}

/// A node that catches up crashes at it.
fn catch_up(settings: &Settings, chance: &mut Random) -> Fault {
    let (site, most, operations) = if chance.one_in(2) { (Site::Fetch, 30, 4) } else { (Site::Install, 3, 60) };
    let anchor = Anchor::Nth { site, number: chance.between(1, most), operation: chance.below(operations) };
    let down_ms = *chance.pick(&[1, 30, 400]);
    let power = FaultKind::Power { down_ms, is_new_boot: chance.one_in(2) };
    let kind = if chance.one_in(2) { power } else { FaultKind::Kill { down_ms } };
    Fault { node: chance.between(1, settings.nodes), anchor, kind }
}

fn cut(chance: &mut Random) -> FaultKind {
    let shape = *chance.pick(&Shape::ALL);
    let ms = *chance.pick(&[100, 700, 2_000, 6_000]);
    let flap_ms = *chance.pick(&[0, 0, 0, 60, 400]);
    FaultKind::Cut { shape, ms, flap_ms: if flap_ms < ms { flap_ms } else { 0 } }
}

/// All but one stand still or are cut off, the one loses its power with what it may have told, and the others go on.
fn stage_power_loss(settings: &Settings, chance: &mut Random, faults: &mut Vec<Fault>) {
    let at_us = chance.between(300_000, settings.work_ms * 1000);
    let last = chance.between(1, settings.nodes);
    let ms = chance.between(100, 900);
    let begins = Anchor::At(at_us);
    if chance.one_in(2) {
        faults.push(Fault { node: last, anchor: begins, kind: FaultKind::Cut { shape: Shape::Alone, ms, flap_ms: 0 } });
    } else {
        let others = (1..=settings.nodes).filter(|node| *node != last);
        faults.extend(others.map(|node| Fault { node, anchor: begins, kind: FaultKind::Pause { ms } }));
    }
    let down_ms = *chance.pick(&[30, 3_000]);
    let kind = FaultKind::Power { down_ms, is_new_boot: chance.one_in(2) };
    faults.push(Fault { node: last, anchor: Anchor::At(at_us + chance.between(1, ms) * 1000), kind });
}
