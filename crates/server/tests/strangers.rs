//! Many connections: idle ones, busy ones, and ten thousand that speak nonsense, slowly or in halves.
//!
//! `MORTARMQ_STRANGERS=10000 cargo test --profile ci -p mortarmq-server --test strangers --locked -- --nocapture` is the whole
//! of it, and judges how long a client waits meanwhile: 500 come a second (`MORTARMQ_STRANGERS_PER_S`), since strangers who
//! come as fast as this machine can make them take its processors, whatever the node does. Without it 400 come, and only counts
//! are judged.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use mortarmq_server::Server;
use mortarmq_wire::Op;
use mortarmq_wire::ops::Ping;
use support::{Client, config, connect_frame, publish_frame, start};

const IDLE: usize = 1000;
const BUSY: usize = 100;
const PUBLISHES: u64 = 30;

#[test]
fn a_hundred_busy_connections_are_served_beside_a_thousand_idle_ones_and_none_is_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = start(folder.path());
    let address = node.addresses().client;
    let mut first = Client::connect(address);
    let topic = first.declare("orders", "{\"partitions\":1}");
    let before = resident_bytes();
    let mut idle: Vec<Client> = (0..IDLE).map(|_| Client::connect(address)).collect();
    let grown = resident_bytes().saturating_sub(before) / IDLE as u64;
    println!("{grown} bytes for an idle connection, its client's end included");
    assert!(grown < IDLE_BYTES_MAX, "rule 9: {grown} bytes for an idle connection");
    let mut busy: Vec<Client> = (0..BUSY).map(|_| Client::connect(address)).collect();
    for client in &mut busy {
        assert_eq!(client.declare("orders", ""), topic);
        client.send(|out| (0..PUBLISHES).for_each(|_| publish_frame(out, topic, 0, 0, b"", b"busy")));
    }
    let mut seqs: Vec<u64> = Vec::new();
    for client in &mut busy {
        seqs.extend((0..PUBLISHES).map(|_| client.published().seq.get()));
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=BUSY as u64 * PUBLISHES).collect::<Vec<_>>());
    for client in &mut idle {
        client.send(|out| Ping.encode(out));
    }
    for client in &mut idle {
        assert_eq!(client.ok().0, Op::Ping);
    }
    node.stop();
}

/// How visits of strangers ended.
#[derive(Default)]
struct Tally {
    /// With an ERR.
    answered: AtomicUsize,
    /// Without a word.
    closed: AtomicUsize,
    /// The stranger said nothing more, or did not wait.
    left: AtomicUsize,
}

#[test]
fn rule_9_strangers_with_garbage_and_half_frames_keep_nobody_from_being_served() {
    // Goal: what strangers send costs the others nothing they notice, and no memory that stays. Method: a client publishes
    // one message after the other, first alone and then while strangers come; each is stored once and in order.
    let wanted = number_of("MORTARMQ_STRANGERS");
    let strangers = wanted.unwrap_or(400);
    let per_s = wanted.map(|_| number_of("MORTARMQ_STRANGERS_PER_S").unwrap_or(500));
    let folder = tempfile::tempdir().expect("a folder");
    let node = Server::start(config(folder.path(), &[("receive-budget-bytes", "32MiB")])).expect("the node starts");
    let address = node.addresses().client;
    let mut client = Client::connect(address);
    let topic = client.declare("orders", "{\"partitions\":1}");
    let mut quiet = publish_for(&mut client, topic, |done| done < 500);
    let before = resident_bytes();
    let begun = Instant::now();
    let (is_over, tally, next) = (AtomicBool::new(false), Tally::default(), AtomicUsize::new(0));
    let mut noisy = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= strangers {
                            break;
                        }
                        if let Some(per_s) = per_s {
                            let due = begun + Duration::from_secs_f64(number as f64 / per_s as f64);
                            std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        }
                        held.extend(visit(address, number as u64, &tally));
                        if held.len() >= HELD_MAX {
                            held.drain(..HELD_MAX / 2);
                        }
                    }
                })
            })
            .collect();
        let client = &mut client;
        let publisher = scope.spawn(|| publish_for(client, topic, |_| !is_over.load(Ordering::Relaxed)));
        for sender in senders {
            sender.join().expect("a sender");
        }
        is_over.store(true, Ordering::Relaxed);
        publisher.join().expect("the client")
    });
    let count = |found: &AtomicUsize| found.load(Ordering::Relaxed);
    let (answered, closed, left) = (count(&tally.answered), count(&tally.closed), count(&tally.left));
    assert_eq!(answered + closed + left, strangers);
    assert!(answered > strangers / 4 && left > 0, "{answered} {closed} {left}: most are told what is wrong");
    assert_eq!(client.publish(topic, b"last").seq.get(), (quiet.len() + noisy.len()) as u64 + 1);
    let grown = resident_bytes().saturating_sub(before);
    let (p99_quiet, p99_noisy) = (p99(&mut quiet), p99(&mut noisy));
    println!(
        "{strangers} strangers: {answered} answered, {closed} closed, {left} left; p99 of {} publishes {p99_noisy:?}, of {} \
         in the quiet {p99_quiet:?}; {grown} bytes more in memory",
        noisy.len(),
        quiet.len()
    );
    assert!(grown < GROWN_BYTES_MAX, "rule 9: {grown} bytes more");
    if wanted.is_some() {
        assert!(p99_noisy < 2 * p99_quiet, "{p99_noisy:?} is not below twice {p99_quiet:?}");
    }
    node.stop();
}

fn number_of(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Publishes one after the other for as long as `goes_on` says; how long each took.
fn publish_for(client: &mut Client, topic: u16, goes_on: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while goes_on(took.len()) {
        let begun = Instant::now();
        client.publish(topic, b"a message of a client that is no stranger");
        took.push(begun.elapsed());
    }
    took
}

/// One stranger; its connection, if it stays to say nothing more.
fn visit(address: SocketAddr, number: u64, tally: &Tally) -> Option<TcpStream> {
    let mut random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |end: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % end
    };
    let Ok(mut stream) = TcpStream::connect(address) else {
        tally.left.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    let (out, is_answered) = words(number, &mut draw);
    // A byte at a time, or all at once.
    let piece_bytes = if draw(4) == 0 { 1 + draw(20) as usize } else { out.len().max(1) };
    for piece in out.chunks(piece_bytes) {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    if !is_answered {
        tally.left.fetch_add(1, Ordering::Relaxed);
        return (draw(3) > 0).then_some(stream);
    }
    if number.is_multiple_of(16) {
        // Some do not wait for their answer.
        tally.left.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let mut answer = Vec::new();
    // A reset is an end too: bytes of the stranger were on their way.
    let _ = stream.read_to_end(&mut answer);
    let ended = if answer.is_empty() { &tally.closed } else { &tally.answered };
    ended.fetch_add(1, Ordering::Relaxed);
    None
}

/// What a stranger says, and whether it is answered at once.
fn words(number: u64, draw: &mut impl FnMut(u64) -> u64) -> (BytesMut, bool) {
    let mut out = BytesMut::new();
    let is_answered = match number % 8 {
        // Garbage; its length is soon wrong, or its op.
        0 => {
            out.put_u32(u32::MAX - draw(1000) as u32);
            (0..draw(2000)).for_each(|_| out.put_u8(draw(256) as u8));
            true
        }
        // HTTP, and the beginning of TLS.
        1 => {
            out.put_slice(b"GET / HTTP/1.1\r\nhost: broker\r\n\r\n");
            true
        }
        2 => {
            out.put_slice(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
            true
        }
        // A good greeting, then an op with a payload of nonsense.
        3 => {
            connect_frame(&mut out);
            out.put_u32(5);
            out.put_slice(&[3, draw(256) as u8, 1, 2, 3]);
            true
        }
        // The beginning of the largest frame; half a CONNECT; a greeting and half a publish; nothing.
        4 => {
            out.put_slice(&[1, 0, 0, 0]);
            false
        }
        5 => {
            out.put_slice(&[0, 0, 0, 40, 1, 1, 0]);
            false
        }
        6 => {
            connect_frame(&mut out);
            out.put_slice(&[0, 1, 0, 0, 3, 0, 1]);
            false
        }
        _ => false,
    };
    (out, is_answered)
}

fn p99(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[(took.len() * 99 / 100).min(took.len() - 1)]
}

/// Resident bytes of this process: the node, and the clients of the test.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc(5)");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("resident pages");
    pages * 4096
}

const SENDERS: usize = 8;
/// Connections that a sender leaves open at a time.
const HELD_MAX: usize = 32;
const IDLE_BYTES_MAX: u64 = 64 << 10;
/// Many times what stays: allocators keep what was used once.
const GROWN_BYTES_MAX: u64 = 192 << 20;
