//! Bytes of a WebSocket, in every way they can be cut.

use bytes::BytesMut;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::fault::WebFault;
use super::handshake::{Answer, answer};
use super::incoming::Incoming;
use super::{HEAD_BYTES_MAX, Origins};

fn part(out: &mut BytesMut, opcode: Data, is_final: bool, payload: &[u8]) {
    masked(out, FrameHeader { is_final, opcode: OpCode::Data(opcode), ..FrameHeader::default() }, payload);
}

fn control(out: &mut BytesMut, op: Control, payload: &[u8]) {
    masked(out, FrameHeader { opcode: OpCode::Control(op), ..FrameHeader::default() }, payload);
}

fn masked(out: &mut BytesMut, header: FrameHeader, payload: &[u8]) {
    let mask = [1, 20, 0, 255];
    let mut head = Vec::new();
    FrameHeader { mask: Some(mask), ..header }.format(payload.len() as u64, &mut head).expect("memory");
    out.extend_from_slice(&head);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// A frame with so many bytes behind its length.
fn frame(bytes: u8) -> Vec<u8> {
    let mut frame = vec![0, 0, 0, bytes];
    frame.extend(1..=bytes);
    frame
}

/// What came out of it, the last ping, whether it was closed, and what was wrong.
type Taken = (Vec<u8>, Option<Vec<u8>>, bool, Option<WebFault>);

fn take(stream: &[u8], piece_bytes: usize) -> Taken {
    let (mut incoming, mut raw, mut into) = (Incoming::default(), BytesMut::new(), BytesMut::new());
    for piece in stream.chunks(piece_bytes) {
        raw.extend_from_slice(piece);
        incoming.take(&mut raw, &mut into);
        assert!(raw.len() < 14, "invariant 1: {} bytes are kept", raw.len());
    }
    (into.to_vec(), incoming.take_ping(), incoming.is_closed(), incoming.fault())
}

#[test]
fn frames_come_out_the_same_however_messages_are_cut() {
    let mut stream = BytesMut::new();
    part(&mut stream, Data::Binary, true, &frame(9));
    let second = frame(200);
    part(&mut stream, Data::Binary, false, &second[..3]);
    control(&mut stream, Control::Ping, b"are you there");
    part(&mut stream, Data::Continue, false, b"");
    part(&mut stream, Data::Continue, false, &second[3..40]);
    control(&mut stream, Control::Pong, b"unasked");
    part(&mut stream, Data::Continue, true, &second[40..]);
    part(&mut stream, Data::Binary, true, &frame(1));
    control(&mut stream, Control::Close, b"\x03\xe8bye");
    part(&mut stream, Data::Binary, true, &frame(5));
    let expected = [frame(9), second, frame(1)].concat();
    for piece_bytes in 1..=stream.len() {
        let (into, ping, is_closed, fault) = take(&stream, piece_bytes);
        assert_eq!(into, expected, "in pieces of {piece_bytes}");
        assert_eq!((ping.as_deref(), is_closed, fault), (Some(&b"are you there"[..]), true, None));
    }
}

#[test]
fn what_is_no_frame_in_a_message_is_found_and_nothing_behind_it_is_taken() {
    let good = frame(9);
    let with = |make: &dyn Fn(&mut BytesMut)| {
        let mut stream = BytesMut::new();
        part(&mut stream, Data::Binary, true, &good);
        make(&mut stream);
        part(&mut stream, Data::Binary, true, &good);
        stream
    };
    let header = |opcode: OpCode| FrameHeader { opcode, ..FrameHeader::default() };
    let binary = OpCode::Data(Data::Binary);
    let protocol = |fault| matches!(fault, Some(WebFault::Protocol(_)));
    let not_one = |fault| fault == Some(WebFault::NotOneFrame);
    type Case<'a> = (&'a str, BytesMut, &'a dyn Fn(Option<WebFault>) -> bool);
    let cases: [Case<'_>; 12] = [
        ("shorter than its frame", with(&|out| part(out, Data::Binary, true, &good[..8])), &not_one),
        ("two frames", with(&|out| part(out, Data::Binary, true, &good.repeat(2))), &not_one),
        ("no length", with(&|out| part(out, Data::Binary, true, b"\0\0")), &not_one),
        ("empty", with(&|out| part(out, Data::Binary, true, b"")), &not_one),
        ("text", with(&|out| part(out, Data::Text, true, &good)), &|fault| fault == Some(WebFault::Text)),
        ("not masked", with(&|out| out.extend_from_slice(b"\x82\x01x")), &protocol),
        ("reserved bit", with(&|out| masked(out, FrameHeader { rsv1: true, ..header(binary) }, &good)), &protocol),
        ("reserved op", with(&|out| out.extend_from_slice(b"\x83\x80abcd")), &protocol),
        ("goes on with nothing", with(&|out| part(out, Data::Continue, true, &good)), &protocol),
        (
            "begins in the middle",
            with(&|out| {
                part(out, Data::Binary, false, &good[..2]);
                part(out, Data::Binary, true, &good);
            }),
            &protocol,
        ),
        ("long control", with(&|out| control(out, Control::Ping, &[0; 126])), &protocol),
        (
            "control in parts",
            with(&|out| {
                masked(out, FrameHeader { is_final: false, ..header(OpCode::Control(Control::Ping)) }, b"x");
            }),
            &protocol,
        ),
    ];
    for (name, stream, is_expected) in cases {
        for piece_bytes in [1, 2, 7, stream.len()] {
            let (into, _, is_closed, fault) = take(&stream, piece_bytes);
            assert!(is_expected(fault), "{name}: {fault:?}");
            assert!(into.starts_with(&good) && into.len() <= 2 * good.len() && !is_closed, "{name}: {into:?}");
        }
    }
}

#[test]
fn only_a_request_to_become_a_web_socket_is_accepted() {
    let origins = Origins::read("[\"loopback\"]").expect("right");
    let request = |more: &str| {
        format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        )
    };
    for more in ["", "origin: http://localhost:8080\r\n"] {
        let mut begun = request(more).into_bytes();
        let head = begun.len();
        begun.extend_from_slice(b"\x82");
        let Answer::Accept { head_bytes, text } = answer(&begun, &origins) else { panic!("{more} is accepted") };
        assert_eq!(head_bytes, head);
        // RFC 6455, 1.3.
        assert!(text.starts_with("HTTP/1.1 101") && text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text}");
        for end in 0..head {
            assert!(matches!(answer(&begun[..end], &origins), Answer::Incomplete), "cut at {end}");
        }
    }
    // Any path; what it offers beyond that is not agreed on.
    let more = "sec-websocket-protocol: mqtt\r\nsec-websocket-extensions: permessage-deflate\r\n";
    let begun = request(more).replace("GET /", "GET /any/path?x=1");
    let Answer::Accept { text, .. } = answer(begun.as_bytes(), &origins) else { panic!("{begun:?} is accepted") };
    assert!(
        !text.to_lowercase().contains("websocket-protocol") && !text.to_lowercase().contains("extensions"),
        "{text}"
    );
    let long = format!("GET / HTTP/1.1\r\ncookie: {}", "c".repeat(HEAD_BYTES_MAX));
    for (begun, status) in [
        (request("origin: https://evil.example\r\n"), "403"),
        (request("origin: null\r\n"), "403"),
        (request("").replace("GET", "POST"), "400"),
        (request("").replace("websocket\r\n", "h2c\r\n"), "400"),
        (request("").replace(": 13", ": 8"), "400"),
        (request("").replace("dGhl", "dGh"), "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), "400"),
        ("\0\0\0\x19\x01".to_owned(), "400"),
        (long, "431"),
    ] {
        let Answer::Refuse { text } = answer(begun.as_bytes(), &origins) else { panic!("{begun:?} is refused") };
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{begun:?}: {text}");
    }
}
