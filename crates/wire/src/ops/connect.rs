//! CONNECT: version and token, first on every connection.

use bytes::BytesMut;
use mortarmq_types::NodeId;

use crate::decode::Reader;
use crate::encode::FrameWriter;
use crate::faults::{DecodeError, EncodeError};
use crate::frame::WIRE_VERSION;
use crate::op::Op;

/// The request. Its version is [`WIRE_VERSION`]: another one is refused before anything behind it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The token; empty where none is asked.
    pub token: &'a [u8],
    /// What the client calls itself, for logs only. At most 255 bytes, not necessarily text.
    pub client_name: &'a [u8],
}

impl<'a> Connect<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Unsupported version first; then malformed for missing fields and for client_flags, of which none exist.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let version = reader.u8("protocol_version")?;
        if version != WIRE_VERSION {
            return Err(DecodeError::UnsupportedVersion { found: version });
        }
        reader.flags("client_flags", 0)?;
        let token = reader.bytes16("token")?;
        reader.u32("reserved")?;
        Ok(Self { token, client_name: reader.bytes8("client_name")? })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// A token over 65535 bytes or a name over 255; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Connect);
        writer.u8(WIRE_VERSION);
        writer.u16(0);
        writer.bytes16("token in bytes", self.token);
        writer.u32(0);
        writer.bytes8("client_name in bytes", self.client_name);
        writer.finish()
    }
}

/// Leaves the token out: what is printed ends up in logs.
impl std::fmt::Debug for Connect<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connect")
            .field("token_bytes", &self.token.len())
            .field("client_name", &self.client_name.escape_ascii().to_string())
            .finish()
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOk<'a> {
    /// The node that answers.
    pub node_id: NodeId,
    /// The version that the server speaks.
    pub wire_version: u8,
    /// The server's version, for people.
    pub server_version: &'a [u8],
}

impl<'a> ConnectOk<'a> {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self {
            node_id: NodeId::new(reader.u16("node_id")?),
            wire_version: reader.u8("wire_version")?,
            server_version: reader.bytes8("server_version")?,
        })
    }

    /// Appends the whole OK frame.
    ///
    /// # Errors
    /// A server_version over 255 bytes; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::ok(out, Op::Connect);
        writer.u16(self.node_id.get());
        writer.u8(self.wire_version);
        writer.bytes8("server_version in bytes", self.server_version);
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Connect;
    use crate::errors::ErrorCode;
    use crate::faults::DecodeError;

    #[test]
    fn version_is_checked_before_anything_behind_it_is_read() {
        assert_eq!(Connect::decode(&[2]), Err(DecodeError::UnsupportedVersion { found: 2 }));
        assert_eq!(Connect::decode(&[1]).map_err(DecodeError::code), Err(ErrorCode::MalformedPayload));
        let text = DecodeError::UnsupportedVersion { found: 2 }.to_string();
        assert!(text.contains("version 1") && text.contains("asked for 2"), "{text}");
    }

    #[test]
    fn reserved_is_ignored_and_client_flags_are_not() {
        let payload = [1, 0, 0, 0, 1, b't', 9, 9, 9, 9, 0];
        assert_eq!(Connect::decode(&payload), Ok(Connect { token: b"t", client_name: b"" }));
        let flagged = [1, 0, 1, 0, 1, b't', 0, 0, 0, 0, 0];
        assert_eq!(Connect::decode(&flagged).map_err(DecodeError::code), Err(ErrorCode::MalformedPayload));
    }

    #[test]
    fn printing_a_connect_does_not_print_its_token() {
        let text = format!("{:?}", Connect { token: b"s3cret", client_name: b"app" });
        assert!(text.contains("app") && !text.contains("s3cret"), "{text}");
    }
}
