//! The HTTP request that becomes a WebSocket, and its answer.

use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};

use super::{HEAD_BYTES_MAX, Origins};

/// What becomes of what came so far.
#[derive(Debug)]
pub(super) enum Answer {
    /// More of it is to come.
    Incomplete,
    /// From here on it is a WebSocket.
    Accept {
        /// What of the bytes was the request.
        head_bytes: usize,
        text: String,
    },
    /// It will be none.
    Refuse { text: String },
}

/// Judges the beginning of a connection.
pub(super) fn answer(begun: &[u8], origins: &Origins) -> Answer {
    let (head_bytes, request) = match Request::try_parse(begun) {
        Ok(Some(parsed)) => parsed,
        Ok(None) if begun.len() < HEAD_BYTES_MAX => return Answer::Incomplete,
        Ok(None) => return refuse("431 Request Header Fields Too Large", "the head of the request is too long"),
        Err(_) => {
            return refuse("400 Bad Request", "this is no HTTP request; this address speaks WebSocket (listen_ws)");
        }
    };
    if let Some(origin) = request.headers().get("origin") {
        let is_allowed = origin.to_str().is_ok_and(|origin| origins.allows(origin));
        if !is_allowed {
            return refuse(
                "403 Forbidden",
                "pages of this origin may not connect; its operator lists them (ws_origins)",
            );
        }
    }
    let mut head = Vec::new();
    let written = create_response(&request).and_then(|response| write_response(&mut head, &response));
    match (written, String::from_utf8(head)) {
        (Ok(()), Ok(text)) => Answer::Accept { head_bytes, text },
        (Err(error), _) => refuse("400 Bad Request", &format!("this address speaks WebSocket only: {error}")),
        (_, Err(_)) => refuse("400 Bad Request", "the request cannot be answered"),
    }
}

fn refuse(status: &str, reason: &str) -> Answer {
    let length = reason.len() + 1;
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reason}\n"
    );
    Answer::Refuse { text }
}

/// The answer to a connection for which there is no place.
pub(crate) fn no_place(reason: &str) -> String {
    match refuse("503 Service Unavailable", reason) {
        Answer::Refuse { text } | Answer::Accept { text, .. } => text,
        Answer::Incomplete => String::new(),
    }
}
