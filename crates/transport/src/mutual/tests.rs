use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::net::{TcpListener, TcpStream};

use super::{Mutual, MutualFiles};
use crate::{Stream, TlsFault};

/// A CA of nodes, and what it has issued, as files.
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
        std::fs::write(ca.path("ca.pem"), ca.params.self_signed(&ca.key).expect("signed").pem()).expect("written");
        ca
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate for a host, changed before it is signed.
    fn issue(&self, host: &str, change: impl FnOnce(&mut CertificateParams)) -> MutualFiles {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).expect("signed");
        let files = MutualFiles {
            certificate: self.path(&format!("{host}.pem")),
            key: self.path(&format!("{host}-key.pem")),
            ca: self.path("ca.pem"),
        };
        std::fs::write(&files.certificate, certificate.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
        files
    }

    fn node(&self, host: &str) -> Mutual {
        Mutual::from_files(&self.issue(host, |_| ()), host).expect("they are right")
    }
}

/// Both ends of a connection, and how their handshakes ended.
struct Met {
    dialler: Stream,
    dialled: io::Result<()>,
    listener: Stream,
    accepted: io::Result<()>,
}

async fn meet(dialler: &Mutual, host: &str, listener: &Mutual) -> Met {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), socket.accept());
    let mut dialler = dialler.connect(ours.expect("connected"), host).expect("a name");
    let mut listener = listener.accept(theirs.expect("accepted").0).expect("a server");
    let (dialled, accepted) = tokio::join!(dialler.handshake(), listener.handshake());
    Met { dialler, dialled, listener, accepted }
}

fn reason(result: io::Result<()>) -> String {
    let error = result.expect_err("it is refused");
    TlsFault::of(&error).map_or_else(|| error.to_string(), |fault| fault.to_string())
}

#[tokio::test]
async fn two_nodes_of_one_ca_know_each_other_by_name_and_share_what_nobody_else_knows() {
    let ca = Ca::new();
    let (first, second) = (ca.node("first"), ca.node("second"));
    let met = meet(&first, "second", &second).await;
    met.dialled.expect("of one CA");
    met.accepted.expect("of one CA");
    met.listener.check_peer_name("first").expect("that is who dialled");
    met.dialler.check_peer_name("second").expect("that is who was dialled");
    let told = reason(met.listener.check_peer_name("third"));
    assert!(told.contains("it is not for third, but for first"), "{told}");
    let binding = met.dialler.binding().expect("it is done").expect("it is TLS");
    assert_eq!(met.listener.binding().expect("it is done"), Some(binding));
    let again = meet(&first, "second", &second).await;
    assert_ne!(again.listener.binding().expect("it is done"), Some(binding), "each session has its own");
}

#[tokio::test]
async fn a_certificate_of_another_ca_or_of_another_node_is_refused_by_the_other_side() {
    let (ca, other) = (Ca::new(), Ca::new());
    let (first, second, stranger) = (ca.node("first"), ca.node("second"), other.node("second"));
    let met = meet(&first, "second", &stranger).await;
    assert!(reason(met.dialled).contains("none of the given CAs issued it"));
    // Whoever trusts anybody is refused all the same: the stranger trusts our CA here, and ours does not trust his.
    let mut files = other.issue("first", |_| ());
    files.ca = other.path("both.pem");
    let both = [std::fs::read(other.path("ca.pem")), std::fs::read(ca.path("ca.pem"))].map(|ca| ca.expect("ours"));
    std::fs::write(&files.ca, both.concat()).expect("written");
    let met = meet(&Mutual::from_files(&files, "first").expect("it trusts both"), "second", &second).await;
    assert!(reason(met.accepted).contains("none of the given CAs issued it"));
    let met = meet(&first, "third", &second).await;
    assert!(reason(met.dialled).contains("it is not for third, but for second"));
}

#[test]
fn what_the_other_nodes_would_not_accept_is_found_before_they_are_asked() {
    let ca = Ca::new();
    let told = |files: &MutualFiles, host: &str| Mutual::from_files(files, host).expect_err("not right").to_string();
    let expired = ca.issue("expired", |params| params.not_after = date_time_ymd(2020, 1, 1));
    assert!(told(&expired, "expired").contains("it has expired"));
    let early = ca.issue("early", |params| params.not_before = date_time_ymd(4000, 1, 1));
    assert!(told(&early, "early").contains("it is not valid yet"));
    for (one, missing) in
        [(ExtendedKeyUsagePurpose::ServerAuth, "clientAuth"), (ExtendedKeyUsagePurpose::ClientAuth, "serverAuth")]
    {
        let half = ca.issue("half", |params| params.extended_key_usages = vec![one]);
        let told = told(&half, "half");
        assert!(told.contains("extended key usage") && told.contains(missing), "{told}");
    }
    let right = ca.issue("right", |_| ());
    assert!(told(&right, "left").contains("it is not for left, but for right"));
    let of_another = MutualFiles { ca: Ca::new().path("ca.pem"), ..right.clone() };
    assert!(told(&of_another, "right").contains("cannot read"), "its folder is gone");
    let other = Ca::new();
    let of_another = MutualFiles { ca: other.path("ca.pem"), ..right.clone() };
    assert!(told(&of_another, "right").contains("none of the given CAs issued it"));
    let other_key = MutualFiles { key: expired.key.clone(), ..right.clone() };
    assert!(told(&other_key, "right").contains("made together"));
    let soon = ca.issue("soon", |params| params.not_after = (std::time::SystemTime::now() + DAY).into());
    Mutual::check(&soon, "soon", Duration::ZERO).expect("today it is");
    let late = Mutual::check(&soon, "soon", 2 * DAY).expect_err("the day after tomorrow it is not");
    assert!(late.to_string().contains("it has expired"), "{late}");
}

#[tokio::test]
async fn files_that_are_read_again_count_for_the_next_connection_and_wrong_ones_change_nothing() {
    let (ca, next) = (Ca::new(), Ca::new());
    let (files, second) = (ca.issue("first", |_| ()), ca.node("second"));
    let first = Mutual::from_files(&files, "first").expect("right");
    std::fs::write(&files.certificate, "nothing").expect("written");
    first.reload(&files, "first").expect_err("no certificate");
    meet(&first, "second", &second).await.accepted.expect("the former one is in use");
    let files = next.issue("first", |_| ());
    first.reload(&files, "first").expect("right");
    assert!(reason(meet(&first, "second", &second).await.dialled).contains("none of the given CAs issued it"));
    meet(&first, "second", &next.node("second")).await.accepted.expect("of the CA that is trusted now");
}

#[tokio::test]
async fn whoever_shows_no_certificate_gets_no_session() {
    let ca = Ca::new();
    let listener = ca.node("second");
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("bound");
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), socket.accept());
    let client = crate::Connector::new(&crate::Roots::File(ca.path("ca.pem"))).expect("a CA");
    let mut client = client.connect(ours.expect("connected"), "second").expect("a name");
    let mut listener = listener.accept(theirs.expect("accepted").0).expect("a server");
    let (_, accepted) = tokio::join!(client.handshake(), listener.handshake());
    assert!(reason(accepted).contains("no certificates"));
    reason(listener.check_peer_name("first"));
}

const DAY: Duration = Duration::from_secs(24 * 3600);
