//! What the leader takes, and what not.

use super::{FIRST_CONNECTION, STREAMS_MAX, Streams};
use crate::request::Request;

fn asks(count: usize) -> Vec<Request> {
    vec![Request::Metadata { names: Vec::new() }; count]
}

#[test]
fn p3_an_earlier_process_of_a_forwarder_takes_nothing_from_a_later_one() {
    let mut streams = Streams::default();
    let first = streams.take((1, 10), 1, 0, asks(2)).expect("a stream");
    let second = streams.take((1, 11), 1, 0, asks(1)).expect("a stream");
    assert!(first.is_new && second.is_new && first.connection != second.connection);
    assert_eq!((first.requests.len(), second.requests.len()), (2, 1));
    // What of the first comes late is known.
    let late = streams.take((1, 10), 1, 0, asks(3)).expect("a stream");
    assert_eq!((late.requests.len(), late.is_new), (1, false));
    assert_eq!(streams.take((1, 11), 3, 0, asks(1)).expect("a stream").requests.len(), 0, "2 is missing");
    streams.check();
    assert_eq!(streams.end().len(), 2);
    assert!(streams.poll().is_none() && streams.len() == 0);
}

#[test]
fn rule_9_a_node_has_so_many_streams_and_a_stream_so_many_numbers() {
    let mut streams = Streams::default();
    for incarnation in 0..STREAMS_MAX as u64 {
        assert!(streams.take((1, incarnation), 1, 0, asks(1)).is_some());
    }
    assert!(streams.take((1, u64::MAX), 1, 0, asks(1)).is_none());
    let other = streams.take((2, 0), 1, 0, asks(5000)).expect("another node");
    assert_eq!(other.requests.len(), super::REQUESTS_MAX);
    assert!(other.connection.get() >= FIRST_CONNECTION);
    // A forwarder that says it has what was never said has none of it.
    assert!(streams.take((2, 0), 5000, u64::MAX, asks(1)).expect("a stream").requests.is_empty());
    streams.check();
}
