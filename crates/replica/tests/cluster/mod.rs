//! Three replicas in one thread, with a virtual clock, a network that drops, doubles, delays and reorders, disks that
//! take their time, and crashes that lose whatever was not synced. All of it is drawn from one seed.
//!
//! After every step the cluster checks: one leader per epoch; the same entries in the same order everywhere; a shown
//! epoch never goes back; a read sees everything that was committed when it was asked.

mod node;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use mortarmq_replica::{Output, PeerMessage};

use node::Node;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Everything else is drawn from this.
    pub(crate) seed: u64,
    /// How long faults are injected, in virtual milliseconds.
    pub(crate) faults_ms: u64,
    /// A planted bug: the disk reports an append as persisted before it is.
    pub(crate) disk_lies: bool,
}

pub(crate) struct Cluster {
    pub(crate) now_ms: u64,
    pub(crate) nodes: Vec<Node>,
    /// The chained hash of all payloads up to each committed log index, as the first replica to apply it had it.
    pub(crate) history: BTreeMap<u64, u64>,
    pub(crate) leaders: BTreeMap<u64, u64>,
    pub(crate) acknowledged: u64,
    pub(crate) reads: u64,
    pub(crate) crashes: u64,
    pub(crate) trace: u64,
    options: Options,
    random: Random,
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    proposals: u64,
    cut_off: Option<usize>,
    faulty: bool,
    /// Reads asked for: how far the history went then.
    asked: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
enum Event {
    Tick(usize),
    Deliver(usize, PeerMessage),
    Synced(usize, u64),
    Crash(usize),
    Restart(usize),
    Propose,
    Read,
    Partition,
    Heal,
    Checkpoint(usize),
}

impl Cluster {
    pub(crate) fn new(options: Options) -> Self {
        let mut cluster = Self {
            now_ms: 0,
            nodes: (0..VOTERS.len()).map(|place| Node::new(place, &VOTERS)).collect(),
            history: BTreeMap::from([(0, 0)]),
            leaders: BTreeMap::new(),
            acknowledged: 0,
            reads: 0,
            crashes: 0,
            trace: 0,
            options,
            random: Random(options.seed),
            events: BTreeMap::new(),
            event_count: 0,
            proposals: 0,
            cut_off: None,
            faulty: options.faults_ms > 0,
            asked: BTreeMap::new(),
        };
        for place in 0..VOTERS.len() {
            cluster.after(place as u64 * 7, Event::Tick(place));
            cluster.after(400 + place as u64, Event::Checkpoint(place));
        }
        cluster.after(5, Event::Propose);
        cluster.after(11, Event::Read);
        if cluster.faulty {
            cluster.after(900, Event::Crash(0));
            cluster.after(1500, Event::Partition);
        }
        cluster
    }

    /// Faults for as long as the options say, then calm until everybody has everything.
    pub(crate) fn run(options: Options) -> Self {
        let mut cluster = Self::new(options);
        cluster.run_for(options.faults_ms);
        cluster.faulty = false;
        cluster.cut_off = None;
        cluster.run_for(4000);
        let (acknowledged, height) = (cluster.acknowledged, cluster.height());
        cluster.run_for(1000);
        assert!(cluster.acknowledged > acknowledged, "P12: nothing is committed any more, seed {}", options.seed);
        for node in &cluster.nodes {
            assert!(
                node.height >= height,
                "replica {} stays behind at {}, seed {}",
                node.id,
                node.height,
                options.seed
            );
        }
        cluster
    }

    pub(crate) fn run_for(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while let Some(next) = self.events.first_entry() {
            if next.key().0 > end_ms {
                break;
            }
            let ((at_ms, _), event) = next.remove_entry();
            self.now_ms = at_ms;
            self.note(&event);
            self.step(event);
        }
        self.now_ms = end_ms;
    }

    /// The highest committed log index anybody knows.
    pub(crate) fn height(&self) -> u64 {
        *self.history.last_key_value().expect("it begins with 0").0
    }

    /// The place of the replica that leads the latest epoch, if it still does.
    pub(crate) fn leader(&self) -> Option<usize> {
        let (_, id) = self.leaders.last_key_value()?;
        self.nodes.iter().position(|node| node.id == *id && node.is_leader())
    }

    /// Cuts one replica off from the others.
    pub(crate) fn cut_off(&mut self, place: Option<usize>) {
        self.cut_off = place;
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Tick(place) => {
                let skew_ms = self.random.below(5);
                self.after(48 + skew_ms, Event::Tick(place));
                self.input(place, |node| node.tick());
            }
            Event::Deliver(place, message) => self.input(place, |node| node.receive(message)),
            Event::Synced(place, life) => {
                let lies = self.options.disk_lies;
                self.input(place, |node| node.synced(life, lies));
            }
            Event::Crash(place) => self.crash(place),
            Event::Restart(place) => {
                self.nodes[place].restart(&VOTERS);
                self.outputs(place);
            }
            Event::Propose => self.propose(),
            Event::Read => self.read(),
            Event::Partition if self.faulty => {
                self.cut_off = Some(self.random.below(3) as usize);
                let (cut_ms, pause_ms) = (200 + self.random.below(1500), 2500 + self.random.below(2000));
                self.after(cut_ms, Event::Heal);
                self.after(pause_ms, Event::Partition);
            }
            Event::Partition => {}
            Event::Heal => self.cut_off = None,
            Event::Checkpoint(place) => self.checkpoint(place),
        }
    }

    fn input(&mut self, place: usize, input: impl FnOnce(&mut Node)) {
        if self.nodes[place].is_up() {
            input(&mut self.nodes[place]);
            // A busy driver takes several inputs before it asks for outputs.
            if !self.random.chance(1, 3) {
                self.outputs(place);
            }
        }
    }

    fn outputs(&mut self, place: usize) {
        while let Some(output) = self.nodes[place].poll_output() {
            self.note(&output);
            match output {
                Output::Append { ready_number, hard_state, entries } => {
                    self.nodes[place].append(ready_number, hard_state, entries);
                    if self.options.disk_lies {
                        self.nodes[place].claim_persisted(ready_number);
                    }
                }
                Output::Committed { entries } => {
                    self.acknowledged += self.nodes[place].apply(entries, &mut self.history);
                }
                Output::Send { to, message } => self.send(place, to, message),
                Output::ReadReady { token, .. } => {
                    let asked_at = self.asked.remove(&token).expect("a read is answered once");
                    let height = self.nodes[place].height;
                    assert!(height >= asked_at, "a stale read: {height} of {asked_at}");
                    self.reads += 1;
                }
                Output::Role { epoch, is_leader, .. } => {
                    let node = &mut self.nodes[place];
                    node.show_epoch(epoch);
                    if is_leader {
                        let first = *self.leaders.entry(epoch.get()).or_insert(node.id);
                        assert_eq!(first, node.id, "two leaders in epoch {epoch}");
                    }
                }
            }
        }
        if let Some(life) = self.nodes[place].start_sync() {
            let hangs = self.faulty && self.random.chance(5, 1000);
            let ms = if hangs { 800 + self.random.below(1500) } else { 1 + self.random.below(20) };
            self.after(ms, Event::Synced(place, life));
        }
        self.nodes[place].check();
    }

    fn send(&mut self, from: usize, to: u64, message: PeerMessage) {
        let to = VOTERS.iter().position(|id| *id == to).expect("only voters are spoken to");
        let cut = self.cut_off.is_some_and(|place| place == from || place == to);
        if cut || (self.faulty && self.random.chance(3, 100)) {
            return;
        }
        if self.faulty && self.random.chance(2, 100) {
            let late_ms = self.random.below(300);
            self.after(late_ms, Event::Deliver(to, message.clone()));
        }
        let ms = 1 + self.random.below(12);
        self.after(ms, Event::Deliver(to, message));
    }

    fn crash(&mut self, place: usize) {
        if !self.faulty {
            return;
        }
        self.crashes += 1;
        let batch_survives = self.random.chance(1, 2);
        self.nodes[place].crash(batch_survives && !self.options.disk_lies);
        let (down_ms, pause_ms) = (50 + self.random.below(800), 500 + self.random.below(1200));
        self.after(down_ms, Event::Restart(place));
        let next = self.random.below(3) as usize;
        // Nobody crashes twice at once: the next crash waits for the restart.
        self.after(down_ms.max(pause_ms) + 1, Event::Crash(next));
    }

    fn propose(&mut self) {
        let pause_ms = 2 + self.random.below(10);
        self.after(pause_ms, Event::Propose);
        for place in 0..self.nodes.len() {
            for _ in 0..self.random.below(3) {
                self.proposals += 1;
                let data = Bytes::from(format!("proposal {}", self.proposals));
                self.input(place, |node| node.propose(data));
            }
        }
    }

    fn read(&mut self) {
        let pause_ms = 5 + self.random.below(40);
        self.after(pause_ms, Event::Read);
        for place in 0..self.nodes.len() {
            let (token, height) = (self.event_count * 4 + place as u64, self.height());
            if self.nodes[place].request_read(token) {
                self.asked.insert(token, height);
                self.outputs(place);
            }
        }
    }

    fn checkpoint(&mut self, place: usize) {
        let pause_ms = 300 + self.random.below(500);
        self.after(pause_ms, Event::Checkpoint(place));
        self.input(place, Node::take_checkpoint);
        // Older files go only where nobody needs them: catching up out of band is not part of this crate. The entry at
        // the lowest checkpoint stays, because an append names the term of the entry before it.
        let everybody = self.nodes.iter().map(Node::checkpoint_index).min().unwrap_or(0);
        self.nodes[place].trim_journal(everybody.saturating_sub(1));
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((self.now_ms + ms, self.event_count), event);
    }

    fn note(&mut self, what: &impl std::fmt::Debug) {
        self.trace = hash(&(self.trace, self.now_ms, format!("{what:?}")));
    }
}

/// A hash that is the same in every process.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// SplitMix64: a seed means the same for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn chance(&mut self, of: u64, outcomes: u64) -> bool {
        self.below(outcomes) < of
    }
}

const VOTERS: [u64; 3] = [11, 22, 33];
