//! The messages of a handshake: each behind its length as u16.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// One message of a handshake.
///
/// # Errors
/// The stream's; and when it is longer than any.
pub(crate) async fn read_message(stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes; at most {most} are sent"),
        ));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Sends one message of a handshake.
///
/// # Errors
/// The stream's.
pub(crate) async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(2 + message.len());
    bytes.extend_from_slice(&u16::try_from(message.len()).expect("messages of a handshake are short").to_be_bytes());
    bytes.extend_from_slice(message);
    stream.write_all(&bytes).await?;
    // With TLS it may still wait here.
    stream.flush().await
}
