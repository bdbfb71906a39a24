//! Lists of hosts, addresses and ports, and what a session is to be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::World;
use crate::conninfo::{Address, Conninfo, ProcessEnvironment, TargetSessionAttrs, resolve};
use crate::error::Kind;

/// `host>address:port/password` of each endpoint.
fn shown(found: &Conninfo) -> String {
    let endpoints = found.endpoints().unwrap();
    let parts: Vec<String> = endpoints
        .iter()
        .map(|endpoint| {
            let address = match &endpoint.address {
                Address::Unix(path) => path.display().to_string(),
                Address::Tcp { host } => format!("tcp {host}"),
            };
            let password = endpoint.password.as_deref().unwrap_or("-");
            format!("{}>{address}:{}/{password}", endpoint.host, endpoint.port)
        })
        .collect();
    parts.join(" ")
}

#[test]
fn each_position_of_the_lists_is_an_endpoint() {
    let world = World::new().file(
        "/home/anna/.pgpass",
        0o600,
        "pi4:5432:*:*:four\npi5:1:*:*:five\nlocalhost:*:*:*:local\n10.0.0.1:*:*:*:ten\n",
    );
    for (dsn, expected) in [
        ("host=pi4", "pi4>tcp pi4:5432/four"),
        ("host=pi4,pi5 port=5432,1", "pi4>tcp pi4:5432/four pi5>tcp pi5:1/five"),
        ("host=pi4,pi5 port=1", "pi4>tcp pi4:1/- pi5>tcp pi5:1/five"),
        ("host=pi4,pi5 port=,1", "pi4>tcp pi4:5432/four pi5>tcp pi5:1/five"),
        ("host=pi4 hostaddr=10.0.0.1", "pi4>tcp 10.0.0.1:5432/four"),
        ("hostaddr=10.0.0.1", "10.0.0.1>tcp 10.0.0.1:5432/ten"),
        ("host=pi4,pi5 hostaddr=,10.0.0.1", "pi4>tcp pi4:5432/four pi5>tcp 10.0.0.1:5432/-"),
        ("host=localhost", "localhost>tcp localhost:5432/local"),
        ("", "/var/run/postgresql>/var/run/postgresql/.s.PGSQL.5432:5432/local"),
        (
            "host=,pi4",
            "/var/run/postgresql>/var/run/postgresql/.s.PGSQL.5432:5432/local pi4>tcp pi4:5432/four",
        ),
        ("host=/tmp port=5433", "/tmp>/tmp/.s.PGSQL.5433:5433/-"),
        ("host=@pg", "@pg>@pg/.s.PGSQL.5432:5432/-"),
        ("host=/tmp hostaddr=10.0.0.1", "/tmp>tcp 10.0.0.1:5432/-"),
        ("host=pi4 port=' 05432 '", "pi4>tcp pi4:5432/-"),
        ("hostaddr=fe80::1%eth0", "fe80::1%eth0>tcp fe80::1%eth0:5432/-"),
        ("host=pi4 password=x", "pi4>tcp pi4:5432/x"),
    ] {
        assert_eq!(shown(&world.resolve(dsn)), expected, "{dsn}");
    }
}

#[test]
fn the_keyword_host_says_where_we_connect_by_default() {
    let elsewhere = World::default();
    assert_eq!(elsewhere.resolve("").get("host"), Some("/tmp"));
    for (dsn, expected) in [
        ("", Some("/var/run/postgresql")),
        ("host=''", Some("/var/run/postgresql")),
        ("host=pi4,", Some("pi4,/var/run/postgresql")),
        ("hostaddr=::1", None),
    ] {
        assert_eq!(World::new().resolve(dsn).get("host"), expected, "{dsn}");
    }
}

#[test]
fn lists_of_different_lengths_and_impossible_values_are_errors() {
    for (dsn, expected) in [
        ("host=a,b port=1,2,3", "ports-differ-from-hosts ports=3 hosts=2"),
        ("host=a port=1,2", "ports-differ-from-hosts ports=2 hosts=1"),
        ("host=a,b hostaddr=::1", "hosts-differ-from-addresses hosts=2 addresses=1"),
        ("host=a hostaddr=::1,::2", "hosts-differ-from-addresses hosts=1 addresses=2"),
        ("hostaddr=pi4", "hostaddr-not-an-address hostaddr=pi4"),
        ("port=0", "port-out-of-range port=0"),
        ("port=65536", "port-out-of-range port=65536"),
        ("port=5432x", "port-out-of-range port=5432x"),
        ("port=-1", "port-out-of-range port=-1"),
        ("host=a,b port=1,x", "port-out-of-range port=x"),
        ("connect_timeout=soon", "connection-value-not-integer keyword=connect_timeout value=soon"),
        ("connect_timeout=1.5", "connection-value-not-integer keyword=connect_timeout value=1.5"),
        ("connect_timeout=''", "connection-value-not-integer keyword=connect_timeout value="),
        ("keepalives=yes", "connection-value-not-integer keyword=keepalives value=yes"),
        ("tcp_user_timeout=9999999999", "connection-value-not-integer keyword=tcp_user_timeout"),
        (
            "target_session_attrs=read_write",
            "connection-value-unknown keyword=target_session_attrs",
        ),
        ("load_balance_hosts=round", "connection-value-unknown keyword=load_balance_hosts"),
    ] {
        let error = World::new().refuse(dsn);
        assert_eq!(error.kind, Kind::Conninfo);
        assert!(error.to_string().starts_with(expected), "{dsn}: {error}");
    }
}

#[test]
fn a_socket_path_that_the_kernel_would_cut_is_an_error() {
    let directory = |length: usize| format!("host=/{}", "x".repeat(length - 1));
    let fits = if cfg!(target_os = "linux") { 107 } else { 103 } - "/.s.PGSQL.5432".len();
    World::new().resolve(&directory(fits));
    let error = World::new().refuse(&directory(fits + 1));
    assert_eq!(error.name, "socket-path-too-long");
}

#[test]
fn timeouts_of_zero_and_less_are_none() {
    for (text, expected) in [("-1", None), ("0", None), ("1", Some(1)), (" 30 ", Some(30))] {
        let found = World::new().resolve(&format!("connect_timeout='{text}'"));
        assert_eq!(found.connect_timeout(), expected.map(Duration::from_secs), "{text}");
    }
    assert_eq!(World::new().resolve("").connect_timeout(), None);
}

#[test]
fn tcp_settings_have_their_units() {
    let tcp = World::new()
        .resolve("keepalives_idle=60 keepalives_interval=0 keepalives_count=3 tcp_user_timeout=250")
        .tcp();
    assert!(tcp.keepalives);
    assert_eq!(tcp.idle, Some(Duration::from_secs(60)));
    assert_eq!(tcp.interval, None);
    assert_eq!(tcp.count, Some(3));
    assert_eq!(tcp.user_timeout, Some(Duration::from_millis(250)));
    assert!(!World::new().resolve("keepalives=0").tcp().keepalives);
}

#[test]
fn random_hosts_come_in_each_order_equally_often_with_their_addresses_and_ports() {
    let dsn = "host=a,b,c hostaddr=::1,::2,::3 port=1,2,3 load_balance_hosts=random";
    let mut orders = BTreeMap::new();
    for chance in 0..6000 {
        let found = World { chance, ..World::new() }.resolve(dsn);
        *orders.entry(shown(&found)).or_insert(0) += 1;
    }
    let parts = |order: &String| order.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let all = "a>tcp ::1:1/- b>tcp ::2:2/- c>tcp ::3:3/-".to_owned();
    assert!(orders.keys().all(|order| parts(order) == parts(&all)), "{orders:?}");
    assert_eq!(orders.len(), 6);
    assert!(orders.values().all(|count| (850..1150).contains(count)), "{orders:?}");
}

#[test]
fn who_gets_the_keywords_of_random_hosts_tries_them_in_the_same_order() {
    for (chance, given) in (0..20).flat_map(|n| {
        ["host=a,b,c", "hostaddr=::1,::2", "host=a,,c port=,1,2", ""].map(|given| (n, given))
    }) {
        let world = World { chance, ..World::new() };
        let found = world.resolve(&format!("{given} load_balance_hosts=random"));
        let keywords: Vec<_> = found.iter().collect();
        let again = resolve("", &keywords, &World { chance: chance + 1, ..World::new() }).unwrap();
        assert_eq!(found.get("load_balance_hosts"), Some("disable"));
        assert_eq!(shown(&again), shown(&found), "{keywords:?}");
    }
    let given = |chance| shown(&World { chance, ..World::new() }.resolve("host=a,b,c"));
    assert!((0..20).all(|chance| given(chance) == given(0)), "without it they keep their order");
}

#[test]
fn one_process_draws_the_order_of_random_hosts_once() {
    let dsn = "host=a,b,c,d,e,f load_balance_hosts=random";
    let found = || shown(&resolve(dsn, &[], &ProcessEnvironment).unwrap());
    assert!((0..20).all(|_| found() == found()));
}

#[test]
fn targets_are_read() {
    let found = World::new().resolve("target_session_attrs=prefer-standby");
    assert_eq!(found.target_session_attrs(), TargetSessionAttrs::PreferStandby);
    assert_eq!(World::new().resolve("").target_session_attrs(), TargetSessionAttrs::Any);
}
