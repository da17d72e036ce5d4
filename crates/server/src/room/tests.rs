use super::{open, wait};
use crate::event::Event;
use crate::inbox::{Inbox, inbox};
use mortarmq_node::DiskState;
use mortarmq_node::drive::{Room, Use};
use mortarmq_storage::{Disk, DiskFile, MemoryDisk};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A disk of 64 MiB with a reserve of 16 MiB: room is short below 4 MiB, and no longer from 8 MiB on.
struct Bench {
    disk: MemoryDisk,
    room: Arc<Room>,
    events: Inbox,
    filler: Arc<dyn DiskFile>,
}

impl Bench {
    fn new() -> Self {
        let (disk, data) = (MemoryDisk::new(), Path::new("data"));
        disk.create_dir_all(data).expect("a folder");
        disk.set_capacity(Some(64 * MIB));
        let filler = disk.create_new(Path::new("data/filler")).expect("a file");
        let (sender, events) = inbox();
        let room = open(Arc::new(disk.clone()), data, 16 * MIB, MIB, sender).expect("opened");
        Self { disk, room: Arc::new(room), events, filler }
    }

    /// Somebody else leaves so much free.
    fn leave(&self, free_bytes: u64) {
        let held = self.filler.len().expect("length");
        let all = self.disk.free_bytes(Path::new("data")).expect("looked") + held;
        self.filler.set_len(all - free_bytes).expect("it fits");
    }

    /// What the loop was told since the last call.
    fn told(&mut self) -> Vec<DiskState> {
        std::iter::from_fn(|| self.events.pop())
            .map(|event| match event {
                Event::Disk { state } => state,
                _ => panic!("only the disk is told of"),
            })
            .collect()
    }

    fn check(&mut self) -> Vec<(bool, u64)> {
        self.room.check();
        self.told().into_iter().map(|state| (state.is_low, state.free_bytes / MIB)).collect()
    }
}

#[test]
fn rule_8_the_loop_is_told_when_room_is_short_and_when_there_is_plenty_again() {
    let mut bench = Bench::new();
    assert_eq!((bench.check(), bench.room.is_low()), (vec![(false, 48)], false));
    bench.leave(4 * MIB);
    assert_eq!(bench.check(), [], "no news");
    bench.leave(4 * MIB - 1);
    assert_eq!((bench.check(), bench.room.is_low()), (vec![(true, 3)], true));
    bench.leave(8 * MIB - 1);
    assert_eq!(bench.check(), [(true, 7)], "a little is not enough");
    bench.leave(8 * MIB);
    assert_eq!((bench.check(), bench.room.is_low()), (vec![(false, 8)], false));
    assert_eq!(bench.room.reserve_bytes(), 16 * MIB, "nobody needed it");
}

#[test]
fn rule_8_the_loop_is_told_at_once_when_the_reserve_is_touched() {
    let mut bench = Bench::new();
    bench.check();
    bench.leave(0);
    assert!(bench.room.make(Use::Journal, 0));
    assert_eq!(bench.told(), [DiskState { is_low: true, free_bytes: 4 * MIB }], "before the next look");
    assert_eq!(bench.room.reserve_bytes(), 12 * MIB);
    // As long as it is not whole, room is short, however much is free.
    bench.leave(11 * MIB);
    bench.check();
    assert!(bench.room.is_low() && bench.room.reserve_bytes() == 16 * MIB, "it takes what is beyond the margin");
    bench.leave(9 * MIB);
    assert_eq!(bench.check(), [(false, 9)]);
}

#[test]
fn rule_8_the_last_quarter_is_for_what_is_confirmed_and_for_what_frees_room() {
    let bench = Bench::new();
    bench.leave(0);
    while bench.room.make(Use::Segments, 0) {}
    assert_eq!(bench.room.reserve_bytes(), 4 * MIB);
    bench.leave(0);
    assert!(!bench.room.make(Use::Checkpoint, 5 * MIB), "not for one that finds too little all the same");
    assert_eq!(bench.room.reserve_bytes(), 4 * MIB);
    assert!(bench.room.make(Use::Checkpoint, 3 * MIB));
    assert_eq!((bench.room.reserve_bytes(), bench.room.make(Use::Journal, 0)), (0, false));
}

#[test]
fn who_waits_for_room_shows() {
    let bench = Bench::new();
    assert!(!bench.room.is_full());
    let waiting = (wait(&bench.room, "no room", "it waits"), wait(&bench.room, "no room", "it waits too"));
    assert!(bench.room.is_full());
    drop(waiting.0);
    assert!(bench.room.is_full());
    drop(waiting.1);
    assert!(!bench.room.is_full());
}
