use std::time::Duration;

use mortarmq_client::{
    Client, ClientError, ClientOptions, ConsumerOptions, ErrorCode, Message, Outcome, ProducerOptions,
    ReconnectOptions, TopicOptions,
};

use crate::fake::{Fake, Fault, Seen};
use crate::{connect, options, soon};

#[tokio::test]
async fn topics_are_declared_listed_and_deleted() {
    let fake = Fake::start(&[]).await;
    let client = connect(&fake).await;
    let made = client.declare_topic("orders", TopicOptions::partitions(3).set("retention_ms", 0)).await.unwrap();
    assert_eq!((made.partitions, made.existed), (3, false));
    assert!(client.declare_topic("orders", TopicOptions::partitions(3)).await.unwrap().existed);
    let metadata = client.metadata(&["orders", "nothing"]).await.unwrap();
    assert_eq!(metadata.topics.len(), 1);
    assert_eq!(metadata.topics[0].incarnation, made.incarnation);
    assert_eq!(metadata.nodes[0].client_address, "127.0.0.1:1");
    assert!(client.delete_topic("orders").await.unwrap());
    assert!(!client.delete_topic("orders").await.unwrap());
    assert!(client.metadata(&[]).await.unwrap().topics.is_empty());
}

#[tokio::test]
async fn a_request_whose_answer_is_lost_is_asked_again() {
    let mut declares = 0;
    let fake = Fake::start_with(&[], move |seen| {
        let is_declare = matches!(seen, Seen::Declare { .. });
        declares += usize::from(is_declare);
        match declares {
            _ if !is_declare => Fault::None,
            1 => Fault::CutAfter,
            2 => Fault::Refuse(ErrorCode::MetadataReadOnly),
            _ => Fault::None,
        }
    })
    .await;
    let client = connect(&fake).await;
    assert!(soon("the answer", client.declare_topic("orders", TopicOptions::default())).await.unwrap().existed);
    let asked = fake.seen().into_iter().filter(|seen| matches!(seen, Seen::Declare { .. })).count();
    assert_eq!(asked, 3);
}

#[tokio::test]
async fn what_the_broker_refuses_for_good_is_told_with_its_code() {
    let fake = Fake::start_with(&["orders"], |seen| match seen {
        Seen::Declare { .. } => Fault::Refuse(ErrorCode::InvalidTopic),
        Seen::Subscribe { .. } => Fault::Refuse(ErrorCode::GroupExistsMismatch),
        _ => Fault::None,
    })
    .await;
    let client = connect(&fake).await;
    let error = client.declare_topic("orders", TopicOptions::default()).await.unwrap_err();
    assert_eq!((error.code(), error.outcome()), (Some(ErrorCode::InvalidTopic), Outcome::Refused));
    let error = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::GroupExistsMismatch));
    let error = client.producer("ordres", ProducerOptions::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
    assert!(error.to_string().contains("mortarmq topics create ordres"), "{error}");
    let error = client.consumer("ordres", "billing", ConsumerOptions::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn servers_are_tried_in_turn_and_none_is_a_clear_error() {
    let fake = Fake::start(&["orders"]).await;
    let gone = Fake::start(&[]).await;
    gone.stop();
    let token = b"secret".to_vec();
    let mut several = ClientOptions { token: token.clone(), ..options(&fake) };
    several.servers.insert(0, gone.address.clone());
    let client = soon("the second server", Client::connect(several)).await.unwrap();
    client.metadata(&[]).await.unwrap();
    assert_eq!(fake.seen()[0], Seen::Connect { token });
    let error = soon("a refusal", Client::connect(options(&gone))).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.retry_helps(), "{error}");
    assert!(error.to_string().contains(&gone.address), "{error}");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_ends_the_attempt_at_once() {
    let fake = Fake::start_with(&[], |_| Fault::Refuse(ErrorCode::AuthFailed)).await;
    let patient = ReconnectOptions { give_up_after: Some(Duration::from_secs(60)), ..ReconnectOptions::default() };
    let options = ClientOptions { reconnect: patient, ..options(&fake) };
    let error = soon("the refusal", Client::connect(options)).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::AuthFailed));
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test]
async fn giving_up_answers_everything_and_says_what_may_have_happened() {
    let fake = Fake::start(&["orders"]).await;
    let hasty = ReconnectOptions { initial_ms: 1, max_ms: 5, give_up_after: Some(Duration::from_millis(50)) };
    let client = Client::connect(ClientOptions { reconnect: hasty, ..options(&fake) }).await.unwrap();
    let producer = client.producer("orders", ProducerOptions::default()).await.unwrap();
    let mut consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await.unwrap();
    fake.stop();
    let error = soon("an answer", producer.publish(Message::of(b"a"))).await.unwrap_err();
    assert!(matches!(error.error, ClientError::GaveUp { .. }), "{error}");
    let error = soon("an answer", consumer.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::GaveUp { .. }), "{error}");
    assert!(soon("the end", consumer.next()).await.is_none());
    let error = client.metadata(&[]).await.unwrap_err();
    assert!(matches!(error, ClientError::GaveUp { outcome: Outcome::Refused, .. }), "{error}");
}
