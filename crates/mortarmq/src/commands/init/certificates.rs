//! A CA for one broker or the nodes of one cluster, for those without a CA of their own.
//!
//! The CA's key is forgotten at once: it can issue nothing else, and nobody can steal it. More certificates, or others, come
//! from a CA of the operator's.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::errors::Failure;

/// The CA, for those who connect.
pub(crate) const CA_FILE: &str = "mortarmq-ca.pem";
/// The certificate of the broker.
pub(crate) const CERTIFICATE_FILE: &str = "mortarmq-cert.pem";
/// Its private key.
pub(crate) const KEY_FILE: &str = "mortarmq-key.pem";

/// A CA and what it issued, all in PEM form.
pub(super) struct Made {
    pub(super) ca: String,
    pub(super) issued: Vec<Issued>,
}

/// A certificate and its private key.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Makes a CA, and a certificate for each list of names: hosts and IP addresses.
pub(super) fn make(lists: &[Vec<String>]) -> Result<Made, Failure> {
    try_make(lists).map_err(|error| {
        Failure::local(format!("no certificate can be made: {error}"), "give other names: --name HOST_OR_IP")
    })
}

fn try_make(lists: &[Vec<String>]) -> Result<Made, rcgen::Error> {
    let now = SystemTime::now();
    let begin = now.checked_sub(SKEW).unwrap_or(now).into();
    let end = (now + LIFE).into();
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, "MortarMQ, a CA that issues nothing more");
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (ca.not_before, ca.not_after) = (begin, end);
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::from_params(&ca, &ca_key);
    let issued = lists.iter().map(|names| issue(names, &ca, &issuer));
    Ok(Made { ca: ca_certificate.pem(), issued: issued.collect::<Result<_, _>>()? })
}

fn issue(names: &[String], ca: &CertificateParams, issuer: &Issuer<'_, &KeyPair>) -> Result<Issued, rcgen::Error> {
    let mut broker = CertificateParams::new(names)?;
    broker.distinguished_name.push(DnType::CommonName, "MortarMQ broker");
    broker.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A node of several also dials.
    broker.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    broker.use_authority_key_identifier_extension = true;
    (broker.not_before, broker.not_after) = (ca.not_before, ca.not_after);
    let key = KeyPair::generate()?;
    let certificate = broker.signed_by(&key, issuer)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The names of this machine that others may reach it by, and then those that were given, each once.
pub(super) fn names(given: &[String]) -> Result<Vec<String>, Failure> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = mortarmq_transport::is_host(&machine).then_some(machine);
    names_of(machine.iter().chain(given))
}

/// The names by which every machine reaches itself, and then those that were given, each once.
pub(super) fn names_of<'a>(given: impl IntoIterator<Item = &'a String>) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for name in given {
        if !mortarmq_transport::is_host(name) {
            let what = format!("{name:?} is no host name and no IP address");
            return Err(Failure::arguments(what, "give a name without a port, such as broker.example.org"));
        }
        names.push(name.clone());
    }
    let mut seen = Vec::new();
    names.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(name.clone());
        is_new
    });
    Ok(names)
}

/// Clocks of others may be behind.
const SKEW: Duration = Duration::from_secs(24 * 3600);
/// A certificate that runs out stops every client at once, and this version has no command that renews one.
const LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_certificate_names_this_machine_and_what_was_given_each_once() {
        let given = ["broker.example.org", "localhost", "10.0.0.7", "fe80::1"].map(str::to_owned);
        let Ok(names) = names(&given) else { panic!("all are names") };
        assert_eq!(names[..3], ["localhost", "127.0.0.1", "::1"]);
        assert!(names.ends_with(&["broker.example.org".to_owned(), "10.0.0.7".to_owned(), "fe80::1".to_owned()]));
        assert_eq!(names.iter().filter(|name| *name == "localhost").count(), 1);
    }

    #[test]
    fn what_no_certificate_can_name_is_refused() {
        for name in ["", "broker:7188", "https://broker", "a b", "[::1]"] {
            assert!(names(&[name.to_owned()]).is_err(), "{name}");
        }
    }
}
