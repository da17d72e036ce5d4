//! The routes over a real connection: their exact JSON, and every way a request can be wrong.

mod support;

use mortarmq_http::Role;
use mortarmq_node::{Act, ErrorCode, Failure, LetterAction, LettersAct, Outcome, Query, SeekTarget};
use mortarmq_types::{NodeId, Partition, Seq, WallTime};
use support::{FakeNode, Server, message};

const JSON: &str = "Content-Type: application/json\r\n";

const GROUP: &str = concat!(
    r#""group":"billing","produced":2000,"delivered":1500,"dropped":0,"dlq":0,"depth":500,"dropped_by":{},"#,
    r#""in_flight":12,"scheduled":3,"unreadable":0,"retries_by":{"nacked":4},"state":"active","#,
    r#""partitions":[{"partition":0,"floor":376,"depth":125}]"#,
);
const GROUP_MORE: &str = concat!(
    r#","settings":{"lease_ms":30000},"#,
    r#""members":[{"member":"00000000000000b2","held_messages":12,"held_bytes":3000}]"#,
);

fn summary(name: &str) -> String {
    format!(
        r#""name":"{name}","id":"00000000000000a1","partitions":2,"state":"active","created_epoch":1,"created_at":1700000000"#
    )
}

fn partition(index: u8) -> String {
    format!(r#"{{"index":{index},"leader":0,"first_seq":1,"last_seq":500,"depth":125,"size_bytes":140000}}"#)
}

#[test]
fn stats_balance_and_groups_have_the_documented_json() {
    let server = Server::of(FakeNode::new());
    let topic = concat!(
        r#"{"topic":"orders","id":"00000000000000a1","produced":2000,"#,
        r#""partitions":[{"partition":0,"leader":0,"first_seq":1,"last_seq":500,"bytes":140000}],"#,
    );
    let stats = format!(
        "{}\"topics\":[{topic}\"groups\":[{{{GROUP}}}]}}]}}",
        r#"{"node":0,"shard":0,"epoch":3,"commit_index":8123,"quorum_state":0,"stale":false,"groups_expired":0,"#
    );
    let balance = concat!(
        r#"{"commit_index":8123,"epoch":3,"paths":[{"topic":"orders","group":"billing","produced":2000,"#,
        r#""delivered":1500,"dropped":0,"dlq":0,"depth":500}],"without_group":[{"topic":"audit","messages":7}]}"#,
    );
    let group = format!("{{{GROUP}{GROUP_MORE}}}");
    let routes = [
        ("/stats", stats.as_str()),
        ("/stats?topic=orders", &stats),
        ("/v1/balance", balance),
        ("/v1/balance?topic=orders", balance),
        ("/v1/topics/orders/groups", &format!("{{\"groups\":[{group}]}}")),
        ("/v1/topics/orders/groups/billing", &group),
    ];
    for (target, expected) in routes {
        let answer = server.get(target);
        assert_eq!((answer.status, answer.line()), (200, expected), "{target}");
    }
}

#[test]
fn p12_every_answer_without_a_majority_says_that_it_may_be_old_and_refusals_too() {
    let fresh = Server::of(FakeNode::new());
    let stale = Server::of(FakeNode { is_stale: true, ..FakeNode::new() });
    let targets = [
        "/v1/balance",
        "/v1/topics",
        "/v1/topics/orders",
        "/v1/topics/orders?partition=9",
        "/v1/topics/absent",
        "/v1/topics/orders/groups",
        "/v1/topics/orders/groups/billing",
        "/v1/topics/orders/groups/absent",
        "/v1/topics/orders/peek",
        "/v1/topics/orders/dlq",
        "/v1/topics/orders/trace?partition=0&sequence=1",
        "/v1/cluster/leader",
        "/v1/cluster/members",
        "/v1/defaults",
    ];
    for target in targets {
        let (fresh, stale) = (fresh.get(target), stale.get(target));
        assert_eq!(fresh.status, stale.status, "{target}");
        let mark = |line: &str| {
            let object: serde_json::Value = serde_json::from_str(line).expect("an object");
            object.get("stale").and_then(serde_json::Value::as_bool)
        };
        assert_eq!((mark(fresh.line()), mark(stale.line())), (None, Some(true)), "{target}: {stale:?}");
    }
}

#[test]
fn topics_are_listed_by_name_page_by_page() {
    let server = Server::of(FakeNode::new());
    let page = |names: &[&str], token: &str| {
        let topics: Vec<String> = names.iter().map(|name| format!("{{{}}}", summary(name))).collect();
        format!(r#"{{"topics":[{}],"next_page_token":"{token}"}}"#, topics.join(","))
    };
    let pages = [
        ("/v1/topics", page(&["audit", "orders", "zoo"], "")),
        ("/v1/topics?limit=2", page(&["audit", "orders"], "orders")),
        ("/v1/topics?limit=2&page_token=orders", page(&["zoo"], "")),
        ("/v1/topics?limit=3", page(&["audit", "orders", "zoo"], "")),
        ("/v1/topics?limit=999999&page_token=zoo", page(&[], "")),
    ];
    for (target, expected) in pages {
        let answer = server.get(target);
        assert_eq!((answer.status, answer.line()), (200, expected.as_str()), "{target}");
    }
}

#[test]
fn a_topic_is_described_with_all_partitions_or_one() {
    let server = Server::of(FakeNode::new());
    let topic = |partitions: &str| {
        format!(r#"{{{},"settings":{{"retention_ms":0}},"partition_stats":[{partitions}]}}"#, summary("orders"))
    };
    let both = topic(&format!("{},{}", partition(0), partition(1)));
    assert_eq!(server.get("/v1/topics/orders").line(), both);
    assert_eq!(server.get("/v1/topics/%6frders?unknown=%zz").line(), both);
    assert_eq!(server.get("/v1/topics/orders?partition=1").line(), topic(&partition(1)));
    let answer = server.get("/v1/topics/orders?partition=2");
    assert_eq!(answer.status, 400);
    assert!(answer.line().starts_with(r#"{"error":"invalid partition 2: orders has 0 to 1","#), "{answer:?}");
}

#[test]
fn broker_leader_members_and_health_have_the_documented_json() {
    let server = Server::of(FakeNode::new());
    let member = concat!(
        r#"{"id":0,"addr":"broker:7190","status":"alive","draining":false,"owned_partitions":6,"#,
        r#""outbound_moves":0,"voter":true,"leader":true,"heartbeat_age_seconds":0,"#,
        r#""incarnation":1,"role":"voter","state":"leading","lag_entries":0,"lag_bytes":0"#,
    );
    let broker = r#"{"node_id":0,"uptime_s":61,"connections":2,"version":"0.1.0","quorum_state":0,"role":"leader","leader_id":0}"#;
    let detail = r#","status_error":"node_status is not in this version""#;
    let routes = [
        ("/v1/broker", broker),
        ("/v1/cluster/leader", r#"{"leader_id":0,"leader_epoch":3,"quorum_state":0}"#),
        ("/v1/cluster/members", &format!("{{\"members\":[{member}}}]}}")),
        ("/v1/cluster/members?detail=true", &format!("{{\"members\":[{member}{detail}}}]}}")),
        ("/healthz", r#"{"status":"ok"}"#),
        ("/readyz", r#"{"status":"ready","role":"leader"}"#),
        ("/readyz?role=leader", r#"{"status":"ready","role":"leader"}"#),
    ];
    for (target, expected) in routes {
        let answer = server.get(target);
        assert_eq!((answer.status, answer.line()), (200, expected), "{target}");
    }
    let metrics = server.get("/metrics");
    assert_eq!((metrics.status, metrics.body.as_str()), (200, "mortarmq_connections 2\n"));
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
}

#[test]
fn readiness_says_why_not_and_what_is_degraded() {
    let mut node = FakeNode::new();
    node.readiness.degraded = vec!["the disk is nearly full".to_owned()];
    let answer = Server::of(node.clone()).get("/readyz");
    assert_eq!(answer.line(), r#"{"status":"ready","role":"leader","degraded":["the disk is nearly full"]}"#);

    node.readiness.role = Role::Follower;
    let server = Server::of(node.clone());
    assert_eq!(server.get("/readyz").status, 200, "it takes publishes");
    let answer = server.get("/readyz?role=leader");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(server.get("/readyz?role=follower").status, 400);

    node.readiness.ready = false;
    node.readiness.why = "recovery is at 40 %".to_owned();
    let answer = Server::of(node.clone()).get("/readyz");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.line(), r#"{"error":"recovery is at 40 %","code":"READ_ONLY_DEGRADED","outcome":"refused"}"#);

    node.readiness.stopping = true;
    let server = Server::of(node);
    let health = server.get("/healthz");
    assert_eq!((health.status, health.line()), (503, r#"{"status":"shutting down"}"#));
    assert_eq!(server.get("/readyz").status, 503);
    let stats = server.get("/stats");
    assert_eq!(stats.status, 503);
    assert!(stats.line().starts_with(r#"{"error":"shutting down"#), "{stats:?}");
}

#[test]
fn a_hand_over_is_answered_with_who_leads_and_its_body_names_one_node() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let answer = server.send("POST", "/v1/cluster/leader/transfer", JSON, br#"{"to":2}"#);
    let expected = r#"{"commit_index":8124,"epoch":3,"leader_id":2,"leader_epoch":4,"quorum_state":0}"#;
    assert_eq!((answer.status, answer.line()), (200, expected));
    assert_eq!(acted.lock().expect("as above").take(), Some(Act::HandOver { to: NodeId::new(2) }));
    for body in [&b"{}"[..], br#"{"to":-1}"#, br#"{"to":65536}"#, br#"{"to":1,"now":true}"#, br#"{"to":"1"}"#] {
        let answer = server.send("POST", "/v1/cluster/leader/transfer", JSON, body);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(*acted.lock().expect("as above"), None, "nothing was asked for");
}

#[test]
fn a_readmission_names_one_node_and_is_answered_with_the_members() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    for body in [&b"{}"[..], b""] {
        let answer = server.send("POST", "/v1/cluster/members/2/readmit", JSON, body);
        let expected = concat!(
            r#"{"commit_index":8124,"epoch":3,"members":[{"id":2,"incarnation":77,"role":"learner","leads":false,"#,
            r#""reached":false}],"asking":[]}"#,
        );
        assert_eq!((answer.status, answer.line()), (200, expected));
        assert_eq!(acted.lock().expect("as above").take(), Some(Act::Readmit { node: NodeId::new(2) }));
    }
    for (id, body) in [("two", &b"{}"[..]), ("65536", b"{}"), ("-1", b"{}"), ("2", br#"{"now":true}"#)] {
        let answer = server.send("POST", &format!("/v1/cluster/members/{id}/readmit"), JSON, body);
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(*acted.lock().expect("as above"), None, "nothing was asked for");
}

#[test]
fn p7_trace_tells_the_life_and_where_it_stands() {
    let node = FakeNode::new();
    let asked = node.asked.clone();
    let answer = Server::of(node).get("/v1/topics/orders/trace?partition=1&sequence=42");
    let expected = concat!(
        r#"{"commit_index":8123,"epoch":3,"events":[{"time_ms":1700000000123,"commit_index":17,"path":"-","#,
        r#""stage":"stored","delivery_id":null,"attempt":null,"member":null,"cause":null,"detail":"producer 9"}],"#,
        r#""standing":[{"path":"orders/billing","standing":"acked"}]}"#,
    );
    assert_eq!((answer.status, answer.line()), (200, expected));
    let question = Query::Trace { topic: "orders".to_owned(), partition: Partition::new(1), seq: Seq::new(42) };
    assert_eq!(*asked.lock().expect("no test panics while it asks"), Some(question));
}

#[test]
fn peek_shows_each_message_with_its_exact_bytes() {
    let mut node = FakeNode::new();
    let mut with_headers = message(43, b"", b"\xff\xfe");
    with_headers.headers = vec![("traceparent".into(), "00-1".into()), ("bin".into(), b"\xff".as_slice().into())];
    node.messages.push(with_headers);
    let asked = node.asked.clone();
    let server = Server::of(node);
    let expected = concat!(
        r#"{"messages":[{"topic":"orders","partition":1,"offset":41,"sequence":42,"key":"k1","payload":{"n": 1},"#,
        r#""value_base64":"eyJuIjogMX0=","timestamp":1700000000,"commit_index":17,"epoch":3,"producer_id":7,"#,
        r#""producer_seq":42},{"topic":"orders","partition":1,"offset":42,"sequence":43,"payload":"//4=","#,
        r#""payload_encoding":"base64","value_base64":"//4=","timestamp":1700000000,"commit_index":17,"epoch":3,"#,
        r#""producer_id":7,"producer_seq":43,"headers":[{"name":"traceparent","value":"00-1"},"#,
        r#"{"name":"bin","value":"/w==","value_encoding":"base64"}]}]}"#,
    );
    let question = |partition, from, max| {
        Some(Query::Peek {
            topic: "orders".to_owned(),
            partition: Partition::new(partition),
            from: Seq::new(from),
            max,
        })
    };
    let answer = server.get("/v1/topics/orders/peek?partition=1&from=42&max=2");
    assert_eq!((answer.status, answer.line()), (200, expected));
    assert_eq!(*asked.lock().expect("no test panics while it asks"), question(1, 42, 2));
    assert_eq!(server.get("/v1/topics/orders/peek").status, 200);
    assert_eq!(*asked.lock().expect("no test panics while it asks"), question(0, 1, 100));
}

#[test]
fn dead_letters_are_told_with_their_origin_and_their_exact_bytes() {
    let mut node = FakeNode::new();
    node.messages = vec![message(7, b"k", b"hello")];
    let server = Server::of(node);
    let answer = server.get("/v1/topics/orders/dlq?partition=1&from=7&max=2");
    let told = concat!(
        r#"{"dead_letters":[{"reason":"nacked","attempts":5,"origin":{"path":"orders/billing","partition":1,"sequence":40},"#,
        r#""error":"no such \"customer\"","standing":"pending","message":{"topic":"$dlq.orders","partition":1,"offset":6,"#,
        r#""sequence":7,"key":"k","payload":"hello","value_base64":"aGVsbG8=","timestamp":1700000000,"commit_index":17,"#,
        r#""epoch":3,"producer_id":7,"producer_seq":7}}]}"#,
    );
    assert_eq!((answer.status, answer.line()), (200, told));
    assert_eq!(server.get("/v1/topics/none/dlq").status, 404);
}

#[test]
fn a_peek_of_large_messages_ends_early_and_is_still_json() {
    let mut node = FakeNode::new();
    let value = vec![b'x'; 1024 * 1024];
    node.messages = (1..=10).map(|sequence| message(sequence, b"", &value)).collect();
    let answer = Server::of(node).get("/v1/topics/orders/peek?max=10");
    let json: serde_json::Value = serde_json::from_str(answer.line()).expect("the answer is JSON");
    assert_eq!(json["messages"].as_array().expect("a list").len(), 2);
}

#[test]
fn a_parameter_that_is_wrong_is_400_and_the_text_says_what_to_write() {
    let server = Server::of(FakeNode::new());
    let wrong = [
        ("/v1/topics?limit=0", "limit=0 is out of range: limit is a whole number from 1 to 18446744073709551615"),
        ("/v1/topics?limit=-1", "limit=-1 is out of range"),
        ("/v1/topics/orders?partition=x", "partition=x is out of range: partition is a whole number from 0 to 65535"),
        ("/v1/topics/orders/peek?from=0", "from=0 is out of range"),
        ("/v1/topics/orders/peek?max=1001", "max=1001 is out of range: max is a whole number from 1 to 1000"),
        ("/v1/topics/orders/peek?partition=65536", "partition=65536 is out of range"),
        ("/v1/topics/orders/trace?sequence=1", "partition is missing: add partition=NUMBER, for example partition=0"),
        ("/v1/topics/orders/trace?partition=0", "sequence is missing: add sequence=NUMBER, for example sequence=1"),
        ("/v1/topics/orders/trace?partition=0&sequence=0", "sequence=0 is out of range"),
        ("/v1/cluster/members?detail=yes", "detail=yes is no choice: write true or false"),
        ("/stats?topic=%zz", "topic has a broken escape: write a % as %25"),
        ("/stats?topic=%ff", "topic is not UTF-8"),
        ("/v1/topics/%ff", "a name of the path is not UTF-8"),
    ];
    for (target, text) in wrong {
        let answer = server.get(target);
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.line().starts_with(&format!(r#"{{"error":"{text}"#)), "{target}: {answer:?}");
        assert!(answer.line().ends_with(r#","outcome":"refused"}"#), "{target}: {answer:?}");
    }
}

#[test]
fn what_does_not_exist_is_404_with_its_code() {
    let server = Server::of(FakeNode::new());
    let targets = ["/v1/topics/none", "/stats?topic=none", "/v1/topics/none/groups", "/v1/topics/none/groups/g"];
    let unknown = r#"{"error":"topic \"none\" does not exist","code":"UNKNOWN_TOPIC","outcome":"refused"}"#;
    for target in targets.into_iter().chain(["/v1/topics/none/peek", "/v1/topics/none/trace?partition=0&sequence=1"]) {
        let answer = server.get(target);
        assert_eq!((answer.status, answer.line()), (404, unknown), "{target}");
    }
    let answer = server.get("/v1/topics/orders/groups/no%20ne");
    let unknown =
        r#"{"error":"group \"no ne\" does not exist on \"orders\"","code":"UNKNOWN_GROUP","outcome":"refused"}"#;
    assert_eq!((answer.status, answer.line()), (404, unknown));
    for target in ["/", "/v1", "/v2/topics", "/v1/topics/a/b/c", "/stats/"] {
        let answer = server.get(target);
        assert_eq!((answer.status, answer.body.trim_end()), (404, "404 page not found"), "{target}");
    }
}

#[test]
fn a_wrong_method_is_405_and_allow_names_the_right_ones() {
    let server = Server::of(FakeNode::new());
    for (method, target, allow) in [
        ("POST", "/stats", "GET,HEAD"),
        ("DELETE", "/v1/topics", "GET,HEAD,POST"),
        ("PUT", "/v1/topics/orders", "GET,HEAD,PATCH,DELETE"),
        ("GET", "/v1/topics/orders/produce", "POST"),
    ] {
        let answer = server.send(method, target, "", b"");
        let mut found: Vec<&str> = answer.header("allow").split(',').collect();
        let mut expected: Vec<&str> = allow.split(',').collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!((answer.status, found), (405, expected), "{method} {target}");
    }
    let head = server.send("HEAD", "/v1/broker", "", b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn a_documented_route_of_a_later_version_names_itself() {
    let server = Server::of(FakeNode::new());
    let routes = [
        ("POST", "/v1/topics", "/v1/topics"),
        ("POST", "/v1/topics/orders/produce", "/v1/topics/{topic}/produce"),
        ("POST", "/v1/cluster/members/2/forget", "/v1/cluster/members/{id}/forget"),
    ];
    for (method, target, path) in routes {
        let body: &[u8] = if method == "POST" { b"{\"name\":\"orders\"}" } else { b"" };
        let answer = server.send(method, target, "Content-Type: application/json\r\n", body);
        let text =
            format!(r#"{{"error":"{method} {path} is not in this version","code":"UNKNOWN_OP","outcome":"refused"}}"#);
        assert_eq!((answer.status, answer.line()), (501, text.as_str()), "{method} {target}");
    }
}

#[test]
fn a_failure_keeps_its_text_code_and_outcome() {
    let mut node = FakeNode::new();
    node.failure = Failure::new(ErrorCode::Backpressure, "too much work in hand");
    node.failure.retry_after_ms = 1001;
    let answer = Server::of(node.clone()).get("/v1/topics/broken");
    let text = r#"{"error":"too much work in hand","code":"BACKPRESSURE","outcome":"refused"}"#;
    assert_eq!((answer.status, answer.line(), answer.header("retry-after")), (429, text, "2"));

    // A refusal's code with an unknown outcome: the status must not promise that nothing happened.
    node.failure = Failure::new(ErrorCode::ReadOnlyDegraded, "the majority is gone");
    node.failure.outcome = Outcome::Unknown;
    let answer = Server::of(node).get("/v1/topics/broken");
    let text = r#"{"error":"the majority is gone","code":"READ_ONLY_DEGRADED","outcome":"unknown"}"#;
    assert_eq!((answer.status, answer.line(), answer.header("retry-after")), (500, text, ""));
}

#[test]
fn large_headers_and_bodies_are_refused_by_what_arrived() {
    let server = Server::of(FakeNode::new());
    let header = |bytes: usize| format!("X-Filler: {}\r\n", "a".repeat(bytes));
    assert_eq!(server.send("GET", "/v1/broker", &header(60_000), b"").status, 200);
    assert_eq!(server.send("GET", "/v1/broker", &header(66_000), b"").status, 431);
    let body = vec![b'{'; 1024 * 1024];
    assert_eq!(server.send("POST", "/v1/topics/orders/produce", JSON, &body).status, 501);
    let too_large = |target: &str, body: &[u8]| {
        let answer = server.send("POST", target, JSON, body);
        assert_eq!(answer.status, 413);
        assert!(answer.line().contains(r#""code":"TOO_LARGE","outcome":"refused""#), "{answer:?}");
    };
    too_large("/v1/topics/orders/produce", &vec![b'{'; 1024 * 1024 + 1]);
    let spaces = |count: usize| [&b"{}"[..], &vec![b' '; count - 2]].concat();
    assert_eq!(server.send("POST", "/v1/topics/orders/purge", JSON, &spaces(65_536)).status, 200);
    too_large("/v1/topics/orders/purge", &spaces(65_537));
}

#[test]
fn acts_have_the_documented_json_and_ask_for_what_was_written() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let (topic, group) = (|| "orders".to_owned(), || "billing".to_owned());
    let purged = r#"{"commit_index":8124,"epoch":3,"dropped":7}"#;
    let moved = r#"{"commit_index":8124,"epoch":3,"replayed":5,"dropped":7}"#;
    let purge = |group: Option<&str>| Act::Purge { topic: topic(), group: group.map(str::to_owned) };
    let seek = |to| Act::Seek { topic: topic(), group: group(), to };
    let seek_route = "/v1/topics/orders/groups/billing/seek";
    let at = SeekTarget::At(vec![(Partition::new(3), Seq::new(41))]);
    let since = Act::SeekTime { topic: topic(), group: group(), time: WallTime::new(1_700_000_000_000) };
    let acts = [
        ("POST", "/v1/topics/orders/purge", "", purged, purge(None)),
        ("POST", "/v1/topics/orders/purge", "{}", purged, purge(None)),
        ("POST", "/v1/topics/orders/purge", r#"{"group":null}"#, purged, purge(None)),
        ("POST", "/v1/topics/orders/purge", r#"{"group":"billing"}"#, purged, purge(Some("billing"))),
        ("POST", seek_route, r#"{"to":"earliest"}"#, moved, seek(SeekTarget::Earliest)),
        ("POST", seek_route, r#"{"to":"latest"}"#, moved, seek(SeekTarget::Latest)),
        ("POST", seek_route, r#" {"sequence":41, "partition":3} "#, moved, seek(at)),
        ("POST", seek_route, r#"{"time_ms":1700000000000}"#, moved, since),
        ("DELETE", "/v1/topics/orders/groups/billing", "", purged, Act::DeleteGroup { topic: topic(), group: group() }),
    ];
    for (method, target, body, expected, act) in acts {
        let answer = server.send(method, target, JSON, body.as_bytes());
        assert_eq!((answer.status, answer.line()), (200, expected), "{method} {target} {body}");
        assert_eq!(acted.lock().expect("no test panics while it asks").take(), Some(act), "{method} {target} {body}");
    }
    let mut node = FakeNode::new();
    node.moved.is_partial = true;
    let answer = Server::of(node).send("POST", seek_route, JSON, br#"{"to":"earliest"}"#);
    assert_eq!(answer.line(), moved.replace('}', r#","partial":true}"#));
}

#[test]
fn changes_of_settings_answer_with_what_there_is_now_and_the_position_of_the_change() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let settings = |text: &str| serde_json::from_str(text).expect("an object");
    let named = r#"{"commit_index":8124,"epoch":3,"name":"orders","id":""#;
    let grouped = r#"{"commit_index":8124,"epoch":3,"group":"billing","#;
    let (topic, group) = (|| "orders".to_owned(), || "billing".to_owned());
    let body = r#"{"partitions":6,"lease_ms":2000}"#;
    let changes = [
        ("/v1/topics/orders", body, named, Act::ChangeTopic { topic: topic(), settings: settings(body) }),
        ("/v1/topics/orders", "", named, Act::ChangeTopic { topic: topic(), settings: settings("{}") }),
        (
            "/v1/topics/orders/groups/billing",
            r#"{"order":"none"}"#,
            grouped,
            Act::ChangeGroup { topic: topic(), group: group(), settings: settings(r#"{"order":"none"}"#) },
        ),
    ];
    for (target, body, expected, act) in changes {
        let answer = server.send("PATCH", target, JSON, body.as_bytes());
        assert_eq!(answer.status, 200, "{target} {body}");
        assert!(answer.line().starts_with(expected), "{answer:?}");
        assert_eq!(acted.lock().expect("no test panics while it asks").take(), Some(act), "{target} {body}");
    }
    let defaults = r#"{"commit_index":8124,"epoch":3,"defaults":{"partition_default_count":4}}"#;
    let answer = server.send("PATCH", "/v1/defaults", JSON, br#"{"partition_default_count":4}"#);
    assert_eq!((answer.status, answer.line()), (200, defaults));
    let values = settings(r#"{"partition_default_count":4}"#);
    assert_eq!(acted.lock().expect("as above").take(), Some(Act::ChangeDefaults { values }));
    assert_eq!(server.get("/v1/defaults").line(), defaults.replace("8124", "8123"));
    let answer = server.send("PATCH", "/v1/topics/orders", JSON, b"[1]");
    assert_eq!((answer.status, acted.lock().expect("as above").take()), (400, None));
    let answer = server.send("PATCH", "/v1/topics/orders", "", body.as_bytes());
    assert_eq!(answer.status, 415, "no page can make a browser change something");
    let answer = server.send("DELETE", "/v1/topics/orders", "", b"");
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert_eq!(acted.lock().expect("as above").take(), Some(Act::DeleteTopic { name: topic() }));
    assert_eq!(server.send("DELETE", "/v1/topics/nowhere", "", b"").status, 404);
}

#[test]
fn an_act_that_is_written_wrong_is_400_and_asks_nothing() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let place = concat!(
        r#"name one place: {\"to\":\"earliest\"}, {\"to\":\"latest\"}, "#,
        r#"{\"partition\":0,\"sequence\":41} or {\"time_ms\":1700000000000}"#
    );
    let wrong = [
        ("groups/billing/seek", "", place),
        ("groups/billing/seek", r#"{"partition":0}"#, place),
        ("groups/billing/seek", r#"{"sequence":1}"#, place),
        ("groups/billing/seek", r#"{"to":"latest","partition":0,"sequence":1}"#, place),
        ("groups/billing/seek", r#"{"to":"latest","time_ms":1}"#, place),
        ("groups/billing/seek", r#"{"to":"begin"}"#, r#"to=\"begin\" is no place: write earliest or latest"#),
        ("groups/billing/seek", r#"{"partition":0,"sequence":0}"#, "sequence=0 is out of range"),
        (
            "groups/billing/seek",
            r#"{"partition":65536,"sequence":1}"#,
            "the body is not what this route takes: invalid value",
        ),
        (
            "groups/billing/seek",
            r#"{"partition":0,"sequence":-1}"#,
            "the body is not what this route takes: invalid value",
        ),
        ("groups/billing/seek", r#"{"too":"latest"}"#, "the body is not what this route takes: unknown field `too`"),
        ("purge", r#"{"groups":["billing"]}"#, "the body is not what this route takes: unknown field `groups`"),
        ("purge", r#"{"group":7}"#, "the body is not what this route takes: invalid type: integer `7`"),
        ("purge", r#"["billing"]"#, "the body is not what this route takes: a JSON object"),
        ("purge", "{", "the body is not what this route takes: EOF"),
        ("purge", "\u{0}", "the body is not what this route takes: a JSON object"),
    ];
    for (route, body, text) in wrong {
        let answer = server.send("POST", &format!("/v1/topics/orders/{route}"), JSON, body.as_bytes());
        assert_eq!(answer.status, 400, "{route} {body}: {answer:?}");
        assert!(answer.line().starts_with(&format!(r#"{{"error":"{text}"#)), "{route} {body}: {answer:?}");
        assert!(answer.line().ends_with(r#","code":"MALFORMED_PAYLOAD","outcome":"refused"}"#), "{body}: {answer:?}");
        assert_eq!(*acted.lock().expect("no test panics while it asks"), None, "{route} {body}");
    }
    let answer = server.send("POST", "/v1/topics/none/purge", JSON, b"");
    assert_eq!(answer.status, 404, "{answer:?}");
}

#[test]
fn a_foreign_page_cannot_make_a_browser_change_anything() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let purge = |headers: &str, body: &str| {
        let status = server.send("POST", "/v1/topics/orders/purge", headers, body.as_bytes()).status;
        let has_acted = acted.lock().expect("no test panics while it asks").take().is_some();
        assert_eq!(has_acted, status == 200, "{headers} {body}");
        status
    };
    let own = [
        "Content-Type: APPLICATION/json; charset=utf-8",
        "Content-Type: application/octet-stream",
        "X-Narad-Client: me",
    ];
    for header in own {
        for browser in ["", "Origin: http://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
            for body in ["", "{}"] {
                assert_eq!(purge(&format!("{header}\r\n{browser}"), body), 200, "{header} {browser}");
            }
        }
    }
    assert_eq!(purge("", ""), 200, "curl -X POST");
    assert_eq!(purge("Sec-Fetch-Site: none\r\n", ""), 200);
    for shown in [
        "Origin: null",
        "Referer: http://evil.example/",
        "Sec-Fetch-Site: same-site",
        "Content-Type: text/plain",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Type: multipart/form-data; boundary=x",
        "X-Narad-Client: \r\nOrigin: http://evil.example",
    ] {
        assert_eq!(purge(&format!("{shown}\r\n"), ""), 415, "{shown}");
    }
    for form in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        assert_eq!(purge(form, "{}"), 415, "{form}");
    }
    let answer = server.send("POST", "/v1/topics/orders/purge", "Origin: null\r\n", b"");
    assert!(
        answer.line().contains("add Content-Type: application/json")
            && answer.line().ends_with(r#""outcome":"refused"}"#)
    );
    assert_eq!(
        server.send("GET", "/stats", "Origin: http://evil.example\r\n", b"").status,
        200,
        "questions are not checked"
    );
}

#[test]
fn rule_6_an_act_that_a_stop_cuts_off_is_unknown() {
    let mut node = FakeNode::new();
    node.readiness.stopping = true;
    let answer = Server::of(node).send("DELETE", "/v1/topics/orders/groups/billing", "", b"");
    assert_eq!(answer.status, 500);
    assert!(answer.line().ends_with(r#""code":"READ_ONLY_DEGRADED","outcome":"unknown"}"#), "{answer:?}");
}

#[test]
fn p2_dead_letters_are_redriven_and_purged_as_they_are_named_and_nothing_is_taken_for_all_of_them() {
    let node = FakeNode::new();
    let acted = node.acted.clone();
    let server = Server::of(node);
    let told = r#"{"commit_index":8124,"epoch":3,"matched":9,"done":6,"refused":{"leased":1,"unsettled":2}}"#;
    let all = LettersAct {
        topic: "orders".to_owned(),
        action: LetterAction::Redrive,
        partition: None,
        sequences: Vec::new(),
        reason: None,
        limit: None,
        rate: None,
        dry_run: false,
    };
    let some = LettersAct {
        action: LetterAction::Purge,
        partition: Some(Partition::new(1)),
        sequences: vec![Seq::new(4), Seq::new(9)],
        reason: Some("nacked".to_owned()),
        limit: Some(10),
        rate: Some(5),
        dry_run: true,
        ..all.clone()
    };
    let asked = [
        (r#"{"action":"redrive"}"#, all),
        (
            r#"{"action":"purge","partition":1,"sequences":[4,9],"reason":"nacked","limit":10,"rate":5,"dry_run":true}"#,
            some,
        ),
    ];
    for (body, act) in asked {
        let answer = server.send("POST", "/v1/topics/orders/dlq", JSON, body.as_bytes());
        assert_eq!((answer.status, answer.line()), (200, told), "{body}");
        assert_eq!(acted.lock().expect("no panic").take(), Some(Act::Letters(act)));
    }
    let many = format!(r#"{{"action":"purge","sequences":[{}1]}}"#, "1,".repeat(1024));
    let wrong = [
        ("", "the body is not what this route takes: missing field `action`"),
        (r#"{"action":"drop"}"#, "the body is not what this route takes: unknown variant `drop`"),
        (r#"{"action":"purge","sequences":[]}"#, "sequences=[] names nothing"),
        (r#"{"action":"purge","sequence":4}"#, "the body is not what this route takes: unknown field `sequence`"),
        (r#"{"action":"purge","rate":0}"#, "rate=0 is out of range"),
        (many.as_str(), "1025 sequences are too many: name at most 1024"),
    ];
    for (body, text) in wrong {
        let answer = server.send("POST", "/v1/topics/orders/dlq", JSON, body.as_bytes());
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.line().starts_with(&format!(r#"{{"error":"{text}"#)), "{answer:?}");
        assert_eq!(*acted.lock().expect("no panic"), None, "nothing was asked of the node");
    }
    assert_eq!(server.send("POST", "/v1/topics/none/dlq", JSON, br#"{"action":"purge"}"#).status, 404);
}
