//! All scenarios, a file for each class. Adding one touches its file only.

mod clock;
mod disk;
mod kill;
mod link;
mod network;
mod pause;
mod power;
mod rot;

use crate::scenario::Scenario;

/// Every scenario, in the order in which they are run.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [kill::ALL, pause::ALL, power::ALL, disk::ALL, network::ALL, link::ALL, rot::ALL, clock::ALL].concat()
}
