//! TLS, authentication, secrets that stay secret, and demands that the engine cannot meet.

use std::path::Path;

use super::World;
use crate::conninfo::{
    AuthMethod, CertificateCheck, ChannelBinding, RootCert, SslCertMode, SslMode, SslNegotiation,
    TlsVersion,
};
use crate::error::Kind;

#[test]
fn the_defaults_are_those_of_libpq() {
    let found = World::new().resolve("");
    assert_eq!(found.ssl_mode(), SslMode::Prefer);
    assert_eq!(found.ssl_negotiation(), SslNegotiation::Postgres);
    assert_eq!(found.ssl_cert_mode(), SslCertMode::Allow);
    assert_eq!(found.channel_binding(), ChannelBinding::Prefer);
    assert_eq!((found.tls_min(), found.tls_max()), (Some(TlsVersion::V1_2), None));
    assert_eq!(found.ssl_root_cert(), &RootCert::None);
    assert_eq!(found.certificate_check(), CertificateCheck::Nothing);
    assert_eq!((found.ssl_cert(), found.ssl_key(), found.ssl_crl()), (None, None, None));
    assert!(found.ssl_sni());
}

#[test]
fn files_in_the_home_directory_are_used_if_they_exist() {
    let world = ["root.crt", "root.crl", "postgresql.crt", "postgresql.key"]
        .iter()
        .fold(World::new(), |world, name| {
            world.file(&format!("/home/anna/.postgresql/{name}"), 0o600, "")
        });
    let found = world.resolve("host=pi4");
    assert_eq!(found.ssl_root_cert(), &RootCert::File("/home/anna/.postgresql/root.crt".into()));
    assert_eq!(found.ssl_cert(), Some(Path::new("/home/anna/.postgresql/postgresql.crt")));
    assert_eq!(found.ssl_key(), Some(Path::new("/home/anna/.postgresql/postgresql.key")));
    assert_eq!(found.ssl_crl(), Some(Path::new("/home/anna/.postgresql/root.crl")));
    assert_eq!(world.resolve("sslcrldir=/crl").ssl_crl(), None);
    assert_eq!(world.resolve("sslcertmode=disable").ssl_cert(), None);
}

#[test]
fn what_is_checked_follows_from_the_mode_and_from_the_roots_that_exist() {
    let world = World::new().file("/roots", 0o644, "");
    for (dsn, expected) in [
        ("sslmode=require", CertificateCheck::Nothing),
        ("sslmode=require sslrootcert=/roots", CertificateCheck::Chain),
        ("sslmode=prefer sslrootcert=/roots", CertificateCheck::Chain),
        ("sslmode=verify-ca sslrootcert=/roots", CertificateCheck::Chain),
        ("sslmode=verify-full sslrootcert=/roots", CertificateCheck::ChainAndName),
        ("sslrootcert=system", CertificateCheck::ChainAndName),
    ] {
        assert_eq!(
            world.resolve(&format!("host=pi4 {dsn}")).certificate_check(),
            expected,
            "{dsn}"
        );
    }
    assert_eq!(world.resolve("sslrootcert=system").ssl_mode(), SslMode::VerifyFull);
}

#[test]
fn that_a_server_asks_for_a_certificate_cannot_be_demanded() {
    let error = World::new().refuse("host=pi4 sslcertmode=require");
    assert_eq!(error.name, "sslcertmode-unsupported");
    World::new().resolve("host=/tmp sslcertmode=require");
    World::new().resolve("host=pi4 sslcertmode=require sslmode=disable");
}

#[test]
fn verifying_without_roots_is_an_error_over_tcp_only() {
    for dsn in ["sslmode=verify-full", "sslmode=verify-ca sslrootcert=/none"] {
        let error = World::new().refuse(&format!("host=pi4 {dsn}"));
        assert_eq!(error.kind, Kind::Tls);
        World::new().resolve(&format!("host=/tmp {dsn}"));
    }
}

#[test]
fn named_files_that_do_not_exist_are_warnings_where_libpq_goes_on() {
    let found = World::new().resolve("host=pi4 sslrootcert=/none sslcert=/nowhere");
    assert_eq!((found.ssl_root_cert(), found.ssl_cert()), (&RootCert::None, None));
    assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
}

#[test]
fn combinations_that_promise_more_than_they_keep_are_errors() {
    for (dsn, expected) in [
        ("sslmode=on", "connection-value-unknown keyword=sslmode value=on"),
        ("sslmode=''", "connection-value-unknown keyword=sslmode value= known=disable,"),
        ("sslnegotiation=fast", "connection-value-unknown keyword=sslnegotiation"),
        ("sslnegotiation=direct", "direct-tls-needs-sslmode mode=prefer"),
        ("sslrootcert=system sslmode=require", "system-roots-need-sslmode mode=require"),
        ("sslcertmode=maybe", "connection-value-unknown keyword=sslcertmode"),
        ("channel_binding=yes", "connection-value-unknown keyword=channel_binding"),
        ("ssl_min_protocol_version=SSLv3", "connection-value-unknown keyword=ssl_min_protocol_v"),
        ("ssl_max_protocol_version=TLSv1.1", "tls-versions-reversed"),
        ("gssencmode=on", "connection-value-unknown keyword=gssencmode"),
        ("max_protocol_version=3.1", "connection-value-unknown keyword=max_protocol_version"),
    ] {
        let error = World::new().refuse(dsn);
        assert_eq!(error.kind, Kind::Conninfo);
        assert!(error.to_string().starts_with(expected), "{dsn}: {error}");
    }
    World::new().resolve("sslnegotiation=direct sslmode=require");
}

#[test]
fn tls_versions_are_read_in_any_case_and_empty_is_open() {
    let found =
        World::new().resolve("ssl_min_protocol_version='' ssl_max_protocol_version=tlsv1.3");
    assert_eq!((found.tls_min(), found.tls_max()), (None, Some(TlsVersion::V1_3)));
}

#[test]
fn demands_that_the_engine_cannot_meet_are_refused() {
    for dsn in [
        "gssencmode=require",
        "replication=true",
        "replication=database",
        "min_protocol_version=3.2",
        "scram_client_key=x",
        "scram_server_key=x",
        "requirepeer=postgres",
        "host=pi4 ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.1",
        "require_auth=gss",
        "require_auth=oauth,sspi",
        "require_auth=!none,!password,!md5,!scram-sha-256",
    ] {
        let error = World::new().refuse(dsn);
        assert_eq!(error.kind, Kind::Conninfo, "{dsn}");
        assert!(error.name.ends_with("-unsupported"), "{error}");
    }
    for dsn in ["gssencmode=prefer", "replication=off", "host=pi4 requirepeer=postgres"] {
        World::new().resolve(dsn);
    }
}

#[test]
fn require_auth_allows_what_it_names_or_all_but_what_it_negates() {
    use AuthMethod::{Md5, None, Password, ScramSha256};
    for (list, expected) in [
        ("", &[None, Password, Md5, ScramSha256][..]),
        ("scram-sha-256", &[ScramSha256]),
        ("md5,gss", &[Md5]),
        ("none,password", &[None, Password]),
        ("!password,!md5", &[None, ScramSha256]),
        ("!none", &[Password, Md5, ScramSha256]),
        ("!gss,!sspi,!oauth", &[None, Password, Md5, ScramSha256]),
    ] {
        let found = World::new().resolve(&format!("require_auth='{list}'"));
        let allowed: Vec<AuthMethod> = [None, Password, Md5, ScramSha256]
            .into_iter()
            .filter(|method| found.auth_allowed(*method))
            .collect();
        assert_eq!(allowed, expected, "{list}");
    }
}

#[test]
fn require_auth_refuses_what_libpq_refuses() {
    for (list, expected) in [
        ("scram", "require-auth-unknown method=scram known=none,"),
        ("md5,", "require-auth-unknown method= known"),
        ("!", "require-auth-unknown method= known"),
        ("md5,!none", "require-auth-mixed value=md5,!none"),
        ("!md5,none", "require-auth-mixed value=!md5,none"),
        ("md5,md5", "require-auth-twice value=md5,md5 method=md5"),
    ] {
        let error = World::new().refuse(&format!("require_auth={list}"));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn debug_output_hides_every_secret() {
    let found = World::new().resolve(
        "host=pi4 password=hunter2 sslpassword=hunter2 oauth_client_secret=hunter2 user=anna",
    );
    for shown in [format!("{found:?}"), format!("{found:#?}"), format!("{:?}", found.endpoints())] {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("***") && shown.contains("pi4"), "{shown}");
    }
    assert_eq!(found.ssl_password(), Some("hunter2"));
}

#[test]
fn no_error_quotes_a_password() {
    for dsn in [
        "password=my hunter2",
        "password=my hunter2=x host=pi4",
        "password='hunter2",
        "password='hunter2'more",
        "sslpassword=my hunter2 host=pi4",
        "postgresql://anna:hunter2%@pi4",
        "postgresql://anna:hunter2%zz@pi4",
        "postgresql://anna:hunter2%00@pi4",
        "postgresql://anna:my hunter2@pi4",
        "postgresql://anna:hunter2/x@pi4/bench",
        "postgresql://anna:p@hunter2@pi4/bench",
        "postgresql://anna:hunter2@pi4/?nosuch=1",
        "postgresql://anna:hunter2@[pi4",
        "postgresql://pi4/?password=hunter2=",
        "postgresql://pi4/?password=%hunter2",
        "postgressql://anna:hunter2@pi4/bench",
        "anna:hunter2@pi4/bench?sslmode=require",
        "password=hunter2\0",
    ] {
        let error = World::new().refuse(dsn);
        assert!(!format!("{error:?}").contains("hunter2"), "{dsn}: {error:?}");
    }
}
