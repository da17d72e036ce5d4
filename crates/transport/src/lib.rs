//! One TCP stream, plain, with TLS or of sealed frames, and the certificates and keys that TLS needs.
//!
//! It knows the sockets of tokio and nothing of frames, HTTP, brokers or clients. A [`Stream`] is driven as a
//! `tokio::net::TcpStream` is: wait until it can be read or written, then try. Without TLS each call goes straight to the
//! socket. With TLS, `session.rs` moves bytes between the socket and a `rustls::Connection`, without a task or a lock of its
//! own, and `sealing.rs` between the socket and frames that two nodes seal. An [`Acceptor`] makes streams of a server from its certificate and key, a [`Connector`] those of a client from
//! the CAs that it trusts ([`Roots`]), [`Mutual`] those of two nodes that show each other certificates.
//!
//! Start with `stream.rs`, then `session.rs`, where back-pressure and the end of a connection are decided.

mod acceptor;
mod connector;
mod fault;
mod layer;
mod mutual;
mod pem;
mod sealing;
mod session;
mod stream;

pub mod sealed;

pub use acceptor::Acceptor;
pub use connector::{Connector, Roots, is_host, provider};
pub use fault::{FileFault, TlsFault};
pub use mutual::{Mutual, MutualFiles};
pub use stream::Stream;
