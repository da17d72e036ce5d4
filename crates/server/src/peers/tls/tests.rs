//! Method: a node that dials and one that is dialled over a socket of this machine, each with or without files of TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use mortarmq_transport::{Mutual, MutualFiles, Stream};
use mortarmq_types::NodeId;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpListener;

use super::super::handshake::{Keys, Lane, OwnSide, Secret};
use super::super::incoming::{Gate, Link, meet};
use super::super::known::Known;
use super::super::lives::Lives;
use super::super::outgoing::{Dial, DialError, connect};
use super::{Threshold, TlsRefusal};
use crate::config::{Cluster, PeerAddress};
use crate::peers::card::Card;

/// A CA of nodes, with its files.
struct Ca {
    folder: tempfile::TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca =
            Self { folder: tempfile::tempdir().expect("a folder"), params, key: KeyPair::generate().expect("a key") };
        let pem = ca.params.self_signed(&ca.key).expect("signed").pem();
        std::fs::write(ca.folder.path().join("ca.pem"), pem).expect("written");
        ca
    }

    fn node(&self, host: &str) -> Option<Mutual> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).expect("signed");
        let path = |name: &str| self.folder.path().join(name);
        let files = MutualFiles { certificate: path("cert.pem"), key: path("key.pem"), ca: path("ca.pem") };
        std::fs::write(&files.certificate, certificate.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        Some(Mutual::from_files(&files, host).expect("they are right"))
    }
}

fn side(node: u16) -> OwnSide {
    let secret = Secret::new("a secret of the cluster").expect("long enough");
    OwnSide {
        node: NodeId::new(node),
        incarnation: 1,
        cluster: Some([7; 16]),
        nodes: [0, 1].map(NodeId::new).to_vec(),
        secret,
        lives: Lives::default(),
    }
}

/// Node 0, known as `localhost`, dials node 1, known as `127.0.0.1`.
async fn dial(dialler: Option<Mutual>, listener: Option<Mutual>) -> (Result<(Stream, Keys), DialError>, Option<Link>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = socket.local_addr().expect("bound");
    let peer = |id, peer: String| PeerAddress { id, client: peer.clone(), peer, http: None };
    let peers = vec![peer(0, "localhost:1".to_owned()), peer(1, address.to_string())];
    let secret = side(0).secret;
    let threshold = Threshold::new(&Cluster { peers, listen_peer: address, secret, tls: None }, listener);
    let card = Card { peers: [0; 8], device: [0; 8], version: String::new() };
    let gate = Gate::new(side(1), Arc::new(Known::new(card, &[])));
    let own = side(0);
    let dial = Dial { node: NodeId::new(1), address: address.to_string(), tls: dialler };
    let met = async { meet(socket.accept().await.expect("somebody comes").0, &gate, &threshold).await };
    let (dialled, met) = tokio::join!(connect(&own, &dial, Lane::Ask), met);
    (dialled, met.ok().flatten())
}

fn refused((dialled, met): (Result<(Stream, Keys), DialError>, Option<Link>)) -> TlsRefusal {
    assert!(met.is_none(), "there is a link");
    match dialled {
        Err(DialError::Tls(refusal)) => refusal,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("there is a link"),
    }
}

#[tokio::test]
async fn a_link_is_encrypted_if_both_have_the_files_and_its_proofs_are_of_this_session() {
    let ca = Ca::new();
    let (dialled, met) = dial(ca.node("localhost"), ca.node("127.0.0.1")).await;
    let (stream, keys) = dialled.expect("they are of one cluster");
    let link = met.expect("a link");
    assert!(stream.is_tls() && link.stream.is_tls());
    assert_eq!((keys.of_dialler, keys.of_listener), (link.keys.of_dialler, link.keys.of_listener));
    let hello = b"hello".to_vec();
    let bound = super::bound(hello.clone(), &stream).expect("it is done");
    assert_eq!(bound, super::bound(hello.clone(), &link.stream).expect("it is done"));
    let (dialled, _) = dial(ca.node("localhost"), ca.node("127.0.0.1")).await;
    let (again, _) = dialled.expect("they are of one cluster");
    assert_ne!(bound, super::bound(hello.clone(), &again).expect("it is done"));
    // Without the files all is as it was.
    let (dialled, met) = dial(None, None).await;
    let (stream, _) = dialled.expect("they are of one cluster");
    assert!(!stream.is_tls() && !met.expect("a link").stream.is_tls());
    assert_eq!(super::bound(hello.clone(), &stream).expect("nothing to do"), hello);
}

#[tokio::test]
async fn a_node_with_tls_and_one_without_make_no_link_and_each_is_told_what_to_set_where() {
    let ca = Ca::new();
    assert_eq!(refused(dial(None, ca.node("127.0.0.1")).await), TlsRefusal::Wanted);
    assert_eq!(refused(dial(ca.node("localhost"), None).await), TlsRefusal::NotThere);
}

#[tokio::test]
async fn a_certificate_that_names_no_host_of_the_claimed_node_makes_no_link_in_either_direction() {
    let (ca, other) = (Ca::new(), Ca::new());
    assert_eq!(refused(dial(ca.node("another"), ca.node("127.0.0.1")).await), TlsRefusal::OtherName);
    let refusal = refused(dial(ca.node("localhost"), ca.node("another")).await);
    assert!(refusal.to_string().contains("it is not for 127.0.0.1, but for another"), "{refusal}");
    let refusal = refused(dial(ca.node("localhost"), other.node("127.0.0.1")).await);
    assert!(refusal.to_string().contains("none of the given CAs issued it"), "{refusal}");
}

#[test]
fn a_notice_is_one_and_nothing_else_is() {
    for refusal in TlsRefusal::NOTICES {
        assert_eq!(TlsRefusal::of_notice(&refusal.notice()), Some(refusal));
    }
    for other in [&b""[..], b"MMQN", b"MMQN\x03", b"MMQN\0\0", b"MMQL\0"] {
        assert_eq!(TlsRefusal::of_notice(other), None, "{other:?}");
    }
}
