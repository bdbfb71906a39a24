//! What the two forms of a connection string say, compared with libpq, and what happens to
//! strings that say nothing sensible.

use super::World;
use crate::conninfo::{keyvalue, keywords::Values, resolve, uri};
use crate::error::Result;

/// String and what libpq 18.6 (`PQconninfoParse`) reads in it, pairs in the order of their names.
#[rustfmt::skip]
const READ_BY_LIBPQ: &[(&str, &str)] = &[
    ("host=pi4 port=5433 dbname=bench", "dbname=bench|host=pi4|port=5433"),
    (" host = pi4\tport\n=\r5433 ", "host=pi4|port=5433"),
    ("host= port=5433", "host=port=5433"),
    ("host=", "host="),
    ("host=''", "host="),
    ("user='a b' dbname=c", "dbname=c|user=a b"),
    ("user='a\\'b' password='c\\\\d'", "password=c\\d|user=a'b"),
    ("user=a\\ b\\'c", "user=a b'c"),
    ("user=a'b", "user=a'b"),
    ("user='a'dbname=b", "dbname=b|user=a"),
    ("user=a user=b", "user=b"),
    ("requiressl=1", "sslmode=require"),
    ("requiressl=0", "sslmode=prefer"),
    ("requiressl=yes", "sslmode=prefer"),
    ("application_name=grün", "application_name=grün"),
    ("options='-c a=b -c c=d'", "options=-c a=b -c c=d"),
    ("service=s", "service=s"),
    ("sslmode=", "sslmode="),
    ("user = 'x'  ", "user=x"),
    ("postgresql://", ""),
    ("postgres://", ""),
    ("postgresql:///", ""),
    ("postgresql:///bench", "dbname=bench"),
    ("postgresql://pi4", "host=pi4"),
    ("postgresql://pi4/", "host=pi4"),
    ("postgresql://pi4:5433/bench", "dbname=bench|host=pi4|port=5433"),
    ("postgresql://anna@pi4", "host=pi4|user=anna"),
    ("postgresql://anna:geheim@pi4", "host=pi4|password=geheim|user=anna"),
    ("postgresql://anna:@pi4", "host=pi4|user=anna"),
    ("postgresql://:geheim@pi4", "host=pi4|password=geheim"),
    ("postgresql://@pi4", "host=pi4"),
    ("postgresql://an%40na:g%2Fh%3a@pi4", "host=pi4|password=g/h:|user=an@na"),
    ("postgresql://a:b:c@pi4", "host=pi4|password=b:c|user=a"),
    ("postgresql://pi4:", "host=pi4"),
    ("postgresql://pi4,pi5/bench", "dbname=bench|host=pi4,pi5|port=,"),
    ("postgresql://pi4:1,pi5:2/bench", "dbname=bench|host=pi4,pi5|port=1,2"),
    ("postgresql://pi4:1,pi5/bench", "dbname=bench|host=pi4,pi5|port=1,"),
    ("postgresql://pi4,", "host=pi4,|port=,"),
    ("postgresql://,", "host=,|port=,"),
    ("postgresql://[::1]", "host=::1"),
    ("postgresql://[::1]:5433/bench", "dbname=bench|host=::1|port=5433"),
    ("postgresql://[::1],[fe80::1%25eth0]:2", "host=::1,fe80::1%eth0|port=,2"),
    ("postgresql://%2Fvar%2Frun%2Fpostgresql/bench", "dbname=bench|host=/var/run/postgresql"),
    ("postgresql://%2Ftmp:5433", "host=/tmp|port=5433"),
    ("postgresql://%40abstract/", "host=@abstract"),
    ("postgresql:///bench?host=/tmp&port=5433", "dbname=bench|host=/tmp|port=5433"),
    ("postgresql://pi4?user=anna", "host=pi4|user=anna"),
    ("postgresql://pi4/bench?user=anna&password=a%26b", "dbname=bench|host=pi4|password=a&b|user=anna"),
    ("postgresql://pi4/?ssl=true", "host=pi4|sslmode=require"),
    ("postgresql://pi4/?requiressl=1", "host=pi4|sslmode=require"),
    ("postgresql://pi4/?", "host=pi4"),
    ("postgresql://pi4/?user=a&", "host=pi4|user=a"),
    ("postgresql://pi4/?user=", "host=pi4|user="),
    ("postgresql://pi4/a/b", "dbname=a/b|host=pi4"),
    ("postgresql://pi4/ a ", "dbname=a|host=pi4"),
    ("postgresql://pi4/?application_name=%20a%20", "application_name= a |host=pi4"),
    ("postgresql://pi4/?%75ser=anna", "host=pi4|user=anna"),
    ("postgresql://pi4?user=a@b", "host=b|user=pi4?user=a"),
    ("postgresql://anna@pi4/?user=otto", "host=pi4|user=otto"),
    ("postgresql://pi4/gr%C3%BCn", "dbname=grün|host=pi4"),
    ("postgresql://host=x", "host=host=x"),
];

/// What libpq 18.6 refuses too.
#[rustfmt::skip]
const REFUSED_BY_LIBPQ: &[&str] = &[
    "user='a\\",
    "user='a",
    "host",
    "host pi4",
    "=x",
    "nosuch=1",
    "host=a nosuch",
    "host=a port",
    "postgresql://[]",
    "postgresql://[::1",
    "postgresql://[::1]x",
    "postgresql://pi4/?ssl=false",
    "postgresql://pi4/?&user=a",
    "postgresql://pi4/?user",
    "postgresql://pi4/?user=a=b",
    "postgresql://pi4/?nosuch=1",
    "postgresql://pi4/a?b",
    "postgresql://pi4/%",
    "postgresql://pi4/%4",
    "postgresql://pi4/%zz",
    "postgresql://pi4/a%00b",
    "postgresql://pi4/a b",
];

/// What libpq takes in and fails with later; here it is refused at once.
const REFUSED_BY_US_ALONE: &[&str] = &[
    "postgresql://anna:p@ss@pi4/bench",
    "postgresql://anna:12x/34@pi4",
    "postgresql://pi4:port",
    "postgresql://pi4:65536",
    "postgresql://pi4/%ff",
];

fn read(text: &str) -> Result<String> {
    let pairs = match uri::body(text) {
        Some(body) => uri::parse(body)?,
        None => keyvalue::parse(text)?,
    };
    let mut values = Values::default();
    for (keyword, value) in pairs {
        values.set(keyword, value)?;
    }
    let pairs: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(pairs.join("|"))
}

#[test]
fn strings_say_what_they_say_to_libpq() {
    for (text, expected) in READ_BY_LIBPQ {
        assert_eq!(read(text).as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn what_libpq_cannot_read_is_an_error() {
    for text in REFUSED_BY_LIBPQ {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn what_can_never_connect_is_an_error_at_once() {
    for text in REFUSED_BY_US_ALONE {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn a_misspelt_scheme_is_not_taken_for_a_database() {
    for dsn in ["postgressql://pi4/bench", "pgsql://pi4/bench?sslmode=require", "://"] {
        assert_eq!(World::new().refuse(dsn).name, "uri-of-other-program", "{dsn}");
    }
    assert_eq!(World::new().resolve("dbname=a://b").dbname(), "a://b");
}

#[test]
fn an_unknown_keyword_is_answered_with_a_guess() {
    for (dsn, guess) in [
        ("hots=pi4", "host"),
        ("database=bench", "dbname"),
        ("postgresql://pi4/?sslmod=require", "sslmode"),
    ] {
        let error = World::new().refuse(dsn);
        assert_eq!(error.name, "unknown-connection-keyword", "{dsn}");
        assert_eq!(error.value("near"), Some(&guess.into()), "{dsn}");
    }
}

/// Knuth's generator: enough to be unkind, and the same on every machine.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn string(&mut self, pieces: &[&str]) -> String {
        (0..self.below(12)).map(|_| pieces[self.below(pieces.len())]).collect()
    }

    fn bytes(&mut self) -> String {
        let bytes: Vec<u8> = (0..self.below(24)).map(|_| self.below(256) as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "postgresql://", "host", "port", "password", "service", "passfile", "=", "'", "\\", " ", "\n",
    "\0", "%", "%4", "%00", "%ff", ":", "@", "/", "?", "&", ",", "[", "]", "::1", "5432", "ä", "\u{1f418}",
    "require_auth=!", "hostaddr=", "client_encoding=auto", "sslrootcert=system", "*", "#", "-1",
];

#[test]
fn no_string_service_or_password_file_makes_it_panic() {
    let mut random = Lcg(18);
    for _ in 0..4_000 {
        let dsn = if random.below(2) == 0 { random.bytes() } else { random.string(PIECES) };
        let world = World::new()
            .var("PGSERVICE", "s")
            .var("PGPORT", &random.bytes())
            .file("/home/anna/.pg_service.conf", 0o600, &format!("[s]\n{}", random.string(PIECES)))
            .file("/home/anna/.pgpass", 0o600, &random.string(PIECES));
        for overrides in [&[][..], &[("host", "pi4"), ("port", "1")]] {
            let _ = resolve(&dsn, overrides, &world);
        }
    }
}
