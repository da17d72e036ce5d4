//! Gives each message to a command, four at once and never two of one key: on stdin the value, in the environment the key.
//!
//! Exit code 0 acks, 65 sends to the dead letters, and any other comes again later. When the lease is lost the command is
//! killed: another worker has the message. Ctrl-C lets commands end that run, and gives the rest back.
//!
//!     EXEC='wc -c' cargo run -p mortarmq-client --example worker

use std::error::Error;
use std::process::Stdio;

use mortarmq_client::{Client, ClientOptions, ConsumerOptions, Delivery, TopicOptions, Verdict};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Works for the group `billing` of the topic `orders` until Ctrl-C.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("MORTARMQ_SERVER").unwrap_or_else(|_| "127.0.0.1:7188".to_owned());
    let command = std::env::var("EXEC").unwrap_or_else(|_| "cat".to_owned());
    let client = Client::connect(ClientOptions::to(&server)).await?;
    client.declare_topic("orders", TopicOptions::default()).await?;

    // Twice as many as run at once: what is fetched ahead of that is withheld from other workers.
    let options = ConsumerOptions { credit_messages: Some(8), ..ConsumerOptions::default() };
    let consumer = client.consumer("orders", "billing", options).await?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let handler = |delivery: std::sync::Arc<Delivery>| {
        let command = command.clone();
        async move {
            tokio::select! {
                verdict = run(&command, &delivery) => verdict,
                // The command is killed with the future that runs it; the verdict comes too late and changes nothing.
                () = delivery.lost() => Verdict::Release,
            }
        }
    };
    consumer.run(4, stop, handler).await?;
    client.close().await;
    Ok(())
}

async fn run(command: &str, delivery: &Delivery) -> Verdict {
    let failed = |error_text: String| Verdict::Nack { delay_ms: 0, error_text };
    let child = Command::new("sh")
        .args(["-c", command])
        .env("MESSAGE_KEY", String::from_utf8_lossy(&delivery.key).as_ref())
        .env("MESSAGE_ATTEMPT", delivery.attempt.to_string())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return failed(error.to_string()),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A command does not have to read its input.
        let _ = stdin.write_all(&delivery.value).await;
    }
    match child.wait_with_output().await {
        Ok(output) if output.status.success() => Verdict::Ack,
        Ok(output) => {
            let error_text = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.code() == Some(65) { Verdict::DeadLetter { error_text } } else { failed(error_text) }
        }
        Err(error) => failed(error.to_string()),
    }
}
