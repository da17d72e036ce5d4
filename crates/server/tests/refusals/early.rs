//! Frames that are none, ops that are none, and what comes before or as CONNECT.

use bytes::BytesMut;
use mortarmq_wire::ErrorCode::{
    AuthFailed, BadLength, Forbidden, MalformedPayload, NotAuthenticated, UnknownOp, UnsupportedVersion,
};
use mortarmq_wire::Op;
use mortarmq_wire::ops::{Connect, Declare};

use crate::support::{Client, connect_frame, declare_frame, publish_frame};
use crate::{Node, READER, Row, closing, frame, raw, refused, with_byte};

pub(crate) const ROWS: &[Row] = &[
    closing("length 0", BadLength, 0, &["outside 1..=16777216", "fix the client"], |node| {
        (node.client(), BytesMut::from(&[0, 0, 0, 0][..]))
    }),
    closing("length above the largest", BadLength, 0, &["16777217"], |node| {
        (node.client(), BytesMut::from(&[1, 0, 0, 1][..]))
    }),
    closing("length 0 before CONNECT", BadLength, 0, &["fix the client"], |node| {
        (node.stranger(), BytesMut::from(&[0, 0, 0, 0][..]))
    }),
    closing("op 0", UnknownOp, 0, &["0x00"], |node| (node.client(), raw(0, b""))),
    closing("an op that nobody has", UnknownOp, 0x7F, &["0x7f"], |node| (node.client(), raw(0x7F, b"x"))),
    closing("a reserved op", UnknownOp, 0x80, &["0x80"], |node| (node.client(), raw(0x80, b""))),
    closing("op 255", UnknownOp, 0xFF, &["0xff"], |node| (node.client(), raw(0xFF, b""))),
    closing("an unknown op before CONNECT", UnknownOp, 0x7F, &["0x7f"], |node| (node.stranger(), raw(0x7F, b""))),
    closing("an op of servers", UnknownOp, Op::Message as u8, &["MSG"], |node| (node.client(), raw(0x0A, b""))),
    closing("OK from a client", UnknownOp, Op::Ok as u8, &["OK"], |node| (node.client(), raw(0x09, b""))),
    closing("NOTICE from a client", UnknownOp, Op::Notice as u8, &["NOTICE"], |node| (node.client(), raw(0x0D, b""))),
    closing("CONTROL_ACK, which is not there yet", UnknownOp, Op::ControlAck as u8, &["CONTROL_ACK"], |node| {
        (node.client(), raw(0x0E, &[0; 40]))
    }),
    closing("TXN, which is not there yet", UnknownOp, Op::Transaction as u8, &["TXN"], |node| {
        (node.client(), raw(0x13, &[0; 40]))
    }),
    closing("another version", UnsupportedVersion, 1, &["version 1", "asked for 2", "upgrade"], |node| {
        // What stands behind it is not read.
        (node.stranger(), raw(1, &[2]))
    }),
    closing("client_flags", MalformedPayload, 1, &["client_flags"], |node| {
        (node.stranger(), with_byte(frame(connect_frame), 2, 1))
    }),
    closing("a CONNECT that ends early", MalformedPayload, 1, &["token", "fix the client"], |node| {
        (node.stranger(), raw(1, &[1, 0, 0, 0, 9, b't']))
    }),
    closing("a second CONNECT", MalformedPayload, 1, &["once", "open another one"], |node| {
        (node.client(), frame(connect_frame))
    }),
    closing("a publish before CONNECT", NotAuthenticated, Op::Publish as u8, &["CONNECT first"], |node| {
        (node.stranger(), frame(|out| publish_frame(out, 1, 0, 0, b"", b"x")))
    }),
    closing("a declare before CONNECT", NotAuthenticated, Op::Declare as u8, &["CONNECT first"], |node| {
        (node.stranger(), frame(|out| declare_frame(out, "early", "")))
    }),
    closing("the beginning of a large publish before CONNECT", NotAuthenticated, 3, &["CONNECT first"], |node| {
        // The rest is not waited for, and takes nothing of the receive budget.
        (node.stranger(), BytesMut::from(&[1, 0, 0, 0, 3, 0][..]))
    }),
    closing("the beginning of a CONNECT of 16 MiB", BadLength, 1, &["before CONNECT", "67584"], |node| {
        (node.stranger(), BytesMut::from(&[1, 0, 0, 0, 1, 1][..]))
    }),
];

pub(crate) const GUARDED_ROWS: &[Row] = &[
    closing("a wrong token", AuthFailed, 1, &["the token is not accepted", "check it"], |node| {
        (node.stranger(), connect_with(b"reader-secret-0002"))
    }),
    closing("no token", AuthFailed, 1, &["the token is not accepted", "check it"], |node| {
        (node.stranger(), connect_with(b""))
    }),
    closing("a token that is too long for one", AuthFailed, 1, &["the token is not accepted"], |node| {
        (node.stranger(), connect_with(&[b'x'; 65_535]))
    }),
    refused("no grant to create", Forbidden, Op::Declare, &["create", "\"orders-2\"", "grant"], |node| {
        (node.client_with(READER), frame(|out| declare_frame(out, "orders-2", "")))
    }),
    refused("no grant to create what exists", Forbidden, Op::Declare, &["create", "\"orders\""], |node| {
        (node.client_with(READER), frame(|out| declare_frame(out, "orders", "")))
    }),
    refused("no grant to delete", Forbidden, Op::Declare, &["admin", "nothing was changed"], |node| {
        let delete = Declare { topic: "orders", partition_count: 0, delete: true, options: b"" };
        (node.client_with(READER), frame(|out| delete.encode(out).expect("it fits")))
    }),
    refused("no grant to publish", Forbidden, Op::Publish, &["produce", "\"orders\"", "grant"], |node| {
        let (client, topic) = reader(node);
        (client, frame(|out| publish_frame(out, topic, 0, 0, b"", b"x")))
    }),
];

fn connect_with(token: &[u8]) -> BytesMut {
    frame(|out| Connect { token, client_name: b"" }.encode(out).expect("it fits"))
}

/// A connection that may only consume, and its handle of the topic.
fn reader(node: &Node) -> (Client, u16) {
    let mut client = node.client_with(READER);
    let topic = client.metadata_of("orders");
    (client, topic)
}
