//! Election time-outs without randomness: a pure function of place and epoch.

/// Ticks between two heartbeats of a leader.
pub(crate) const HEARTBEAT_TICKS: usize = 2;
/// The shortest election time-out. A tick is 50 ms, so 500 ms.
pub(crate) const ELECTION_TICKS: usize = 10;
/// Above every election time-out; the library wants an exclusive bound.
pub(crate) const MAX_ELECTION_TICKS: usize = 2 * ELECTION_TICKS;

/// How many ticks without a leader a replica waits before it stands for election.
///
/// Places rotate with the epoch, so no node is preferred for ever, and two nodes in one epoch never share a time-out,
/// so votes do not split (up to ten voters; beyond, neighbours may share one).
///
/// # Source
/// docs/reference/operations.md. The library draws this number at random whenever a replica changes its state; what it
/// drew is overwritten after every call, before it is read.
pub(crate) fn election_ticks(place: usize, voters: usize, term: u64) -> usize {
    debug_assert!(place < voters, "place {place} of {voters}");
    let rotation = (place as u64 + term % voters as u64) % voters as u64;
    let ticks = ELECTION_TICKS + ELECTION_TICKS * rotation as usize / voters;
    assert!((ELECTION_TICKS..MAX_ELECTION_TICKS).contains(&ticks), "election time-out of {ticks} ticks");
    ticks
}

const _: () = assert!(HEARTBEAT_TICKS < ELECTION_TICKS);

#[cfg(test)]
mod tests {
    use super::election_ticks;

    #[test]
    fn three_voters_wait_500_650_and_800_ms_in_turn() {
        let ms = |place, term| election_ticks(place, 3, term) * 50;
        assert_eq!([ms(0, 0), ms(1, 0), ms(2, 0)], [500, 650, 800]);
        assert_eq!([ms(0, 1), ms(1, 1), ms(2, 1)], [650, 800, 500]);
        assert_eq!([ms(0, 2), ms(1, 2), ms(2, 2)], [800, 500, 650]);
        assert_eq!(election_ticks(0, 1, u64::MAX), 10);
    }

    #[test]
    fn voters_never_share_a_time_out() {
        for voters in 1..=10 {
            for term in [0, 1, 2, 7, u64::MAX] {
                let mut ticks: Vec<usize> = (0..voters).map(|place| election_ticks(place, voters, term)).collect();
                ticks.sort_unstable();
                ticks.dedup();
                assert_eq!(ticks.len(), voters, "{voters} voters, term {term}");
            }
        }
    }
}
