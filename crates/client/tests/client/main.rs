//! The client against a small broker over real sockets.

mod consumer;
mod cuts;
mod ends;
mod fake;
#[cfg(feature = "history")]
mod history;
mod producer;
mod requests;
mod worker;

use std::time::Duration;

use fake::Fake;
use mortarmq_client::{Client, ClientOptions, ReconnectOptions};

fn options(fake: &Fake) -> ClientOptions {
    ClientOptions {
        servers: vec![fake.address.clone()],
        reconnect: ReconnectOptions { initial_ms: 1, max_ms: 5, give_up_after: None },
        ..ClientOptions::default()
    }
}

async fn connect(fake: &Fake) -> Client {
    Client::connect(options(fake)).await.expect("the fake broker takes everybody")
}

/// What a promise of liveness may take; a test that hangs would tell nothing.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), future).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}
