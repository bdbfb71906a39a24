//! Each mistake in a connection string has a name of its own; what is ignored has one, too.

use super::World;

const REFUSED: &[(&str, &str)] = &[
    ("a@b=1", "connection-keyword-has-at"),
    ("host=h x", "connection-keyword-without-equals"),
    ("host='a", "connection-quote-not-closed"),
    ("password=a b", "text-after-secret"),
    ("nosuch=1", "unknown-connection-keyword"),
    ("host=h\0", "connection-value-has-nul"),
    ("host=h connect_timeout=x", "connection-value-not-integer"),
    ("host=h sslmode=x", "connection-value-unknown"),
    ("mysql://h/d", "uri-of-other-program"),
    ("postgresql://[::1", "uri-bracket-not-closed"),
    ("postgresql://[]/d", "uri-brackets-empty"),
    ("postgresql://[::1]x", "uri-text-after-bracket"),
    ("postgresql://u@h@i/d", "uri-host-has-at"),
    ("postgresql://h:0/d", "uri-port-out-of-range"),
    ("postgresql://h/d?a", "uri-parameter-without-equals"),
    ("postgresql://h/d?a=b=c", "uri-parameter-second-equals"),
    ("postgresql://h/%x", "uri-percent-without-digits"),
    ("postgresql://h/%00", "uri-has-nul"),
    ("postgresql://h/a b", "uri-has-space"),
    ("postgresql://h/%ff", "uri-not-utf-8"),
    ("host=h port=0", "port-out-of-range"),
    ("hostaddr=x", "hostaddr-not-an-address"),
    ("host=a,b hostaddr=127.0.0.1", "hosts-differ-from-addresses"),
    ("host=a,b port=1,2,3", "ports-differ-from-hosts"),
    ("host=h gssencmode=require", "gss-encryption-unsupported"),
    ("host=h min_protocol_version=3.2", "newer-protocol-unsupported"),
    ("host=h replication=1", "replication-unsupported"),
    ("host=h scram_client_key=x", "scram-keys-unsupported"),
    ("host=/s requirepeer=x", "requirepeer-unsupported"),
    ("host=h sslcertmode=require", "sslcertmode-unsupported"),
    ("host=h ssl_max_protocol_version=TLSv1", "tls-versions-reversed"),
    ("host=h ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1", "old-tls-unsupported"),
    ("host=h require_auth=x", "require-auth-unknown"),
    ("host=h require_auth=md5,!md5", "require-auth-mixed"),
    ("host=h require_auth=md5,md5", "require-auth-twice"),
    ("host=h require_auth=gss", "require-auth-unsupported"),
    ("host=h sslmode=verify-ca sslrootcert=/none", "root-certificate-missing"),
    ("host=h sslmode=verify-ca", "no-root-certificate"),
    ("service=absent", "service-not-found"),
    ("service=s servicefile=/none", "cannot-read-service-file"),
    ("service=ldap", "service-from-ldap"),
    ("service=bare", "service-line-without-equals"),
    ("service=space", "service-line-with-space"),
    ("service=other", "service-names-service"),
];
const WARNED: &[(&str, &str)] = &[
    ("host=h sslcert=/none", "client-certificate-missing"),
    ("host=h sslrootcert=/none", "server-not-verified"),
    ("host=h passfile=/pipe", "password-file-not-regular"),
    ("host=h passfile=/open", "password-file-open-to-others"),
];

#[test]
fn a_mistake_has_a_name() {
    let services = "[ldap]\nldap://x\n[bare]\nhost\n[space]\nhost =h\n[other]\nservice=x\n";
    let world = World::new()
        .file("/home/anna/.pg_service.conf", 0o600, services)
        .file("/pipe", 0o010_600, "")
        .file("/open", 0o100_644, "");
    for (dsn, name) in REFUSED {
        assert_eq!(world.refuse(dsn).name, *name, "{dsn}");
    }
    for (dsn, name) in WARNED {
        let warnings = world.resolve(dsn).warnings.iter().map(|each| each.name).collect::<Vec<_>>();
        assert_eq!(warnings, [*name], "{dsn}");
    }
}
