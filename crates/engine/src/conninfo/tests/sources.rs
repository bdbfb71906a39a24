//! Which source of a value wins, and what the files say: compared with libpq.

use super::World;
use crate::conninfo::resolve;
use crate::error::Kind;

const SERVICES: &str = "\
# services of anna
[pi]
host=/run/pi
  port=5555
user=otto
user=second
password=from service

[local]
dbname=bench
user=

[pi]
dbname=never

[noted] text behind the bracket
port=7777
";

const SYSTEM_SERVICES: &str = "[pi]\nuser=system\n[shared]\nport=6666\nuser=shared\n";

const PASSWORDS: &str = r"# passwords of anna
localhost:5432:*:*:local
/run/x:5433:bench:*:a\:b\\c
/run/x:*:*:otto:otto's
::1:1:*:*:six
@name:*:*:*:abstract
";

fn world() -> World {
    World::new()
        .var("PGSYSCONFDIR", "/etc/pg")
        .file("/home/anna/.pg_service.conf", 0o644, SERVICES)
        .file("/etc/pg/pg_service.conf", 0o644, SYSTEM_SERVICES)
        .file("/home/anna/srv/x.conf", 0o644, "[pi]\nport=8888\n")
        .file("/home/anna/.pgpass", 0o100_600, PASSWORDS)
        .file("/home/anna/srv/pw", 0o100_600, "*:*:*:*:other\n")
        .file("/home/anna/srv/open", 0o100_644, "*:*:*:*:open\n")
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// String, variables, overrides, and what libpq 18.6 made of them (`PQconnectStartParams` with
/// the string as the first `dbname`): user, host, port, database, sslmode, password.
#[rustfmt::skip]
const RESOLVED_BY_LIBPQ: &[(&str, Pairs, Pairs, &str)] = &[
    ("", &[], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("bench", &[], &[], "anna /var/run/postgresql 5432 bench prefer local"),
    ("dbname=bench", &[], &[], "anna /var/run/postgresql 5432 bench prefer local"),
    ("user=otto", &[], &[], "otto /var/run/postgresql 5432 otto prefer local"),
    ("", &[("PGUSER", "otto")], &[], "otto /var/run/postgresql 5432 otto prefer local"),
    ("", &[("PGUSER", "")], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("user=''", &[("PGUSER", "otto")], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("", &[("PGDATABASE", "bench"), ("PGPORT", "5433"), ("PGHOST", "/run/x")], &[], "anna /run/x 5433 bench prefer a:b\\c"),
    ("host='' port='' dbname=''", &[("PGDATABASE", "bench"), ("PGPORT", "5433"), ("PGHOST", "/run/x")], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("postgresql:///", &[("PGDATABASE", "bench"), ("PGPORT", "5433"), ("PGHOST", "/run/x")], &[], "anna /run/x 5433 bench prefer a:b\\c"),
    ("postgresql://?dbname=", &[("PGDATABASE", "bench")], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("host=/run/x port=5433 dbname=bench", &[], &[], "anna /run/x 5433 bench prefer a:b\\c"),
    ("host=/run/x user=otto", &[], &[], "otto /run/x 5432 otto prefer otto's"),
    ("host=/run/x", &[], &[], "anna /run/x 5432 anna prefer"),
    ("host=/run/x user=otto password=given", &[], &[], "otto /run/x 5432 otto prefer given"),
    ("host=/run/x user=otto password=", &[], &[], "otto /run/x 5432 otto prefer otto's"),
    ("host=/run/x user=otto", &[("PGPASSWORD", "variable")], &[], "otto /run/x 5432 otto prefer variable"),
    ("host=/run/x user=otto", &[("PGPASSWORD", "")], &[], "otto /run/x 5432 otto prefer otto's"),
    ("host=/run/x passfile=/home/anna/srv/pw", &[], &[], "anna /run/x 5432 anna prefer other"),
    ("host=/run/x", &[("PGPASSFILE", "/home/anna/srv/pw")], &[], "anna /run/x 5432 anna prefer other"),
    ("host=/run/x user=otto", &[("PGPASSFILE", "")], &[], "otto /run/x 5432 otto prefer otto's"),
    ("host=/run/x passfile=/home/anna/srv/open", &[], &[], "anna /run/x 5432 anna prefer"),
    ("passfile=/home/anna/none", &[], &[], "anna /var/run/postgresql 5432 anna prefer"),
    ("hostaddr=::1 port=1", &[], &[], "anna ::1 1 anna prefer six"),
    ("host=@name", &[], &[], "anna @name 5432 anna prefer abstract"),
    ("port=5433", &[], &[], "anna /var/run/postgresql 5433 anna prefer"),
    ("service=pi", &[], &[], "otto /run/pi 5555 otto prefer from service"),
    ("", &[("PGSERVICE", "pi")], &[], "otto /run/pi 5555 otto prefer from service"),
    ("service=pi", &[("PGSERVICE", "shared")], &[], "otto /run/pi 5555 otto prefer from service"),
    ("service=pi port=1", &[("PGPORT", "2")], &[], "otto /run/pi 1 otto prefer from service"),
    ("service=pi user=''", &[], &[], "anna /run/pi 5555 anna prefer from service"),
    ("service=local", &[("PGUSER", "otto"), ("PGDATABASE", "x")], &[], "anna /var/run/postgresql 5432 bench prefer local"),
    ("service=noted", &[], &[], "anna /var/run/postgresql 7777 anna prefer"),
    ("service=shared", &[], &[], "shared /var/run/postgresql 6666 shared prefer"),
    ("service=pi", &[("PGSERVICEFILE", "/home/anna/srv/x.conf")], &[], "anna /var/run/postgresql 8888 anna prefer"),
    ("service=shared", &[("PGSERVICEFILE", "/home/anna/srv/x.conf")], &[], "shared /var/run/postgresql 6666 shared prefer"),
    ("postgresql://?service=pi&port=3", &[], &[], "otto /run/pi 3 otto prefer from service"),
    ("bench", &[], &[("dbname", "other"), ("port", "9")], "anna /var/run/postgresql 9 other prefer"),
    ("postgresql:///bench?port=5", &[], &[("port", "9")], "anna /var/run/postgresql 9 bench prefer"),
    ("port=5", &[], &[("port", "")], "anna /var/run/postgresql 5 anna prefer"),
    ("service=pi", &[], &[("user", "boss")], "boss /run/pi 5555 boss prefer from service"),
    ("", &[("PGSSLMODE", "require")], &[], "anna /var/run/postgresql 5432 anna require local"),
    ("", &[("PGREQUIRESSL", "1")], &[], "anna /var/run/postgresql 5432 anna require local"),
    ("", &[("PGREQUIRESSL", "0")], &[], "anna /var/run/postgresql 5432 anna prefer local"),
    ("", &[("PGREQUIRESSL", "1"), ("PGSSLMODE", "allow")], &[], "anna /var/run/postgresql 5432 anna allow local"),
    ("sslrootcert=system", &[], &[], "anna /var/run/postgresql 5432 anna verify-full local"),
    ("", &[("PGSSLROOTCERT", "system")], &[], "anna /var/run/postgresql 5432 anna verify-full local"),
    ("requiressl=1", &[], &[], "anna /var/run/postgresql 5432 anna require local"),
];

#[test]
fn sources_win_in_the_order_they_do_in_libpq() {
    for (dsn, variables, overrides, expected) in RESOLVED_BY_LIBPQ {
        let world = variables.iter().fold(world(), |world, (name, value)| world.var(name, value));
        let found =
            resolve(dsn, overrides, &world).unwrap_or_else(|error| panic!("{dsn}: {error}"));
        let endpoint = found.endpoints().unwrap().remove(0);
        let (user, database) = (found.user(), found.dbname());
        let (host, port) = (&endpoint.host, endpoint.port);
        let mode = found.get("sslmode").unwrap();
        let password = endpoint.password.unwrap_or_default();
        let shown = format!("{user} {host} {port} {database} {mode} {password}");
        assert_eq!(shown.trim_end(), *expected, "{dsn} {variables:?} {overrides:?}");
    }
}

#[test]
fn every_variable_of_libpq_reaches_its_keyword() {
    #[rustfmt::skip]
    let cases = [
        ("PGHOST", "host", "h"), ("PGHOSTADDR", "hostaddr", "::1"), ("PGPORT", "port", "7"),
        ("PGDATABASE", "dbname", "d"), ("PGUSER", "user", "u"), ("PGPASSWORD", "password", "p"),
        ("PGPASSFILE", "passfile", "/f"), ("PGREQUIREAUTH", "require_auth", "md5"),
        ("PGCHANNELBINDING", "channel_binding", "require"), ("PGSERVICE", "service", "local"),
        ("PGOPTIONS", "options", "-c a=b"), ("PGAPPNAME", "application_name", "a"),
        ("PGSSLMODE", "sslmode", "allow"), ("PGSSLNEGOTIATION", "sslnegotiation", "postgres"),
        ("PGSSLCOMPRESSION", "sslcompression", "1"), ("PGSSLCERT", "sslcert", "/c"),
        ("PGSSLKEY", "sslkey", "/k"), ("PGSSLCERTMODE", "sslcertmode", "disable"),
        ("PGSSLROOTCERT", "sslrootcert", "/r"), ("PGSSLCRL", "sslcrl", "/l"),
        ("PGSSLCRLDIR", "sslcrldir", "/m"), ("PGSSLSNI", "sslsni", "0"),
        ("PGSSLMINPROTOCOLVERSION", "ssl_min_protocol_version", "TLSv1.3"),
        ("PGSSLMAXPROTOCOLVERSION", "ssl_max_protocol_version", "TLSv1.3"),
        ("PGMINPROTOCOLVERSION", "min_protocol_version", "3.0"),
        ("PGMAXPROTOCOLVERSION", "max_protocol_version", "latest"),
        ("PGGSSENCMODE", "gssencmode", "prefer"), ("PGKRBSRVNAME", "krbsrvname", "k"),
        ("PGGSSLIB", "gsslib", "g"), ("PGGSSDELEGATION", "gssdelegation", "1"),
        ("PGCONNECT_TIMEOUT", "connect_timeout", "3"),
        ("PGCLIENTENCODING", "client_encoding", "LATIN1"),
        ("PGTARGETSESSIONATTRS", "target_session_attrs", "primary"),
    ];
    for (variable, keyword, value) in cases {
        assert_eq!(
            world().var(variable, value).resolve("").get(keyword),
            Some(value),
            "{variable}"
        );
    }
    let peer = world().var("PGREQUIREPEER", "postgres").resolve("host=pi4");
    assert_eq!(peer.get("requirepeer"), Some("postgres"));
    let error = world().var("PGLOADBALANCEHOSTS", "round").refuse("");
    assert_eq!(error.value("keyword"), Some(&"load_balance_hosts".into()));
}

#[test]
fn a_named_service_file_comes_before_the_variable() {
    let found = world()
        .var("PGSERVICEFILE", "/none")
        .resolve("service=pi servicefile=/home/anna/srv/x.conf");
    assert_eq!(found.get("port"), Some("8888"));
}

#[test]
fn a_missing_service_names_the_files_looked_at() {
    let error = World::new().refuse("service=nope");
    assert_eq!(
        error.to_string(),
        "service-not-found service=nope files=/home/anna/.pg_service.conf,\
         /etc/postgresql-common/pg_service.conf absent=/home/anna/.pg_service.conf,\
         /etc/postgresql-common/pg_service.conf"
    );
    let error = world().refuse("service=nope servicefile=/none");
    assert!(error.to_string().starts_with("cannot-read-service-file path=/none why="), "{error}");
}

#[test]
fn an_error_in_a_service_says_file_and_line() {
    for (line, expected) in [
        ("nonsense", "service-line-without-equals"),
        ("hst=pi4", "unknown-connection-keyword keyword=hst near=host"),
        ("host = pi4", "service-line-with-space keyword=host"),
        ("service=pi", "service-names-service keyword=service"),
        ("servicefile=/x", "service-names-service keyword=servicefile"),
        ("ldap://pi4/dc=x", "service-from-ldap"),
    ] {
        let text = format!("# first\n\n[broken]\nport=1\n{line}\n");
        let error =
            World::new().file("/home/anna/.pg_service.conf", 0o644, &text).refuse("service=broken");
        assert_eq!(error.kind, Kind::Conninfo);
        assert_eq!(error.to_string(), format!("/home/anna/.pg_service.conf:5: {expected}"));
    }
}

#[test]
fn errors_in_other_services_do_not_matter() {
    let text = "[broken]\nnonsense\n[good]\nport=1\n";
    let world = World::new().file("/home/anna/.pg_service.conf", 0o644, text);
    assert_eq!(world.resolve("service=good").get("port"), Some("1"));
}

#[test]
fn a_password_file_that_others_may_read_is_ignored_with_a_warning() {
    for (mode, expected) in [
        (0o100_640, "password-file-open-to-others path=/home/anna/.pgpass mode=0640"),
        (0o604, "password-file-open-to-others path=/home/anna/.pgpass mode=0604"),
        (0o020_600, "password-file-not-regular path=/home/anna/.pgpass"),
    ] {
        let found =
            World::new().file("/home/anna/.pgpass", mode, "*:*:*:*:secret").resolve("host=a,b");
        assert!(found.endpoints().unwrap().iter().all(|endpoint| endpoint.password.is_none()));
        let [warning] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
        assert_eq!(warning.to_string(), expected);
    }
}

#[test]
fn a_password_file_is_not_looked_at_when_there_is_a_password() {
    let found = World::new().file("/home/anna/.pgpass", 0o644, "").resolve("password=x");
    assert!(found.warnings.is_empty());
}

#[test]
fn a_process_without_a_user_must_name_one() {
    let world = World { nameless: true, ..World::new() };
    assert_eq!(world.refuse("host=pi4").name, "no-user-name");
    assert_eq!(world.resolve("user=anna").dbname(), "anna");
}

#[test]
fn an_unknown_override_is_an_error() {
    assert!(resolve("", &[("hots", "x")], &World::new()).is_err());
}

#[test]
fn the_startup_packet_holds_what_libpq_sends_in_its_order() {
    let world = World::new().var("PGTZ", "UTC").var("PGDATESTYLE", "Default").var("PGGEQO", "");
    let found = world.resolve(
        "user=u dbname=d options=-cx=y application_name=a fallback_application_name=f \
         client_encoding=UTF8 replication=off",
    );
    let shown: Vec<String> =
        found.startup_parameters().iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        shown,
        [
            "user=u",
            "database=d",
            "replication=off",
            "options=-cx=y",
            "application_name=a",
            "client_encoding=UTF8",
            "timezone=UTC",
            "geqo=",
        ]
    );
}

#[test]
fn an_empty_application_name_keeps_the_fallback_out() {
    let world = World::new();
    for (dsn, expected) in [
        ("fallback_application_name=f", Some("f")),
        ("fallback_application_name=f application_name=a", Some("a")),
        ("fallback_application_name=f application_name=''", None),
        ("user=u", None),
    ] {
        assert_eq!(world.resolve(dsn).application_name(), expected, "{dsn}");
    }
}

#[test]
fn the_encoding_auto_is_that_of_the_locale() {
    let world = World::new().var("LC_ALL", "").var("LANG", "de_DE.UTF-8");
    assert_eq!(world.resolve("client_encoding=auto").get("client_encoding"), Some("UTF8"));
}
